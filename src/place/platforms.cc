#include "place/platforms.h"

namespace lockstep::place {

const Names kNodeCountNames = {"NNODES", "NUM_NODES", "NODE_COUNT"};
const Names kNodeRankNames = {"NODE_RANK"};
const Names kRanksPerNodeNames = {"NPROC_PER_NODE", "PROC_PER_NODE", "GPU_NUM_PER_NODE", "GPUS_PER_NODE",
                                  "NUM_GPUS_PER_NODE"};

namespace {

const Names kTorchNodes = {"GROUP_WORLD_SIZE"};
const Names kTorchNodeRank = {"GROUP_RANK"};
const Names kLocalSize = {"LOCAL_WORLD_SIZE"};

const std::vector<Trap> kSlurmDescribesTheDaemon = {
    {"SLURM_STEP_TASKS_PER_NODE", "inside mpirun the step is that of its daemon, not of the job"},
    {"SLURM_PROCID", "inside mpirun this is the rank of its daemon"},
};

std::vector<Platform> MakePlatforms() {
  std::vector<Platform> rows;

  // --- workers of other launchers ---
  rows.push_back({.name = "lockstep-worker",
                  .what = "a worker started by lockstep",
                  .signs = {{{"LOCKSTEP_RUN_ID"}, {"LOCAL_RANK", Want::kDigits}, {"RANK"}}},
                  .rule = LevelRule::kWorker,
                  .nnodes = kTorchNodes,
                  .node_rank = kTorchNodeRank,
                  .nproc = kLocalSize,
                  .world = {"WORLD_SIZE"},
                  .rank = {"RANK"},
                  .local_rank = {"LOCAL_RANK"},
                  .job_id = {"LOCKSTEP_RUN_ID"}});
  rows.push_back({.name = "ray-worker",
                  .what = "a worker of Ray Train",
                  .signs = {{{"RAY_JOB_ID"}, {"RANK"}, {"LOCAL_RANK", Want::kDigits}},
                            {{"RAY_RAYLET_PID"}, {"RANK"}, {"LOCAL_RANK", Want::kDigits}},
                            {{"RAY_TRAIN_*"}, {"RANK"}, {"LOCAL_RANK", Want::kDigits}}},
                  .rule = LevelRule::kWorker,
                  .node_rank = {"NODE_RANK", "GROUP_RANK"},
                  .nproc = kLocalSize,
                  .world = {"WORLD_SIZE"},
                  .rank = {"RANK"},
                  .local_rank = {"LOCAL_RANK"},
                  .job_id = {"RAY_JOB_ID"}});
  rows.push_back({.name = "accelerate-worker",
                  .what = "a worker started by accelerate",
                  // accelerate's launcher for a single process sets no rank, but always these two.
                  .signs = {{{"ACCELERATE_*"}, {"RANK"}, {"LOCAL_RANK", Want::kDigits}},
                            {{"ACCELERATE_MIXED_PRECISION"}, {"ACCELERATE_DYNAMO_BACKEND"}, {"RANK", Want::kAbsent}}},
                  .rule = LevelRule::kWorker,
                  .nnodes = kTorchNodes,
                  .node_rank = kTorchNodeRank,
                  .nproc = kLocalSize,
                  .world = {"WORLD_SIZE"},
                  .rank = {"RANK"},
                  .local_rank = {"LOCAL_RANK"},
                  .job_id = {"TORCHELASTIC_RUN_ID"},
                  .one_node_unless_said = true});
  rows.push_back({.name = "deepspeed-worker",
                  .what = "a worker started by deepspeed",
                  .signs = {{{"CROSS_RANK"}, {"CROSS_SIZE"}, {"RANK"}, {"LOCAL_RANK", Want::kDigits}},
                            {{"LOCAL_SIZE"}, {"RANK"}, {"LOCAL_RANK", Want::kDigits}}},
                  .rule = LevelRule::kWorker,
                  .nnodes = {"CROSS_SIZE"},
                  .node_rank = {"CROSS_RANK"},
                  .nproc = {"LOCAL_SIZE"},
                  .world = {"WORLD_SIZE"},
                  .rank = {"RANK"},
                  .local_rank = {"LOCAL_RANK"}});
  rows.push_back({.name = "torchrun-worker",
                  .what = "a worker started by torchrun",
                  .signs = {{{"TORCHELASTIC_RUN_ID"}}},
                  .rule = LevelRule::kWorker,
                  .nnodes = kTorchNodes,
                  .node_rank = kTorchNodeRank,
                  .nproc = kLocalSize,
                  .world = {"WORLD_SIZE"},
                  .rank = {"RANK"},
                  .local_rank = {"LOCAL_RANK"},
                  .job_id = {"TORCHELASTIC_RUN_ID"}});
  rows.push_back({.name = "worker",
                  .what = "a worker of a launcher that speaks torchrun's names",
                  .signs = {{{"RANK"}, {"LOCAL_RANK", Want::kDigits}, {"LOCAL_WORLD_SIZE"}}},
                  .rule = LevelRule::kWorker,
                  .nnodes = kTorchNodes,
                  .node_rank = {"GROUP_RANK", "NODE_RANK"},
                  .nproc = kLocalSize,
                  .world = {"WORLD_SIZE"},
                  .rank = {"RANK"},
                  .local_rank = {"LOCAL_RANK"}});

  // --- Kubernetes operators that speak torchrun's PET_* names; the values themselves are read with the flags ---
  rows.push_back({.name = "trainjob-v2",
                  .what = "Kubeflow TrainJob v2",
                  .signs = {{{"PET_MASTER_ADDR", Want::kLike, "*-node-0-0.*"}}},
                  .hosts = HostPattern::kNumbered,
                  .traps = {{"JOB_COMPLETION_INDEX", "PET_NODE_RANK is this pod's index already"}}});
  rows.push_back({.name = "pytorchjob-v1",
                  .what = "Kubeflow PyTorchJob v1",
                  .signs = {{{"PET_NNODES"}, {"WORLD_SIZE"}, {"RANK"}},
                            {{"PET_NODE_RANK"}, {"WORLD_SIZE"}, {"RANK"}},
                            {{"PET_MASTER_ADDR", Want::kLike, "*-master-0*"}},
                            {{"PET_RDZV_ENDPOINT", Want::kLike, "*-worker-0*"}},
                            {{"PET_NNODES"}, {"KUBERNETES_SERVICE_HOST"}, {"@host", Want::kLike, "*-worker-*"}}},
                  .hosts = HostPattern::kMasterThenWorkers});

  // --- MPI ---
  rows.push_back({.name = "open-mpi",
                  .what = "Open MPI",
                  .signs = {{{"OMPI_COMM_WORLD_RANK"}, {"OMPI_COMM_WORLD_SIZE"}}},
                  .rule = LevelRule::kLocalSize,
                  .nnodes = {"OMPI_MCA_orte_num_nodes"},
                  .nproc = {"OMPI_COMM_WORLD_LOCAL_SIZE"},
                  .world = {"OMPI_COMM_WORLD_SIZE"},
                  .rank = {"OMPI_COMM_WORLD_RANK"},
                  .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
                  .job_id = {"SLURM_JOB_ID"},
                  .traps = {{"OMPI_COMM_WORLD_NODE_RANK", "the process's index on its own node, not the node's index"},
                            {"OMPI_MCA_orte_hnp_uri", "names mpirun's host, which need not be rank 0's"},
                            kSlurmDescribesTheDaemon[0],
                            kSlurmDescribesTheDaemon[1]}});
  rows.push_back({.name = "mvapich2",
                  .what = "MVAPICH2",
                  .signs = {{{"MV2_COMM_WORLD_RANK"}, {"MV2_COMM_WORLD_SIZE"}}},
                  .rule = LevelRule::kLocalSize,
                  .nproc = {"MV2_COMM_WORLD_LOCAL_SIZE"},
                  .world = {"MV2_COMM_WORLD_SIZE"},
                  .rank = {"MV2_COMM_WORLD_RANK"},
                  .local_rank = {"MV2_COMM_WORLD_LOCAL_RANK"},
                  .job_id = {"SLURM_JOB_ID"},
                  .traps = kSlurmDescribesTheDaemon});
  rows.push_back({.name = "hydra",
                  .what = "MPICH or Intel MPI (Hydra)",
                  .signs = {{{"PMI_RANK"}, {"PMI_SIZE"}, {"MPI_LOCALRANKID"}, {"MPI_LOCALNRANKS"}}},
                  .rule = LevelRule::kLocalSize,
                  .nproc = {"MPI_LOCALNRANKS"},
                  .world = {"PMI_SIZE"},
                  .rank = {"PMI_RANK"},
                  .local_rank = {"MPI_LOCALRANKID"},
                  .job_id = {"SLURM_JOB_ID"},
                  .traps = {kSlurmDescribesTheDaemon[0],
                            kSlurmDescribesTheDaemon[1],
                            {"SLURMD_NODENAME", "Hydra forwards the name of the host it was started on"}}});

  // --- SLURM: step, batch body, allocation shell; slurm.cc tells them apart ---
  rows.push_back({.name = "slurm",
                  .what = "SLURM",
                  .signs = {{{"SLURM_JOB_ID"}}, {{"SLURM_JOBID"}}},
                  .rule = LevelRule::kSlurm,
                  .job_id = {"SLURM_JOB_ID", "SLURM_JOBID"},
                  .traps = {{"SLURM_LAUNCH_NODE_IPADDR", "where srun was typed, not where rank 0 runs"}}});

  // Somebody outside SLURM and MPI set torchrun's variables: they are read with the flags, and mean one command per
  // node.
  rows.push_back({.name = "torchrun-env",
                  .what = "torchrun's PET_* variables",
                  .signs = {{{"PET_NNODES"}}, {{"PET_NODE_RANK"}}, {{"PET_MASTER_ADDR"}}, {{"PET_RDZV_ENDPOINT"}}},
                  .node_rank = {"NODE_RANK", "JOB_COMPLETION_INDEX"},
                  .one_node_unless_said = true});

  // --- process level said in so many words ---
  rows.push_back({.name = "bare-process",
                  .what = "RANK, LOCAL_RANK and WORLD_SIZE by process",
                  .signs = {{{"RANK"}, {"WORLD_SIZE"}, {"LOCAL_RANK", Want::kDigits}}},
                  .rule = LevelRule::kProcess,
                  .nnodes = kNodeCountNames,
                  .node_rank = kNodeRankNames,
                  .nproc = kRanksPerNodeNames,
                  .world = {"WORLD_SIZE"},
                  .rank = {"RANK"},
                  .local_rank = {"LOCAL_RANK"}});

  // --- providers ---
  rows.push_back({.name = "kubebrain-rjob",
                  .what = "KubeBrain rjob",
                  .signs = {{{"KUBEBRAIN_*"}, {"NODE_RANK"}}, {{"KUBEBRAIN_*"}, {"NODE_COUNT"}}},
                  .nnodes = {"NODE_COUNT", "KUBEBRAIN_REPLICA_TOTAL"},
                  .node_rank = {"NODE_RANK", "KUBEBRAIN_REPLICA"},
                  .nproc = {"PROC_PER_NODE"},
                  .job_id = {"KUBEBRAIN_RJOB_NAME"},
                  .hosts = HostPattern::kNumbered});
  rows.push_back({.name = "kubebrain",
                  .what = "KubeBrain with node counts under WORLD_SIZE and RANK",
                  .signs = {{{"KUBEBRAIN_*"}, {"WORLD_SIZE"}, {"RANK"}},
                            {{"MASTER_ADDR", Want::kLike, "jo-*-worker-0*"}, {"WORLD_SIZE"}, {"RANK"}}},
                  .nnodes = {"WORLD_SIZE"},
                  .node_rank = {"RANK"},
                  .nproc = kRanksPerNodeNames,
                  .hosts = HostPattern::kNumbered});
  rows.push_back({.name = "pai-dlc",
                  .what = "Aliyun PAI-DLC",
                  .signs = {{{"MASTER_ADDR", Want::kLike, "dlc*-master-0*"}, {"WORLD_SIZE"}, {"RANK"}},
                            {{"@host", Want::kLike, "dlc*-master-0*"}, {"WORLD_SIZE"}, {"RANK"}}},
                  .nnodes = {"WORLD_SIZE"},
                  .node_rank = {"RANK"},
                  .nproc = kRanksPerNodeNames,
                  .hosts = HostPattern::kMasterThenWorkers});
  rows.push_back(
      {.name = "pytorch-operator",
       .what = "the pytorch-operator before PET_*",
       .signs =
           {{{"MASTER_ADDR", Want::kLike, "*-master-0"}, {"WORLD_SIZE"}, {"RANK"}},
            {{"MASTER_ADDR", Want::kLike, "*-master-0.*"}, {"WORLD_SIZE"}, {"RANK"}},
            // it gives its master pod "localhost"
            {{"MASTER_PORT", Want::kLike, "23456"}, {"@host", Want::kLike, "*-master-0"}, {"WORLD_SIZE"}, {"RANK"}}},
       .nnodes = {"WORLD_SIZE"},
       .node_rank = {"RANK"},
       .nproc = kRanksPerNodeNames,
       .hosts = HostPattern::kMasterThenWorkers});
  rows.push_back({.name = "indexed-job",
                  .what = "a Kubernetes Indexed Job",
                  .signs = {{{"JOB_COMPLETION_INDEX"}}},
                  .nnodes = kNodeCountNames,
                  .node_rank = {"JOB_COMPLETION_INDEX"},
                  .nproc = kRanksPerNodeNames,
                  .hosts = HostPattern::kNumbered});

  // --- variables by hand, and variables whose meaning has to be found out ---
  rows.push_back({.name = "manual",
                  .what = "NNODES and NODE_RANK by hand",
                  .signs = {{{"NNODES"}}, {{"NUM_NODES"}}, {{"NODE_COUNT"}}, {{"NODE_RANK"}}},
                  .rule = LevelRule::kBare,
                  .nnodes = kNodeCountNames,
                  .node_rank = kNodeRankNames,
                  .nproc = kRanksPerNodeNames,
                  .world = {"WORLD_SIZE"},
                  .rank = {"RANK"},
                  .one_node_unless_said = true});
  rows.push_back({.name = "bare",
                  .what = "WORLD_SIZE and RANK without a platform's name",
                  .signs = {{{"WORLD_SIZE"}}, {{"RANK"}}},
                  .rule = LevelRule::kBare,
                  .nproc = kRanksPerNodeNames,
                  .world = {"WORLD_SIZE"},
                  .rank = {"RANK"},
                  .one_node_unless_said = true});
  rows.push_back({.name = "local",
                  .what = "the environment",
                  .signs = {},
                  .nproc = kRanksPerNodeNames,
                  .one_node_unless_said = true});
  return rows;
}

}  // namespace

const std::vector<Trap>& UnreadPlatforms() {
  static const std::vector<Trap> rows = {
      {"AWS_BATCH_JOB_NUM_NODES", "AWS Batch"},
      {"CLUSTER_SPEC", "Vertex AI"},
      {"FLUX_JOB_ID", "Flux"},
      {"JSM_NAMESPACE_RANK", "jsrun"},
      {"LEPTON_JOB_TOTAL_WORKERS", "DGX Lepton"},
      {"LSB_DJOB_HOSTFILE", "LSF"},
      {"MA_NUM_HOSTS", "ModelArts"},
      {"MLP_WORKER_NUM", "Volcengine MLP"},
      {"PALS_RANKID", "PALS"},
      {"PBS_NODEFILE", "PBS"},
      {"PMIX_RANK", "PMIx"},
      {"PMI_RANK", "PMI"},
      {"SKYPILOT_NUM_NODES", "SkyPilot"},
      {"SM_HOSTS", "SageMaker"},
      {"VC_TASK_INDEX", "Volcano"},
  };
  return rows;
}

const std::vector<Platform>& Platforms() {
  static const std::vector<Platform> rows = MakePlatforms();
  return rows;
}

}  // namespace lockstep::place

#include "submit/platforms.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace lockstep {
// The files of templates/, embedded (CMakeLists.txt).
// NOLINTBEGIN(readability-identifier-naming)
#define LOCKSTEP_TEMPLATE(name)               \
  extern const unsigned char submit_##name[]; \
  extern const size_t submit_##name##_size;
LOCKSTEP_TEMPLATE(slurm)
LOCKSTEP_TEMPLATE(kubernetes)
LOCKSTEP_TEMPLATE(pytorchjob)
LOCKSTEP_TEMPLATE(trainjob)
LOCKSTEP_TEMPLATE(volcano)
LOCKSTEP_TEMPLATE(kubebrain)
LOCKSTEP_TEMPLATE(lsf)
LOCKSTEP_TEMPLATE(pbs)
LOCKSTEP_TEMPLATE(ssh)
LOCKSTEP_TEMPLATE(environment)
LOCKSTEP_TEMPLATE(limits)
LOCKSTEP_TEMPLATE(mounts)
LOCKSTEP_TEMPLATE(nodes)
LOCKSTEP_TEMPLATE(pod)
LOCKSTEP_TEMPLATE(spread)
LOCKSTEP_TEMPLATE(token)
LOCKSTEP_TEMPLATE(variables)
LOCKSTEP_TEMPLATE(volumes)
LOCKSTEP_TEMPLATE(wait)
#undef LOCKSTEP_TEMPLATE
// NOLINTEND(readability-identifier-naming)
}  // namespace lockstep

namespace lockstep::submit {
namespace {

std::string_view Text(const unsigned char* bytes, size_t size) { return {reinterpret_cast<const char*>(bytes), size}; }

// What every object of Kubernetes has in common.
Platform OnKubernetes(std::string_view name, std::string_view what, std::string_view text, std::string_view kind) {
  Platform row;
  row.name = name;
  row.what = what;
  row.text = text;
  row.kind = kind;
  row.language = Language::kYaml;
  row.extension = "yaml";
  row.keys = {"image", "mounts", "secrets", "rdma", "shm", "queue", "namespace", "service_account", "workdir"};
  row.shared_folder = false;
  row.client = "kubectl";
  row.from = "kubernetes.io/docs/tasks/tools";
  row.here = {"config", "current-context"};
  row.here_space = {"config", "view", "--minify", "--output=jsonpath={.contexts[0].context.namespace}"};
  row.check = {"create", "--dry-run=server", "--filename=-", "--context={cluster}", "--namespace={namespace}"};
  row.submit = {"create", "--filename=-", "--context={cluster}", "--namespace={namespace}"};
  row.list = {"get",
              kind,
              "--selector=app.kubernetes.io/managed-by=lockstep",
              "--output=json",
              "--context={cluster}",
              "--namespace={namespace}"};
  row.pods = {"get",
              "pods",
              "--selector=app.kubernetes.io/instance={name}",
              "--output=json",
              "--context={cluster}",
              "--namespace={namespace}"};
  row.logs = {"logs",
              "--selector=app.kubernetes.io/instance={name}",
              "--prefix",
              "--max-log-requests=512",
              "{follow}",
              "--tail={lines}",
              "--since-time={since}",
              "--context={cluster}",
              "--namespace={namespace}"};
  // By its labels: a Service or Secret of that name may be somebody else's.
  row.cancel = {"delete",
                "{kind},services,secrets",
                "--selector=app.kubernetes.io/managed-by=lockstep,app.kubernetes.io/instance={name}",
                "--wait=false",
                "--context={cluster}",
                "--namespace={namespace}"};
  row.file_as_input = true;
  return row;
}

std::vector<Platform> MakeRows() {
  std::vector<Platform> rows;
  const std::vector<std::string_view> script = {"image",   "mounts", "secrets", "container", "queue",
                                                "account", "array",  "output",  "workdir",   "setup"};
  {
    Platform row;
    row.name = "slurm";
    row.what = "SLURM (sbatch)";
    row.text = Text(submit_slurm, submit_slurm_size);
    row.extension = "sbatch";
    row.keys = script;
    row.keys.emplace_back("partition");
    row.client = "sbatch";
    row.from = "Debian: slurm-client";
    row.check = {"--test-only", "{file}"};
    row.submit = {"--parsable", "{file}"};
    row.list = {"squeue", "--noheader", "--user={user}", "--clusters={cluster}", "--format=%i|%j|%T|%M|%D|%R"};
    row.show = {"scontrol", "--clusters={cluster}", "--oneliner", "show", "job", "{id}"};
    row.unknown_id = "Invalid job id";
    row.past = {"sacct",
                "--clusters={cluster}",
                "--jobs={id}",
                "--allocations",
                "--noheader",
                "--parsable2",
                "--format=JobID,JobName,State,Elapsed,NNodes,NodeList,ExitCode"};
    row.cancel = {"scancel", "--clusters={cluster}", "{id}"};
    row.silent_cancel = true;
    row.one_letter_flags = true;
    // Not --gpus-per-node and --mem, which can say more than gpus and memory (a100:8, 0).
    row.taken = {{"--job-name", "name"},
                 {"-J", "name"},
                 {"--nodes", "nodes"},
                 {"-N", "nodes"},
                 {"--ntasks", "ranks"},
                 {"-n", "ranks"},
                 {"--ntasks-per-node", "ranks"},
                 {"--cpus-per-task", "cpus"},
                 {"-c", "cpus"},
                 {"--time", "time"},
                 {"-t", "time"},
                 {"--signal", "grace"},
                 {"--output", "output"},
                 {"-o", "output"},
                 {"--array", "array"},
                 {"-a", "array"},
                 {"--partition", "partition"},
                 {"-p", "partition"},
                 {"--account", "account"},
                 {"-A", "account"},
                 {"--chdir", "workdir"},
                 {"-D", "workdir"},
                 {"--requeue", "restart.resumes"},
                 {"--no-requeue", "restart.resumes"}};
    rows.push_back(row);
  }
  {
    Platform row = OnKubernetes("kubernetes", "Kubernetes (Indexed Job)",
                                Text(submit_kubernetes, submit_kubernetes_size), "jobs.batch");
    row.placement = {"--nnodes={{nodes}}", "--master-addr={{name:plain}}-0.{{name:plain}}", "--master-port=29500"};
    rows.push_back(row);
  }
  rows.push_back(OnKubernetes("pytorchjob", "Kubeflow PyTorchJob v1", Text(submit_pytorchjob, submit_pytorchjob_size),
                              "pytorchjobs.kubeflow.org"));
  {
    Platform row = OnKubernetes("trainjob", "Kubeflow TrainJob v2", Text(submit_trainjob, submit_trainjob_size),
                                "trainjobs.trainer.kubeflow.org");
    row.keys.emplace_back("runtime");
    row.pod_keys = {"affinity",
                    "containers",
                    "imagePullSecrets",
                    "initContainers",
                    "nodeSelector",
                    "schedulingGates",
                    "securityContext",
                    "serviceAccountName",
                    "terminationGracePeriodSeconds",
                    "tolerations",
                    "volumes"};
    row.pods[2] = row.logs[1] = "--selector=jobset.sigs.k8s.io/jobset-name={name}";
    rows.push_back(row);
  }
  {
    Platform row =
        OnKubernetes("volcano", "Volcano Job", Text(submit_volcano, submit_volcano_size), "jobs.batch.volcano.sh");
    row.time_limit = false;
    row.placement = {"--nnodes={{nodes}}", "--node-rank=$(VC_TASK_INDEX)",
                     "--master-addr={{name:plain}}-worker-0.{{name:plain}}", "--master-port=29500"};
    rows.push_back(row);
  }
  {
    Platform row;
    row.name = "kubebrain";
    row.what = "KubeBrain (start script of every node)";
    row.text = Text(submit_kubebrain, submit_kubebrain_size);
    row.extension = "sh";
    row.keys = {"secrets", "workdir", "setup"};
    row.time_limit = false;
    row.from =
        "KubeBrain starts it on every node: give its path as the start script of the job, in KubeBrain's own page";
    rows.push_back(row);
  }
  {
    Platform row;
    row.name = "lsf";
    row.what = "IBM Spectrum LSF (bsub)";
    row.text = Text(submit_lsf, submit_lsf_size);
    row.extension = "lsf";
    row.keys = script;
    row.client = "bsub";
    row.from = "it comes with LSF: source its profile.lsf";
    row.submit = {};
    row.list = {"bjobs",     "-u", "{user}",
                "-noheader", "-o", "jobid job_name stat run_time nexec_host exec_host delimiter='|'"};
    row.show = {"bjobs",
                "-a",
                "-noheader",
                "-o",
                "jobid job_name stat run_time nexec_host exec_host exit_code exit_reason delimiter='|'",
                "{id}"};
    row.unknown_id = "is not found";
    row.nothing = "No unfinished job found";
    row.cancel = {"bkill", "{id}"};
    // Not -gpu and -R, which can say more than gpus (a model, a host).
    row.taken = {{"-J", "name"},
                 {"-n", "nodes and cpus"},
                 {"-M", "memory"},
                 {"-W", "time"},
                 {"-wa", "grace"},
                 {"-wt", "grace"},
                 {"-o", "output"},
                 {"-oo", "output"},
                 {"-q", "queue"},
                 {"-P", "account"},
                 {"-cwd", "workdir"},
                 {"-r", "restart.resumes"},
                 {"-rn", "restart.resumes"},
                 {"-Q", "restart.resumes"}};
    row.file_as_input = true;
    row.id = "Job <";
    rows.push_back(row);
  }
  {
    Platform row;
    row.name = "pbs";
    row.what = "PBS (qsub)";
    row.text = Text(submit_pbs, submit_pbs_size);
    row.extension = "pbs";
    row.keys = script;
    row.client = "qsub";
    row.from = "it comes with OpenPBS or PBS Professional";
    row.submit = {"{file}"};
    row.list = {"qstat", "-f"};
    // Without -x, which many sites refuse, also for a job that runs: they keep no history.
    row.show = {"qstat", "-f", "{id}"};
    row.past = {"qstat", "-x", "-f", "{id}"};
    row.unknown_id = "Unknown Job Id";
    row.cancel = {"qdel", "{id}"};
    row.one_letter_flags = true;
    row.taken = {
        {"-N", "name"},          {"-l select", "nodes, gpus, cpus and memory"},
        {"-l nodes", "nodes"},   {"-l ncpus", "cpus"},
        {"-l ngpus", "gpus"},    {"-l mem", "memory"},
        {"-l walltime", "time"}, {"-o", "output"},
        {"-q", "queue"},         {"-A", "account"},
        {"-J", "array"},         {"-v", "env"}};  // qsub -v, by which a job is submitted again, takes its place
    rows.push_back(row);
  }
  {
    Platform row;
    row.name = "ssh";
    row.what = "ssh (a script that starts every node)";
    row.text = Text(submit_ssh, submit_ssh_size);
    row.extension = "sh";
    row.keys = {"image", "mounts", "secrets", "container", "workdir", "output", "hosts", "setup"};
    row.client = "ssh";
    row.from = "Debian: openssh-client";
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

const std::vector<Platform>& Platforms() {
  static const std::vector<Platform> rows = MakeRows();
  return rows;
}

std::vector<std::string> PlatformNames() {
  std::vector<std::string> names;
  for (const Platform& row : Platforms()) names.emplace_back(row.name);
  return names;
}

Result<const Platform*> FindPlatform(const std::string& name) {
  for (const Platform& row : Platforms()) {
    if (row.name == name) return &row;
  }
  return Status(Code::kUsage,
                fmt::format("platform '{}' is unknown{}", Printable(name), DidYouMean(name, PlatformNames())),
                fmt::format("one of {}", Join(PlatformNames(), ", ")));
}

const std::map<std::string, std::string_view>& TemplateParts() {
#define LOCKSTEP_PART(name) {#name, Text(submit_##name, submit_##name##_size)}
  static const std::map<std::string, std::string_view> parts = {
      LOCKSTEP_PART(environment), LOCKSTEP_PART(limits), LOCKSTEP_PART(mounts), LOCKSTEP_PART(nodes),
      LOCKSTEP_PART(pod),         LOCKSTEP_PART(spread), LOCKSTEP_PART(token),  LOCKSTEP_PART(variables),
      LOCKSTEP_PART(volumes),     LOCKSTEP_PART(wait)};
#undef LOCKSTEP_PART
  return parts;
}

Detected Detect(const Environment& env, bool has_hosts, const FindProgram& find) {
  Detected out;
  const auto choose = [&](std::string_view name, std::string evidence) {
    out.platform = *FindPlatform(std::string(name));
    out.evidence.push_back(std::move(evidence));
  };
  if (has_hosts) {
    choose("ssh", "the job names hosts: ssh");
    return out;
  }
  for (const auto& [name, value] : env) {
    if (!name.starts_with("KUBEBRAIN_")) continue;
    choose("kubebrain", fmt::format("{} is set: kubebrain", name));
    return out;
  }
  // Kubernetes has several kinds of jobs and one client: the plain Job is the one every cluster has.
  std::vector<const Platform*> found;
  for (const char* name : {"slurm", "lsf", "pbs", "kubernetes"}) {
    const Platform* row = *FindPlatform(name);
    const std::string path = find(std::string(row->client));
    if (path.empty()) continue;
    found.push_back(row);
    out.evidence.push_back(fmt::format("{} is {}: {}", row->client, path, name));
  }
  if (found.size() == 1) out.platform = found[0];
  return out;
}

}  // namespace lockstep::submit

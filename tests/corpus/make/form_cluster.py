"""SLURM, Kubernetes, file systems, kernel and MPI, written after the form where they cannot be caused here."""

from forms import LOOP, Log, dmesg, keep
from register import AGAIN, ANY, ELSEWHERE, USER, case

FORM = "after the form"
NOT_NOW = ["yes", "after-fix", "no"]


def describe(name, node, state, events, last="", image="registry.example.org/train/vla:2026.03", message=""):
    """kubectl describe pod."""
    return f"""Name:             {name}
Namespace:        training
Priority:         0
Service Account:  default
Node:             {node}
Start Time:       Sat, 14 Mar 2026 02:11:40 +0000
Labels:           training.kubeflow.org/job-name=vla-pretrain
                  training.kubeflow.org/replica-type=worker
Annotations:      <none>
{message}IP:               10.244.3.17
Controlled By:    PyTorchJob/vla-pretrain
Containers:
  pytorch:
    Container ID:  containerd://5d1f0c7a9b3e4f21
    Image:         {image}
    Port:          23456/TCP
    Command:
      torchrun
      train.py
{state}{last}    Limits:
      cpu:             96
      memory:          900Gi
      nvidia.com/gpu:  8
    Environment:
      NCCL_DEBUG:   INFO
      WORLD_SIZE:   16
Conditions:
  Type              Status
  Initialized       True
  Ready             False
  ContainersReady   False
  PodScheduled      True
QoS Class:         Guaranteed
Events:
  Type     Reason     Age                From               Message
  ----     ------     ----               ----               -------
{events}"""


@case("slurm-oom-kill-step-srun", "srun", ["oom-slurm", "oom-srun", "oom-cgroup"], ["oom_kill", "Out Of Memory"], USER, "a task of the step used more memory than the job asked for", rank=[5, None], node=["c214", None], made=FORM)
def _(s):
    """slurmstepd and srun; the Python side only sees a killed process."""
    log = Log(50, hosts=("c213", "c214"), ranks=8).warnings().hf(10, 80)
    log.say("slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step tasks have been OOM Killed.", "srun: error: c214: task 5: Out Of Memory", "srun: Terminating StepId=11300781.0",
            "slurmstepd: error: *** STEP 11300781.0 ON c213 CANCELLED AT 2026-03-14T02:19:44 ***", "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
            *[f"srun: error: {h}: tasks {t}: Terminated" for h, t in (("c213", "0-3"), ("c214", "4,6-7"))])
    keep(s, slurm_11300781_out=log)


@case("slurm-preempted-sbatch", "sbatch", ["slurm-preempt", "preempted"], ["PREEMPTION"], AGAIN, "a job of higher priority took the nodes", rank=None, made=FORM)
def _(s):
    """SIGTERM first, then the cancellation."""
    log = Log(51, hosts=("c001", "c002"), ranks=16).hf(10, 120)
    log.say("slurmstepd: error: *** STEP 4242.0 ON c001 CANCELLED AT 2026-03-14T02:21:00 DUE TO PREEMPTION ***", "srun: Job step aborted: Waiting up to 62 seconds for job step to finish.",
            "W0314 02:21:00.412 3391 torch/distributed/elastic/agent/server/api.py:704] Received Signals.SIGTERM death signal, shutting down workers",
            *[f"W0314 02:21:00.{420 + r} 3391 torch/distributed/elastic/multiprocessing/api.py:897] Sending process {log.pid(r)} closing signal SIGTERM" for r in range(8)],
            *log.trace(0, [("/opt/conda/bin/torchrun", 8, "<module>", "sys.exit(main())"), ("/opt/conda/lib/python3.10/site-packages/torch/distributed/elastic/multiprocessing/api.py", 84, "_terminate_process_handler", "raise SignalException(f\"Process {os.getpid()} got signal: {sigval}\", sigval=sigval)")],
                       "torch.distributed.elastic.multiprocessing.api.SignalException: Process 3391 got signal: 15", tag=False),
            "slurmstepd: error: *** JOB 4242 ON c001 CANCELLED AT 2026-03-14T02:21:00 DUE TO PREEMPTION ***")
    keep(s, slurm_4242_out=log)


@case("slurm-time-limit-while-hung-sbatch", "sbatch", ["slurm-time", "hang"], ["TIME LIMIT"], ANY, "the run stood still at step 610 for hours until its time limit", rank=None, made=FORM)
def _(s):
    """Progress stops at 04:00, the limit comes at 12:00."""
    log = Log(52, ranks=8)
    for step in range(10, 620, 20):
        log.wait(60)
        log.say(f"[{log.iso()}] step: {step} loss: {7 / (1 + step / 90):.4f} grad_norm: 1.{step % 9}1 memory: 61.20GiB(77%) tps: 5,431 mfu: 41.20%")
    log.wait(8 * 3600)
    log.say("slurmstepd: error: *** JOB 88121 ON c017 CANCELLED AT 2026-03-14T10:42:07 DUE TO TIME LIMIT ***", "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
            "slurmstepd: error: *** STEP 88121.0 ON c017 CANCELLED AT 2026-03-14T10:42:07 DUE TO TIME LIMIT ***")
    keep(s, slurm_88121_out=log)


@case("slurm-node-fail-16-ranks", "srun", ["slurm-nodefail", "node-lost"], ["NODE FAILURE", "Node failure"], ELSEWHERE, "node c118 failed", rank=None, node=["c118", None], made=FORM)
def _(s):
    """NCCL's ranks on the other node time out or lose their peers first."""
    log = Log(53, hosts=("c117", "c118"), ranks=16).nccl_start().hf(10, 210)
    log.mixed(*[log.nccl_lost(r, "c118") for r in (0, 2, 5)])
    log.say("srun: error: Node failure on c118", "slurmstepd: error: *** STEP 9917.0 ON c117 CANCELLED AT 2026-03-14T02:31:12 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
            "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", "slurmstepd: error: *** JOB 9917 ON c117 CANCELLED AT 2026-03-14T02:31:12 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***")
    keep(s, slurm_9917_out=log)


@case("slurm-pyxis-image-import-failed", "srun", ["slurm-pyxis", "k8s-image"], ["pyxis"], ANY, "the container image could not be imported", rank=None, made=FORM)
def _(s):
    """enroot's own error is above."""
    keep(s, slurm_1201_out="""+ srun --container-image=registry.example.org#train/vla:2026.03 --container-mounts=/lustre:/lustre python train.py
pyxis: importing docker image: registry.example.org#train/vla:2026.03
slurmstepd: error: pyxis: child 41121 failed with error code: 1
slurmstepd: error: pyxis: failed to import docker image
slurmstepd: error: pyxis: printing enroot log file:
slurmstepd: error: pyxis:     [INFO] Querying registry for permission grant
slurmstepd: error: pyxis:     [INFO] Authenticating with user: <anonymous>
slurmstepd: error: pyxis:     [ERROR] URL https://registry.example.org/v2/train/vla/manifests/2026.03 returned error code: 401 Unauthorized
slurmstepd: error: pyxis: couldn't start container
slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1
slurmstepd: error: Failed to invoke spank plugin stack
srun: error: c044: task 0: Exited with exit code 1
""")


@case("k8s-oom-killed-worker-1", "kubernetes", ["k8s-oom"], ["OOMKilled"], USER, "the container of worker 1 used more memory than its limit", rank=None, node=["gpu-node-5", "vla-pretrain-worker-1", None], made=FORM)
def _(s):
    """kubectl describe and kubectl logs of the two workers."""
    state = "    State:          Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n      Started:      Sat, 14 Mar 2026 02:11:44 +0000\n      Finished:     Sat, 14 Mar 2026 03:02:10 +0000\n    Ready:          False\n    Restart Count:  0\n"
    log = Log(54, hosts=("vla-pretrain-worker-0",), ranks=8).banner().warnings().hf(10, 60)
    log.mixed(*[log.nccl_lost(r, "vla-pretrain-worker-1") for r in (0, 3)])
    other = Log(55, hosts=("vla-pretrain-worker-1",), ranks=8).banner().hf(10, 50)
    keep(s, describe_worker_1_txt=describe("vla-pretrain-worker-1", "gpu-node-5/10.0.0.15", state, "  Normal   Scheduled  51m   default-scheduler  Successfully assigned training/vla-pretrain-worker-1 to gpu-node-5\n  Normal   Pulled     51m   kubelet            Container image already present on machine\n  Normal   Started    51m   kubelet            Started container pytorch\n"),
         worker_0_log=log, worker_1_log=other)


@case("k8s-evicted-ephemeral-storage", "kubernetes", ["k8s-evict"], ["low on resource", "Evicted"], ELSEWHERE + ["no"], "the pod wrote too much to the node's disk and was evicted", rank=None, made=FORM)
def _(s):
    """kubectl describe."""
    keep(s, describe_txt=describe("vla-pretrain-master-0", "gpu-node-2/10.0.0.12", "    State:          Terminated\n      Reason:       Error\n      Exit Code:    143\n    Ready:          False\n", "  Warning  Evicted   3m   kubelet  The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 2311Mi. Container pytorch was using 412Gi, request is 0, has larger consumption of ephemeral-storage.\n  Normal   Killing   3m   kubelet  Stopping container pytorch\n",
                                  message="Status:           Failed\nReason:           Evicted\nMessage:          The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 2311Mi. Container pytorch was using 412Gi, request is 0, has larger consumption of ephemeral-storage. \n"),
         pod_log=Log(56, ranks=8).banner().hf(10, 90))


@case("k8s-image-pull-back-off", "kubernetes", ["k8s-image"], ["ImagePullBackOff", "Back-off pulling image", "ErrImagePull"], USER + ["yes"], "the image cannot be pulled", rank=None, made=FORM)
def _(s):
    """Events only: there is no log of the container."""
    keep(s, describe_txt=describe("vla-pretrain-worker-3", "gpu-node-7/10.0.0.17", "    State:          Waiting\n      Reason:       ImagePullBackOff\n    Ready:          False\n    Restart Count:  0\n", """  Normal   Scheduled  4m                    default-scheduler  Successfully assigned training/vla-pretrain-worker-3 to gpu-node-7
  Normal   Pulling    2m (x4 over 4m)       kubelet            Pulling image "registry.example.org/train/vla:2026.3"
  Warning  Failed     2m (x4 over 4m)       kubelet            Failed to pull image "registry.example.org/train/vla:2026.3": rpc error: code = NotFound desc = failed to pull and unpack image "registry.example.org/train/vla:2026.3": failed to resolve reference: registry.example.org/train/vla:2026.3: not found
  Warning  Failed     2m (x4 over 4m)       kubelet            Error: ErrImagePull
  Normal   BackOff    11s (x12 over 4m)     kubelet            Back-off pulling image "registry.example.org/train/vla:2026.3"
  Warning  Failed     11s (x12 over 4m)     kubelet            Error: ImagePullBackOff
"""))


@case("k8s-unschedulable-gpus", "kubernetes", ["k8s-sched"], ["Insufficient nvidia.com/gpu"], NOT_NOW, "no node has enough free GPUs", rank=None, made=FORM)
def _(s):
    """kubectl get events."""
    keep(s, events_txt="""LAST SEEN   TYPE      REASON             OBJECT                        MESSAGE
8m          Normal    SuccessfulCreatePod      pytorchjob/vla-pretrain       Created pod: vla-pretrain-master-0
8m          Normal    SuccessfulCreatePod      pytorchjob/vla-pretrain       Created pod: vla-pretrain-worker-0
8m          Warning   FailedScheduling   pod/vla-pretrain-master-0     0/12 nodes are available: 3 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 9 Insufficient nvidia.com/gpu. preemption: 0/12 nodes are available: 3 Preemption is not helpful for scheduling, 9 No preemption victims found for incoming pod.
3m          Warning   FailedScheduling   pod/vla-pretrain-worker-0     0/12 nodes are available: 3 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 9 Insufficient nvidia.com/gpu. preemption: 0/12 nodes are available: 3 Preemption is not helpful for scheduling, 9 No preemption victims found for incoming pod.
""")


@case("k8s-worker-import-error-crash-loop", "kubernetes", ["py-import", "py-exception"], ["cannot import name"], USER, "the image has a transformers version without the class that the program wants", rank=None, made=FORM)
def _(s):
    """Events say CrashLoopBackOff; the log of the container says why."""
    keep(s, events_txt="""LAST SEEN   TYPE      REASON    OBJECT                      MESSAGE
2m          Normal    Pulled    pod/vla-pretrain-worker-0   Container image "registry.example.org/train/vla:2026.03" already present on machine
2m          Normal    Started   pod/vla-pretrain-worker-0   Started container pytorch
14s         Warning   BackOff   pod/vla-pretrain-worker-0   Back-off restarting failed container pytorch in pod vla-pretrain-worker-0_training(9f1c)
""", worker_0_log="""2026-03-14T02:12:01.331Z  INFO entrypoint: 2 nodes, 8 GPUs each
2026-03-14T02:12:09.870Z /opt/conda/lib/python3.10/site-packages/timm/models/layers/__init__.py:48: FutureWarning: Importing from timm.models.layers is deprecated, please import via timm.layers
Traceback (most recent call last):
  File "/workspace/train.py", line 14, in <module>
    from transformers import Qwen2_5_VLForConditionalGeneration, AutoProcessor
ImportError: cannot import name 'Qwen2_5_VLForConditionalGeneration' from 'transformers' (/opt/conda/lib/python3.10/site-packages/transformers/__init__.py)
""")


@case("k8s-nvidia-container-cli", "kubernetes", ["nv-container", "oci-create", "nvml-mismatch"], ["nvidia-container-cli"], ELSEWHERE + ["no"], "the driver of the node does not fit its libraries: containers with GPUs cannot start", rank=None, node=["gpu-node-9", None], made=FORM)
def _(s):
    """Events only."""
    keep(s, describe_txt=describe("vla-pretrain-worker-1", "gpu-node-9/10.0.0.19", "    State:          Waiting\n      Reason:       RunContainerError\n    Last State:     Terminated\n      Reason:       StartError\n      Exit Code:    128\n    Ready:          False\n", """  Normal   Pulled     20s (x3 over 41s)  kubelet  Container image already present on machine
  Warning  Failed     20s (x3 over 41s)  kubelet  Error: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'
nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown
  Warning  BackOff    5s (x4 over 39s)   kubelet  Back-off restarting failed container pytorch in pod vla-pretrain-worker-1
"""))


@case("k8s-node-not-ready-pytorchjob", "kubernetes", ["k8s-node", "node-lost"], ["NodeNotReady", "not ready"], ELSEWHERE, "the node of worker 1 went away", rank=None, node=["gpu-node-4", None], made=FORM)
def _(s):
    """Events, and the master's log that times out."""
    log = Log(57, hosts=("vla-pretrain-master-0", "vla-pretrain-worker-0"), ranks=16).banner().hf(10, 150).wait(600)
    log.mixed(*[log.watchdog(r, 7001) for r in (0, 1, 4)])
    keep(s, events_txt="""LAST SEEN   TYPE      REASON             OBJECT                      MESSAGE
14m         Normal    NodeNotReady       node/gpu-node-4             Node gpu-node-4 status is now: NodeNotReady
14m         Warning   NodeNotReady       pod/vla-pretrain-worker-0   Node is not ready
9m          Normal    TaintManagerEviction   pod/vla-pretrain-worker-0   Marking for deletion Pod training/vla-pretrain-worker-0
""", master_0_log=log)


@case("k8s-exit-code-137-only", "kubernetes", ["exit-sigkill", "k8s-oom", "exit-code"], ["137"], ANY, "the container was killed with SIGKILL; nothing says by whom", rank=None, made=FORM)
def _(s):
    """kubectl describe with Reason: Error, Exit Code: 137."""
    keep(s, describe_txt=describe("vla-pretrain-master-0", "gpu-node-2/10.0.0.12", "    State:          Terminated\n      Reason:       Error\n      Exit Code:    137\n      Started:      Sat, 14 Mar 2026 02:11:44 +0000\n      Finished:     Sat, 14 Mar 2026 09:40:02 +0000\n    Ready:          False\n    Restart Count:  0\n", "  <none>\n"),
         master_0_log=Log(58, ranks=8).banner().hf(10, 100))


@case("mpi-daemon-lost", "mpirun", ["mpi-lost", "node-lost"], ["lost communication with a remote daemon"], ELSEWHERE, "mpirun lost its daemon on node c-09", rank=None, node=["c-09", None], made=FORM)
def _(s):
    """Open MPI's frame."""
    log = Log(59, hosts=("c-08", "c-09"), ranks=16)
    for step in range(0, 200, 20):
        log.say(f"[1,0]<stdout>:iter {step}: loss {4.5 - step / 90:.4f}, time 123.40ms, mfu 31.02%")
    log.say("-" * 74, "ORTE has lost communication with a remote daemon.", "", "  HNP daemon   : [[18211,0],0] on node c-08", "  Remote daemon: [[18211,0],1] on node c-09", "",
            "This is usually due to either a failure of the TCP network", "connection to the node, or possibly an internal failure of", "the daemon itself. We cannot recover from this failure, and", "therefore will terminate the job.", "-" * 74)
    keep(s, mpi_log=log)


@case("nfs-stale-handle-rank6-of-8", "torchrun", ["fs-estale"], ["Stale file handle"], ELSEWHERE + ["no"], "the file system under rank 6 lost a file handle", rank=6, made=FORM)
def _(s):
    """OSError 116 in a loader worker of rank 6."""
    log = Log(60).banner().hf(10, 140)
    log.mixed(log.trace(6, LOOP[:4] + [("/opt/conda/lib/python3.10/site-packages/torch/utils/data/dataloader.py", 1480, "_process_data", "data.reraise()"), ("/opt/conda/lib/python3.10/site-packages/torch/_utils.py", 706, "reraise", "raise exception")],
                        'OSError: Caught OSError in DataLoader worker process 3.\nOriginal Traceback (most recent call last):\n  File "/opt/conda/lib/python3.10/site-packages/torch/utils/data/_utils/worker.py", line 351, in _worker_loop\n    data = fetcher.fetch(index)  # type: ignore[possibly-undefined]\n  File "/workspace/data.py", line 77, in __getitem__\n    with open(path, "rb") as file:\nOSError: [Errno 116] Stale file handle: \'/mnt/nfs/frames/00812/0031.png\'\n'),
              *[log.nccl_lost(r, "gpu-01") for r in (5, 7)])
    keep(s, train_log=log.elastic(6, 1, [0, 1, 2, 3, 4, 5, 7]))


@case("nfs-server-not-responding-hang", "torchrun", ["fs-nfs-hang", "hung-task", "hang"], ["not responding", "blocked for more than"], ANY, "the NFS server does not answer; the run stands still", rank=None, made=FORM)
def _(s):
    """No error in the program's log: it just stops. The kernel says why."""
    keep(s, train_log=Log(61).banner().hf(10, 160), dmesg_txt=dmesg(["docker0: port 2(veth91ac) entered forwarding state", "nfs: server 10.0.0.9 not responding, still trying", "nfs: server 10.0.0.9 not responding, still trying",
         "INFO: task python:41273 blocked for more than 120 seconds.", "      Not tainted 5.15.0-101-generic #111-Ubuntu", "\"echo 0 > /proc/sys/kernel/hung_task_timeout_secs\" disables this message."]))


@case("input-output-error-nvme-rank3-of-8", "torchrun", ["fs-eio", "kmsg-nvme", "kmsg-bufio"], ["Input/output error", "nvme", "I/O error"], ELSEWHERE + ["no"], "the local NVMe disk under rank 3 fails", rank=[3, None], made=FORM)
def _(s):
    """OSError 5 and the kernel's lines."""
    log = Log(62).banner().hf(10, 120)
    log.mixed(log.trace(3, LOOP[:4] + [("/workspace/data.py", 51, "__getitem__", "blob = self.file.read(size)")], "OSError: [Errno 5] Input/output error"), *[log.nccl_lost(r, "gpu-01") for r in (1, 4)])
    log.elastic(3, 1, [0, 1, 2, 4, 5, 6, 7])
    keep(s, train_log=log, dmesg_txt=dmesg(["nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Read) QID 7 timeout, aborting req_op:READ(0) size:131072", "nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller",
         "blk_update_request: I/O error, dev nvme4n1, sector 2211840 op 0x0:(READ) flags 0x80700 phys_seg 4 prio class 0", "Buffer I/O error on dev nvme4n1, logical block 276480, async page read"]))


@case("disk-quota-checkpoint-rank0-of-16", "torchrun", ["fs-edquot"], ["Disk quota exceeded"], USER, "the quota of the user is used up; rank 0 cannot write the checkpoint", rank=0, made=FORM)
def _(s):
    """The same exception text as Python's; the others time out later."""
    log = Log(63, hosts=("n-001", "n-002"), ranks=16).banner().hf(10, 500, every=20)
    log.say("Saving model checkpoint to /home/user/out/checkpoint-500", *log.trace(0, LOOP[:3] + [("/opt/conda/lib/python3.10/site-packages/transformers/trainer.py", 3201, "_save_checkpoint", "self.save_model(output_dir, _internal_call=True)"), ("/opt/conda/lib/python3.10/site-packages/safetensors/torch.py", 286, "save_file", "serialize_file(_flatten(tensors), filename, metadata=metadata)")],
            "OSError: [Errno 122] Disk quota exceeded"))
    log.wait(3).mixed(*[log.nccl_lost(r, "n-001") for r in (1, 8, 9)])
    keep(s, train_log=log.elastic(0, 1, [1, 2, 3, 4, 5, 6, 7]))


@case("soft-lockup-second-node", "torchrun", ["soft-lockup", "mce"], ["soft lockup", "Machine check"], ELSEWHERE, "the processor of the second node hangs", rank=None, made=FORM)
def _(s):
    """The watchdogs of the other node's ranks, and the kernel log of the second node."""
    log = Log(64, hosts=("n-031", "n-032"), ranks=16).banner().hf(10, 90).wait(600)
    log.mixed(*[log.watchdog(r, 661) for r in range(0, 8, 2)])
    log.elastic(0, -6, [2, 4, 6], other_code=-6)
    keep(s, train_log=log, n_032_dmesg_txt=dmesg(["mce: [Hardware Error]: Machine check events logged", "watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python:4242]", "Modules linked in: nvidia_uvm(OE) nvidia(OE) mlx5_ib(OE)", "watchdog: BUG: soft lockup - CPU#12 stuck for 48s! [python:4242]"]))


@case("fortran-abort-mpi", "mpirun", ["exit-sigsegv", "mpi-abort", "fortran"], ["forrtl", "SIGSEGV"], ANY, "the Fortran part of rank 3 crashed", rank=[3, None], made=FORM)
def _(s):
    """Intel Fortran's traceback and MPI's abort."""
    log = Log(65, hosts=("c-01",), ranks=4)
    for step in range(0, 100, 10):
        log.say(f"[1,0]<stdout>: step {step:6d}   energy = -1.{step:04d}E+03   error estimate = {1.0 / (step + 1):.3E}")
    log.say("[1,3]<stderr>:forrtl: severe (174): SIGSEGV, segmentation fault occurred", "[1,3]<stderr>:Image              PC                Routine            Line        Source",
            "[1,3]<stderr>:libpthread-2.31.s  00007F3A1B9C2420  Unknown               Unknown  Unknown", "[1,3]<stderr>:solver             0000000000412F3B  advance_                  211  advance.f90", "[1,3]<stderr>:solver             000000000040A8F2  MAIN__                     88  main.f90",
            "-" * 74, "Primary job  terminated normally, but 1 process returned", "a non-zero exit code. Per user-direction, the job has been aborted.", "-" * 74, "-" * 74,
            "mpirun detected that one or more processes exited with non-zero status, thus causing", "the job to be terminated. The first process to do so was:", "", "  Process name: [[21713,1],3]", "  Exit code:    174", "-" * 74)
    keep(s, mpi_log=log)

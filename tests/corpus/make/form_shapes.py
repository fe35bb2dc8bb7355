"""Further failures and shapes, written after the form."""

import form_cluster
import form_software
from form_gpu import KERNEL_NOISE
from forms import CUDA_ADVICE, FORWARD, INIT, LOOP, OOM_TEXT, Log, dmesg, keep
from register import AGAIN, ANY, ELSEWHERE, USER, case

FORM = "after the form"
PY = "py-exception"
NCCL_SYS = "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \nLast error:\n"
NCCL_CUDA = "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"


def kubectl(log, pod):
    """kubectl logs --prefix --timestamps."""
    return [f"[pod/{pod}/pytorch] 2026-03-14T{log.micro()}Z {part}" for line in log.lines for part in line.replace("\r", "\n").split("\n") if part]


@case("cuda-oom-kubectl-prefix-rank11-of-16", "kubernetes", ["cuda-oom"], ["CUDA out of memory"], USER, "rank 11, in pod worker-0, ran out of GPU memory", rank=11, node=["vla-worker-0", "gpu-02", None], made=FORM)
def _(s):
    """Two pods in one stream; the master's pod comes first and only lost its peers."""
    a = Log(200, hosts=("vla-master-0", "vla-worker-0"), ranks=16).banner().hf(10, 60)
    b = Log(201, hosts=("vla-master-0", "vla-worker-0"), ranks=16).banner()
    b.clock = a.clock
    b.say(*b.trace(11, FORWARD, OOM_TEXT.format(want="3.12", gpu=3, free="2.01", used="77.0", alloc="74.1")))
    a.wait(2).mixed(*[a.nccl_lost(r, "vla-worker-0") for r in (0, 3, 7)])
    b.wait(3).mixed(*[b.nccl_lost(r, "vla-worker-0") for r in (10, 12)])
    b.elastic(11, 1, [8, 9, 10, 12, 13, 14, 15])
    out = Log(202)
    keep(s, kubectl_log=out.say(*kubectl(a, "vla-master-0"), *kubectl(b, "vla-worker-0")))


@case("rich-traceback-typer-plain", "plain", PY, ["ValueError", "num_frames"], USER, "num_frames is not a multiple of 4", rank=None, made=FORM)
def _(s):
    """rich's box around a traceback, as typer programs print it."""
    w = 98
    rows = ["/workspace/cli.py:41 in train", "", "   38 \u2502   config = load(path)", "   39 \u2502   model = build(config)", " \u2771 41 \u2502   fit(model, config)", "   42", "",
            "/workspace/fit.py:118 in fit", "", "  117 \u2502   if config.num_frames % 4:", " \u2771 118 \u2502   \u2502   raise ValueError(f\"num_frames {config.num_frames} is not a multiple of 4\")", "  119"]
    box = ["\u256d" + "\u2500" * 31 + " Traceback (most recent call last) " + "\u2500" * 32 + "\u256e", *["\u2502 " + r.ljust(w - 2) + " \u2502" for r in rows], "\u2570" + "\u2500" * w + "\u256f"]
    keep(s, train_log="\n".join(["[03/14/26 02:11:02] INFO     loading config base.yaml                              cli.py:36", "                    WARNING  no validation set given, metrics will be missing      cli.py:37", *box, "ValueError: num_frames 19 is not a multiple of 4", ""]))


@case("nccl-cuda-oom-in-init-8-ranks", "torchrun", ["nccl-cuda-oom", "cuda-oom", "cuda-oom-ctx"], ["out of memory"], USER, "no GPU memory is left for NCCL's buffers", rank=[5, None], made=FORM)
def _(s):
    """NCCL's own allocation fails on rank 5."""
    log = Log(203).banner().nccl_start()
    log.mixed([log.nccl(5, "transport/p2p.cc:275 NCCL WARN Cuda failure 2 'out of memory'"), log.nccl(5, "NCCL INFO transport/p2p.cc:352 -> 1"), *log.trace(5, INIT, NCCL_CUDA + "Cuda failure 2 'out of memory'")], *[log.nccl_lost(r, "gpu-01", frames=INIT) for r in (0, 4, 6)])
    keep(s, train_log=log.elastic(5, 1, [0, 1, 2, 3, 4, 6, 7]))


@case("nccl-nvls-not-supported-8-ranks", "torchrun", ["nccl-nvls"], ["801", "nvls"], ANY, "NVLink SHARP does not work on this node", rank=[0, 1, 2, 3, 4, 5, 6, 7, None], made=FORM)
def _(s):
    """nvls.cc and error 801 on all ranks."""
    log = Log(204).banner().nccl_start()
    log.mixed(*[[log.nccl(r, "transport/nvls.cc:150 NCCL WARN Cuda failure 801 'operation not supported'"), log.nccl(r, "NCCL INFO init.cc:1229 -> 1"), *log.trace(r, INIT, NCCL_CUDA + "Cuda failure 801 'operation not supported'")] for r in range(8)])
    keep(s, train_log=log.elastic(0, 1, list(range(1, 8)), other_code=1))


@case("nccl-heartbeat-watchdog-stuck-rank2-of-8", "torchrun", ["pt-wd-stuck", "pt-hb-term", "hang"], ["watchdog"], ANY, "the watchdog of rank 2 is stuck (a CUDA or driver call that does not return)", rank=2, made=FORM)
def _(s):
    """Heartbeat monitor; the process ends itself with SIGABRT."""
    log = Log(205).banner().hf(10, 120).wait(480)
    pg = "[PG ID 0 PG GUID 0(default_pg) Rank 2]"
    log.say(f"[rank2]:[E{log.glog()} ProcessGroupNCCL.cpp:1412] {pg} ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog, and could be triggered by another thread holding the GIL inside a CUDA api (for example, CudaEventDestroy), or other deadlock-prone behaviors.",
            f"[rank2]:[F{log.glog()} ProcessGroupNCCL.cpp:1557] {pg} [PG ID 0 PG GUID 0(default_pg) Rank 2] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.")
    keep(s, train_log=log.elastic(2, -6, [0, 1, 3, 4, 5, 6, 7]))


@case("nccl-roce-gid-unreachable-16-ranks", "torchrun", ["nccl-qp-unreach"], ["Network is unreachable"], USER, "the RoCE GID index points to an address without a route", rank=None, made=FORM)
def _(s):
    """NCCL_IB_GID_INDEX forced."""
    log = Log(206, hosts=("r-01", "r-02"), ranks=16).banner().nccl_start()
    text = "Call to ibv_modify_qp failed with 101 Network is unreachable, on dev mlx5_2:1, curr state INIT, next state RTR, local GID index 3, local GID ::ffff:192.168.9.4, remote GID ::ffff:10.20.0.8"
    log.mixed(*[[log.nccl(r, f"misc/ibvwrap.cc:187 NCCL WARN {text}"), *log.trace(r, INIT, NCCL_SYS + text)] for r in (2, 10)], log.nccl_lost(6, "r-01", frames=INIT))
    keep(s, train_log=log.elastic(2, 1, [0, 1, 3, 4, 5, 6, 7]))


@case("nccl-mixed-link-layers-16-ranks", "torchrun", ["nccl-mixed-links"], ["incompatible devices"], USER, "NCCL_IB_HCA selects InfiniBand and Ethernet ports together", rank=None, made=FORM)
def _(s):
    """mlx5 matches mlx5_bond_0 too."""
    log = Log(207, hosts=("r-01", "r-02"), ranks=16).banner()
    text = "NET/IB : Attempted to merge incompatible devices: [0]mlx5_0:1/IB and [8]mlx5_bond_0:1/RoCE. Try selecting NICs of only one link type using NCCL_IB_HCA"
    log.mixed(*[[log.nccl(r, "NCCL INFO NCCL_IB_HCA set to mlx5"), log.nccl(r, f"transport/net_ib.cc:871 NCCL WARN {text}"), *log.trace(r, INIT, NCCL_SYS.replace("system", "internal") + text)] for r in (0, 3, 8)])
    keep(s, train_log=log.elastic(0, 1, [3], other_code=1))


@case("cuda-oom-other-process-holds-memory-rank0-of-8", "torchrun", ["cuda-oom"], ["CUDA out of memory"], ANY, "another process holds most of the memory of GPU 0", rank=0, made=FORM)
def _(s):
    """The allocator names the other process."""
    log = Log(208).banner()
    log.say(*log.trace(0, INIT[:1] + [("/workspace/train.py", 133, "main", "model = model.to(device)")], "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 214.00 MiB. GPU 0 has a total capacity of 79.11 GiB of which 96.19 MiB is free. Process 7412 has 77.25 GiB memory in use. Including non-PyTorch memory, this process has 1.75 GiB memory in use. Of the allocated memory 1.21 GiB is allocated by PyTorch, and 11.50 MiB is reserved by PyTorch but unallocated."))
    log.wait(3).mixed(*[log.nccl_lost(r, "gpu-01", frames=INIT) for r in (1, 2, 5)])
    keep(s, train_log=log.elastic(0, 1, [1, 2, 3, 4, 5, 6, 7]))


@case("cudnn-execution-failed-rank1-of-4", "torchrun", ["cudnn"], ["CUDNN_STATUS_EXECUTION_FAILED"], ANY, "cuDNN failed on rank 1", rank=1, made=FORM)
def _(s):
    """In a convolution's backward pass."""
    log = Log(209, ranks=4).banner().hf(10, 50)
    log.mixed(log.trace(1, LOOP, "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\nYou can try to repro this exception using the following code snippet. If that doesn't trigger the error, please include your original repro script when reporting this issue."), *[log.nccl_lost(r, "gpu-01") for r in (0, 3)])
    keep(s, train_log=log.elastic(1, 1, [0, 2, 3]))


@case("cuda-devices-busy-exclusive-mode-4-ranks", "torchrun", ["cuda-busy"], ["busy or unavailable"], ANY, "the GPUs are in exclusive mode and in use", rank=[0, 1, 2, 3], made=FORM)
def _(s):
    """All ranks."""
    log = Log(210, ranks=4).banner()
    log.mixed(*[log.trace(r, INIT[:1] + [("/workspace/train.py", 88, "main", "torch.cuda.set_device(local_rank)")], "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable" + CUDA_ADVICE) for r in range(4)])
    keep(s, train_log=log.elastic(1, 1, [0, 2, 3], other_code=1))


@case("cuda-forward-compatibility-804-docker", "docker", ["cuda-804", "cuda-init"], ["Error 804"], ANY, "the image's CUDA compatibility library does not fit this GPU", rank=None, made=FORM)
def _(s):
    """A warning, then an assertion of the program."""
    keep(s, container_log="""NVIDIA Release 24.05 (build 91431255)
/usr/local/lib/python3.10/dist-packages/torch/cuda/__init__.py:118: UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 804: forward compatibility was attempted on non supported HW (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:108.)
  return torch._C._cuda_getDeviceCount() > 0
Traceback (most recent call last):
  File "/workspace/train.py", line 412, in <module>
    main()
  File "/workspace/train.py", line 64, in main
    raise SystemExit("this program needs a GPU")
SystemExit: this program needs a GPU
""")


@case("sxid-nvswitch-fatal-8-ranks", "torchrun", ["sxid", "xid-any"], ["SXid", "20034"], ELSEWHERE, "an NVSwitch of the node failed", rank=None, made=FORM)
def _(s):
    """All ranks time out; the kernel names the switch."""
    log = Log(211).banner().hf(10, 80).wait(600)
    log.mixed(*[log.watchdog(r, 551, end=False) for r in range(8)])
    log.elastic(4, -6, [0, 1, 2, 3, 5, 6, 7], other_code=-6)
    keep(s, train_log=log, dmesg_txt=dmesg(KERNEL_NOISE + ["nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00"]))


@case("kernel-oom-killer-host-rank6-of-8", "torchrun", ["oom-kernel", "mem-usage-limit"], ["Out of memory", "Killed process", "oom-kill", "lack of memory"], USER, "the host ran out of memory; the kernel killed rank 6", rank=6, made=FORM)
def _(s):
    """torchrun sees SIGKILL; dmesg has the pid."""
    log = Log(212).banner().hf(10, 150)
    log.elastic(6, -9, [0, 1, 2, 3, 4, 5, 7])
    keep(s, train_log=log, dmesg_txt=dmesg(KERNEL_NOISE + ["python invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO), order=0, oom_score_adj=0", "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/user.slice,task=python,pid=%d,uid=1000" % log.pid(6),
         "Out of memory: Killed process %d (python) total-vm:201334112kB, anon-rss:118201344kB, file-rss:1024kB, shmem-rss:8192kB, UID:1000 pgtables:233112kB oom_score_adj:0" % log.pid(6)]))


@case("fuse-transport-endpoint-rank2-of-8", "torchrun", ["fs-enotconn"], ["Transport endpoint is not connected"], ELSEWHERE + ["no"], "the FUSE mount under rank 2 died", rank=2, made=FORM)
def _(s):
    """OSError 107."""
    log = Log(213).banner().hf(10, 90)
    log.mixed(log.trace(2, LOOP[:4] + [("/workspace/data.py", 30, "__getitem__", "names = os.listdir(self.root)")], "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/s3/clips'"), *[log.nccl_lost(r, "gpu-01") for r in (1, 3)])
    keep(s, train_log=log.elastic(2, 1, [0, 1, 3, 4, 5, 6, 7]))


@case("lustre-ost-failed-16-ranks", "srun", ["fs-lustre", "fs-eio"], ["LustreError", "Input/output error"], ELSEWHERE + ["no"], "a Lustre target failed", rank=None, made=FORM)
def _(s):
    """slurm's output with a node's console lines."""
    log = Log(214, hosts=("c001", "c002"), ranks=16).hf(10, 210)
    log.say(*[f"3: {line}" for line in log.trace(3, LOOP[:3] + [("/workspace/ckpt.py", 77, "save", "file.write(block)")], "OSError: [Errno 5] Input/output error", tag=False)], "srun: error: c001: task 3: Exited with exit code 1", "srun: Terminating StepId=8121.0")
    keep(s, slurm_8121_out=log, c001_console_txt=dmesg(["LustreError: 11-0: scratch-OST0003-osc-ffff8f1a: operation ost_write to node 10.10.0.31@o2ib failed: rc = -5", "Lustre: scratch-OST0003-osc-ffff8f1a: Connection to scratch-OST0003 (at 10.10.0.31@o2ib) was lost; in progress operations using this service will fail"]))


@case("deepspeed-cuda-home-missing", "deepspeed", ["ds-missing-cuda"], ["CUDA_HOME"], USER, "the CUDA toolkit is not installed where DeepSpeed looks", rank=None, made=FORM)
def _(s):
    """Two ranks, no rank tags."""
    log = form_software.ds_start(Log(215, ranks=2))
    log.say(*log.trace(0, [("train.py", 3, "<module>", "import deepspeed"), ("/opt/conda/lib/python3.10/site-packages/deepspeed/ops/op_builder/builder.py", 51, "installed_cuda_version", 'raise MissingCUDAException("CUDA_HOME does not exist, unable to compile CUDA op(s)")')], "deepspeed.ops.op_builder.builder.MissingCUDAException: CUDA_HOME does not exist, unable to compile CUDA op(s)", tag=False))
    keep(s, ds_log=form_software.ds_end(log, 1))


@case("deepspeed-extension-build-failed-rank0-of-8", "deepspeed", ["ds-extbuild", "cc-error"], ["Error building extension", "does not build", "FAILED: multi_tensor"], ANY, "DeepSpeed's extension does not compile", rank=[0, None, 1, 2, 3, 4, 5, 6, 7], made=FORM)
def _(s):
    """ninja's output, the compiler's error, then the exception; other ranks find no library."""
    log = form_software.ds_start(Log(216))
    log.say("Creating extension directory /home/user/.cache/torch_extensions/py310_cu121/fused_adam...", "Emitting ninja build file /home/user/.cache/torch_extensions/py310_cu121/fused_adam/build.ninja...", "[1/3] /usr/local/cuda/bin/nvcc --generate-dependencies-with-compile -c multi_tensor_adam.cu -o multi_tensor_adam.cuda.o",
            "FAILED: multi_tensor_adam.cuda.o ", "/usr/include/c++/13/bits/random.h:104:26: error: expected primary-expression before '>' token", "ninja: build stopped: subcommand failed.",
            *log.trace(0, [("train.py", 95, "main", "engine, *_ = deepspeed.initialize(args=args, model=model)"), ("/opt/conda/lib/python3.10/site-packages/torch/utils/cpp_extension.py", 2107, "_run_ninja_build", "raise RuntimeError(message) from e")], "RuntimeError: Error building extension 'fused_adam'"))
    log.mixed(*[log.trace(r, [("train.py", 95, "main", "engine, *_ = deepspeed.initialize(args=args, model=model)")], "ImportError: /home/user/.cache/torch_extensions/py310_cu121/fused_adam/fused_adam.so: cannot open shared object file: No such file or directory") for r in (1, 4)])
    keep(s, ds_log=form_software.ds_end(log, 1))


@case("deepspeed-child-segfault-rank1-of-4", "deepspeed", ["exit-sigsegv"], ["-11", "SIGSEGV"], ANY, "rank 1 crashed (SIGSEGV); only the launcher says so", rank=1, made=FORM)
def _(s):
    """exits with return code = -11."""
    log = form_software.ds_start(Log(217, ranks=4)).hf(10, 40)
    keep(s, ds_log=form_software.ds_end(log, -11, rank=1))


@case("k8s-spot-node-shutdown-preempted", "kubernetes", ["preempted", "k8s-node", "k8s-evict", "k8s-state", "node-lost"], ["Terminated", "shutdown", "SIGTERM", "NodeShutdown"], AGAIN + ["after-fix"], "the spot node was taken back", rank=None, made=FORM)
def _(s):
    """Pod status NodeShutdown and SIGTERM in the log."""
    log = Log(218, ranks=8).banner().hf(10, 70)
    log.say(f"W0314 {log.micro()[:15]} 31 torch/distributed/elastic/agent/server/api.py:704] Received Signals.SIGTERM death signal, shutting down workers", *[f"W0314 {log.micro()[:15]} 31 torch/distributed/elastic/multiprocessing/api.py:897] Sending process {log.pid(r)} closing signal SIGTERM" for r in range(8)])
    keep(s, describe_txt=form_cluster.describe("vla-pretrain-master-0", "spot-node-3/10.0.0.13", "    State:          Terminated\n      Reason:       Error\n      Exit Code:    143\n    Ready:          False\n", "  Warning  NodeShutdown  2m   kubelet  Pod was terminated in response to imminent node shutdown.\n  Normal   Killing       2m   kubelet  Stopping container pytorch\n",
         message="Status:           Failed\nReason:           Terminated\nMessage:          Pod was terminated in response to imminent node shutdown.\n"), master_0_log=log)


@case("k8s-device-plugin-admission", "kubernetes", ["k8s-admission", "k8s-state"], ["UnexpectedAdmissionError", "devices unavailable"], ELSEWHERE + ["no"], "the node has fewer usable GPUs than it promised", rank=None, made=FORM)
def _(s):
    """Pod rejected."""
    keep(s, describe_txt=form_cluster.describe("vla-pretrain-worker-2", "gpu-node-6/10.0.0.16", "    State:          Waiting\n      Reason:       ContainerCreating\n    Ready:          False\n", "  Warning  UnexpectedAdmissionError  12s   kubelet  Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 8, Available: 7, which is unexpected\n",
         message="Status:           Failed\nReason:           UnexpectedAdmissionError\nMessage:          Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 8, Available: 7, which is unexpected\n"))


@case("docker-exit-139", "docker", ["exit-sigsegv"], ["139", "Segmentation fault", "SIGSEGV"], ANY, "the program in the container crashed (SIGSEGV)", rank=None, made=FORM)
def _(s):
    """The entry point's shell line and docker's code."""
    log = Log(219, ranks=1).hf(10, 60)
    keep(s, container_log=log.say("/workspace/entrypoint.sh: line 22:    31 Segmentation fault      (core dumped) python train.py \"$@\"", "entrypoint: exit code 139"))


@case("hub-rate-limited-8-ranks", "torchrun", ["hub-rate", "hub-conn", "net", PY], ["429"], ["yes", "after-fix", "no"], "eight ranks ask the hub at once and are refused", rank=list(range(8)), made=FORM)
def _(s):
    """HTTP 429 on several ranks."""
    log = Log(220).banner()
    log.mixed(*[log.trace(r, [("/workspace/train.py", 150, "main", 'data = load_dataset("lerobot/libero_spatial_image")'), ("/opt/conda/lib/python3.10/site-packages/huggingface_hub/utils/_http.py", 482, "hf_raise_for_status", "raise _format(HfHubHTTPError, str(e), response) from e")], "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/datasets/lerobot/libero_spatial_image/tree/main (Request ID: Root=1-690f2a11)") for r in (1, 2, 4, 7)])
    keep(s, train_log=log.elastic(4, 1, [0, 1, 2, 3, 5, 6, 7], other_code=1))


@case("fsdp-state-dict-missing-keys-8-ranks", "torchrun", ["ckpt-key", PY], ["Missing key(s) in state_dict", "Error(s) in loading state_dict"], USER, "the checkpoint has other names than the model", rank=list(range(8)), made=FORM)
def _(s):
    """module. prefixes."""
    log = Log(221).banner()
    log.mixed(*[log.trace(r, [("/workspace/train.py", 188, "main", "model.load_state_dict(state)"), ("/opt/conda/lib/python3.10/site-packages/torch/nn/modules/module.py", 2581, "load_state_dict", "raise RuntimeError(")], 'RuntimeError: Error(s) in loading state_dict for JanusVLN:\n\tMissing key(s) in state_dict: "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight". \n\tUnexpected key(s) in state_dict: "module.model.embed_tokens.weight", "module.model.layers.0.self_attn.q_proj.weight". ') for r in range(8)])
    keep(s, train_log=log.elastic(0, 1, list(range(1, 8)), other_code=1))


@case("bitsandbytes-cuda-setup-4-ranks", "torchrun", [PY, "py-import", "py-solib", "cuda-init", "bnb-setup"], ["CUDA Setup failed", "libbitsandbytes"], USER, "bitsandbytes finds no CUDA library", rank=[0, 1, 2, 3], made=FORM)
def _(s):
    """Its banner and the exception."""
    log = Log(222, ranks=4).banner()
    log.mixed(*[["===================================BUG REPORT===================================", "bin /opt/conda/lib/python3.10/site-packages/bitsandbytes/libbitsandbytes_cpu.so", "CUDA SETUP: Required library version not found: libbitsandbytes_cuda121.so. Maybe you need to compile it from source?",
                 *log.trace(r, [("/workspace/train.py", 12, "<module>", "import bitsandbytes as bnb"), ("/opt/conda/lib/python3.10/site-packages/bitsandbytes/cextension.py", 20, "<module>", "raise RuntimeError('''")], "RuntimeError: \n        CUDA Setup failed despite GPU being available. Please run the following command to get more information:\n\n        python -m bitsandbytes")] for r in range(4)])
    keep(s, train_log=log.elastic(2, 1, [0, 1, 3], other_code=1))


@case("ray-worker-oom-killed", "ray", ["ray-oom", "oom-kernel", "mem-usage-limit", "exit-sigkill"], ["memory", "OutOfMemoryError"], USER, "Ray killed a worker because the node ran out of memory", rank=None, made=FORM)
def _(s):
    """Ray's own exception."""
    keep(s, driver_log="""2026-03-14 02:11:02,310\tINFO worker.py:1786 -- Started a local Ray instance.
(RayTrainWorker pid=7123) step 120 loss 2.311
(RayTrainWorker pid=7124, ip=10.0.0.12) step 120 loss 2.307
(raylet) [2026-03-14 02:41:12,001 E 6901 6901] (raylet) node_manager.cc:3040: 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 5d1f0c7a, IP: 10.0.0.12) over the last time period. To see more information about the Workers killed on this node, use `ray logs raylet.out -ip 10.0.0.12`
Traceback (most recent call last):
  File "/workspace/driver.py", line 80, in <module>
    result = trainer.fit()
ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.
Memory on the node (IP: 10.0.0.12, ID: 5d1f0c7a) where the task was running was 489.12GB / 503.61GB (0.971228), which exceeds the memory usage threshold of 0.95.
""")


@case("torchtitan-nan-loss-stop", "torchrun", ["num-nan"], ["nan"], ["yes", "no", "after-fix"], "the loss became NaN at step 150", rank=None, made=FORM)
def _(s):
    """torchtitan's lines with colours; the run is then stopped by hand."""
    log = Log(223, ranks=8).banner()
    for step in range(10, 260, 10):
        log.wait(30)
        loss = "nan" if step >= 150 else f"{7.1 - step / 60:.4f}"
        log.say(f"[rank0]:[titan] {log.iso()},{step:03d} - root - INFO - \x1b[31mstep: {step:2d}  \x1b[32mloss: {loss:>7}  \x1b[38;2;180;60;0mgrad_norm: {'nan' if step >= 150 else '1.2001'}  \x1b[38;2;54;234;195mmemory: 30.10GiB(38.02%)  \x1b[34mtps: 5,432  \x1b[35mmfu: 41.20%\x1b[39m")
    log.say("[rank0]:[titan] stopping: loss is not finite")
    keep(s, train_log=log.elastic(0, 1, [1, 2, 3, 4, 5, 6, 7]))

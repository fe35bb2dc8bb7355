"""GPU, NCCL and fabric failures, written after the form."""

from forms import CUDA_ADVICE, FORWARD, INIT, LOOP, OOM_TEXT, Log, dmesg, keep
from register import AGAIN, ANY, ELSEWHERE, USER, case

FORM = "after the form"
KERNEL_NOISE = ["systemd[1]: Started Session 812 of User user.", "audit: type=1400 audit(1773454210.101:88): apparmor=\"DENIED\" operation=\"open\" profile=\"snap.lxd\" name=\"/proc/1/cgroup\" pid=2211",
                "docker0: port 2(veth91ac) entered forwarding state", "EXT4-fs (nvme1n1p1): mounted filesystem with ordered data mode. Quota mode: none."]


@case("cuda-oom-8-ranks-torchrun", "torchrun", ["cuda-oom"], ["CUDA out of memory"], USER, "the model does not fit: every rank runs out of GPU memory in its first step", rank=list(range(8)), made=FORM)
def _(s):
    """Eight equal tracebacks, interleaved."""
    log = Log(1).banner().warnings()
    log.say(log.bar(0, 5000, 0, 1.9)).wait(12)
    log.mixed(*[log.trace(r, FORWARD, OOM_TEXT.format(want="1.50", gpu=r, free="0.86", used="78.24", alloc="75.10")) for r in range(8)])
    keep(s, train_log=log.elastic(2, 1, [r for r in range(8) if r != 2], other_code=1))


@case("cuda-oom-rank5-of-8-others-nccl-torchrun", "torchrun", ["cuda-oom"], ["CUDA out of memory"], USER, "rank 5 got a long batch and ran out of GPU memory; the others lost their connection to it", rank=5, made=FORM)
def _(s):
    """The others' messages stand before and after it."""
    log = Log(2).banner().warnings().nccl_start().hf(10, 240)
    first = [r for r in (3, 4, 6)]
    log.mixed(*[log.nccl_lost(r, "gpu-01") for r in first], log.trace(5, LOOP, OOM_TEXT.format(want="9.38", gpu=5, free="4.02", used="75.08", alloc="71.44")))
    log.mixed(*[log.nccl_lost(r, "gpu-01") for r in (0, 1, 2, 7)])
    keep(s, train_log=log.elastic(5, 1, [0, 1, 2, 3, 4, 6, 7]))


@case("cuda-oom-at-first-validation-deepspeed", "deepspeed", ["cuda-oom"], ["CUDA out of memory"], USER, "validation at full resolution does not fit into GPU memory", rank=0, made=FORM)
def _(s):
    """DeepSpeed's launcher; rank 0 alone validates. The older wording of the allocator."""
    log = Log(3, ranks=4)
    log.say(f"[{log.iso()},101] [INFO] [runner.py:607:main] cmd = /opt/conda/bin/python -u -m deepspeed.launcher.launch --world_info=eyJncHUtMDEiOiBbMCwgMSwgMiwgM119 --master_addr=127.0.0.1 --master_port=29500 --enable_each_rank_log=None train.py --deepspeed ds_zero2.json",
            f"[{log.iso()},733] [INFO] [launch.py:145:main] WORLD INFO DICT: {{'gpu-01': [0, 1, 2, 3]}}", f"[{log.iso()},733] [INFO] [launch.py:151:main] nnodes=1, num_local_procs=4, node_rank=0",
            f"[{log.iso()},734] [INFO] [launch.py:162:main] global_rank_mapping=defaultdict(<class 'list'>, {{'gpu-01': [0, 1, 2, 3]}})", f"[{log.iso()},736] [INFO] [launch.py:253:main] process {log.pid(0)} spawned with command: ['/opt/conda/bin/python', '-u', 'train.py', '--local_rank=0', '--deepspeed', 'ds_zero2.json']")
    for step in range(10, 110, 10):
        log.wait(20)
        log.say(f"[{log.iso()},{step:03d}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[9.5e-05], mom=[(0.9, 0.95)]",
                f"[{log.iso()},{step:03d}] [INFO] [timer.py:264:stop] epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec=13.31, CurrSamplesPerSec=13.29, MemAllocated=21.4GB, MaxMemAllocated=38.9GB")
    log.say("Validating 120 clips at 1280x720", *log.trace(0, [("train.py", 611, "<module>", "main()"), ("train.py", 588, "main", "metrics = validate(engine, val_loader, epoch)"), ("train.py", 402, "validate", "out = engine.module(clip)"),
            ("/workspace/models/vrt.py", 1409, "forward", "x = torch.cat([x_backward, x_forward], dim=2)")],
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 15.82 GiB (GPU 0; 47.40 GiB total capacity; 27.53 GiB already allocated; 11.62 GiB free; 34.61 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF", tag=False))
    log.wait(3)
    for r in range(4):
        log.say(f"[{log.iso()},{210 + r}] [INFO] [launch.py:316:sigkill_handler] Killing subprocess {log.pid(r)}")
    log.say(f"[{log.iso()},900] [ERROR] [launch.py:322:sigkill_handler] ['/opt/conda/bin/python', '-u', 'train.py', '--local_rank=3', '--deepspeed', 'ds_zero2.json'] exits with return code = 1")
    keep(s, ds_log=log)


@case("cuda-illegal-access-rank2-of-8-with-xid31", "torchrun", ["cuda-ima", "xid-any"], ["illegal memory access", "Xid"], ANY, "a kernel of rank 2 reads outside its memory", rank=2, made=FORM)
def _(s):
    """The program's log and the kernel's lines of that node."""
    log = Log(4).banner().nccl_start().hf(10, 130)
    log.mixed(log.trace(2, LOOP, "RuntimeError: CUDA error: an illegal memory access was encountered" + CUDA_ADVICE),
              [f"[rank2]:[E{log.glog()} ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank 2] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered",
               "terminate called after throwing an instance of 'c10::DistBackendError'"])
    log.wait(600).mixed(*[log.watchdog(r, 1311) for r in (0, 4, 5)])
    keep(s, train_log=log.elastic(2, -6, [0, 1, 3, 4, 5, 6, 7], other_code=-6),
         dmesg_txt=dmesg(KERNEL_NOISE[:2] + [f"NVRM: Xid (PCI:0000:3d:00): 31, pid={log.pid(2)}, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC3 GPCCLIENT_T1_2 faulted @ 0x7f2c_88400000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"] + KERNEL_NOISE[2:]))


@case("cuda-device-assert-embedding-rank0-of-4", "torchrun", ["cuda-assert"], ["device-side assert", "Assertion `"], USER, "a token of rank 0 lies outside the vocabulary", rank=0, made=FORM)
def _(s):
    """The kernel's assertion lines come before the exception."""
    log = Log(5, ranks=4).banner().hf(10, 60)
    for thread in (64, 65, 66, 67, 68, 69, 70, 71):
        log.say(f"/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1422: indexSelectLargeIndex: block: [188,0,0], thread: [{thread},0,0] Assertion `srcIndex < srcSelectDimSize` failed.")
    log.say(*log.trace(0, FORWARD, "RuntimeError: CUDA error: device-side assert triggered" + CUDA_ADVICE))
    log.mixed(*[log.nccl_lost(r, "gpu-01") for r in (1, 2, 3)])
    keep(s, train_log=log.elastic(0, 1, [1, 2, 3]))


@case("cuda-launch-failure-rank6-of-16-two-nodes", "torchrun", ["cuda-launchfail"], ["unspecified launch failure"], ANY, "a kernel of rank 6 failed", rank=6, made=FORM)
def _(s):
    """A file per node; node 1 is read first and only sees consequences."""
    a = Log(6, hosts=("gpu-a1", "gpu-a2"), ranks=16).banner().nccl_start(ranks=range(8)).hf(10, 330)
    b = Log(7, hosts=("gpu-a1", "gpu-a2"), ranks=16).banner().nccl_start(ranks=range(8, 16))
    b.clock = a.clock + 1
    a.mixed(a.trace(6, LOOP, "RuntimeError: CUDA error: unspecified launch failure" + CUDA_ADVICE), *[a.nccl_lost(r, "gpu-a1") for r in (5, 7)])
    b.mixed(*[b.nccl_lost(r, "gpu-a1") for r in (8, 12, 14)])
    a.elastic(6, 1, [0, 1, 2, 3, 4, 5, 7])
    b.elastic(12, 1, [8, 9, 10, 11, 13, 14, 15])
    keep(s, node_a2_log=b, node_b1_log=a)


def xid_case(seed, rank, xid_lines, error, others=True, seconds=600):
    log = Log(seed).banner().nccl_start().hf(10, 190)
    block = log.trace(rank, LOOP, error + CUDA_ADVICE)
    log.mixed(block, *[log.nccl_lost(r, "gpu-01") for r in range(8) if r != rank and r % 3 == 0])
    if others:
        log.wait(seconds).mixed(*[log.watchdog(r, 2011, end=False) for r in range(8) if r != rank and r % 3 == 1])
    log.elastic(rank, -6, [r for r in range(8) if r != rank])
    return log, dmesg(KERNEL_NOISE + [line.replace("PID", str(log.pid(rank))) for line in xid_lines])


@case("xid79-fallen-off-the-bus-rank4-of-8", "torchrun", ["xid-any", "gpu-lost"], ["79", "fallen off the bus"], ELSEWHERE, "GPU 4 fell off the bus", rank=[4, None], made=FORM)
def _(s):
    """Kernel lines with Xid 79; the program only says that something is wrong."""
    log, kernel = xid_case(8, 4, ["NVRM: GPU at PCI:0000:9b:00: GPU-8f2c6f0e-7b3e-1f0a-90c4-5a3f6ce2a9d1", "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
                                  "NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus.", "NVRM: A GPU crash dump has been created. If possible, please run nvidia-bug-report.sh as root to collect this data before the NVIDIA kernel module is unloaded.",
                                  "NVRM: Xid (PCI:0000:9b:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"], "RuntimeError: CUDA error: unknown error")
    keep(s, train_log=log, dmesg_txt=kernel)


@case("xid74-nvlink-rank1-of-8", "torchrun", ["xid-any", "cuda-nvlink"], ["74", "NVLink"], ELSEWHERE, "an NVLink of GPU 1 failed", rank=[1, None], made=FORM)
def _(s):
    """Xid 74 and CUDA's NVLink error."""
    log, kernel = xid_case(9, 1, ["NVRM: Xid (PCI:0000:2a:00): 74, pid=PID, name=python, NVLink: fatal error detected on link 11(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
                                  "NVRM: Xid (PCI:0000:2a:00): 45, pid=PID, name=python, Ch 00000010"], "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution")
    keep(s, train_log=log, dmesg_txt=kernel)


@case("xid48-ecc-rank7-of-8", "torchrun", ["cuda-ecc", "xid-any"], ["ECC", "48"], ELSEWHERE, "GPU 7 has an uncorrectable memory error", rank=[7, None], made=FORM)
def _(s):
    """Xid 48, 63 and 94 with CUDA's ECC error."""
    log, kernel = xid_case(10, 7, ["NVRM: Xid (PCI:0000:db:00): 48, pid=PID, name=python, DBE (Double Bit Error) ECC Error", "NVRM: Xid (PCI:0000:db:00): 63, pid=PID, name=python, Row Remapper: New row marked for remapping, reset gpu to activate.",
                                   "NVRM: Xid (PCI:0000:db:00): 45, pid=PID, name=python, Ch 0000000d"], "RuntimeError: CUDA error: uncorrectable ECC error encountered", others=False)
    keep(s, train_log=log, dmesg_txt=kernel)


@case("xid119-gsp-timeout-rank3-of-8", "torchrun", ["xid-any"], ["119", "GSP"], ELSEWHERE, "the GSP firmware of GPU 3 does not answer", rank=[3, None], made=FORM)
def _(s):
    """Xid 119; all ranks time out, rank 3 says nothing."""
    log = Log(11).banner().nccl_start().hf(10, 90).wait(600)
    log.mixed(*[log.watchdog(r, 911) for r in range(8) if r != 3])
    log.elastic(0, -6, [1, 2, 3, 4, 5, 6, 7], other_code=-6)
    keep(s, train_log=log, dmesg_txt=dmesg(KERNEL_NOISE + [f"NVRM: Xid (PCI:0000:5d:00): 119, pid={log.pid(3)}, name=python, Timeout after 45s of waiting for RPC response from GPU3 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20802096 0x8)."]))


@case("nccl-ib-retry-exceeded-rank9-of-16-two-nodes", "torchrun", ["nccl-ib-retry-exc"], ["status=12"], ELSEWHERE, "the InfiniBand path between two hosts lost packets until the retries were used up", rank=[9, None], made=FORM)
def _(s):
    """One merged log of two nodes; completion errors on rank 9, then flushes, then lost peers."""
    log = Log(12, hosts=("ib-01", "ib-02"), ranks=16).banner().nccl_start().hf(10, 400)
    warn = "transport/net_ib.cc:2244 NCCL WARN NET/IB: Got completion from peer 10.12.1.21<53908> with status={status} opcode=129 len={len} vendor err {vendor} (Recv) localGid fe80::ba59:9f03:aa:2 remoteGidsfe80::ba59:9f03:aa:1 hca mlx5_1"
    log.say(log.nccl(9, warn.format(status=12, len=1048576, vendor=129)), log.nccl(9, "NCCL INFO transport/net.cc:1298 -> 6"), log.nccl(9, "NCCL INFO proxy.cc:712 -> 6"))
    log.say(*[log.nccl(9, warn.format(status=5, len=32549, vendor=249)) for _ in range(3)])
    log.say(*log.trace(9, LOOP, "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nNET/IB: Got completion from peer 10.12.1.21<53908> with status=12 opcode=129 len=1048576 vendor err 129 (Recv) localGid fe80::ba59:9f03:aa:2 remoteGidsfe80::ba59:9f03:aa:1 hca mlx5_1"))
    log.mixed(*[log.nccl_lost(r, "ib-02") for r in (0, 1, 2, 8, 10)])
    keep(s, train_log=log.elastic(9, 1, [8, 10, 11, 12, 13, 14, 15]))


@case("nccl-watchdog-timeout-rank5-of-8-in-data-loader", "torchrun", ["pt-wd-timeout", "hang"], ["Watchdog caught collective operation timeout"], ANY, "rank 5 does not come to the collective: it is stuck reading data", rank=5, made=FORM)
def _(s):
    """Seven ranks time out; rank 5 alone says nothing but a slow read."""
    log = Log(13).banner().hf(10, 270)
    log.say("[rank5] WARNING data.reader: read of /mnt/nfs/shards/train-00811.tar has taken 120 s").wait(480)
    log.mixed(*[log.watchdog(r, 4412) for r in (0, 1, 2, 3, 4, 6, 7)])
    keep(s, train_log=log.elastic(0, -6, [1, 2, 3, 4, 6, 7], other_code=-6))


@case("nccl-watchdog-timeout-rank0-saves-checkpoint", "torchrun", ["pt-wd-timeout", "hang"], ["Watchdog caught collective operation timeout"], ANY, "rank 0 alone writes a checkpoint for longer than the others wait", rank=0, made=FORM)
def _(s):
    """Files per rank; rank 0's ends in the save, the others in the watchdog."""
    files = {}
    for r in range(4):
        log = Log(14 + r, ranks=4).hf(10, 200)
        if r == 0:
            log.lines = [line for line in log.lines]
            log.say(f"{log.iso()} INFO trainer: saving full state to /lustre/ckpt/step_200 (312 GB), other ranks wait")
        else:
            log.lines = [f"{log.iso()} INFO trainer: rank {r} ready"]
            log.wait(1830)
            log.say(*log.watchdog(r, 8101, op="BROADCAST", numel=1, ms=1800000))
        files[f"rank_{r}_log"] = log
    keep(s, **files)


@case("nccl-no-interface-second-node-16-ranks", "torchrun", ["nccl-no-iface"], ["no socket interface found"], USER, "NCCL_SOCKET_IFNAME names an interface that the second node does not have", rank=[8, 9, 10, 11, 12, 13, 14, 15, None], made=FORM)
def _(s):
    """Node 0 waits and is cut off; node 1 says why."""
    log = Log(20, hosts=("n-001", "n-002"), ranks=16).banner()
    for r in range(8):
        log.say(log.nccl(r, "NCCL INFO NCCL_SOCKET_IFNAME set by environment to ib0"), log.nccl(r, f"NCCL INFO Bootstrap : Using ib0:10.12.1.{r + 20}<0>"))
    blocks = []
    for r in range(8, 16):
        blocks.append([log.nccl(r, "NCCL INFO NCCL_SOCKET_IFNAME set by environment to ib0"), log.nccl(r, "bootstrap.cc:126 NCCL WARN Bootstrap : no socket interface found"), log.nccl(r, "NCCL INFO init.cc:1785 -> 3"),
                       *log.trace(r, INIT, "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:317, internal error - please report this issue to the NCCL developers, NCCL version 2.21.5\nncclInternalError: Internal check failed.\nLast error:\nBootstrap : no socket interface found")])
    log.mixed(*blocks)
    keep(s, train_log=log.elastic(8, 1, list(range(9, 16)), other_code=1))


@case("nccl-shm-64mb-docker-8-ranks", "torchrun", ["nccl-shm-extend", "nccl-shm-create"], ["/dev/shm/nccl-"], USER, "/dev/shm of the container is too small for NCCL", rank=[0, 1, 2, 3, 4, 5, 6, 7, None], made=FORM)
def _(s):
    """Docker's default of 64 MB."""
    log = Log(21).banner().nccl_start(ranks=range(0))
    blocks = []
    for r in range(8):
        name = f"/dev/shm/nccl-k{r}msOX"
        error = "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \nLast error:\n"
        if r in (3, 5):
            blocks.append([log.nccl(r, f"misc/shmutils.cc:72 NCCL WARN Error: failed to extend {name} to 33030532 bytes, error: No space left on device (28)"), log.nccl(r, f"misc/shmutils.cc:113 NCCL WARN Error while creating shared memory segment {name} (size 33030528), error: No space left on device (28)"),
                           log.nccl(r, "NCCL INFO transport/shm.cc:114 -> 2"), *log.trace(r, INIT, error + f"Error while creating shared memory segment {name} (size 33030528), error: No space left on device (28)")])
        else:
            blocks.append(log.nccl_lost(r, "gpu-01", frames=INIT))
    log.mixed(*blocks)
    keep(s, train_log=log.elastic(3, 1, [0, 1, 2, 4, 5, 6, 7], other_code=1))


@case("nccl-duplicate-gpu-srun-4-tasks", "srun", ["nccl-dup-gpu"], ["Duplicate GPU detected"], USER, "all tasks of a node use the same GPU", rank=[0, 1, 2, 3], made=FORM)
def _(s):
    """srun -l; local rank is taken from the wrong variable."""
    log = Log(22, hosts=("node-17",), ranks=4)
    for r in range(4):
        log.say(f"{r}: [{log.iso()}] rank {r}/4 on node-17, device cuda:0")
    blocks = []
    for r in range(4):
        other = (r + 1) % 4
        message = f"Duplicate GPU detected : rank {r} and rank {other} both on CUDA device 1b000"
        blocks.append([f"{r}: " + line for line in [log.nccl(r, f"init.cc:943 NCCL WARN {message}"), *log.trace(r, INIT, f"torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:317, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.21.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n{message}")]])
    log.mixed(*blocks).say(*[f"srun: error: node-17: task {r}: Exited with exit code 1" for r in (1, 0, 2, 3)])
    keep(s, srun_log=log)


@case("nccl-version-differs-two-nodes", "torchrun", ["nccl-version-mix"], ["Mismatched NCCL version"], USER, "the nodes have different versions of NCCL", rank=None, made=FORM)
def _(s):
    """Two images."""
    log = Log(23, hosts=("n-001", "n-002"), ranks=4).banner()
    blocks = [[log.nccl(r, f"init.cc:1043 NCCL WARN Mismatched NCCL version detected : rank 0 version 22105 rank 2 version 22703"),
               *log.trace(r, INIT, "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:317, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.21.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nMismatched NCCL version detected : rank 0 version 22105 rank 2 version 22703")] for r in range(4)]
    keep(s, train_log=log.mixed(*blocks).elastic(0, 1, [1], other_code=1))


@case("nccl-memlock-limit-16-ranks", "torchrun", ["nccl-memlock"], ["Cannot allocate memory"], USER, "the limit of locked memory is too small for InfiniBand", rank=None, made=FORM)
def _(s):
    """ibv_reg_mr fails in a container."""
    log = Log(24, hosts=("n-001", "n-002"), ranks=16).banner().nccl_start()
    blocks = [[log.nccl(r, "misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"), log.nccl(r, "NCCL INFO transport/net_ib.cc:1511 -> 2"),
               *log.trace(r, INIT, "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \nLast error:\nCall to ibv_reg_mr_iova2 failed with error Cannot allocate memory")] for r in (0, 7, 8, 15)]
    keep(s, train_log=log.mixed(*blocks).elastic(0, 1, [7], other_code=1))


@case("nccl-qp-timeout-rail-only-16-ranks", "torchrun", ["nccl-qp-timeout"], ["ibv_modify_qp failed with 110"], USER, "HCAs of different rails cannot reach each other", rank=[4, 12, None], made=FORM)
def _(s):
    """Queue pairs do not reach RTR."""
    log = Log(25, hosts=("rail-1", "rail-2"), ranks=16).banner().nccl_start()
    text = "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_4:1, curr state INIT, next state RTR, local GID index 3, local GID ::ffff:10.12.4.1, remote GID ::ffff:10.12.5.2"
    log.say(log.nccl(4, f"misc/ibvwrap.cc:262 NCCL WARN {text}"), log.nccl(4, "NCCL INFO transport/net_ib.cc:1361 -> 2"),
            *log.trace(4, INIT, f"torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \nLast error:\n{text}"))
    log.mixed(*[log.nccl_lost(r, "rail-1", frames=INIT) for r in (3, 5, 11, 12)])
    keep(s, train_log=log.elastic(4, 1, [0, 1, 2, 3, 5, 6, 7]))


@case("nccl-connect-refused-retries-exhausted-16-ranks", "torchrun", ["nccl-conn-fail", "nccl-conn-retry"], ["exceeded error retry count", "Connection refused"], ANY, "ranks of node 1 cannot reach the ports of node 0", rank=None, made=FORM)
def _(s):
    """35 attempts."""
    log = Log(26, hosts=("n-001", "n-002"), ranks=16).banner()
    for attempt in range(1, 35, 3):
        for r in (9, 13):
            log.say(log.nccl(r, f"NCCL INFO socketPollConnect: connect to 10.12.1.21<40001> returned Connection refused, retrying ({attempt}/34) after sleep for {attempt * 100} msec"))
    blocks = [[log.nccl(r, "misc/socket.cc:550 NCCL WARN socketPollConnect: connect to 10.12.1.21<40001> returned Connection refused, exceeded error retry count after 35 attempts"), log.nccl(r, "NCCL INFO misc/socket.cc:573 -> 6"),
               *log.trace(r, INIT, "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:317, remote process exited or there was a network error, NCCL version 2.26.2\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketPollConnect: connect to 10.12.1.21<40001> returned Connection refused, exceeded error retry count after 35 attempts")] for r in (9, 13)]
    keep(s, train_log=log.mixed(*blocks).elastic(9, 1, [13], other_code=1))


@case("nccl-algo-tree-allgather-8-ranks", "torchrun", ["nccl-algo-none"], ["o algorithm/protocol available"], USER, "NCCL_ALGO=Tree leaves no algorithm for AllGather", rank=list(range(8)) + [None], made=FORM)
def _(s):
    """FSDP's first all-gather."""
    log = Log(27).banner().nccl_start()
    text = "No algorithm/protocol available for function AllGather with datatype ncclBfloat16. NCCL_ALGO was set to Tree."
    frames = INIT[:1] + [("/workspace/train.py", 251, "main", "out = model(**batch)"), ("/opt/conda/lib/python3.10/site-packages/torch/distributed/fsdp/_flat_param.py", 1500, "_all_gather_flat_param", "dist.all_gather_into_tensor(")]
    blocks = [[log.nccl(r, f"enqueue.cc:1889 NCCL WARN {text}"), *log.trace(r, frames, f"torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3385, internal error - please report this issue to the NCCL developers, NCCL version 2.26.2\nncclInternalError: Internal check failed.\nLast error:\n{text}")] for r in range(8)]
    keep(s, train_log=log.mixed(*blocks).elastic(1, 1, [0, 2, 3, 4, 5, 6, 7], other_code=1))


@case("mlx5-link-down-then-retry-exceeded-two-nodes", "torchrun", ["mlx5-health", "nccl-ib-retry-exc", "nccl-ib-async"], ["Link down", "status=12", "port error"], ELSEWHERE, "the link of an HCA of node ib-07 went down", rank=None, made=FORM)
def _(s):
    """Program log plus kernel log of the node."""
    log = Log(28, hosts=("ib-07", "ib-08"), ranks=16).banner().nccl_start().hf(10, 350)
    log.say(log.nccl(3, "transport/net_ib.cc:238 NCCL WARN NET/IB : mlx5_3:1 Got non-fatal async event: port error(10)"))
    log.wait(9)
    log.say(log.nccl(3, "transport/net_ib.cc:2244 NCCL WARN NET/IB: Got completion from peer 10.12.2.23<40110> with status=12 opcode=0 len=0 vendor err 129 (Send) localGid fe80::1 remoteGidsfe80::2 hca mlx5_3"))
    log.mixed(*[log.nccl_lost(r, "ib-07") for r in (2, 4, 11)])
    log.elastic(3, 1, [0, 1, 2, 4, 5, 6, 7])
    keep(s, train_log=log, ib_07_dmesg_txt=dmesg(KERNEL_NOISE[:3] + ["mlx5_core 0000:5e:00.0 ibs3: Link down", "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable unplugged"]))


@case("cuda-driver-too-old-one-node-of-two", "torchrun", ["cuda-drv-old"], ["driver on your system is too old"], ELSEWHERE + ["no"], "the driver of node n-002 is too old for this torch", rank=[8, None, 9, 10, 11, 12, 13, 14, 15], made=FORM)
def _(s):
    """A file per node; node n-001 only waits for the others."""
    a = Log(29, hosts=("n-001", "n-002"), ranks=16).banner()
    b = Log(30, hosts=("n-001", "n-002"), ranks=16).banner()
    b.mixed(*[b.trace(r, INIT[:1] + [("/workspace/train.py", 88, "main", "torch.cuda.set_device(local_rank)"), ("/opt/conda/lib/python3.10/site-packages/torch/cuda/__init__.py", 319, "_lazy_init", "torch._C._cuda_init()")],
                      "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx Alternatively, go to: https://pytorch.org to install a PyTorch version that has been compiled with your version of the CUDA driver.") for r in range(8, 16)])
    b.elastic(8, 1, list(range(9, 16)), other_code=1)
    a.wait(60).mixed(*[a.trace(r, INIT, "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//8") for r in range(3)])
    a.elastic(0, 1, [1, 2], other_code=1)
    keep(s, node_n_001_log=a, node_n_002_log=b)


@case("cuda-no-kernel-image-4-ranks", "torchrun", ["cuda-nokernel"], ["no kernel image is available"], USER, "this torch has no kernels for this GPU", rank=[0, 1, 2, 3], made=FORM)
def _(s):
    """A new GPU with an old torch; a warning says it first."""
    log = Log(31, ranks=4).banner()
    for r in range(4):
        log.say("/opt/conda/lib/python3.10/site-packages/torch/cuda/__init__.py:235: UserWarning: ", "NVIDIA B200 with CUDA capability sm_100 is not compatible with the current PyTorch installation.",
                "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90.")
    log.mixed(*[log.trace(r, FORWARD, "RuntimeError: CUDA error: no kernel image is available for execution on the device" + CUDA_ADVICE) for r in range(4)])
    keep(s, train_log=log.elastic(0, 1, [1, 2, 3], other_code=1))


@case("cuda-invalid-ordinal-rank4-of-8", "torchrun", ["cuda-ordinal"], ["invalid device ordinal"], USER, "eight ranks on a node with four visible GPUs", rank=[4, 5, 6, 7], made=FORM)
def _(s):
    """Ranks 4 to 7 find no GPU of their number."""
    log = Log(32).banner()
    log.mixed(*[log.trace(r, INIT[:1] + [("/workspace/train.py", 88, "main", "torch.cuda.set_device(local_rank)")], "RuntimeError: CUDA error: invalid device ordinal" + CUDA_ADVICE) for r in (4, 5, 6, 7)])
    keep(s, train_log=log.elastic(4, 1, [0, 1, 2, 3, 5, 6, 7]))


@case("cublas-alloc-failed-rank3-of-8", "torchrun", ["cublas-alloc"], ["CUBLAS_STATUS_ALLOC_FAILED"], USER, "no GPU memory is left for cuBLAS on rank 3", rank=3, made=FORM)
def _(s):
    """Other ranks lose their connection."""
    log = Log(33).banner().nccl_start().hf(10, 30)
    log.mixed(log.trace(3, FORWARD, "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), *[log.nccl_lost(r, "gpu-01") for r in (1, 2, 5)])
    keep(s, train_log=log.elastic(3, 1, [0, 1, 2, 4, 5, 6, 7]))


@case("fabric-manager-802-8-ranks", "torchrun", ["cuda-802"], ["Error 802"], ELSEWHERE + ["no"], "the fabric manager of this node does not run", rank=list(range(8)) + [None], made=FORM)
def _(s):
    """cudaGetDeviceCount fails; the program then complains that there is no GPU."""
    log = Log(34).banner()
    for r in range(8):
        log.say("/opt/conda/lib/python3.10/site-packages/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 802: system not yet initialized (Triggered internally at /pytorch/c10/cuda/CUDAFunctions.cpp:109.)",
                "  return torch._C._cuda_getDeviceCount() > 0")
    log.mixed(*[log.trace(r, INIT[:1] + [("/workspace/train.py", 90, "main", 'dist.init_process_group("nccl")')], "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!") for r in range(8)])
    keep(s, train_log=log.elastic(0, 1, list(range(1, 8)), other_code=1))


@case("nvml-mismatch-docker", "docker", ["nvml-mismatch", "nv-container"], ["Driver/library version mismatch", "driver/library version mismatch"], ELSEWHERE + ["no"], "the driver was upgraded under a running system", rank=None, made=FORM)
def _(s):
    """nvidia-smi in the entry point of the image."""
    keep(s, container_log="""==========
== CUDA ==
==========

CUDA Version 12.4.1

+ nvidia-smi -L
Failed to initialize NVML: Driver/library version mismatch
NVML library version: 550.127
+ python -m torch.distributed.run --standalone --nproc-per-node 8 train.py
/opt/conda/lib/python3.10/site-packages/torch/cuda/__init__.py:716: UserWarning: Can't initialize NVML
  warnings.warn("Can't initialize NVML")
Traceback (most recent call last):
  File "/workspace/train.py", line 31, in <module>
    assert torch.cuda.is_available(), "no GPU"
AssertionError: no GPU
entrypoint: train.py ended with code 1
""")


@case("c10-error-watchdog-terminate-after-illegal-access", "torchrun", ["cuda-ima"], ["illegal memory access"], ANY, "rank 3 reads outside its GPU memory; only NCCL's watchdog reports it", rank=3, made=FORM)
def _(s):
    """No Python traceback: the watchdog thread terminates the process."""
    log = Log(35).banner().hf(10, 110)
    pg = "[PG ID 0 PG GUID 0(default_pg) Rank 3]"
    log.say(f"[rank3]:[E{log.glog()} ProcessGroupNCCL.cpp:1897] {pg} Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered", *CUDA_ADVICE.strip().split("\n"),
            "Exception raised from c10_cuda_check_implementation at /pytorch/c10/cuda/CUDAException.cpp:43 (most recent call first):", "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f2f0c96c1b6 in /opt/conda/lib/python3.10/site-packages/torch/lib/libc10.so)",
            "frame #1: c10::detail::torchCheckFail(char const*, char const*, unsigned int, std::string const&) + 0x64 (0x7f2f0c915a76 in /opt/conda/lib/python3.10/site-packages/torch/lib/libc10.so)",
            "terminate called after throwing an instance of 'c10::DistBackendError'", f"  what():  {pg} Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered")
    log.wait(4).mixed(*[[f"[rank{r}]:[W{log.glog()} TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=81, addr=[localhost]:41122, remote=[localhost]:29500): failed to recv, got 0 bytes",
                        f"[rank{r}]:[W{log.glog()} ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0(default_pg) Rank {r}] Failed to check the \"should dump\" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: failed to recv, got 0 bytes"] for r in (1, 2, 6)])
    keep(s, train_log=log.elastic(3, -6, [0, 1, 2, 4, 5, 6, 7]))


@case("tensor-on-cpu-and-cuda-rank-all-of-4", "torchrun", ["py-exception", "device-mismatch"], ["Expected all tensors to be on the same device"], USER, "a tensor was left on the CPU", rank=[0, 1, 2, 3], made=FORM)
def _(s):
    """The same exception on four ranks."""
    log = Log(36, ranks=4).banner().warnings()
    log.mixed(*[log.trace(r, FORWARD, f"RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:{r} and cpu! (when checking argument for argument mat2 in method wrapper_CUDA_mm)") for r in range(4)])
    keep(s, train_log=log.elastic(1, 1, [0, 2, 3], other_code=1))


_ = AGAIN

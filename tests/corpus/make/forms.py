"""Lines as the software prints them, for failures that cannot be caused without GPUs, InfiniBand or a cluster.

Written after the form of the programs' own messages (torch 2.5 to 2.8, NCCL 2.21 to 2.27, driver 550 to 580), with
their surroundings: banners, NCCL's start, bars, losses, warnings, and what the other ranks say about it."""

import random


class Log:
    """A merged or split log that grows line by line. Time runs by itself."""

    def __init__(self, seed, hosts=("gpu-01",), ranks=8, month=3, day=14, hour=2):
        self.random = random.Random(seed)
        self.hosts, self.ranks = list(hosts), ranks
        self.per_node = ranks // len(self.hosts)
        self.pids = {r: 41210 + 7 * r + 311 * (r // max(1, self.per_node)) for r in range(ranks)}
        self.month, self.day = month, day
        self.clock = hour * 3600.0 + 11 * 60
        self.lines = []

    # --- time and places
    def wait(self, seconds):
        self.clock += seconds
        return self

    def hms(self):
        self.clock += self.random.random() * 0.02
        s = self.clock
        return f"{int(s // 3600) % 24:02d}:{int(s // 60) % 60:02d}:{int(s) % 60:02d}"

    def micro(self):
        return f"{self.hms()}.{self.random.randrange(10**9):09d}"

    def glog(self):
        return f"{self.month}{self.day:02d} {self.micro()}"

    def iso(self):
        return f"2026-{self.month:02d}-{self.day:02d} {self.hms()}"

    def host(self, rank):
        return self.hosts[rank // self.per_node]

    def local(self, rank):
        return rank % self.per_node

    def pid(self, rank):
        return self.pids[rank]

    def say(self, *lines):
        self.lines += lines
        return self

    def mixed(self, *streams):
        """Streams of different ranks, interleaved as a pipe does; the order inside a stream stays."""
        streams = [list(s) for s in streams if s]
        while streams:
            one = self.random.choice(streams)
            for _ in range(self.random.randint(1, 3)):
                if one:
                    self.lines.append(one.pop(0))
            streams = [s for s in streams if s]
        return self

    def text(self):
        return "\n".join(self.lines) + "\n"

    # --- surroundings
    def banner(self):
        p = self.random.randrange(3000, 4000)
        return self.say(f"W{self.month:02d}{self.day:02d} {self.micro()[:15]} {p} torch/distributed/run.py:792] ",
                        f"W{self.month:02d}{self.day:02d} {self.micro()[:15]} {p} torch/distributed/run.py:792] *****************************************",
                        f"W{self.month:02d}{self.day:02d} {self.micro()[:15]} {p} torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded, please further tune the variable for optimal performance in your application as needed. ",
                        f"W{self.month:02d}{self.day:02d} {self.micro()[:15]} {p} torch/distributed/run.py:792] *****************************************")

    def warnings(self):
        return self.say("/opt/conda/lib/python3.10/site-packages/transformers/training_args.py:1568: FutureWarning: `evaluation_strategy` is deprecated and will be removed in version 4.46 of Transformers. Use `eval_strategy` instead",
                        "  warnings.warn(",
                        "You are attempting to use Flash Attention 2.0 with a model not initialized on GPU. Make sure to move the model to GPU after initializing it on CPU with `model.to('cuda')`.",
                        "/opt/conda/lib/python3.10/site-packages/torch/utils/checkpoint.py:87: UserWarning: None of the inputs have requires_grad=True. Gradients will be None",
                        "  warnings.warn(")

    def nccl(self, rank, message):
        return f"{self.host(rank)}:{self.pid(rank)}:{self.pid(rank) + 400} [{self.local(rank)}] {message}"

    def nccl_start(self, net="IB", ranks=None):
        for r in ranks if ranks is not None else range(self.ranks):
            address = f"10.12.{self.hosts.index(self.host(r)) + 1}.{20 + self.local(r)}"
            self.say(self.nccl(r, f"NCCL INFO Bootstrap : Using eth0:{address}<0>"),
                     self.nccl(r, "NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)"),
                     self.nccl(r, "NCCL INFO TUNER/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory : when loading libnccl-tuner.so"))
            if net == "IB":
                self.say(self.nccl(r, "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_4:1/IB [3]mlx5_5:1/IB [RO]; OOB eth0:" + address + "<0>"),
                         self.nccl(r, "NCCL INFO Using non-device net plugin version 0"), self.nccl(r, "NCCL INFO Using network IB"))
            else:
                self.say(self.nccl(r, "NCCL INFO NET/IB : No device found."), self.nccl(r, f"NCCL INFO NET/Socket : Using [0]eth0:{address}<0>"),
                         self.nccl(r, "NCCL INFO Using network Socket"))
        for r in ranks if ranks is not None else range(self.ranks):
            self.say(self.nccl(r, f"NCCL INFO ncclCommInitRankConfig comm 0x55d{r:04x}8b8560 rank {r} nranks {self.ranks} cudaDev {self.local(r)} nvmlDev {self.local(r)} busId {0x1b000 + 0x1000 * self.local(r):x} commId 0x92d5c4e4b2e2a - Init COMPLETE"))
        return self

    def bar(self, step, total, seconds, rate, loss=None):
        done = step / total
        full = int(done * 10)
        picture = "\u2588" * full + " " * (10 - full)
        left = int((total - step) * rate)
        tail = f", loss={loss:.4f}" if loss is not None else ""
        return (f"\r{int(done * 100):3d}%|{picture}| {step}/{total} [{int(seconds) // 3600:02d}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}<"
                f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}, {rate:5.2f}s/it{tail}]")

    def hf(self, first, last, every=10, total=5000, rate=1.91):
        """Loss lines and a bar as the HF Trainer prints them."""
        for step in range(first, last + 1, every):
            self.wait(every * rate)
            loss = 6.5 / (1 + step / 300) + self.random.random() * 0.1
            self.say(f"{{'loss': {loss:.4f}, 'grad_norm': {1 + self.random.random():.6f}, 'learning_rate': {2e-05 * (1 - step / total):.3e}, 'epoch': {step / 1900:.2f}}}",
                     "".join(self.bar(s, total, s * rate, rate) for s in range(step - 2, step + 1)))
        return self

    def megatron(self, first, last, every=10, nan_from=None):
        for step in range(first, last + 1, every):
            self.wait(every * 1.2)
            bad = nan_from is not None and step >= nan_from
            loss = "NAN" if bad else f"{2.1 + 3 / step:.6E}"
            self.say(f" [{self.iso()}] iteration {step:8d}/   20000 | consumed samples: {step * 512:12d} | elapsed time per iteration (ms): {1190 + self.random.random() * 40:.1f} | "
                     f"throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 2.9E-04 | global batch size:   512 | lm loss: {loss} | loss scale: 1.0 | grad norm: {'nan' if bad else '0.412'} | "
                     f"number of skipped iterations:   0 | number of nan iterations: {every if bad else 0:3d} |")
        return self

    # --- blocks
    def trace(self, rank, frames, error, tag=True):
        """A traceback of a rank: frames are (file, line, function, source)."""
        p = f"[rank{rank}]: " if tag else ""
        out = [p + "Traceback (most recent call last):"]
        for file, line, function, source in frames:
            out += [f'{p}  File "{file}", line {line}, in {function}', f"{p}    {source}"]
        return out + [p + part for part in error.split("\n")]

    def watchdog(self, rank, seq, op="ALLREDUCE", numel=9801523, ms=600000, last=None, end=True):
        tag = f"[rank{rank}]:[E"
        pg = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
        ran = ms + self.random.randint(3, 99)
        work = f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)={ms}) ran for {ran} milliseconds before timing out."
        enqueued, done = seq + 3, last if last is not None else seq - 1
        out = [f"{tag}{self.glog()} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: {work}",
               f"{tag}{self.glog()} ProcessGroupNCCL.cpp:2268] {pg}  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {enqueued}, last completed work: {done}",
               f"{tag}{self.glog()} ProcessGroupNCCL.cpp:670] Stack trace of the failed collective not found, potentially because FlightRecorder is disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value.",
               f"{tag}{self.glog()} ProcessGroupNCCL.cpp:2103] {pg} First PG on this rank to signal dumping."]
        if end:
            out += [f"{tag}{self.glog()} ProcessGroupNCCL.cpp:684] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
                    f"{tag}{self.glog()} ProcessGroupNCCL.cpp:698] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.",
                    "terminate called after throwing an instance of 'c10::DistBackendError'",
                    f"  what():  {pg} Process group watchdog thread terminated with exception: [Rank {rank}] Watchdog caught collective operation timeout: {work}",
                    "Exception raised from checkTimeout at /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:635 (most recent call first):",
                    "frame #0: c10::Error::Error(c10::SourceLocation, std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >) + 0x96 (0x7f3c1a5b1eb6 in /opt/conda/lib/python3.10/site-packages/torch/lib/libc10.so)",
                    "frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<std::chrono::duration<long, std::ratio<1l, 1000l> > >) + 0x23d (0x7f3bcc8d84fd in /opt/conda/lib/python3.10/site-packages/torch/lib/libtorch_cuda.so)",
                    "frame #2: c10d::ProcessGroupNCCL::Watchdog::runLoop() + 0xc80 (0x7f3bcc8dac40 in /opt/conda/lib/python3.10/site-packages/torch/lib/libtorch_cuda.so)",
                    "frame #3: <unknown function> + 0xdc253 (0x7f3bbc6b0253 in /usr/lib/x86_64-linux-gnu/libstdc++.so.6)",
                    "frame #4: <unknown function> + 0x94ac3 (0x7f3c1c094ac3 in /usr/lib/x86_64-linux-gnu/libc.so.6)", ""]
        return out

    def nccl_lost(self, rank, peer_host, code="remote process exited or there was a network error", frames=None):
        """A rank whose partner went away."""
        address = f"{peer_host}<{self.random.randrange(32000, 60000)}>"
        return [self.nccl(rank, f"misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer {address}"),
                self.nccl(rank, "NCCL INFO misc/socket.cc:752 -> 6"), self.nccl(rank, "NCCL INFO transport/net_socket.cc:474 -> 6"),
                self.nccl(rank, "NCCL INFO proxy.cc:728 -> 6"), self.nccl(rank, "NCCL INFO proxy.cc:912 -> 6 [Progress Thread]"),
                *self.trace(rank, frames or LOOP, f"torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, {code}, NCCL version 2.21.5\n"
                            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
                            f"Last error:\nsocketProgress: Connection closed by remote peer {address}")]

    def elastic(self, root, code=1, others=(), script="train.py", other_code=-15):
        """torchrun's last words: who was told to stop, who failed first."""
        stamp = f"{self.month:02d}{self.day:02d}"
        pid = self.random.randrange(3000, 4000)
        for r in range(self.ranks):
            if r != root and self.host(r) == self.host(root):
                self.say(f"W{stamp} {self.micro()[:15]} {pid} torch/distributed/elastic/multiprocessing/api.py:897] Sending process {self.pid(r)} closing signal SIGTERM")
        self.say(f"E{stamp} {self.micro()[:15]} {pid} torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) local_rank: {self.local(root)} (pid: {self.pid(root)}) of binary: /opt/conda/bin/python")
        self.say("Traceback (most recent call last):", '  File "/opt/conda/bin/torchrun", line 8, in <module>', "    sys.exit(main())",
                 '  File "/opt/conda/lib/python3.10/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355, in wrapper',
                 "    return f(*args, **kwargs)", '  File "/opt/conda/lib/python3.10/site-packages/torch/distributed/run.py", line 918, in main', "    run(args)",
                 '  File "/opt/conda/lib/python3.10/site-packages/torch/distributed/run.py", line 909, in run', "    elastic_launch(",
                 '  File "/opt/conda/lib/python3.10/site-packages/torch/distributed/launcher/api.py", line 138, in __call__',
                 "    return launch_agent(self._config, self._entrypoint, list(args))",
                 '  File "/opt/conda/lib/python3.10/site-packages/torch/distributed/launcher/api.py", line 269, in launch_agent', "    raise ChildFailedError(",
                 "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "=" * 60, f"{script} FAILED", "-" * 60, "Failures:")
        if not others:
            self.say("  <NO_OTHER_FAILURES>")
        names = {-6: "SIGABRT", -9: "SIGKILL", -11: "SIGSEGV", -15: "SIGTERM", -7: "SIGBUS"}

        def entry(index, rank, exit_code):
            said = (f"Signal {-exit_code} ({names[exit_code]}) received by PID {self.pid(rank)}" if exit_code < 0
                    else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html")
            return [f"[{index}]:", f"  time      : 2026-{self.month:02d}-{self.day:02d}_{self.hms()}", f"  host      : {self.host(rank)}",
                    f"  rank      : {rank} (local_rank: {self.local(rank)})", f"  exitcode  : {exit_code} (pid: {self.pid(rank)})",
                    "  error_file: <N/A>", f"  traceback : {said}"]

        for index, rank in enumerate(others):
            self.say(*entry(index + 1, rank, other_code))
        return self.say("-" * 60, "Root Cause (first observed failure):", *entry(0, root, code), "=" * 60)


LOOP = [("/workspace/train.py", 412, "<module>", "main()"), ("/workspace/train.py", 377, "main", "trainer.train(resume_from_checkpoint=args.resume)"),
        ("/opt/conda/lib/python3.10/site-packages/transformers/trainer.py", 2171, "train", "return inner_training_loop("),
        ("/opt/conda/lib/python3.10/site-packages/transformers/trainer.py", 2531, "_inner_training_loop", "tr_loss_step = self.training_step(model, inputs, num_items_in_batch)"),
        ("/opt/conda/lib/python3.10/site-packages/transformers/trainer.py", 3712, "training_step", "self.accelerator.backward(loss, **kwargs)")]
FORWARD = LOOP[:4] + [("/opt/conda/lib/python3.10/site-packages/transformers/trainer.py", 3675, "training_step", "loss = self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)"),
                      ("/opt/conda/lib/python3.10/site-packages/transformers/models/qwen2/modeling_qwen2.py", 229, "forward", "down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))")]
INIT = [("/workspace/train.py", 412, "<module>", "main()"), ("/workspace/train.py", 301, "main", "torch.distributed.barrier()"),
        ("/opt/conda/lib/python3.10/site-packages/torch/distributed/c10d_logger.py", 83, "wrapper", "return func(*args, **kwargs)"),
        ("/opt/conda/lib/python3.10/site-packages/torch/distributed/distributed_c10d.py", 4551, "barrier", "work = group.barrier(opts=opts)")]
OOM_TEXT = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {want} GiB. GPU {gpu} has a total capacity of 79.11 GiB of which {free} GiB is free. "
            "Including non-PyTorch memory, this process has {used} GiB memory in use. Of the allocated memory {alloc} GiB is allocated by PyTorch, and 2.10 GiB is reserved by PyTorch but unallocated. "
            "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  "
            "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)")
CUDA_ADVICE = ("\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n"
               "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n")


def keep(stage, **files):
    folder = stage.work / "log"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        name = name.replace("__", "/").replace("_txt", ".txt").replace("_log", ".log").replace("_out", ".out").replace("_err", ".err")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else text.text(), newline="")


def dmesg(lines, start=91234.123456):
    out = []
    for i, line in enumerate(lines):
        out.append(f"[{start + i * 0.913:.6f}] {line}")
    return "\n".join(out) + "\n"

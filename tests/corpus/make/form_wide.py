"""As wide as the field: libraries, storage, schedulers and scripts, written after the form."""

import form_cluster
import form_software
from form_gpu import KERNEL_NOISE
from forms import CUDA_ADVICE, FORWARD, INIT, LOOP, Log, dmesg, keep
from register import AGAIN, ANY, ELSEWHERE, USER, case

FORM = "after the form"
PY = "py-exception"
SITE = "/opt/conda/lib/python3.10/site-packages/"


def one(seed, rank, ranks, error, frames=FORWARD, steps=60, before=(), code=1):
    """One rank raises; some of the others lose it."""
    log = Log(seed, ranks=ranks).banner()
    if steps:
        log.hf(10, steps)
    log.say(*before)
    others = [r for r in range(ranks) if r != rank]
    log.mixed(log.trace(rank, frames, error), *[log.nccl_lost(r, "gpu-01") for r in others[:2]])
    return log.elastic(rank, code, others)


def every(seed, ranks, error, frames=INIT, before=(), script="train.py"):
    """All ranks raise the same."""
    log = Log(seed, ranks=ranks).banner().say(*before)
    log.mixed(*[log.trace(r, frames, error.replace("{r}", str(r))) for r in range(ranks)])
    return log.elastic(0, 1, list(range(1, ranks)), other_code=1, script=script)


def raises(name, signature, names, what, rank, text, seed, restart=USER, ranks=4, frames=FORWARD, steps=60, before=()):
    """A case of one exception: on `rank`, or on all when rank is "all"."""

    def make(s):
        keep(s, train_log=every(seed, ranks, text, frames, before) if rank == "all" else one(seed, rank, ranks, text, frames, steps, before))

    make.__doc__ = "The exception of that library, and what the other ranks say of it."
    case(name, "torchrun", signature, names, restart, what, rank=list(range(ranks)) if rank == "all" else rank, made=FORM)(make)


def text_only(name, launcher, signature, names, what, text, restart=USER, node=None, file="train_log"):
    def make(s):
        keep(s, **{file: text})

    make.__doc__ = "What the user sees, in one file."
    case(name, launcher, signature, names, restart, what, rank=None, node=node, made=FORM)(make)


MAIN = [("/workspace/train.py", 412, "<module>", "main()")]
raises("cufft-exec-failed-rank2-of-4", ["cufft-cublas", "cuda-error", PY], ["CUFFT_EXEC_FAILED"], "cuFFT failed on rank 2", 2, "RuntimeError: cuFFT error: CUFFT_EXEC_FAILED", 300, ANY)
raises("cublas-not-initialized-rank1-of-8", ["cublas-alloc", "cufft-cublas", "cuda-error"], ["CUBLAS_STATUS_NOT_INITIALIZED"], "cuBLAS could not start on rank 1 (usually: no GPU memory left)", 1, "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", 301, ANY, ranks=8)
raises("cusolver-internal-error-rank0-of-2", ["cufft-cublas", "cuda-error", PY], ["cusolver error"], "cuSOLVER failed on rank 0", 0, "torch._C._LinAlgError: cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`. This error may appear if the input matrix contains NaN.", 302, ANY, ranks=2)
raises("fsdp-flat-param-mixed-dtype-4-ranks", [PY, "dtype-mismatch", "config"], ["Must flatten tensors with uniform dtype"], "FSDP is given parameters of different types", "all", "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32", 303, frames=MAIN + [("/workspace/train.py", 190, "main", "model = FSDP(model, auto_wrap_policy=policy)")])
raises("fsdp-sharded-checkpoint-other-world-size-8-ranks", [PY, "ckpt-key"], ["size mismatch", "RuntimeError: Error(s)", "Checkpoint was saved with"], "the sharded checkpoint belongs to another number of ranks", "all", "ValueError: Checkpoint was saved with world_size=16 (local shards), but this job has world_size=8", 304, ranks=8, frames=MAIN + [("/workspace/ckpt.py", 60, "load", "load_sharded(model, path)")])
raises("zero-stage2-without-optimizer-4-ranks", [PY, "ds-optimizer"], ["zero stage 2 requires an optimizer"], "ZeRO was given a model without an optimizer", "all", "AssertionError: zero stage 2 requires an optimizer", 306, frames=MAIN + [(SITE + "deepspeed/runtime/engine.py", 1301, "_configure_zero_optimizer", 'assert optimizer is not None, "zero stage 2 requires an optimizer"')])
raises("webdataset-shard-404-rank3-of-8", [PY, "hub-auth", "net", "fs-enoent", "data-error"], ["404"], "a shard is not at its address", 3, "OSError: (('curl --connect-timeout 30 --retry 30 -f -s -L https://data.example.org/shards/train-00211.tar',), {'shell': True}): exit 22 (read) {} @ <Pipe> 404 Not Found", 307, ranks=8, frames=LOOP[:4] + [(SITE + "webdataset/gopen.py", 117, "check_status", "raise IOError(f\"{self.args}: exit {self.status} (read) {info}\")")])
raises("gcs-forbidden-rank0-of-8", [PY, "hub-auth", "net", "fs-eacces"], ["403"], "the account may not read the bucket", 0, "google.api_core.exceptions.Forbidden: 403 GET https://storage.googleapis.com/storage/v1/b/vla-data?projection=noAcl: user@project.iam.gserviceaccount.com does not have storage.buckets.get access to the Google Cloud Storage bucket. Permission 'storage.buckets.get' denied on resource (or it may not exist).", 308, ranks=8, steps=0, frames=MAIN + [("/workspace/data.py", 20, "open_index", "bucket = client.get_bucket(\"vla-data\")")])
raises("arrow-cache-damaged-rank2-of-4", [PY, "data-error"], ["ArrowInvalid"], "the cached dataset of rank 2 is damaged", 2, "pyarrow.lib.ArrowInvalid: Expected to read 538970747 metadata bytes, but only read 2131", 309, steps=0, frames=MAIN + [(SITE + "datasets/table.py", 65, "_memory_mapped_arrow_table_from_file", "pa_table = opened_stream.read_all()")])
raises("tokenizer-pad-token-missing-4-ranks", [PY, "tokenizer"], ["does not have a padding token"], "the tokenizer has no padding token", "all", "ValueError: Asking to pad but the tokenizer does not have a padding token. Please select a token to use as `pad_token` `(tokenizer.pad_token = tokenizer.eos_token e.g.)` or add a new pad token via `tokenizer.add_special_tokens({'pad_token': '[PAD]'})`.", 310, frames=MAIN + [(SITE + "transformers/tokenization_utils_base.py", 2740, "_get_padding_truncation_strategies", "raise ValueError(")])
raises("inductor-no-compiler-2-ranks", [PY, "triton", "cc-error", "shell"], ["C++ compiler", "InvalidCxxCompiler", "C compiler"], "torch.compile finds no compiler", "all", "torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')\n\nSet TORCHDYNAMO_VERBOSE=1 for the internal stack trace (please do this especially if you're reporting a bug to PyTorch).", 311, ranks=2)
raises("dynamo-unsupported-graph-break-fullgraph-4-ranks", [PY, "triton"], ["torch._dynamo.exc.Unsupported", "Data-dependent", "Unsupported"], "torch.compile(fullgraph=True) cannot compile the model", "all", "torch._dynamo.exc.Unsupported: Data-dependent branching\n  Explanation: Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`). Dynamo does not support tracing dynamic control flow.", 312)
raises("triton-out-of-shared-memory-rank0-of-8", [PY, "triton"], ["out of resource: shared memory"], "a Triton kernel needs more shared memory than the GPU has", 0, "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 264224, Hardware limit: 232448. Reducing block sizes or `num_stages` may help.", 313, ranks=8, steps=0)
raises("nccl-library-symbol-version-8-ranks", ["py-undef"], ["undefined symbol: ncclCommWindowRegister", "undefined symbol"], "torch is loaded with an older libnccl than it was built for", "all", "ImportError: /opt/conda/lib/python3.10/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommWindowRegister", 314, ranks=8, frames=[("/workspace/train.py", 3, "<module>", "import torch"), (SITE + "torch/__init__.py", 409, "<module>", "from torch._C import *  # noqa: F403")])
raises("hdf5-file-locked-rank2-of-4", [PY, "data-error"], ["unable to lock file"], "an HDF5 file is locked by another process", 2, "BlockingIOError: [Errno 11] Unable to synchronously open file (unable to lock file, errno = 11, error message = 'Resource temporarily unavailable')", 315, ANY, steps=0, frames=MAIN + [(SITE + "h5py/_hl/files.py", 561, "__init__", "fid = make_fid(name, mode, userblock_size, fapl, fcpl, swmr=swmr)")])
raises("lmdb-map-full-rank0-of-2", [PY, "data-error", "fs-enospc"], ["MDB_MAP_FULL"], "the LMDB of rank 0 reached its size limit", 0, "lmdb.MapFullError: mdb_put: MDB_MAP_FULL: Environment mapsize limit reached", 316, ranks=2)
raises("tmp-full-triton-cache-8-ranks", ["fs-enospc"], ["No space left on device"], "the disk of the Triton cache is full", "all", "OSError: [Errno 28] No space left on device: '/tmp/triton/0f91c/tmp.pid_4{r}1.cubin'", 317, ranks=8, frames=FORWARD[:4] + [(SITE + "triton/runtime/cache.py", 118, "put", 'f.write(data)')])
raises("zombie-process-holds-gpu-memory-rank6-of-8", ["cuda-oom"], ["CUDA out of memory"], "a left-over process holds the memory of GPU 6", 6, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB. GPU 6 has a total capacity of 79.11 GiB of which 212.19 MiB is free. Process 3118 has 71.90 GiB memory in use. Process 3121 has 5.20 GiB memory in use. Including non-PyTorch memory, this process has 1.77 GiB memory in use.", 318, ANY, ranks=8, steps=0, frames=MAIN + [("/workspace/train.py", 133, "main", "model = model.to(device)")])
raises("ecc-row-remap-pending-cuda-init-4-ranks", ["cuda-ecc"], ["uncorrectable ECC"], "GPU 2 has an uncorrectable memory error", 2, "RuntimeError: CUDA error: uncorrectable ECC error encountered" + CUDA_ADVICE, 319, ELSEWHERE, steps=0, frames=MAIN + [("/workspace/train.py", 88, "main", "torch.zeros(1, device=device)")])
raises("checkpoint-rng-state-wrong-type-rank-all-of-4", [PY, "ckpt-key", "ckpt-mismatch"], ["RNG state must be a torch.ByteTensor"], "the random state of the checkpoint has the wrong type", "all", "TypeError: RNG state must be a torch.ByteTensor", 320, frames=MAIN + [(SITE + "torch/random.py", 18, "set_rng_state", "default_generator.set_state(new_state)")])
raises("peft-target-modules-not-found-2-ranks", [PY, "config"], ["Target modules"], "LoRA's target modules are not in the model", "all", "ValueError: Target modules {'q_proj', 'v_proj'} not found in the base model. Please check the target modules and try again.", 321, ranks=2, frames=MAIN + [(SITE + "peft/tuners/tuners_utils.py", 568, "inject_adapter", "raise ValueError(error_msg)")])

text_only("ucx-unreachable-mpirun", "mpirun", ["mpi-fatal", "net", "error-line"], ["Destination is unreachable", "UCX  ERROR", "no remote ep address"], "UCX finds no way to the other hosts", """[1773454210.101221] [c-01:7121 :0]        ucp_ep.c:1071 UCX  ERROR   no remote ep address for lane[1]->remote_lane[1]
[1773454210.101310] [c-01:7121 :0]         select.c:645  UCX  ERROR   no active messages transport to <no debug data>: posix/memory - Destination is unreachable, sysv/memory - Destination is unreachable, self/memory - Destination is unreachable
[c-01:07121] pml_ucx.c:424  Error: ucp_ep_create(proc=1) failed: Destination is unreachable
[c-01:07121] *** An error occurred in MPI_Allreduce
[c-01:07121] *** reported by process [3110207489,0]
[c-01:07121] *** on communicator MPI_COMM_WORLD
[c-01:07121] *** MPI_ERR_INTERN: internal error
[c-01:07121] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
""", ANY)
text_only("openmpi-abort-called-rank1-of-4", "mpirun", ["mpi-abort", PY], ["ValueError: negative time step", "MPI_ABORT"], "rank 1 raises and mpi4py aborts all", """[1,0]<stdout>:step 120 dt 0.0021 error norm 1.2e-06
[1,1]<stderr>:Traceback (most recent call last):
[1,1]<stderr>:  File "/workspace/solver.py", line 88, in <module>
[1,1]<stderr>:    advance(state, dt)
[1,1]<stderr>:  File "/workspace/solver.py", line 41, in advance
[1,1]<stderr>:    raise ValueError(f"negative time step {dt}")
[1,1]<stderr>:ValueError: negative time step -0.0021
--------------------------------------------------------------------------
MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD
with errorcode 1.

NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.
--------------------------------------------------------------------------
""", USER)
text_only("tensorflow-resource-exhausted-plain", "plain", [PY, "cuda-oom"], ["ResourceExhaustedError", "OOM when allocating"], "TensorFlow ran out of GPU memory", """2026-03-14 02:11:05.101221: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on. You may see slightly different numerical results due to floating-point round-off errors from different computation orders.
2026-03-14 02:11:05.311002: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:485] Unable to register cuFFT factory: Attempting to register factory for plugin cuFFT when one has already been registered
Epoch 1/10
 120/4000 [..............................] - ETA: 12:11 - loss: 2.1102
Traceback (most recent call last):
  File "/workspace/train.py", line 61, in <module>
    model.fit(dataset, epochs=10)
  File "/opt/conda/lib/python3.10/site-packages/keras/src/utils/traceback_utils.py", line 122, in error_handler
    raise e.with_traceback(filtered_tb) from None
tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:
OOM when allocating tensor with shape[256,112,112,64] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc
""")
text_only("jax-distributed-barrier-timeout-4-processes", "plain", [PY, "pt-timeout-join", "hang", "pt-store-wait"], ["DEADLINE_EXCEEDED", "Barrier timed out"], "not all JAX processes came", """I0314 02:11:05.101221    7121 coordination_service.cc:535] /job:jax_worker/replica:0/task:0 has connected to coordination service.
I0314 02:11:05.311002    7121 coordination_service.cc:535] /job:jax_worker/replica:0/task:2 has connected to coordination service.
Traceback (most recent call last):
  File "/workspace/train.py", line 12, in <module>
    jax.distributed.initialize(coordinator_address="10.0.0.11:1234", num_processes=4, process_id=0)
jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: PjRT_Client_Connect::0. This usually happens because a task triggered the barrier too early or too slowly. # of tasks that reached the barrier: 3/4. The first task at the barrier: /job:jax_worker/replica:0/task:0. Some timed out task names: /job:jax_worker/replica:0/task:3
""", ANY)
text_only("tokenizer-json-version-plain", "plain", [PY, "tokenizer", "data-error"], ["untagged enum ModelWrapper"], "the tokenizer file is of a newer version than the library", """Loading checkpoint shards: 100%|##########| 4/4 [00:21<00:00,  5.31s/it]
Traceback (most recent call last):
  File "/workspace/train.py", line 166, in <module>
    tokenizer = AutoTokenizer.from_pretrained(args.model)
  File "/opt/conda/lib/python3.10/site-packages/transformers/tokenization_utils_fast.py", line 111, in __init__
    fast_tokenizer = TokenizerFast.from_file(fast_tokenizer_file)
Exception: data did not match any variant of untagged enum ModelWrapper at line 757479 column 3
""")
text_only("fork-resource-unavailable-bash-sbatch", "sbatch", ["eagain-threads", "shell", "thread-oom"], ["fork", "Resource temporarily unavailable"], "the user may not start more processes", """job 7712 on c041
/var/spool/slurmd/job07712/slurm_script: fork: retry: Resource temporarily unavailable
/var/spool/slurmd/job07712/slurm_script: fork: retry: Resource temporarily unavailable
/var/spool/slurmd/job07712/slurm_script: fork: Resource temporarily unavailable
""", ANY, file="slurm_7712_out")
text_only("proxy-certificate-pip-in-job-script", "sbatch", ["net", "py-ssl", "shell", "py-nomodule", "hub-conn"], ["CERTIFICATE_VERIFY_FAILED", "No module named 'einops'"], "pip cannot install a package in the job script (certificate); the program then lacks it", """+ pip install -r requirements.txt
WARNING: Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) after connection broken by 'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate (_ssl.c:1007)'))': /simple/einops/
ERROR: Could not find a version that satisfies the requirement einops==0.8.0 (from versions: none)
ERROR: No matching distribution found for einops==0.8.0
+ python train.py
Traceback (most recent call last):
  File "/workspace/train.py", line 5, in <module>
    import einops
ModuleNotFoundError: No module named 'einops'
srun: error: c011: task 0: Exited with exit code 1
""", USER, file="slurm_91_out")
text_only("git-clone-refused-job-script", "sbatch", ["ssh-key", "shell", "hub-auth", "error-line", "net"], ["Permission denied (publickey)", "Could not read from remote repository"], "the node has no key for the repository", """Cloning into 'vla'...
git@git.example.org: Permission denied (publickey).
fatal: Could not read from remote repository.

Please make sure you have the correct access rights
and the repository exists.
run.sh: line 6: cd: vla: No such file or directory
""", USER, file="slurm_92_out")
text_only("module-load-not-found-sbatch", "sbatch", ["shell", "error-line", "exec-missing", "module"], ["cuda/13.9", "unknown"], "the environment module does not exist", """Lmod has detected the following error:  The following module(s) are unknown: "cuda/13.9"

Please check the spelling or version number. Also try "module spider ..."
It is also possible your cache file is out-of-date; it may help to try:
  $ module --ignore_cache load "cuda/13.9"

slurm_script: aborting, exit code 1
""", USER, file="slurm_93_out")
text_only("conda-environment-missing-sbatch", "sbatch", ["conda", "shell"], ["EnvironmentNameNotFound", "Could not find conda environment"], "the conda environment does not exist on this cluster", """
EnvironmentNameNotFound: Could not find conda environment: vla-train
You can list all discoverable environments with `conda info --envs`.

exit code 1
""", USER, file="slurm_94_out")
text_only("python-version-syntax-match-statement-sbatch", "srun", ["py-syntax"], ["SyntaxError"], "the program needs a newer Python than the one in PATH", """0:   File "/workspace/train.py", line 31
0:     match args.mode:
0:           ^
0: SyntaxError: invalid syntax
1:   File "/workspace/train.py", line 31
1:     match args.mode:
1:           ^
1: SyntaxError: invalid syntax
srun: error: c021: tasks 0-1: Exited with exit code 1
""", USER, file="slurm_95_out")
text_only("slurm-requeued-after-node-fail", "sbatch", ["slurm-nodefail", "slurm-node-comm"], ["NODE FAILURE", "NODE_FAIL"], "a node failed and SLURM put the job back into the queue", Log(340, hosts=("c001", "c002"), ranks=16).hf(10, 120).say(
    "slurmstepd: error: *** JOB 5512 ON c001 CANCELLED AT 2026-03-14T02:21:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", "srun: error: Node failure on c002").text(), ELSEWHERE, file="slurm_5512_out")
text_only("slurm-qos-limit-pending-submit", "sbatch", ["slurm-submit", "slurm-config"], ["QOSMaxSubmitJobPerUserLimit", "violates accounting/QOS policy"], "the account may not submit more jobs", "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n", ANY, file="submit_log")
text_only("slurm-prolog-failed", "srun", ["slurm-fail", "slurm-nodefail", "slurm-node-comm", "slurm-step", "slurm-prolog"], ["prolog", "Prolog"], "the prolog of a node failed", "srun: error: Task launch for StepId=6612.0 failed on node c033: Job prolog failed\nsrun: error: Application launch failed: Job prolog failed\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n", ELSEWHERE + ["no"], file="slurm_6612_out")
text_only("driver-library-mismatch-after-upgrade-srun", "srun", ["nvml-mismatch"], ["Driver/library version mismatch"], "the driver of a node was upgraded under its libraries", """2: Failed to initialize NVML: Driver/library version mismatch
2: NVML library version: 570.86
2: Traceback (most recent call last):
2:   File "/workspace/train.py", line 20, in <module>
2:     torch.cuda.set_device(0)
2: RuntimeError: No CUDA GPUs are available
srun: error: c044: task 2: Exited with exit code 1
srun: Terminating StepId=7001.0
""", ELSEWHERE + ["no"], file="slurm_7001_out")

case("zero3-checkpoint-other-world-size-16-ranks", "deepspeed", [PY, "ckpt-mismatch", "ckpt-key"], ["ZeRORuntimeException", "different from the current world size"], USER, "the ZeRO-3 checkpoint belongs to another number of ranks", rank=[0, 1, 2, 3, None], made=FORM)(
    lambda s: keep(s, ds_log=form_software.ds_end((lambda log: log.mixed(*[log.trace(r, MAIN + [(SITE + "deepspeed/runtime/zero/stage3.py", 2711, "load_state_dict", "raise ZeRORuntimeException(")], "deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP world size of 8 but the current world size is 16. Automatic adjustment of ZeRO's optimizer state partitioning with a new world size is not currently supported: different from the current world size.") for r in range(4)]))(form_software.ds_start(Log(305, ranks=16))), 1)))


@case("efa-libfabric-no-provider-16-ranks", "torchrun", ["nccl-warn", "nccl-no-iface", "net", "nccl-syserr", "nccl-internal"], ["OFI", "No eligible providers"], USER, "the EFA plug-in finds no usable network", rank=None, made=FORM)
def _(s):
    """aws-ofi-nccl's warning and NCCL's consequence."""
    log = Log(330, hosts=("p5-1", "p5-2"), ranks=16).banner()
    log.mixed(*[[log.nccl(r, "NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.13.2-aws"), log.nccl(r, "find_ofi_provider:612 NCCL WARN NET/OFI Couldn't find any optimal provider: No eligible providers were found"), log.nccl(r, "NCCL WARN NET/OFI aws-ofi-nccl initialization failed"),
                 *log.trace(r, INIT, "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \nLast error:\nNET/OFI Couldn't find any optimal provider: No eligible providers were found")] for r in (0, 5, 8)])
    keep(s, train_log=log.elastic(0, 1, [5], other_code=1))


@case("dns-nxdomain-pytorchjob-worker-8-ranks", "kubernetes", ["pt-dns", "net"], ["Name or service not known", "vla-pretrain-master-0"], ANY, "the name of the master's service is unknown in the worker", rank=None, made=FORM)
def _(s):
    """The c10d client retries for minutes."""
    log = Log(331, hosts=("vla-pretrain-worker-0",), ranks=8)
    for i in range(6):
        log.wait(10).say(f"[W{log.glog()} socket.cpp:697] [c10d] The IPv6 network addresses of (vla-pretrain-master-0, 23456) cannot be retrieved (gai error: -2 - Name or service not known).")
    log.say(*log.trace(0, [("/opt/conda/bin/torchrun", 8, "<module>", "sys.exit(main())"), (SITE + "torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py", 159, "_create_tcp_store", "store = TCPStore(")], "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (vla-pretrain-master-0, 23456). The name or service is not known: gai error: -2 - Name or service not known.", tag=False))
    keep(s, worker_0_log=log)


def k8s(name, signature, names, what, state, events, restart, message="", node=None):
    def make(s):
        keep(s, describe_txt=form_cluster.describe("vla-pretrain-worker-1", "gpu-node-5/10.0.0.15", state, events, message=message), worker_1_log=Log(len(name), ranks=8).banner().hf(10, 60))

    make.__doc__ = "kubectl describe, and the container's log up to there."
    case(name, "kubernetes", signature, names, restart, what, rank=None, node=node, made=FORM)(make)


ENDED = "    State:          Terminated\n      Reason:       Error\n      Exit Code:    {code}\n    Ready:          False\n"
k8s("k8s-deadline-exceeded", ["k8s-state", "slurm-time", "k8s-deadline"], ["DeadlineExceeded", "active on the node longer"], "the job reached its activeDeadlineSeconds", ENDED.format(code=143), "  Normal   DeadlineExceeded  1m   kubelet  Pod was active on the node longer than the specified deadline\n", AGAIN + ["after-fix", "no"], "Status:           Failed\nReason:           DeadlineExceeded\nMessage:          Pod was active on the node longer than the specified deadline\n")
k8s("k8s-liveness-probe-killed", ["k8s-state", "exit-sigkill", "k8s-probe"], ["iveness probe"], "the liveness probe failed and the container was killed", ENDED.format(code=137), "  Warning  Unhealthy  2m (x3 over 3m)  kubelet  Liveness probe failed: HTTP probe failed with statuscode: 503\n  Normal   Killing    2m               kubelet  Container pytorch failed liveness probe, will be restarted\n", ANY)
k8s("k8s-spot-interruption-notice", ["preempted", "k8s-evict", "k8s-node", "k8s-state", "node-lost"], ["preempt", "Preempt", "interruption"], "the spot node was taken back", ENDED.format(code=143), "  Warning  SpotInterruption     3m   aws-node-termination-handler  Spot ITN received. Instance will be interrupted at 2026-03-14T03:10:00Z\n  Normal   TaintManagerEviction 2m   taint-eviction-controller     Marking for deletion Pod training/vla-pretrain-worker-1\n  Warning  Preempted            2m   default-scheduler             Preempted by pod on node gpu-node-5\n", AGAIN + ["after-fix"])


@case("k8s-volume-mount-failed", "kubernetes", ["k8s-volume", "k8s-state", "fs-eacces", "fs-enoent"], ["FailedMount", "MountVolume"], ELSEWHERE + ["no"], "the volume of the data cannot be mounted", rank=None, made=FORM)
def _(s):
    """Events only: the container never started."""
    keep(s, describe_txt=form_cluster.describe("vla-pretrain-worker-1", "gpu-node-5/10.0.0.15", "    State:          Waiting\n      Reason:       ContainerCreating\n    Ready:          False\n", "  Warning  FailedMount  20s (x8 over 2m)  kubelet  MountVolume.SetUp failed for volume \"data\" : mount failed: exit status 32, mount.nfs: Connection timed out\n"))


@case("k8s-config-map-missing", "kubernetes", ["k8s-config", "k8s-state", "k8s-volume"], ["CreateContainerConfigError", "not found"], USER, "a config map that the pod needs does not exist", rank=None, made=FORM)
def _(s):
    """Events only."""
    keep(s, describe_txt=form_cluster.describe("vla-pretrain-worker-1", "gpu-node-5/10.0.0.15", "    State:          Waiting\n      Reason:       CreateContainerConfigError\n    Ready:          False\n", "  Warning  Failed  12s (x6 over 1m)  kubelet  Error: configmap \"nccl-env\" not found\n"))


@case("thermal-shutdown-gpu-rank3-of-8", "torchrun", ["xid-any", "gpu-lost", "thermal"], ["79", "fallen off the bus", "thermal", "Thermal"], ELSEWHERE, "GPU 3 overheated and was switched off", rank=[3, None], made=FORM)
def _(s):
    """Thermal lines, then Xid 79 in the kernel log."""
    log = Log(332).banner().hf(10, 150)
    log.mixed(log.trace(3, LOOP, "RuntimeError: CUDA error: unknown error" + CUDA_ADVICE), *[log.nccl_lost(r, "gpu-01") for r in (2, 4)])
    log.elastic(3, 1, [0, 1, 2, 4, 5, 6, 7])
    keep(s, train_log=log, dmesg_txt=dmesg(KERNEL_NOISE + ["NVRM: GPU at PCI:0000:5d:00: thermal shutdown temperature reached", "NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."]))

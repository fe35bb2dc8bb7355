"""Failures of Python programs, really caused."""

from program import program
from register import USER, case, lockstep, log_folder, one_file_per_rank, plain, torchrun
from stage import LOCKSTEP, PYTHON

PY = "py-exception"


@case("zero-division-rank2-of-4-torchrun-merged", "torchrun", PY, ["ZeroDivisionError"], USER,
      "rank 2 divides by a count of zero in its batch; the other ranks then lose their connection to it", rank=2)
def _(s):
    """The loop of rank 2 divides by the number of positive labels of a batch without any."""
    s.write("train.py", program(batch="""
        positives = int(y.sum()) if not (rank == 2 and global_step == 11) else 0
        weight = len(y) / positives if rank == 2 else 1.0
        """))
    torchrun(s, 4)


@case("missing-module-2-ranks-torchrun", "torchrun", "py-nomodule", ["einops_exts"], USER,
      "a Python package is not installed", rank=[0, 1])
def _(s):
    """An import of a package nobody installed."""
    s.write("train.py", program(imports="import numpy\nfrom einops_exts import rearrange_many"))
    torchrun(s, 2)


@case("argparse-unknown-flag-2-ranks-torchrun", "torchrun", ["usage", "pt-local-rank-arg", "exit-code", "hf-args"],
      ["unrecognized arguments"], USER, "the program does not know a flag it was given", rank=[0, 1])
def _(s):
    """A misspelt flag of the program."""
    s.write("train.py", program())
    torchrun(s, 2, "train.py", "--epochs", "2", "--learning-rate", "1e-4")


@case("local-rank-argument-torch-launch", "torch.distributed.launch", ["pt-local-rank-arg"], ["--local-rank", "--local_rank"], USER,
      "torch.distributed.launch adds --local-rank, which the script does not take", rank=[0, 1])
def _(s):
    """The old launch module with a script that reads the environment."""
    s.write("train.py", program())
    (s.work / "log").mkdir()
    s.run(f"{PYTHON} -m torch.distributed.launch --nproc-per-node 2 train.py >log/train.log 2>&1; exit 0")


@case("recursion-error-rank1-of-2-torchrun", "torchrun", [PY, "py-recursion"], ["RecursionError"], USER,
      "endless recursion in the collation of rank 1", rank=1)
def _(s):
    """A function that counts the depth of nested lists meets a list that holds itself."""
    s.write("train.py", program(imports="""
def depth(value):
    return 1 + depth(value[-1]) if isinstance(value, list) else 0
""", batch="""
        if rank == 1 and global_step == 3:
            nested = [1, 2]
            nested.append(nested)
            levels = depth(nested)
        """))
    torchrun(s, 2)


@case("keyboard-interrupt-2-ranks-torchrun", "torchrun", ["interrupted", "preempted", "exit-sigint"], ["KeyboardInterrupt", "SIGINT", "signal 2", "signal: 2"],
      ["yes", "no"], "somebody pressed Ctrl-C", rank=None)
def _(s):
    """SIGINT to the launcher and its ranks in the middle of an epoch, as a terminal sends it."""
    s.write("train.py", program())
    (s.work / "log").mkdir()
    s.run(f"""set -m
{PYTHON} -m torch.distributed.run --standalone --nproc-per-node 2 train.py --steps 2000 --pace 0.05 >log/train.log 2>&1 &
job=$!
for i in $(seq 600); do grep -q "'epoch': 0.0" log/train.log && grep -q "'loss'" log/train.log && break; sleep 0.1; done
sleep 1
kill -INT -$job
wait $job
exit 0""")


@case("memory-error-address-space-rank0-of-2-lockstep", "lockstep", ["py-memory", "enomem", PY], ["MemoryError", "Unable to allocate"],
      ["no", "after-fix", "yes"], "rank 0 asks for more memory than its address-space limit allows", rank=0)
def _(s):
    """Rank 0 runs under a soft RLIMIT_AS and asks numpy for a large array."""
    s.write("train.py", program(imports="import numpy as np\nimport resource", start="""
    if rank == 0:
        resource.setrlimit(resource.RLIMIT_AS, (12 << 30, resource.RLIM_INFINITY))
        """, batch="""
        if rank == 0 and global_step == 5:
            cache = np.zeros((400000, 8192), dtype=np.float64)
        """))
    lockstep(s, 2)


@case("cpu-allocator-refused-rank3-of-4-torchrun", "torchrun", ["py-memory", "enomem", PY], ["DefaultCPUAllocator", "can't allocate memory"],
      ["no", "after-fix", "yes"], "rank 3 asks for a tensor that the host cannot hold", rank=3)
def _(s):
    """A tensor of 8 TB."""
    s.write("train.py", program(batch="""
        if rank == 3 and global_step == 9:
            pairwise = torch.empty(1 << 20, 1 << 20, dtype=torch.float64)
        """))
    torchrun(s, 4)


@case("cuda-not-compiled-in-2-ranks-torchrun", "torchrun", [PY, "cuda-none", "cuda-not-compiled"], ["Torch not compiled with CUDA enabled"], USER,
      "a torch built without CUDA is asked for a GPU", rank=[0, 1])
def _(s):
    """model.cuda() on the CPU build."""
    s.write("train.py", program(build='model = model.to(f"cuda:{os.environ[\'LOCAL_RANK\']}")'))
    torchrun(s, 2)


@case("nccl-not-built-in-2-ranks-torchrun", "torchrun", [PY, "cuda-none"], ["NCCL", "no GPUs found"], USER,
      "backend nccl on a torch without NCCL", rank=[0, 1])
def _(s):
    """init_process_group("nccl") on the CPU build."""
    s.write("train.py", program().replace('init_process_group("gloo"', 'init_process_group("nccl"'))
    torchrun(s, 2)


@case("config-key-missing-plain", "plain", [PY, "config"], ["KeyError"], USER, "the configuration has no key 'warmup_steps'", rank=None)
def _(s):
    """A single process; the configuration lacks a key."""
    s.write("config.yaml", "model:\n  width: 64\ntraining:\n  lr: 1.0e-4\n  steps: 100\n")
    s.write("train.py", '''import logging
import yaml

logging.basicConfig(level=logging.INFO, format="[%(asctime)s][%(levelname)s] %(message)s")
log = logging.getLogger("train")


def build_schedule(config):
    training = config["training"]
    log.info("base lr %g", training["lr"])
    return [training["lr"] * min(1, i / training["warmup_steps"]) for i in range(training["steps"])]


def main():
    with open("config.yaml") as file:
        config = yaml.safe_load(file)
    log.warning("no wandb project given, metrics are not uploaded (error 0)")
    schedule = build_schedule(config)
    print(len(schedule))


if __name__ == "__main__":
    main()
''')
    plain(s, "python train.py\necho \"exit code $?\"\n")


@case("assertion-batch-divisible-2-ranks-lockstep", "lockstep", [PY, "config"], ["AssertionError", "must be divisible"], USER,
      "the global batch is not divisible by the number of ranks", rank=[0, 1])
def _(s):
    """An assertion of the program on start."""
    s.write("train.py", program(start='''
    global_batch = 33
    assert global_batch % world == 0, f"global batch {global_batch} must be divisible by world size {world}"
    '''))
    lockstep(s, 2)


@case("yaml-number-as-string-rank-all-torchrun", "torchrun", PY, ["TypeError"], USER,
      "YAML reads 1e-4 as text; the optimizer compares text with a number", rank=[0, 1])
def _(s):
    """lr: 1e-4 in YAML 1.1 is a string."""
    s.write("config.yaml", "lr: 1e-4\nweight_decay: 0.01\n")
    s.write("train.py", program(imports="import yaml", args="""
    with open("config.yaml") as file:
        args.lr = yaml.safe_load(file)["lr"]
    """))
    torchrun(s, 2)


@case("syntax-error-2-ranks-torchrun", "torchrun", ["py-syntax"], ["SyntaxError"], USER, "the program is not valid Python", rank=[0, 1])
def _(s):
    """A bracket that is never closed."""
    s.write("train.py", program().replace('parser.add_argument("--lr", type=float, default=5e-4)', 'parser.add_argument("--lr", type=float, default=5e-4'))
    torchrun(s, 2)


@case("attribute-error-api-removed-2-ranks-torchrun", "torchrun", PY, ["AttributeError"], USER,
      "the program uses a function that this torch no longer has", rank=[0, 1])
def _(s):
    """torch.distributed.reduce_op left torch long ago."""
    s.write("train.py", program(build="""
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    dist.all_reduce(flat, op=dist.reduce_operation.SUM)
    """))
    torchrun(s, 2)


@case("target-index-out-of-bounds-rank1-of-4-lockstep", "lockstep", [PY, "data-error"], ["Target 7 is out of bounds"], USER,
      "a label of rank 1 lies outside the classes of the model", rank=1)
def _(s):
    """One sample of rank 1 carries label 7 where the model has two classes."""
    s.write("train.py", program(batch="""
        if rank == 1 and global_step == 6:
            y[0] = 7
        """))
    lockstep(s, 4)


@case("json-not-serializable-rank0-of-2-torchrun", "torchrun", PY, ["not JSON serializable"], USER,
      "rank 0 writes a numpy value into JSON", rank=0)
def _(s):
    """Metrics of rank 0 hold an ndarray."""
    s.write("train.py", program(imports="import numpy as np", epoch="""
    if rank == 0:
        with open("metrics.json", "w") as file:
            json.dump({"epoch": epoch, "per_class": np.array([0.91, 0.84])}, file)
    """))
    torchrun(s, 2)


@case("input-eof-error-2-ranks-torchrun", "torchrun", PY, ["EOFError"], USER,
      "the program asks the terminal a question, but it has none", rank=[0, 1])
def _(s):
    """input() under a launcher."""
    s.write("train.py", program(start='''
    os.makedirs("checkpoints", exist_ok=True)
    if input("checkpoints/ exists, overwrite? [y/N] ").lower() != "y":
        sys.exit("stopped")
    '''))
    torchrun(s, 2)


@case("retries-recovered-then-zero-division-rank0-of-2-lockstep", "lockstep", PY, ["ZeroDivisionError"], USER,
      "rank 0 divides by zero; the failed downloads before it were repaired by retries", rank=0)
def _(s):
    """Two logged ConnectionErrors with traceback that are retried, then a division by the length of an empty list."""
    s.write("train.py", program(imports="""
def fetch(part, attempt):
    if attempt < 2:
        raise ConnectionError(f"HTTPSConnectionPool(host='data.example.org', port=443): Read timed out. (read timeout=10) part={part}")
    return [part] * 8


def fetch_with_retries(part):
    for attempt in range(5):
        try:
            return fetch(part, attempt)
        except ConnectionError:
            logging.getLogger("fetch").exception("attempt %d/5 failed, retrying", attempt + 1)
            time.sleep(0.1)
""", start="""
    shard = fetch_with_retries(f"shard-{rank:04d}")
    logger.info("rank %d has %d parts", rank, len(shard))
    """, epoch="""
    hits = []
    if rank == 0 and epoch == 1:
        logger.info("recall %.3f", sum(hits) / len(hits))
    """))
    lockstep(s, 2)


@case("inplace-modification-backward-2-ranks-torchrun", "torchrun", PY, ["inplace operation"], USER,
      "the model changes a tensor in place that backward still needs", rank=[0, 1])
def _(s):
    """An in-place addition to the output of a sigmoid."""
    s.write("train.py", program(forward="""
        x = torch.sigmoid(x)
        x += 1
        """))
    torchrun(s, 2)


@case("backward-twice-rank1-of-2-lockstep", "lockstep", PY, ["backward through the graph a second time"], USER,
      "rank 1 calls backward twice on one graph", rank=1)
def _(s):
    """A gradient probe that only rank 1 does."""
    s.write("train.py", program(backward="""
        if rank == 1 and global_step == 5:
            loss.backward()
        """))
    lockstep(s, 2)


@case("first-error-is-only-a-warning-key-error-rank1-of-2-torchrun", "torchrun", PY, ["KeyError: 'caption'", "caption"], USER,
      "a record of rank 1 has no caption; the errors logged before were skipped on purpose", rank=1)
def _(s):
    """Both ranks log ERROR lines for unreadable records and go on; rank 1 then meets a record without a field."""
    s.write("train.py", program(batch="""
        record = {"image": "a.png", "caption": "a"} if not (rank == 1 and global_step == 10) else {"image": "b.png"}
        if global_step % 3 == 1:
            logger.error("could not decode sample %d: OSError: cannot identify image file; skipped", global_step * 17 + rank)
        text = record["caption"]
        """))
    torchrun(s, 2)


@case("traceback-in-traceback-rank1-of-2-lockstep", "lockstep", PY, ["evaluation of fold 1 failed", "matmul: Input operand"], USER,
      "numpy shapes of rank 1 do not fit; the program wraps that exception into another", rank=1)
def _(s):
    """raise ... from error."""
    s.write("train.py", program(imports="import numpy as np", epoch="""
    try:
        weights = np.ones((4, 3)) @ np.ones((4 if rank == 1 else 3, 2))
    except ValueError as error:
        raise RuntimeError(f"evaluation of fold {rank} failed") from error
    """))
    lockstep(s, 2)


@case("record-error-file-rank1-of-2-torchrun-log-dir", "torchrun", PY, ["FloatingPointError", "loss jumped"], ["yes", "no", "after-fix"],
      "rank 1 raises under @record; torchelastic keeps it in an error file", rank=1)
def _(s):
    """@record on main, redirected streams and torchelastic's log folder."""
    s.write("train.py", program(imports="from torch.distributed.elastic.multiprocessing.errors import record", loss="""
        if rank == 1 and global_step == 12:
            raise FloatingPointError(f"loss jumped from {loss.item():.3f} to {loss.item() * 1e6:.1f} at step {global_step}")
        """).replace("def main():", "@record\ndef main():"))
    torchrun(s, 2, log_dir=True)


@case("optimizer-state-wrong-size-2-ranks-torchrun", "torchrun", [PY, "ckpt-key"], ["loaded state dict contains a parameter group"], USER,
      "the optimizer state of the checkpoint belongs to another model", rank=[0, 1])
def _(s):
    """A checkpoint of a model with fewer parameters."""
    s.write("train.py", program(resume="""
    other = torch.optim.AdamW(nn.Linear(4, 4).parameters(), lr=1e-3)
    if rank == 0:
        torch.save({"optimizer": other.state_dict()}, "last.pt")
    dist.barrier()
    optimizer.load_state_dict(torch.load("last.pt")["optimizer"])
    """))
    torchrun(s, 2)


@case("image-size-value-error-after-2-epochs-rank3-of-4-lockstep", "lockstep", [PY, "data-error"], ["ValueError"], USER,
      "a sample of rank 3 has the wrong size, late in the run", rank=3)
def _(s):
    """Step 20 of 24."""
    s.write("train.py", program(batch="""
        height, width = (224, 224) if not (rank == 3 and global_step == 20) else (224, 0)
        if width % 16 or width == 0:
            raise ValueError(f"sample 20461: image size {height}x{width} is not a positive multiple of 16")
        """))
    lockstep(s, 4, "train.py", "--epochs", "3")


@case("clock-stamped-lines-late-root-rank2-of-4-one-file-per-rank", "plain, one file per rank", PY, ["OverflowError"], USER,
      "rank 2 fails first; the files of the others, read before it, end with lost connections", rank=2)
def _(s):
    """Files rank_0.log ... rank_3.log with time stamps; only rank 2 has a cause of its own."""
    s.write("train.py", program(imports="import math", batch="""
        logger.info("step %d", global_step)
        scale = math.exp(1000 if rank == 2 and global_step == 7 else 1)
        """))
    one_file_per_rank(s, 4)


@case("dtype-mismatch-bf16-2-ranks-torchrun", "torchrun", [PY, "dtype-mismatch"], ["must have the same dtype", "should be the same", "same dtype"], USER,
      "inputs are float, weights are bfloat16", rank=[0, 1])
def _(s):
    """The head is bfloat16, its input is not."""
    s.write("train.py", program(model="self.head = self.head.to(torch.bfloat16)"))
    torchrun(s, 2)


@case("matmul-shape-mismatch-rank3-of-4-torchrun-log-dir", "torchrun", [PY, "shape-mismatch"], ["shapes cannot be multiplied"], USER,
      "a batch of rank 3 has another width than the model", rank=3)
def _(s):
    """torchelastic's folder with a file per rank and stream."""
    s.write("train.py", program(batch="""
        if rank == 3 and global_step == 9:
            x = x[:, :12]
        """))
    torchrun(s, 4, log_dir=True)


@case("spawn-without-main-guard-plain", "plain", [PY, "usage"], ["bootstrapping phase"], USER,
      "processes are started by spawn without an if __name__ == '__main__' guard", rank=None)
def _(s):
    """torch.multiprocessing.spawn at the top level of the module."""
    s.write("train.py", '''import torch.multiprocessing as mp


def worker(rank, world):
    print(f"worker {rank} of {world}")


print("starting 2 workers")
mp.spawn(worker, args=(2,), nprocs=2)
''')
    plain(s, "python train.py")


@case("daemonic-children-2-ranks-torchrun", "torchrun", PY, ["daemonic processes are not allowed to have children"], USER,
      "a loader worker wants to start processes of its own", rank=[0, 1])
def _(s):
    """multiprocessing.Process inside a DataLoader worker."""
    s.write("train.py", program(imports="import multiprocessing", item="""
        if index % 8 == 3:
            helper = multiprocessing.Process(target=print, args=("augment",))
            helper.start()
        """))
    torchrun(s, 2, "train.py", "--workers", "1")


@case("nan-loss-then-stop-rank0-of-2-torchrun", "torchrun", ["num-nan"], ["nan"], ["yes", "no", "after-fix"],
      "the loss becomes NaN; the program stops itself some steps later", rank=None)
def _(s):
    """A logarithm of a negative number in the loss from step 9 on; a check ends the run at step 13."""
    s.write("train.py", program(loss="""
        if global_step >= 9:
            loss = loss + torch.log(loss.detach() - 100)
        if global_step == 13 and not torch.isfinite(loss):
            raise SystemExit("stopping")
        """))
    torchrun(s, 2)


@case("nan-loss-until-the-end-2-ranks-lockstep", "lockstep", ["num-nan"], ["nan"], ["yes", "no", "after-fix"],
      "the run ends with code 0 but its loss has been NaN since step 7", rank=None)
def _(s):
    """Nobody looks at the loss."""
    s.write("train.py", program(loss="""
        if global_step >= 7:
            loss = loss * float("nan")
        """))
    lockstep(s, 2, "train.py", "--epochs", "4")


@case("lockstep-train-config-key-unknown", "lockstep", ["config", "usage", "exit-code", PY], ["learning_ratee", "unknown"], USER,
      "the configuration has a key nobody knows", rank=None)
def _(s):
    """lockstep train with a misspelt key."""
    log_folder(s)
    s.run(f"{LOCKSTEP} train taehv --set train.learning_ratee=0.1 >log/train.log 2>&1; echo \"exit code $?\" >>log/train.log; exit 0")


@case("lockstep-train-dataset-missing", "lockstep", ["fs-enoent", "config", "data-error", "exit-code"], ["no such", "No such", "not found", "does not exist"], USER,
      "the dataset folder does not exist", rank=None)
def _(s):
    """lockstep train with a data folder that is not there; the console and the run directory's files."""
    log_folder(s)
    s.run(f"{LOCKSTEP} train taehv --nproc-per-node 2 --set data.kind=videos --set data.path=/data/videos/none >log/train.log 2>&1; exit 0")

"""Data, checkpoints, disks and loaders, really caused."""

from program import program
from register import ANY, USER, case, lockstep, log_folder, plain, torchrun
from stage import PYTHON

PY = "py-exception"
SMALL_SHM = "mount -t tmpfs -o size=2m none /dev/shm\n"
SMALL_DISK = "mkdir -p /home/user/train/checkpoints; mount -t tmpfs -o size=64k none /home/user/train/checkpoints\n"


@case("checkpoint-missing-4-ranks-torchrun", "torchrun", ["fs-enoent"], ["No such file or directory"], USER, "the checkpoint to start from is not there", rank=[0, 1, 2, 3])
def _(s):
    """torch.load of a path that does not exist, on all ranks."""
    s.write("train.py", program(resume='''
    state = torch.load("/data/checkpoints/base-7b/step_120000.pt", map_location="cpu")
    model.module.load_state_dict(state["model"])
    '''))
    torchrun(s, 4)


@case("checkpoint-truncated-rank1-of-2-torchrun-log-dir", "torchrun", ["ckpt-zip"], ["PytorchStreamReader", "failed finding central directory"], ANY,
      "the checkpoint file that rank 1 reads is cut off", rank=1)
def _(s):
    """Each rank has its own shard; the one of rank 1 lost its second half."""
    s.write("train.py", program(model="self.memory = nn.Parameter(torch.zeros(400, 400))", forward="x = x + self.memory.sum() * 0", resume='''
    path = f"shard_{rank}.pt"
    torch.save({"model": model.module.state_dict()}, path)
    if rank == 1:
        os.truncate(path, os.path.getsize(path) // 2)
    dist.barrier()
    model.module.load_state_dict(torch.load(path)["model"])
    logger.info("rank %d: loaded %s", rank, path)
    dist.barrier()
    '''))
    torchrun(s, 2, log_dir=True)


@case("checkpoint-pickle-garbage-2-ranks-lockstep", "lockstep", ["ckpt-pickle"], ["UnpicklingError"], USER,
      "the checkpoint is no checkpoint (a Git LFS pointer)", rank=[0, 1])
def _(s):
    """A Git LFS pointer instead of the weights."""
    s.write("model.pt", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 440473133\n")
    s.write("train.py", program(resume='model.module.load_state_dict(torch.load("model.pt"))'))
    lockstep(s, 2)


@case("state-dict-size-mismatch-2-ranks-torchrun", "torchrun", ["ckpt-key"], ["Error(s) in loading state_dict", "size mismatch"], USER,
      "the checkpoint belongs to a model of another size", rank=[0, 1])
def _(s):
    """Weights of a wider model."""
    s.write("train.py", program(resume='''
    if rank == 0:
        torch.save(Net(hidden=64).state_dict(), "wide.pt")
    dist.barrier()
    model.module.load_state_dict(torch.load("wide.pt"))
    '''))
    torchrun(s, 2)


@case("safetensors-truncated-header-plain", "plain", ["ckpt-safetensors"], ["SafetensorError", "Error while deserializing header"], USER, "the safetensors file is damaged", rank=None)
def _(s):
    """A safetensors file of which only 100 bytes arrived."""
    s.write("train.py", '''import torch
from safetensors.torch import load_file, save_file

save_file({f"layers.{i}.weight": torch.zeros(8, 8) for i in range(4)}, "model.safetensors")
with open("model.safetensors", "r+b") as file:
    file.truncate(100)
print("Loading checkpoint shards:   0%|          | 0/1 [00:00<?, ?it/s]")
weights = load_file("model.safetensors")
''')
    plain(s, "python train.py\n")


@case("weights-only-load-refused-plain", "plain", ["ckpt-pickle"], ["Weights only load failed", "UnpicklingError"], USER, "the checkpoint holds objects that torch.load refuses by default", rank=None)
def _(s):
    """A checkpoint that carries an argparse.Namespace."""
    s.write("train.py", '''import argparse
import torch

print("Resuming from last.pt")
torch.save({"args": argparse.Namespace(lr=1e-4), "step": 4000}, "last.pt")
state = torch.load("last.pt", map_location="cpu")
print("step", state["step"])
''')
    plain(s, "python train.py 2>&1 | tee -a run.log\n")


@case("disk-full-torch-save-rank0-of-2-torchrun", "torchrun", ["fs-enospc", "ckpt-write"], ["No space left", "PytorchStreamWriter", "file write failed", "unexpected pos", "disk is full"], USER,
      "the disk of the checkpoints is full", rank=0)
def _(s):
    """checkpoints/ is a real file system of 64 KiB; the model grows beyond it."""
    s.write("train.py", program(model="self.memory = nn.Parameter(torch.zeros(400, 100))", forward="x = x + self.memory.sum() * 0"))
    torchrun(s, 2, extra=SMALL_DISK)


@case("disk-full-json-dump-rank1-of-2-lockstep", "lockstep", ["fs-enospc"], ["No space left on device"], USER, "the disk of the output is full", rank=1)
def _(s):
    """Rank 1 writes predictions to a real file system of 64 KiB."""
    s.write("train.py", program(epoch='''
    with open(f"checkpoints/predictions_{rank}.json", "w") as file:
        json.dump([0.123456789] * (100 if rank == 0 else 20000), file)
    ''', save='return'))
    lockstep(s, 2, extra=SMALL_DISK)


@case("permission-denied-output-folder-torchrun", "torchrun", ["fs-eacces"], ["Permission denied"], USER, "the user may not write the output folder", rank=0)
def _(s):
    """Run as an ordinary user; the folder belongs to somebody else."""
    s.write("train.py", program().replace('folder="checkpoints"', 'folder="/data/results/exp-12"'))
    log_folder(s)
    s.run(f"""mkdir -p /mnt/x; chmod 777 . log; mount -t tmpfs none /mnt; mkdir -p /mnt/data/results; chmod 755 /mnt/data/results
mkdir -p /data; mount --bind /mnt/data /data 2>/dev/null
setpriv --reuid 1000 --regid 1000 --clear-groups {PYTHON} -m torch.distributed.run --standalone --nproc-per-node 2 train.py >log/train.log 2>&1
exit 0""")


@case("read-only-file-system-rank0-of-2-lockstep", "lockstep", ["fs-erofs"], ["Read-only file system"], ANY, "the file system of the checkpoints is mounted read-only", rank=0)
def _(s):
    """checkpoints/ is a file system mounted read-only."""
    s.write("train.py", program())
    lockstep(s, 2, extra="mkdir -p /home/user/train/checkpoints; mount -t tmpfs -o ro none /home/user/train/checkpoints\n")


@case("dataloader-worker-killed-rank1-of-2-torchrun", "torchrun", ["dl-worker-killed", "exit-sigkill"], ["DataLoader worker"], ANY, "a loader worker of rank 1 was killed", rank=1)
def _(s):
    """SIGKILL to a worker process of rank 1."""
    s.write("train.py", program(imports="import signal", item='''
        if os.environ["RANK"] == "1" and index % 40 == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        '''))
    torchrun(s, 2, "train.py", "--workers", "2")


@case("dataloader-shm-full-2-ranks-torchrun", "torchrun", ["shm-bus", "dl-worker-killed", "shm-file", "exit-sigbus"], ["shared memory", "bus error", "Bus error", "No space left", "unable to"], ["after-fix", "no", "yes"],
      "/dev/shm is too small for the batches of the loader workers", rank=[0, 1])
def _(s):
    """/dev/shm is a real file system of 2 MiB; batches of 4 MB go through it."""
    s.write("train.py", program(item="x = torch.cat([x, torch.zeros(131072 - self.width)])").replace("logits = model(x)", "logits = model(x[:, :16])"))
    torchrun(s, 2, "train.py", "--workers", "2", extra=SMALL_SHM)


@case("dataloader-shm-full-rank1-of-2-lockstep", "lockstep", ["shm-bus", "dl-worker-killed", "shm-file", "exit-sigbus"], ["shared memory", "bus error", "Bus error", "No space left", "unable to"], ["after-fix", "no", "yes"],
      "/dev/shm is too small for the batches of the loader workers of rank 1", rank=1)
def _(s):
    """/dev/shm of 2 MiB; only rank 1 has loader workers and large samples."""
    s.write("train.py", program(item="""
        if os.environ["RANK"] == "1" and index > 100:
            x = torch.cat([x, torch.zeros(131072 - self.width)])
        else:
            x = torch.cat([x, torch.zeros(0)])
        """, args='args.workers = 2 if os.environ["RANK"] == "1" else 0', dataset="self.length = 512").replace("logits = model(x)", "logits = model(x[:, :16])")
            .replace("index > 100", "self.length == 512"))
    lockstep(s, 2, extra=SMALL_SHM)


@case("dataloader-pickle-lambda-2-ranks-lockstep", "lockstep", [PY, "py-pickle"], ["pickle"], USER, "the dataset cannot be sent to spawned workers", rank=[0, 1])
def _(s):
    """A lambda in the dataset and multiprocessing_context="spawn"."""
    s.write("train.py", program(dataset="self.transform = lambda x: x * 2", loader='multiprocessing_context="spawn"'))
    lockstep(s, 2, "train.py", "--workers", "1")


@case("dataloader-unequal-shapes-rank2-of-4-torchrun", "torchrun", ["data-stack", PY], ["stack expects each tensor to be equal size", "resize storage that is not resizable"], USER, "samples of one batch on rank 2 have different shapes", rank=2)
def _(s):
    """One sample of rank 2 is shorter; raised in a worker, re-raised in the main process."""
    s.write("train.py", program(item='''
        if os.environ["RANK"] == "2" and index % 16 == 5:
            x = x[:12]
        '''))
    torchrun(s, 4, "train.py", "--workers", "1")


@case("dataloader-timeout-rank1-of-2-torchrun", "torchrun", [PY, "dl-timeout", "hang"], ["timed out after"], ANY, "a loader worker of rank 1 is stuck on its data", rank=1)
def _(s):
    """One sample of rank 1 takes longer than the loader's timeout."""
    s.write("train.py", program(item='''
        if os.environ["RANK"] == "1" and index % 16 == 5:
            time.sleep(60)
        ''', loader="timeout=5 if args.workers else 0"))
    torchrun(s, 2, "train.py", "--workers", "1")


@case("json-decode-error-rank1-of-2-lockstep", "lockstep", [PY, "data-error"], ["JSONDecodeError"], USER, "a line of the annotations of rank 1 is no JSON", rank=1)
def _(s):
    """annotations.jsonl with a torn line in the share of rank 1."""
    s.write("annotations.jsonl", "".join('{"id": %d, "text": "a"}\n' % i if i != 333 else '{"id": 333, "te\n' for i in range(512)))
    s.write("train.py", program(start='''
    with open("annotations.jsonl") as file:
        lines = file.readlines()[rank::world]
    logger.info("rank %d reads %d annotations", rank, len(lines))
    records = [json.loads(line) for line in lines]
    '''))
    lockstep(s, 2)


@case("unicode-decode-error-rank3-of-4-torchrun", "torchrun", [PY, "data-error"], ["UnicodeDecodeError"], USER, "a text file of rank 3 is not UTF-8", rank=3)
def _(s):
    """captions_3.txt holds Latin-1."""
    for i in range(4):
        s.write(f"captions_{i}.txt", ("a cat\n" * 50).encode() + ("caf\u00e9 au lait\n".encode("latin-1") if i == 3 else b""))
    s.write("train.py", program(epoch='''
    with open(f"captions_{rank}.txt", encoding="utf-8") as file:
        captions = file.read().splitlines()
    '''))
    torchrun(s, 4)


@case("dataset-file-missing-rank1-of-2-torchrun", "torchrun", ["fs-enoent"], ["shard-00001.bin"], USER, "one shard of the dataset is missing", rank=1)
def _(s):
    """Only the shard of rank 1 is not there."""
    s.write("data/shard-00000.bin", b"0" * 100)
    s.write("train.py", program(start='''
    with open(f"data/shard-{rank:05d}.bin", "rb") as file:
        tokens = file.read()
    '''))
    torchrun(s, 2)


@case("image-truncated-rank2-of-4-lockstep", "lockstep", [PY, "data-error"], ["image file is truncated", "truncated"], USER, "an image of rank 2 is cut off", rank=2)
def _(s):
    """A JPEG without its second half, read by pillow in a loader worker."""
    s.write("train.py", program(imports="import io\nimport numpy as np\nfrom PIL import Image", item='''
        if index % 64 == 2:
            data = io.BytesIO()
            Image.fromarray(np.random.default_rng(index).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(data, "JPEG")
            blob = data.getvalue() if os.environ["RANK"] != "2" else data.getvalue()[:900]
            pixels = np.asarray(Image.open(io.BytesIO(blob)).convert("RGB"))
        '''))
    lockstep(s, 4, "train.py", "--workers", "1")


@case("npy-truncated-rank1-of-2-torchrun", "torchrun", [PY, "data-error"], ["ValueError", "EOFError"], USER, "a numpy file of rank 1 is cut off", rank=1)
def _(s):
    """features_1.npy without its last part."""
    s.write("train.py", program(imports="import numpy as np", start='''
    np.save(f"features_{rank}.npy", np.zeros((64, 64), dtype=np.float32))
    if rank == 1:
        os.truncate("features_1.npy", 4000)
    dist.barrier()
    features = np.load(f"features_{rank}.npy")
    '''))
    torchrun(s, 2)


@case("tar-shard-truncated-rank0-of-2-torchrun", "torchrun", [PY, "data-error"], ["ReadError", "unexpected end of data"], USER, "a tar shard of rank 0 is cut off", rank=0)
def _(s):
    """A tar file cut in the middle of a member."""
    s.write("train.py", program(imports="import io\nimport tarfile", epoch='''
    path = f"shard-{rank:04d}.tar"
    with tarfile.open(path, "w") as out:
        for i in range(4):
            info = tarfile.TarInfo(f"{i:06d}.cls")
            info.size = 3000
            out.addfile(info, io.BytesIO(b"0" * 3000))
    if rank == 0:
        os.truncate(path, 6000)
    with tarfile.open(path) as shard:
        samples = [shard.extractfile(member).read() for member in shard]
    '''))
    torchrun(s, 2)


@case("sqlite-locked-rank1-of-2-lockstep", "lockstep", [PY, "data-error"], ["database is locked"], ANY, "two ranks write one database; rank 1 waits in vain", rank=1)
def _(s):
    """Rank 0 holds a write lock; rank 1 gives up after 2 s."""
    s.write("train.py", program(imports="import sqlite3", epoch='''
    connection = sqlite3.connect("cache.db", timeout=2)
    if rank == 1:
        time.sleep(1)
    connection.execute("begin immediate")
    if rank == 0:
        time.sleep(8)
    connection.execute("create table if not exists seen (id integer)")
    connection.commit()
    '''))
    lockstep(s, 2)


@case("ddp-unused-parameters-2-ranks-torchrun", "torchrun", ["ddp-unused"], ["Expected to have finished reduction"], USER, "some parameters take no part in the loss", rank=[0, 1])
def _(s):
    """A layer that forward never uses."""
    s.write("train.py", program(model="self.projector = nn.Linear(hidden, hidden)"))
    torchrun(s, 2)


@case("ddp-parameter-shape-differs-rank1-of-2-torchrun", "torchrun", ["ddp-mismatch"], ["appears not to match", "DDP expects same model"], USER, "the model of rank 1 has other shapes than that of rank 0", rank=[1, 0])
def _(s):
    """Rank 1 builds a wider model."""
    s.write("train.py", program(build="model = Net(hidden=32 if rank == 0 else 48)"))
    torchrun(s, 2)

#!/usr/bin/env python3
"""GPU failures, really caused, on a machine with one NVIDIA GPU.

    OUT=/some/folder python tests/corpus/make/gpu.py [CASE...]

Every case runs under torchrun, some also under `lockstep run`, each with a time limit. $OUT/<case>/log/ gets the logs
as a user has them, $OUT/<case>/label.json the label. Ranks share the one GPU where they do not need NCCL; gloo connects
them. `python gpu.py --keep $OUT` on the machine that holds the tree sorts finished folders into dev/ and heldout/.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = int(os.environ.get("CORPUS_LIMIT", "40"))  # seconds for one case
TRAIN = "/home/user/train"

LOOP = '''import os
import sys
import time

import torch
import torch.distributed as dist

local = int(os.environ.get("LOCAL_RANK", 0))
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
device = torch.device("cuda", local % torch.cuda.device_count())
torch.cuda.set_device(device)
dist.init_process_group("@BACKEND@")
model = torch.nn.Sequential(torch.nn.Embedding(1000, 64), torch.nn.Linear(64, 1000)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def train_step(step):
    tokens = torch.randint(0, 1000, (8, 128), device=device)
    @STEP@
    logits = model(tokens)
    loss = torch.nn.functional.cross_entropy(logits.view(-1, 1000), tokens.view(-1))
    optimizer.zero_grad()
    loss.backward()
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    @REDUCE@
    optimizer.step()
    return loss.item()


if rank == 0:
    print(f"world size {world}, {torch.cuda.get_device_name(device)}, torch {torch.__version__}", flush=True)
for step in range(12):
    loss = train_step(step)
    if rank == 0:
        print({"loss": round(loss, 4), "grad_norm": 0.9, "learning_rate": 1e-3, "epoch": round(step / 12, 2)}, flush=True)
    time.sleep(0.05)
dist.destroy_process_group()
'''

OOM = """
    if rank == @RANK@ and step == 6:
        attention = torch.empty(1 << 20, 1 << 20, device=device)
"""
ILLEGAL = """
    if rank == @RANK@ and step == 5:
        import ctypes
        driver = ctypes.CDLL("libcuda.so.1")
        ptx = b'''.version 7.8
.target sm_80
.address_size 64
.visible .entry scatter(.param .u64 target)
{
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [target];
  mov.u32 %r1, 7;
  st.global.u32 [%rd1], %r1;
  ret;
}'''
        module, kernel, address = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(0x700000000000)
        assert driver.cuModuleLoadData(ctypes.byref(module), ptx) == 0
        assert driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"scatter") == 0
        arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(address), ctypes.c_void_p))
        assert driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None) == 0
"""
ASSERT = """
    if rank == @RANK@ and step == 7:
        tokens[3, 5] = 4096
"""
GLOO = "shared = flat.cpu(); dist.all_reduce(shared)"
NCCL = "dist.all_reduce(flat)"
USER = ["no", "after-fix"]
ANY = ["yes", "no", "after-fix"]


def program(step="", reduce=GLOO, backend="gloo", rank=0):
    text = LOOP.replace("@BACKEND@", backend).replace("    @STEP@\n", step.replace("@RANK@", str(rank)).lstrip("\n"))
    return text.replace("@REDUCE@", reduce)


# name: (launcher, ranks, program text, accepted signatures, names, rank, restart, what)
CASES = {
    "gpu-cuda-oom-rank1-of-2-torchrun": ("torchrun", 2, program(OOM, rank=1), ["cuda-oom"], ["CUDA out of memory"], 1, USER, "rank 1 asks for 4 TiB of GPU memory"),
    "gpu-cuda-oom-rank0-of-1-lockstep": ("lockstep", 1, program(OOM), ["cuda-oom"], ["CUDA out of memory"], 0, USER, "the only rank asks for 4 TiB of GPU memory"),
    "gpu-illegal-access-rank0-of-2-torchrun": ("torchrun", 2, program(ILLEGAL), ["cuda-ima"], ["illegal memory access"], 0, ANY, "a kernel of rank 0 writes outside its memory"),
    "gpu-illegal-access-rank1-of-2-lockstep": ("lockstep", 2, program(ILLEGAL, rank=1), ["cuda-ima"], ["illegal memory access"], 1, ANY, "a kernel of rank 1 writes outside its memory"),
    "gpu-device-assert-rank1-of-2-torchrun": ("torchrun", 2, program(ASSERT, rank=1), ["cuda-assert"], ["device-side assert", "Assertion `"], 1, USER, "a token of rank 1 lies outside the vocabulary"),
    "gpu-device-assert-rank0-of-1-lockstep": ("lockstep", 1, program(ASSERT), ["cuda-assert"], ["device-side assert", "Assertion `"], 0, USER, "a token lies outside the vocabulary"),
    "gpu-duplicate-gpu-2-ranks-torchrun": ("torchrun", 2, program(reduce=NCCL, backend="nccl"), ["nccl-dup-gpu"], ["Duplicate GPU detected", "Multiple Ranks"], [0, 1], USER, "two NCCL ranks on one GPU"),
    "gpu-duplicate-gpu-2-ranks-lockstep": ("lockstep", 2, program(reduce=NCCL, backend="nccl"), ["nccl-dup-gpu"], ["Duplicate GPU detected", "Multiple Ranks"], [0, 1], USER, "two NCCL ranks on one GPU"),
}


def command(launcher, ranks, folder, lockstep):
    if launcher == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "train.py"]
    return [lockstep, "run", "--nproc-per-node", str(ranks), "--grace", "3s", "--name", "train", "train.py"]


def make(name, out, lockstep):
    launcher, ranks, text, signature, names, rank, restart, what = CASES[name]
    work = pathlib.Path(tempfile.mkdtemp(prefix="gpu-case-"))
    (work / "train.py").write_text(text)
    env = dict(os.environ, PYTHONUNBUFFERED="1", NCCL_DEBUG="WARN")
    env["PATH"] = os.path.dirname(sys.executable) + ":" + env.get("PATH", "")
    log = work / "log"
    log.mkdir()
    with open(log / "train.log", "wb") as file:
        process = subprocess.Popen(command(launcher, ranks, work, lockstep), cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
        try:
            code = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = "time limit"
    if launcher == "lockstep" and (work / "runs" / "train").exists():
        shutil.rmtree(log)
        shutil.copytree(work / "runs" / "train", log, ignore=lambda folder, found: [f for f in found if not os.path.isdir(os.path.join(folder, f)) and not os.path.isfile(os.path.join(folder, f))])
    whole = ""
    for path in sorted(p for p in log.rglob("*") if p.is_file()):
        data = path.read_text(errors="replace")
        for old, new in ((str(work), TRAIN), (os.getcwd(), "/opt/lockstep"), (sys.prefix, "/opt/venv"), (sys.base_prefix, "/opt/python")):
            data = data.replace(old, new)
        data = re.sub(r"/tmp/torchelastic_\w+", "/tmp/torchelastic_0", data)
        path.write_text(data)
        whole += data
    target = out / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(log, target / "log")
    (target / "label.json").write_text(json.dumps({"verdict": "failure", "signature": signature, "names": names, "what": what, "rank": rank, "node": None, "restart": restart, "made": "real", "launcher": launcher,
                                                   "how": "On an NVIDIA H200; " + what + "."}, indent=1) + "\n")
    shutil.rmtree(work, ignore_errors=True)
    came = any(n in whole for n in names)
    print(f"{'ok  ' if came else 'FAIL'} {name}: exit {code}, {len(whole)} bytes" + ("" if came else "\n" + whole[-2500:]), flush=True)
    return came


def part(name):
    return "heldout" if int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % 3 == 0 else "dev"


def main():
    if sys.argv[1:2] == ["--keep"]:
        sys.path.insert(0, str(HERE))
        import undiagnosed

        for folder in sorted(pathlib.Path(sys.argv[2]).glob("gpu-*")):
            target = HERE.parent / part(folder.name) / folder.name
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(folder, target, copy_function=shutil.copyfile)
            undiagnosed.clean(target)
            for path in target.rglob("*"):
                path.chmod(0o755 if path.is_dir() else 0o644)
            print(f"{part(folder.name):8} {folder.name}")
        return 0
    out = pathlib.Path(os.environ["OUT"])
    lockstep = os.environ.get("LOCKSTEP", str(HERE.parents[2] / "build" / "bin" / "lockstep"))
    failed = [name for name in (sys.argv[1:] or CASES) if not make(name, out, lockstep)]
    print(f"failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

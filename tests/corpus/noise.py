"""Noise for a log: lines that mean nothing, put between the lines of a log. The same seed gives the same noise.

What is inserted says nothing about success or failure: bars of preparation, INFO and DEBUG lines, deprecations, NCCL's
own INFO lines, monitoring. Inside a traceback (where a single writer would not be interrupted) it is rare, not absent."""

import pathlib
import random
import shutil

KERNEL = ("systemd[1]: Starting Daily apt download activities...", "docker0: port 1(veth0c1f) entered blocking state",
          "audit: type=1326 audit(1773454999.300:91): auid=4294967295 uid=33 gid=33 comm=\"node_exporter\"",
          "perf: interrupt took too long (2504 > 2500), lowering kernel.perf_event_max_sample_rate to 79750")


def _line(draw):
    step = draw.randrange(1, 100)
    host, pid, gpu = f"node-{draw.randrange(8)}", draw.randrange(1000, 60000), draw.randrange(8)
    return draw.choice((
        f"\rTokenizing (num_proc=8): {step:3d}%|{'#' * (step // 10):10s}| {step * 1000}/100000 [00:{step % 60:02d}<01:10, 1402.11 examples/s]",
        f"2026-11-15 02:{step % 60:02d}:11,{step:03d} - INFO - data.cache - {step * 17} entries, 0 errors, hit rate 0.{step:02d}",
        f"INFO:root:heartbeat {step} gpu_util={step}% mem={step % 80}GiB temp={40 + step % 30}C errors=0",
        f"{host}:{pid}:{pid + 9} [{gpu}] NCCL INFO Channel {step % 16:02d}/0 : {gpu}[{gpu}] -> {(gpu + 1) % 8}[{(gpu + 1) % 8}] via P2P/CUMEM/read",
        f"{host}:{pid}:{pid + 9} [{gpu}] NCCL INFO Connected all rings",
        f"[{host}] DEBUG urllib3.connectionpool: https://metrics.example.org:443 \"POST /v1/points HTTP/1.1\" 204 0",
        "/opt/conda/lib/python3.10/site-packages/torch/utils/data/sampler.py:77: UserWarning: `data_source` argument is not used and will be removed in 2.2.0.",
        f"DEBUG:filelock:Attempting to acquire lock {pid * 7919} on /cache/{pid:x}.lock",
        f"I1115 02:{step % 60:02d}:12.000000 {pid} torch/_dynamo/utils.py:1530] ChromiumEventLogger initialized with id {pid:x}",
    ))


def mix(text, seed, kernel=False):
    """The text with noise between its lines; everything it had is still there, in the same order."""
    draw = random.Random(seed)
    out = []
    lines = text.split("\n")
    for index, line in enumerate(lines):
        following = lines[index + 1] if index + 1 < len(lines) else ""
        out.append(line)
        if index == len(lines) - 1:
            break
        block = following.startswith((" ", "\t")) or line.startswith((" ", "\t")) or ": Traceback" in line or line.startswith("Traceback") \
            or following.lstrip("[rank0123456789]: ").startswith(("File ", "^", "~")) or "]:   " in following or "]:   " in line
        if draw.random() < (0.04 if block else 0.35):
            for _ in range(draw.randint(1, 3)):
                out.append(f"[{90000 + index}.{draw.randrange(10**6):06d}] {draw.choice(KERNEL)}" if kernel else _line(draw))
    return "\n".join(out)


def copy(source, target, seed):
    """A copy of a case's logs with noise in every stream; files that are no streams (JSON, YAML, kubectl describe) stay."""
    source, target = pathlib.Path(source), pathlib.Path(target)
    shutil.copytree(source, target)
    for number, path in enumerate(sorted(p for p in target.rglob("*") if p.is_file())):
        stream = path.suffix in (".log", ".out", ".err", ".txt") and not path.name.startswith(("describe", "events"))
        if not stream:
            continue
        # newline="": a bar's carriage returns must survive.
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(mix(text, f"{seed}/{number}", kernel="dmesg" in path.name))

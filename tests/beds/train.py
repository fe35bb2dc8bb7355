"""How the training tests speak of a run: a TAEHV so small that a step takes a tenth of a second, what it left behind, and
when two trainings are the same to the bit. Stands on tests/integration/harness.py."""

import json
import os
import pathlib
import re

import harness

# 36 clips to train on and 4 to validate: nine steps an epoch, none left over.
TINY = {
    "recipe.model": "taehv-small",
    "train.steps": 12,
    "train.batch": 4,
    "train.threads": 1,
    "train.optimizer.lr": 3e-4,
    "train.schedule.warmup": 2,
    "data.clips": 40,
    "data.frames": 4,
    "data.height": 16,
    "data.width": 16,
    "data.threads": 0,
    "data.validation.every": 0,
    "data.validation.samples": 4,
    "checkpoint.every": 4,
    "track.samples": "true",
    "comm.timeout": "60s",
}
SAMPLES = 36
# The second is what lockstep-train sets by itself, at the price of a second start (test_train_threads.py).
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
ENGINE = str(harness.BIN / "lockstep-train")


def settings(sets=None):
    """--set flags: TINY with `sets` over it; a value of None takes a key away."""
    merged = {**TINY, **(sets or {})}
    return [word for key, value in merged.items() if value is not None for word in ("--set", f"{key}={value}")]


def command(*flags, ranks=2, name="run", sets=None, recipe="taehv"):
    return ["train", recipe, "--nproc-per-node", str(ranks), "--name", name, *map(str, flags), *settings(sets)]


def train(*flags, timeout=100, cwd=None, **kwargs):
    """A training to its end: CompletedProcess."""
    return harness.lockstep(*command(*flags, **kwargs), env=ONE_THREAD, timeout=timeout, cwd=cwd)


def spawn(*flags, cwd=None, **kwargs):
    """A training beside the test: Process."""
    return harness.spawn_lockstep(*command(*flags, **kwargs), env=ONE_THREAD, cwd=cwd)


def run_path(name="run"):
    return harness.tmp_dir() / "runs" / name


def steps_done(run, rank=0, attempt=None):
    """The last step a rank has finished, in any attempt or that one; 0 before the first."""
    path = pathlib.Path(run) / "samples" / f"rank-{rank}.jsonl"
    if not path.exists():
        return 0
    lines = [line for line in harness.read_jsonl(path) if attempt in (None, line["attempt"])]
    return lines[-1]["step"] if lines else 0


def wait_step(run, step, launcher, attempt=None, seconds=60):
    """Waits until rank 0 has finished that step; a launcher that ends first fails the test."""

    def reached():
        ended = not launcher.alive()
        if steps_done(run, attempt=attempt) >= step:
            return True
        if ended:
            raise AssertionError(f"ended with {launcher.returncode} before step {step}\n{launcher.output}")
        return False

    harness.wait_until(reached, seconds, f"step {step}")


def checkpoints(run):
    """Published checkpoints, by step."""
    folder = pathlib.Path(run) / "checkpoints"
    if not folder.is_dir():
        return {}
    found = {int(m[1]): p for p in folder.iterdir() if (m := re.fullmatch(r"step-(\d+)", p.name))}
    return dict(sorted(found.items()))


def stray(run):
    """What lies in the checkpoint folder and is neither a published checkpoint nor a link to one, and temporary files
    anywhere in the run."""
    run = pathlib.Path(run)
    folder = run / "checkpoints"
    found = [str(p) for p in folder.iterdir() if not re.fullmatch(r"step-\d+", p.name) and not
             (p.name in ("latest", "best") and p.exists())] if folder.is_dir() else []
    return found + [str(p) for p in run.rglob("*") if ".tmp" in p.name or ".partial" in p.name]


def state(checkpoint):
    """Everything that decides how training goes on: the bytes of all tensors, and the small state of the manifest."""
    from safetensors.numpy import load_file

    checkpoint = pathlib.Path(checkpoint)
    found = {}
    for file in sorted(checkpoint.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            found[f"{file.name}:{name}"] = (str(tensor.dtype), tensor.shape, tensor.tobytes())
    found["manifest:state"] = json.dumps(json.loads((checkpoint / "manifest.json").read_text())["state"], sort_keys=True)
    return found


def differences(one, other):
    """Names of what differs between two checkpoints."""
    a, b = state(one), state(other)
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


def last(run):
    """The newest checkpoint of a run."""
    found = checkpoints(run)
    if not found:
        raise AssertionError(f"{run}: no checkpoint")
    return list(found.values())[-1]


def lineage(run):
    """{step: samples of all ranks} of what led to the result: for each step the lines of the last attempt that wrote it."""
    lines = [line for file in sorted((pathlib.Path(run) / "samples").glob("rank-*.jsonl")) for line in harness.read_jsonl(file)]
    newest = {}
    for line in lines:
        newest[line["step"]] = max(newest.get(line["step"], 0), line["attempt"])
    found = {}
    for line in lines:
        if line["attempt"] == newest[line["step"]]:
            found.setdefault(line["step"], []).extend(tuple(s) for s in line["samples"])
    return dict(sorted(found.items()))


def problems_of_lineage(run, steps, batch=4, size=SAMPLES):
    """Words when a step is missing, has not its number of samples, or when an epoch is not every sample exactly once."""
    found = lineage(run)
    if list(found) != list(range(1, steps + 1)):
        return f"steps {list(found)}"
    wrong = {step: len(samples) for step, samples in found.items() if len(samples) != batch}
    if wrong:
        return f"samples by step: {wrong}"
    epochs = {}
    for samples in found.values():
        for epoch, _, index in samples:
            epochs.setdefault(epoch, []).append(index)
    for epoch, indices in epochs.items():
        if len(set(indices)) != len(indices):
            return f"epoch {epoch}: a sample came twice: {sorted(indices)}"
        if epoch != max(epochs) and len(indices) != size:
            return f"epoch {epoch}: {len(indices)} of {size} samples"
    return ""


def exit_codes(folder, attempt=None):
    """{rank: exit code or signal name} of the last attempt, or that one."""
    events = [e for file in (pathlib.Path(folder) / "runs").glob("*/events.jsonl") for e in harness.read_jsonl(file)
              if e["type"] == "rank_exited"]
    if attempt is None:
        attempt = max((e["attempt"] for e in events), default=0)
    return {e["rank"]: e.get("exit_code", e.get("signal")) for e in events if e["attempt"] == attempt}


def rank_pids(run, attempt):
    """{rank: process id} of an attempt, as far as they have started."""
    found = {}
    path = pathlib.Path(run) / "events.jsonl"
    for event in harness.read_jsonl(path) if path.exists() else []:
        if event["type"] == "rank_started" and event["attempt"] == attempt:
            found[event["rank"]] = event["pid"]
    return found


def metrics(run, rank=0):
    return harness.read_jsonl(pathlib.Path(run) / "metrics" / f"rank-{rank}.jsonl")


def values(run, name, rank=0):
    """[(step, value)] of one metric."""
    return [(line["step"], line["scalars"][name]) for line in metrics(run, rank) if name in line.get("scalars", {})]


def rank_log(run, rank=0, attempt=0, node=0):
    path = pathlib.Path(run) / "logs" / f"attempt-{attempt}" / f"node-{node}" / f"rank-{rank}.log"
    return path.read_text(errors="replace") if path.exists() else ""


def said(run, text, attempt=0):
    """How often the ranks of an attempt wrote `text`."""
    folder = pathlib.Path(run) / "logs" / f"attempt-{attempt}"
    return sum(p.read_text(errors="replace").count(text) for p in folder.rglob("rank-*.log"))


def all_logs(run):
    """What the ranks of all attempts wrote."""
    return "".join(p.read_text(errors="replace") for p in sorted((pathlib.Path(run) / "logs").rglob("rank-*.log")))


def has_engine():
    return os.access(ENGINE, os.X_OK)

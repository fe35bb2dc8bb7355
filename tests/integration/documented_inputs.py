"""What the documented commands read: made on demand below the test's folder, small, by the name they are given."""

import functools
import re
import shlex
import shutil

import fake_runs
import harness
from beds import media, train

SCRIPT = "import os\nprint('rank', os.environ['RANK'], 'step 1')\n"
FAILED = ("step 1 loss 0.5\nTraceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n"
          "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
BATCH = "#!/bin/bash\n#SBATCH --nodes=2\nexport NCCL_DEBUG=INFO\nsrun python train.py\n"
FILES = {  # by the page that shows them
    "job.env": "WORLD_SIZE=16\nRANK=3\nMASTER_ADDR=10.1.1.1\nMASTER_PORT=29500\n",
    "task6.env": "SLURM_JOB_ID=123456\nSLURM_STEP_TASKS_PER_NODE=4(x2)\nSLURM_STEP_NUM_TASKS=8\nSLURM_PROCID=6\nSLURM_LOCALID=2\n"
                 "SLURM_STEP_ID=0\nSLURM_STEP_NUM_NODES=2\nSLURM_NODEID=1\nSLURM_STEP_NODELIST=gpu[01-02]\nSLURMD_NODENAME=gpu02\n"
                 "SLURM_JOB_NODELIST=gpu[01-02]\nSLURM_NNODES=2\nSLURM_NTASKS=8\nSLURM_TASKS_PER_NODE=4(x2)\n",
    "token": "a-token-of-these-tests\n",
    "job.yaml": "name: taehv-night\nprogram: lockstep train taehv --config mine.yaml\nnodes: 2\ngpus: 8\ncpus: 64\ntime: 24h\n",
    "ours.sh": "#OURS {{nodes}}\n{{lockstep}} {{subcommand}}{{#program}} {{.}}{{/program}}\n",
}
# Options of the tools whose next word is no file of theirs.
VALUES = {"--weights", "--precision", "--fps", "--dtype", "--codec", "--crf", "--device", "--pixels", "--chunk", "--variant"}


def succeed(*args):
    done = harness.lockstep(*args)
    if done.returncode != 0:
        raise AssertionError(f"lockstep {' '.join(map(str, args))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def runs():
    return harness.tmp_dir() / "runs"


@functools.lru_cache(maxsize=None)
def launched():
    """A finished run of the launcher."""
    succeed("run", "--nproc-per-node", "2", "--name", "launched", "--no-python", harness.DEMO, "--steps", "5")
    return runs() / "launched"


@functools.lru_cache(maxsize=None)
def measured(metric):
    """A line of the launched run that has this metric."""
    with open(launched() / "metrics" / "rank-0.jsonl", "a") as file:
        file.write(fake_runs.metric_line(0, 5, **{metric: 1.0}))


@functools.lru_cache(maxsize=None)
def trained():
    """A finished training."""
    sets = {"train.steps": 2, "data.frames": 5, "train.schedule.warmup": 0, "train.ema.decay": 0.5}
    succeed(*train.command(ranks=1, name="trained", sets=sets))
    return runs() / "trained"


@functools.lru_cache(maxsize=None)
def trained_words(name="trained-words", rank=0):
    """A finished training of a language model."""
    sets = {"train.steps": 1, "train.batch": 2, "data.documents": 64, "data.length": 32, "data.threads": 0, "data.validation.samples": 2,
            "train.schedule.warmup": 0, "recipe.layers": 1, "recipe.lora.rank": rank}
    succeed("train", "lm", "--nproc-per-node", "1", "--name", name,
            *(word for key, value in sets.items() for word in ("--set", f"{key}={value}")))
    return runs() / name


@functools.lru_cache(maxsize=None)
def packed():
    books(harness.tmp_dir() / "packed-books")
    succeed("tokens", "packed-books", "--out", "packed.tokens")
    return harness.tmp_dir() / "packed.tokens"


@functools.lru_cache(maxsize=None)
def exported():
    succeed("export", "--weights", trained(), "exported.safetensors")
    return harness.tmp_dir() / "exported.safetensors"


@functools.lru_cache(maxsize=None)
def encoded():
    media.video(harness.tmp_dir() / "encoded.avi", 9)
    succeed("encode", "--weights", exported(), "encoded.avi", "encoded.safetensors")
    return harness.tmp_dir() / "encoded.safetensors"


def copy(source):
    def make(path):
        if source().is_dir():
            shutil.copytree(source(), path, symlinks=True)
        else:
            shutil.copy(source(), path)

    return make


def text(content):
    def make(path):
        path.write_text(FILES.get(path.name, content))
        path.chmod(0o600 if path.name == "token" else 0o755)

    return make


def videos(path):
    path.mkdir()
    for number in range(10):
        media.video(path / f"{number}.avi", 13)


def books(path):
    path.mkdir()
    for number in range(4):
        (path / f"{number}.txt").write_text(f"Chapter {number}. " * 40)


def logs(path):
    path.mkdir()
    (path / "rank0.log").write_text(FAILED)


def hardware(path):
    path.write_text(succeed("doctor", "hardware", "--json"))


# (command, word before, word): the first row that fits makes what is not there.
INPUTS = [
    (r"", r"", r"^runs/tuned", lambda path: shutil.copytree(trained_words("trained-tuned", 2), path, symlinks=True)),
    (r"", r"", r"^runs/words", lambda path: shutil.copytree(trained_words(), runs() / "words", symlinks=True, dirs_exist_ok=True)),
    (r"lockstep tokens", r"", r"\.jsonl$", text('{"text": "a line of text"}\n' * 9)),
    (r"", r"", r"\.tokens$", copy(packed)),
    (r"", r"", r"^(data\.path=)?books/?$", books),
    (r"", r"^--weights$", r"^runs/", lambda path: copy(trained)(runs() / path.relative_to(runs()).parts[0])),
    (r"", r"^--weights$", r"\.(safetensors|pth)$", copy(exported)),
    (r"", r"^--config$", r"\.ya?ml$", text("recipe: {model: taehv-small}\n")),
    (r"", r"^--deepspeed$", r"\.(json|sbatch)$", text("// auto is the recipe's\nzero_optimization: {stage: 2}\ntrain_batch_size: auto\n")),
    (r"", r"^--accelerate$", r"\.ya?ml$", text("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}\n")),
    (r"", r"^--hardware$", r"\.json$", hardware),
    (r"", r"^--token-file$", r"", text("")),
    (r"", r"^--venv$", r"", lambda path: None),
    (r"lockstep decode", r"", r"\.safetensors$", copy(encoded)),
    (r"lockstep (reconstruct|encode|eval)", r"", r"\.(mp4|mkv|avi)$", lambda path: media.video(path, 9)),
    (r"lockstep (reconstruct|encode)", r"", r"/$", lambda path: media.frames(path, 9)),
    (r"lockstep eval", r"^--data$", r"/$", videos),
    (r"", r"", r"^data\.path=", videos),
    (r"lockstep doctor diagnose", r"", r"^runs/", copy(launched)),
    (r"lockstep submit", r"", r"^(job\.yaml|ours\.sh)$", text("")),
    (r"lockstep lint", r"", r"\.(sbatch|sh)$", text(BATCH)),
    (r"lockstep lint", r"", r"\.ya?ml$", text("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")),
    (r"lockstep lint", r"", r"Dockerfile$", text("FROM debian\nENV NCCL_DEBUG=INFO\n")),
    (r"", r"", r"^\./[\w.]+$", text("#!/bin/sh\necho step 1\n")),
    (r"", r"", r"\.(out|log)$", text(FAILED)),
    (r"", r"", r"^logs/$", logs),
    (r"", r"", r"\.env$", text("")),
    (r"", r"", r"\.py$", text(SCRIPT)),
]
# Commands that take the name of a run.
NAMED = re.compile(r"lockstep (watch|logs|stop|report|doctor hang)")


def output(words):
    """What a tool for videos or weights writes: its last operand."""
    if not re.search(r"lockstep (reconstruct|encode|decode|export|tokens .*--out)", " ".join(words)):
        return None
    operands = [word for before, word in zip(words, words[1:]) if word[0] != "-" and before not in VALUES]
    return operands[-1] if len(operands) > 1 else None


def prepare(command):
    """Makes every file and run that the command names and that is not there; takes away what it writes."""
    here = harness.tmp_dir()
    (here / "my").mkdir(exist_ok=True)
    (here / "my" / "train.py").write_text(SCRIPT)  # of `-m my.train`
    words = shlex.split(re.split(r" [|>] ?", command)[0])
    written = output(words)
    first = next((i + 1 for i, word in enumerate(words) if word.endswith("lockstep")), 1)
    first += 2 if words[first:first + 1] == ["doctor"] else 1
    for before, word in zip(words[first - 1:], words[first:]):
        path = here / (word.split("=", 1)[1] if "=" in word else word).replace("*", "a").replace("~/", "")
        if word == written:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            continue
        if word in ("latest", "runs/latest"):
            launched()  # `latest` is a link that the launcher makes
            continue
        if before == "--metric":
            measured(word)
            continue
        make = next((row[3] for row in INPUTS if re.search(row[0], command) and re.search(row[1], before)
                     and re.search(row[2], word)), None)
        if make is None and NAMED.search(command) and re.fullmatch(r"[a-z][a-z\d-]*", word) and (not before.startswith("--") or before == "--against"):
            make, path = copy(launched), runs() / word
        if make is not None and word[0] != "-" and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            make(path)

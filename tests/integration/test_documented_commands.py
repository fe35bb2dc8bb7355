"""Every command that README.md, docs/, examples/ and the helps show is run here, in a scratch folder with small inputs.

What cannot run on one small machine stands in LISTED with its reason, and is parsed at least. A new command of the
documentation is run by what is here already, or the first test fails and names the table that lacks a row. documented.py
finds the commands, documented_inputs.py makes what they read.
"""

import functools
import os
import re
import shlex
import sys

import documented
import harness

sys.path.append(str(harness.ROOT / "tests"))
import documented_inputs as inputs  # noqa: E402

# What a reader puts in.
PLACEHOLDERS = {
    "RECIPE": "taehv", "RUN": "night-1", "NAME": "night-1", "COMMAND": "run", "FILE": "job.sbatch", "PATH": "runs/night-1",
    "LOG": "slurm-4711.out", "N": "2", "MODEL": "runs/words", "TEXT": "text", "SOURCE": "books", "TREE": "/", "WHAT": "hardware",
}

# (pattern, why it is not run as it stands, what is checked instead: see parsed())
LISTED = [
    (r"^(srun|mpirun|kubectl)\b", "needs a cluster", "flags"),
    (r"--nnodes 2\b.*--node-rank|--node-rank .*--nnodes 2\b", "needs two machines", "dry-run"),
    (r"--conda\b", "needs conda", "flags"),
    (r"[ =]/(data|scratch|shared)\b", "names a folder of another machine", "flags"),
    (r"^(\w+=\S+ )*make (?!help$)", "builds, tests or installs for minutes", "make"),
    (r"^(ninja|apt-get)\b", "builds or installs", "none"),
    (r"(^|python3? )(bench|tests|cmake|deps)/", "measures or tests for minutes", "files"),
    (r"--lpips", "needs weights that are not part of this tree", "flags"),
    (r"--pid 4711|/proc/4711", "a process of an example", "flags"),
    (r"^lockstep reconstruct --precision fp16 --dtype u8$", "options in a sentence, not a whole command", "flags"),
    (r"\bdata prepare\b", "needs frames and spikes; test_data_command.py generates some and prepares them", "none"),
    (r"^lockstep data\b", "needs files of many kinds; test_data_command.py makes some and runs every command", "flags"),
    (r"\b(train|config) vrt\b", "needs an option file and pairs of clips; test_vrt.py generates both and runs them", "flags"),
    (r"^lockstep eval vrt\b", "needs a trained VRT; test_vrt.py trains one and measures it", "flags"),
    (r"^lockstep restore\b", "needs a trained VRT; test_vrt.py trains one and restores with it", "flags"),
    (r"^lockstep export\b.*\.pth$", "needs a trained VRT; test_restore.py trains one and exports it", "flags"),
    (r"^lockstep cache\b", "needs a cache, which takes a teacher; test_cache.py makes one and runs every command", "flags"),
    (r"^lockstep watch\b.*--http\b", "serves until it is interrupted; test_watch_web.py runs it", "flags"),
    (r"^lockstep submit (?!.*--(render|check|dry-run))", "needs a cluster; test_submit_slurm.py and test_submit_ssh.py have one", "flags"),
    (r"^lockstep (cancel|logs -f --platform)\b", "ends or follows a job of a cluster", "flags"),
    (r"^lockstep selftest\b", "ranks of PyTorch for half a minute; test_selftest.py runs it", "dry-run"),
]

# Exit codes other than 0 that are right for these inputs.
CODES = [
    (r"^lockstep lint\b", (0, 1), "findings"),
    (r"lockstep (stop|doctor hang)\b", (0, 2, 3), "the run has ended"),
    (r"preflight\b", (0, 1, 3), "this machine may fail a check"),
    (r"^lockstep explain .*job\.env", (2,), "the page shows a contradiction"),
    (r"^lockstep doctor diagnose\b", (0, 1), "a log without a failure"),
    (r"^lockstep submit --check\b", (0, 3), "sbatch is here, and no cluster"),
]

# Words that are added: without them it would not end.
ADDED = [(r"lockstep watch \S+\.(out|log)\b(?!.*--once)", " --once")]  # a log of another launcher has no end

# Which test runs it.
LOCKSTEP = r"^(build/bin/)?lockstep "
KINDS = {
    "launcher": LOCKSTEP + r"(run|explain|env|runs|logs|stop|submit|jobs|watch|report|help|version|train --licenses|-)|^eval .*lockstep env",
    "doctor": LOCKSTEP + r"(doctor|tune|lint)\b|^eval .*lockstep tune",
    "config": LOCKSTEP + r"(config|plan)\b",
    "train": LOCKSTEP + r"train\b|^torchrun .*lockstep-train train\b",
    "media": LOCKSTEP + r"(eval|reconstruct|encode|decode|export)\b",
    "text": LOCKSTEP + r"(tokens|generate)\b",
}

# Over the settings of every training that is shown, so that it takes seconds; two pages may name their runs alike.
SMALL = {"train.steps": 2, "train.batch": 4, "data.frames": 4, "data.height": 32, "data.width": 32, "data.threads": 0,
         "data.validation.samples": 2, "checkpoint.every": 0, "train.schedule.warmup": 0,
         "data.on_change": "new_epoch"}

SMALL_TEXT = {"train.steps": 2, "train.batch": 4, "train.micro_batch": 0, "train.schedule.warmup": 0, "data.length": 32,
              "data.threads": 0, "data.validation.samples": 2, "checkpoint.every": 0, "recipe.model": "tiny", "recipe.layers": 1,
              "data.on_change": "new_epoch"}

# Which helps of the engine show commands of a kind: a test reads these only, because each loads LibTorch.
TEXT_HELPS = ("tokens", "generate")
ENGINE_HELPS_OF = {"config": ("config",), "text": TEXT_HELPS,
                   "media": tuple(name for name in documented.ENGINE_HELPS if name not in ("config", "data", *TEXT_HELPS))}


@functools.lru_cache(maxsize=None)
def collected(helps):
    return documented.collect(helps)


def shown(sort, helps=documented.HELPS + documented.ENGINE_HELPS):
    return [one for one in collected(helps) if one.sort == sort]


def filled(text):
    """The command with its placeholders filled in."""
    text = re.sub(r"<(\w+)>", lambda m: m[1].upper(), text)
    return re.sub(r"(?<![\w$.-])([A-Z]{1,8})(?:\.\.\.)?(?![\w=.])", lambda m: PLACEHOLDERS.get(m[1], m[0]), text)


def listed(command):
    return next((row for row in LISTED if re.search(row[0], command)), None)


def kind_of(command):
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, command)), None)


def commands(kind, part=0, parts=1):
    helps = documented.HELPS + ENGINE_HELPS_OF.get(kind, ())
    found = [one for one in shown("command", helps) if not listed(filled(one.text)) and kind_of(filled(one.text)) == kind]
    return found[part::parts]


def shell(command):
    here = harness.tmp_dir()
    (here / "build").mkdir(exist_ok=True)
    for link, target in (("build/bin", harness.BIN), ("examples", harness.ROOT / "examples"), ("docs", harness.ROOT / "docs"),
                         ("my-train", harness.BIN.parent / "outside-recipe" / "build" / "my-train")):
        if not (here / link).exists():
            (here / link).symlink_to(target)
    env = {"PATH": f"{harness.BIN}:{os.path.dirname(harness.PYTHON)}:{os.environ['PATH']}", "HOME": here, "OMP_NUM_THREADS": "1"}
    if "$MASTER_ADDR" in command:
        env["MASTER_ADDR"] = "10.0.0.1"
    return harness.run(["bash", "-o", "pipefail", "-c", command], env=env)


def written_by_another(command):
    """A configuration is written by the command that writes it on some page, where there is one."""
    for name in re.findall(r"--config (\S+)", command):
        for one in commands("config"):
            if one.text.startswith("lockstep config") and one.text.endswith(f"> {name}"):
                inputs.prepare(filled(one.text))
                shell(filled(one.text))


def shortened(command):
    """A training as shown, but two steps of a small model; a dry run of four steps."""
    if "--version" in command:
        return command
    if "--smoke" in command:
        return re.sub(r"--smoke(=\d+)?", "--smoke=4", command)
    sets = {**SMALL, "recipe.model": "taehv-small"} if " taehv" in command else SMALL
    if " lm" in command:
        return command + "".join(f" --set {key}={value}" for key, value in SMALL_TEXT.items())
    if " spirals" in command:  # has no frames
        sets = {key: value for key, value in SMALL.items() if key not in ("data.frames", "data.height", "data.width")}
    return command + "".join(f" --set {key}={value}" for key, value in sets.items())


@functools.lru_cache(maxsize=None)
def flags_of(command):
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", documented.help_of(command)))


def unknown_flags(text):
    """What is wrong with the flags of a command of ours, or None."""
    match = re.search(r"lockstep\s+((?:doctor\s+|cache\s+(?=[a-z]))?(?:eval vrt|[a-z]+))\b", documented.unquoted(text))
    if match is None or match[1] in ("help", "version"):
        return None
    command = " ".join(match[1].split())
    known = flags_of(command) | (flags_of("run") if command in ("train", "cache build", "selftest", "doctor preflight", "explain", "env", "submit") else set())
    own = documented.unquoted(text)[match.end():].split(" | ")[0]
    own = re.split(r"\s(?:\S+\.py|\./\S+)(?:\s|$)", own)[0]  # what follows is the program's
    unknown = [flag for flag in re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", own) if flag not in known]
    return f"`lockstep {command} --help` has no {', '.join(unknown)}" if unknown else None


def parsed(command, how):
    """What is wrong with a command that is not run, or None."""
    if how == "files":
        gone = [word for word in command.split() if re.match(r"(bench|tests|cmake|deps|docs)/", word)
                and not (harness.ROOT / word).exists()]
        return f"there is no {', '.join(gone)}" if gone else None
    if how == "make":
        words = shlex.split(command)
        done = harness.run(["make", "-n", *words[words.index("make") + 1:]], cwd=harness.ROOT)
        return done.stderr if done.returncode != 0 else None
    if how == "dry-run" and re.match(r"lockstep (run|train)\b", command):
        inputs.prepare(command)
        done = shell(re.sub(r"^(lockstep \w+)", r"\1 --dry-run", command))
        return f"{done.stdout}{done.stderr}" if done.returncode != 0 else None
    return unknown_flags(command) if how != "none" else None


class Commands(harness.Case):
    TIMEOUT = 60

    def run_all(self, chosen, change=lambda command: command + "".join(more for pattern, more in ADDED if re.search(pattern, command))):
        self.assertTrue(chosen, "no command of this kind is shown")
        failed = []
        for one in chosen:
            command = filled(one.text)
            written_by_another(command)
            inputs.prepare(command)
            codes = next((codes for pattern, codes, _ in CODES if re.search(pattern, command)), (0,))
            done = shell(change(command))
            if done.returncode not in codes:
                failed.append(f"{one}\n$ {change(command)}\nexit code {done.returncode}, expected {codes}\n"
                              f"{done.stdout[-1500:]}{done.stderr[-1500:]}")
        self.assertEqual(failed, [], "\n\n".join(failed))

    def test_each_is_run_or_listed(self):
        found = [(one, filled(one.text)) for one in shown("command")]
        self.assertGreater(len(found), 60)
        rest = [(one, command) for one, command in found if not listed(command)]
        self.assertEqual([str(one) for one, command in rest if not kind_of(command)], [], "KINDS and LISTED lack a row")
        places = [str(one) for one, command in rest
                  if re.search(r"(?<![\w$./=-])[A-Z]{2,}(?![\w=/.-])|<\w+>", documented.unquoted(command))]
        self.assertEqual(places, [], "PLACEHOLDERS lacks a word")
        foreign = [str(one) for one, command in rest if one.where.split()[1:2] and one.where.split()[1] in documented.ENGINE_HELPS
                   and one.where.split()[1] not in ENGINE_HELPS_OF.get(kind_of(command), ())]
        self.assertEqual(foreign, [], "ENGINE_HELPS_OF lacks a help")
        unused = [row[0] for row in LISTED if not any(re.search(row[0], command) for _, command in found)]
        self.assertEqual(unused, [], "LISTED has rows that nothing needs")

    def test_what_is_listed_is_parsed(self):
        failed = []
        for one in shown("command"):
            row = listed(filled(one.text))
            if row and (error := parsed(filled(one.text), row[2])):
                failed.append(f"{one} ({row[1]}): {error}")
        self.assertEqual(failed, [], "\n".join(failed))

    def test_every_synopsis_names_flags_that_exist(self):
        self.assertEqual([f"{one}: {error}" for one in shown("synopsis") if (error := unknown_flags(one.text))], [])

    def test_what_is_mentioned_exists(self):
        targets = set(re.findall(r"^([a-z-]+):", (harness.ROOT / "Makefile").read_text(), re.M))
        failed = []
        for one in shown("mention"):
            words = one.text.split()
            if words[0] == "make" and len(words) == 2 and words[1] not in targets:
                failed.append(f"{one}: the Makefile has no such target")
            if words[0] == "lockstep" and len(words) > 1:
                command = " ".join(words[1:3]) if words[1] == "doctor" else words[1]
                if command not in (*documented.HELPS, *documented.ENGINE_HELPS, "help", "version"):
                    failed.append(f"{one}: no such command")
        failed += [f"{one}: no such file" for one in shown("path")
                   if not one.text.startswith(("build/", ".venv/")) and not (harness.ROOT / one.text).exists()]
        self.assertEqual(failed, [])

    def test_make_help(self):
        done = harness.run(["make", "help"], cwd=harness.ROOT)
        self.assertEqual((done.returncode, "make run" in done.stdout), (0, True), done.stderr)

    def test_launcher(self):
        self.run_all(commands("launcher"))

    def test_doctor(self):
        self.run_all(commands("doctor"))

    def test_config(self):
        self.run_all(commands("config"))

    def test_media_1(self):
        self.run_all(commands("media", 0, 3))

    def test_media_2(self):
        self.run_all(commands("media", 1, 3))

    def test_media_3(self):
        self.run_all(commands("media", 2, 3))

    def test_text(self):
        self.run_all(commands("text"))

    def test_train_1(self):
        self.run_all(commands("train", 0, 5), shortened)

    def test_train_2(self):
        self.run_all(commands("train", 1, 5), shortened)

    def test_train_3(self):
        self.run_all(commands("train", 2, 5), shortened)

    def test_train_4(self):
        self.run_all(commands("train", 3, 5), shortened)

    def test_train_5(self):
        self.run_all(commands("train", 4, 5), shortened)

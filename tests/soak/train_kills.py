"""Training under kill -9, for run.py: a random rank at a random moment, several times a run, under --max-restarts. Each run
must end with the bits of one that nobody touched, every sample exactly once in what led there."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import harness
from beds import netns, train

STEPS_PER_KILL = 10
KILLS_PER_RUN = 5
# What is trained, in turn: the plain recipe, and one with a discriminator, its replay buffer and an average of the weights.
KINDS = ({}, {
    "data.frames": 8, "recipe.loss.adversarial": 0.5, "recipe.seraena.frames": 4, "recipe.seraena.replay": 64, "train.ema.decay": 0.9,
    "train.ema.every": 2, "train.ema.warmup": "linear",
})


def start(host, name, ranks, kind, steps, *flags):
    sets = {"train.steps": steps, "checkpoint.every": 3, **KINDS[kind]}
    with open(os.path.join(host.folder, f"{name}.out"), "wb") as out:
        return host.popen([harness.PROGRAM, *train.command("--backoff", "20ms", *flags, ranks=ranks, name=name, sets=sets)],
                          env=harness.clean_env(train.ONE_THREAD), stdout=out, stderr=subprocess.STDOUT)


def one_run(host, name, ranks, kind, steps, kills, rng, reference):
    """Words about what went wrong, empty when nothing did; and the steps from which the attempts went on."""
    job = start(host, name, ranks, kind, steps, "--max-restarts", kills)
    run = pathlib.Path(host.folder) / "runs" / name
    problem = ""
    for attempt in range(kills):
        # The kills share the run between them; within its part each comes at any step, and at any moment of it.
        low, high = STEPS_PER_KILL * attempt, STEPS_PER_KILL * (attempt + 1)
        target = rng.randrange(low + 1, high + 1)
        try:
            harness.wait_until(lambda a=attempt, t=target: train.steps_done(run, attempt=a) >= t or job.poll() is not None, 120, f"step {target}")
        except harness.DeadlineError as late:
            problem = f"attempt {attempt}: {late}"
            break
        time.sleep(rng.uniform(0, 0.1))
        pids = train.rank_pids(run, attempt)
        try:
            os.kill(pids[rng.randrange(ranks)], signal.SIGKILL)
        except (KeyError, ProcessLookupError):
            problem = f"attempt {attempt} had ended before it could be killed"
            break
    try:
        code = job.wait(300)
    except subprocess.TimeoutExpired:
        job.kill()
        code = "none within 300 s"
    resumed = []
    for attempt in range(1, kills + 1):
        found = re.search(r"resuming from \S+ at step (\d+)", train.rank_log(run, 0, attempt))
        resumed.append(int(found[1]) if found else 0)
    if not problem and code != 0:
        problem = f"exit code {code}"
    if not problem:
        problem = train.problems_of_lineage(run, steps)
    if not problem and train.stray(run):
        problem = f"left: {train.stray(run)}"
    if not problem and (different := train.differences(train.last(run), reference)):
        problem = f"{len(different)} tensors differ from the run that nobody touched, first {different[0]}"
    return problem and f"{name}: {problem}", resumed


def kills(times, rng, row, left_on):
    """Fills the row of the table; a kill counts as good when the run it belongs to ended as it should."""
    resumed = []
    with netns.Net(["a"]) as net:
        host = net["a"]
        references = {}
        number = 0
        steps = STEPS_PER_KILL * (min(times, KILLS_PER_RUN) + 1)
        while row.times < times:
            ranks, kind = 2 + number % 2, number // 2 % len(KINDS)
            whole = f"whole-{ranks}-{kind}"
            if whole not in references:
                if start(host, whole, ranks, kind, steps).wait(300) != 0:
                    row.add("the run that nobody touched failed: " + (pathlib.Path(host.folder) / f"{whole}.out").read_text()[-500:])
                    return row
                references[whole] = train.last(pathlib.Path(host.folder) / "runs" / whole)
            count = min(KILLS_PER_RUN, times - row.times)
            problem, began = one_run(host, f"killed-{number}", ranks, kind, steps, count, rng, references[whole])
            problem = problem or left_on(host)
            resumed += began
            for _ in range(count):
                row.add(problem)
            if problem:
                shutil.copytree(pathlib.Path(host.folder) / "runs" / f"killed-{number}", pathlib.Path(net.folder).parent / f"{pathlib.Path(net.folder).name}-failed-{number}",
                                symlinks=True)
            shutil.rmtree(os.path.join(host.folder, "runs", f"killed-{number}"), ignore_errors=True)
            number += 1
    later = sum(step > 0 for step in resumed)
    row.notes = f" ({later} resumed from a step > 0)"
    if times >= 10 and later < 0.8 * times:
        row.problems.append(f"only {later} of {times} attempts resumed from a step > 0: {resumed}")
    return row

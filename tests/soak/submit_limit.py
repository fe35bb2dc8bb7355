#!/usr/bin/env python3
"""A job reaches its time limit under a real SLURM of two nodes, as `lockstep submit` wrote it: SIGTERM before the limit, the
training saves, the job is queued again, starts when SLURM lets it, resumes and succeeds. Two to eight minutes, most of
them SLURM's own waiting. Exit code 0 when every step was trained once.

    tests/soak/submit_limit.py
"""

import json
import pathlib
import re
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "tests")]
import harness  # noqa: E402
from beds import slurm, train  # noqa: E402

def main():
    folder, began = harness.tmp_dir(), time.monotonic()
    # A wait of ten seconds instead of two minutes before a job that was queued again starts.
    with slurm.Slurm(credentials=10) as bed:
        steps = 320  # more than fit before the first limit on a fast machine
        sets = {"train.steps": steps, "checkpoint.every": 0, "train.batch": 16, "data.height": 32, "data.width": 32, "track.samples": "true"}
        (folder / "job.yaml").write_text(json.dumps({
            "name": "limit", "program": ["lockstep", "train", "taehv", *train.settings(sets)], "lockstep": harness.PROGRAM, "nodes": 2,
            "time": "1m", "grace": "20s", "env": train.ONE_THREAD}))
        env = {"XDG_STATE_HOME": str(folder / "state"), "USER": "root"}
        done = bed.run([harness.PROGRAM, "submit", "--json", "--platform", "slurm", "job.yaml"], cwd=folder, env=env)
        job = json.loads(done.stdout)["id"]
        fields = bed.wait(job, 900)
        text = (folder / f"limit-{job}.out").read_text(errors="replace")
        lines = harness.read_jsonl(folder / "runs" / "limit" / "samples" / "rank-0.jsonl")
    attempts = sorted({line["attempt"] for line in lines})
    good = (fields["JobState"] == "COMPLETED" and int(fields["Restarts"]) > 0 and [line["step"] for line in lines] == list(range(1, steps + 1))
            and len(attempts) == int(fields["Restarts"]) + 1)
    print(f"{fields['JobState']} after {fields['Restarts']} restarts, {time.monotonic() - began:.0f} s; steps of each start: "
          + ", ".join(str(sum(line["attempt"] == a for line in lines)) for a in attempts)
          + f"; saved {len(re.findall('state saved', text))} times")
    if not good:
        print(text[-4000:], file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

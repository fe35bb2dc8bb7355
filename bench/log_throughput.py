#!/usr/bin/env python3
"""Log throughput: ranks that print as fast as they can, under `lockstep run` and under torchrun, in turns in one run.

Three measures, medians over the repetitions, nothing subtracted:
  writing     lines of all ranks / time from the first rank's first line to the last rank's last (ranks report it themselves)
  delivery    lines that reached the console / time from the first line written to the last one read there (--tee 3 only);
              lines a slow console made the launcher skip do not count
  end to end  the same lines / wall time of the whole command, start of the launcher included

Three writers: `print` (Python's print, unbuffered as both launchers run scripts), `write` (one system call per line) and
`block` (8 KiB per system call, as programs with buffered output do; ten times the lines). The first two are bound by the
writer itself, the last by the launcher.
Goals: delivery >= 3 x `torchrun --tee 3`; writing >= 0.8 x `torchrun --redirects 3`, where ranks write their files directly.
"""

import argparse
import fcntl
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import peers
from rows import in_turns

SCRIPT = r"""
import os, sys, time
writer, lines, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rank = os.environ["RANK"]
text = "a line of training output with about as many words as such lines have, loss 1.2345"
# Both start together, so that both write against each other from the first line to the last.
open(f"{folder}/ready.{rank}", "w").close()
while len([n for n in os.listdir(folder) if n.startswith("ready.")]) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.005)
start = time.monotonic()
if writer == "print":
    for i in range(lines):
        print(i, text)
elif writer == "write":
    line = (text + "\n").encode()
    for i in range(lines):
        os.write(1, line)
else:
    line = (text + "\n").encode()
    block = line * (8192 // len(line))
    lines_in_block = len(block) // len(line)
    while lines > 0:
        if lines < lines_in_block:
            block = line * lines
        left = memoryview(block)
        while left:
            left = left[os.write(1, left):]
        lines -= lines_in_block
end = time.monotonic()
with open(f"{folder}/time.{rank}", "w") as f:
    f.write(f"{start} {end}")
"""


def run_once(command, folder, env, shows):
    """One command; returns its times in seconds and the lines that reached the console."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    read_end, write_end = os.pipe()
    fcntl.fcntl(read_end, fcntl.F_SETPIPE_SZ, 1 << 20)
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=write_end, stderr=subprocess.PIPE, env=env, cwd=folder)
    os.close(write_end)
    shown, last = 0, begin
    while chunk := os.read(read_end, 1 << 20):
        shown += chunk.count(b"words as such lines")
        last = time.monotonic()
    os.close(read_end)
    errors = process.stderr.read().decode(errors="replace")
    if process.wait() != 0:
        raise RuntimeError(f"{peers.how_it_ended(process.returncode)}: {' '.join(map(str, command))}\n{errors[-3000:]}")
    wall = time.monotonic() - begin
    times = [tuple(map(float, f.read_text().split())) for f in sorted(folder.glob("time.*"))]
    first = min(start for start, _ in times)
    result = {"writing_s": max(end for _, end in times) - first, "end_to_end_s": wall}
    if shows:
        result.update(delivery_s=last - first, shown=shown)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/bin/lockstep", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--lines", type=int, default=200000, help="lines per rank")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--writers", default="print,write,block")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout instead of text")
    args = parser.parse_args()

    lockstep = str(args.lockstep.resolve())
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "SLURM_", "PET_"))}
    table = {}
    with tempfile.TemporaryDirectory(prefix="lockstep-log-bench-") as name:
        folder = pathlib.Path(name)
        script = folder / "writer.py"
        script.write_text(SCRIPT)
        work = folder / "work"

        def commands(writer, lines):
            tail = [str(script), writer, str(lines), str(work)]
            ours = [lockstep, "run", f"--nproc-per-node={args.ranks}", f"--log-dir={work / 'logs'}"]
            theirs = [args.python, "-m", "torch.distributed.run", f"--nproc-per-node={args.ranks}", "--master-port=0",
                      "--log-dir", str(work / "logs")]
            program = ["--no-python", args.python, "-u"]
            return {
                "lockstep --tee 3": ours + ["--tee=3"] + program + tail,
                "torchrun --tee 3": theirs + ["--tee=3"] + tail,
                "lockstep --redirects 3": ours + ["--redirects=3"] + program + tail,
                "torchrun --redirects 3": theirs + ["--redirects=3"] + tail,
            }

        for writer in args.writers.split(","):
            samples = {}
            lines = args.lines * (10 if writer == "block" else 1)
            works = {}
            for label, command in commands(writer, lines).items():
                def work_of(command=command, label=label):
                    return run_once(command, work, env, "tee" in label)
                works[label] = peers.Peer(label, work_of) if label.startswith("torchrun") else work_of
            for label, runs in zip(works, in_turns(args.repeat, *works.values())):
                if runs:
                    samples[label] = runs
            table[writer] = {}
            for label, runs in samples.items():
                total = lines * args.ranks
                row = {key.removesuffix("_s"): total / statistics.median(r[key] for r in runs) for key in ("writing_s", "end_to_end_s")}
                if "shown" in runs[0]:
                    row["delivery"] = statistics.median(r["shown"] / r["delivery_s"] for r in runs)
                    row["not_shown"] = statistics.median(total - r["shown"] for r in runs)
                table[writer][label] = row

    report = {"lines_per_rank": args.lines, "ranks": args.ranks, "repeat": args.repeat, "cpus": len(os.sched_getaffinity(0)),
              "unit": "lines/s", "rates": table, "ratios": {}}
    for writer, rows in table.items():
        if len(rows) < 4:
            continue  # a peer crashed: no ratio
        tee, redirects = rows["torchrun --tee 3"], rows["torchrun --redirects 3"]
        report["ratios"][writer] = {
            "tee_delivery": rows["lockstep --tee 3"]["delivery"] / tee["delivery"],
            "tee_writing": rows["lockstep --tee 3"]["writing"] / tee["writing"],
            "tee_end_to_end": rows["lockstep --tee 3"]["end_to_end"] / tee["end_to_end"],
            "redirects_writing": rows["lockstep --redirects 3"]["writing"] / redirects["writing"],
            "redirects_end_to_end": rows["lockstep --redirects 3"]["end_to_end"] / redirects["end_to_end"],
        }
    if args.json:
        print(json.dumps(report, indent=2))
        return
    print(f"{args.ranks} ranks x {args.lines} lines, {report['cpus']} cores, medians of {args.repeat}, lines/s")
    for writer, rows in table.items():
        for label, row in rows.items():
            print(f"  {writer:5} {label:23}" + "".join(f"  {k} {v:>11,.0f}" for k, v in row.items()))
    for writer, ratios in report["ratios"].items():
        print(f"  {writer}: against --tee 3: delivery {ratios['tee_delivery']:.2f}x (goal 3), writing {ratios['tee_writing']:.2f}x, "
              f"end to end {ratios['tee_end_to_end']:.2f}x; against --redirects 3: writing {ratios['redirects_writing']:.2f}x "
              f"(goal 0.8), end to end {ratios['redirects_end_to_end']:.2f}x")


if __name__ == "__main__":
    main()

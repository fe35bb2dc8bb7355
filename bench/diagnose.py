#!/usr/bin/env python3
"""How fast `lockstep doctor diagnose` reads: a noisy log, against `grep -E -f` and Python's `re` with the same patterns.

    bench/diagnose.py                       500 MB, five rounds, then 10 GB through a pipe (two to five minutes)
    bench/diagnose.py --mb 100 --stream-gb 0 --repeat 3
    bench/diagnose.py --json

The log holds bars, losses, NCCL's INFO lines, warnings and monitoring, about one line in 2,000 that a signature knows,
and at its end the tracebacks of a real failure from tests/corpus. All read the same file from memory (it is read once
before). grep counts the lines that match any pattern, with the plain C locale; Python's re has one compiled alternation
and gets a slice. diagnose does more: roles, ranks, tracebacks, progress. Rates are bytes by processor time (user and
system), because machines are shared; wall time is shown too. Memory is the largest resident set while 10 GB pass.
"""

import argparse
import json
import os
import pathlib
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOCKSTEP = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/bin/lockstep"))
SIGNATURES = ROOT / "src/diagnose/signatures.tsv"
FAILURE = ROOT / "tests/corpus/dev/unicode-decode-error-rank3-of-4-torchrun/log/train.log"
KNOWN = ["node-3:811:902 [2] NCCL INFO socketPollConnect: connect to 10.29.224.148<52333> returned Connection refused, retrying (3/34) after sleep for 300 msec",
         "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
         "ps-8:796:796 [1] NCCL INFO Using network Socket",
         "wandb: ERROR Error while calling W&B API: context deadline exceeded"]


def block(size, seed=7):
    """A piece of an ordinary log, ending with a whole line."""
    sys.path.insert(0, str(ROOT / "tests/corpus"))
    import noise

    draw = random.Random(seed)
    out, total, step = [], 0, 0
    while total < size:
        step += 1
        kind = draw.random()
        if kind < 0.0005:
            line = draw.choice(KNOWN)
        elif kind < 0.25:
            line = f"{{'loss': {draw.random() * 4:.4f}, 'grad_norm': {draw.random() * 2:.6f}, 'learning_rate': {draw.random() * 1e-4:.3e}, 'epoch': {step / 1900:.2f}}}"
        elif kind < 0.4:
            line = f"[rank{draw.randrange(16)}] 2026-11-15 02:11:{step % 60:02d},{step % 1000:03d} INFO train: step {step} loss {draw.random() * 4:.4f} lr 2.9e-04 {draw.randrange(9000, 12000)} tok/s mem 61.2GiB"
        else:
            line = noise._line(draw)
        out.append(line)
        total += len(line) + 1
    return ("\n".join(out) + "\n").encode()


# Started by a small process, because the largest resident set that wait4 reports begins with the one of the parent.
MEASURE = """import json, os, subprocess, sys, time
start = time.monotonic()
process = subprocess.Popen(sys.argv[2:], stdout=open(sys.argv[1], "wb"), stderr=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


def usage(command, feed=None):
    """(exit code, wall seconds, processor seconds, largest resident set in MiB, stdout) of a command."""
    with tempfile.NamedTemporaryFile() as out:
        process = subprocess.Popen([sys.executable, "-S", "-c", MEASURE, out.name, *command], stdin=subprocess.PIPE if feed else subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   env={**os.environ, "LC_ALL": "C"})
        if feed:
            try:
                feed(process.stdin)
            except BrokenPipeError:
                pass
            process.stdin.close()
        figures = json.loads(process.stdout.read())
        process.wait()
        return (*figures, out.read())


def patterns():
    """The regular expressions of the signatures."""
    lines = SIGNATURES.read_text().splitlines()
    column = lines[0].split("\t").index("regex")
    return [line.split("\t")[column] for line in lines[1:] if line and not line.startswith("#")]


def for_grep(pattern):
    """The same pattern in the words of grep -E (which cannot fold the case of one pattern alone)."""
    pattern = pattern.replace("(?:", "(").replace("(?i)", "")
    inside = False
    out, i = [], 0
    while i < len(pattern):
        pair = pattern[i:i + 2]
        if pair in (r"\d", r"\D", r"\S", r"\s", r"\w", r"\W"):
            name = {"d": "0-9", "s": "[:space:]", "w": "[:alnum:]_"}[pair[1].lower()]
            out.append(name if inside else f"[{'^' if pair[1].isupper() else ''}{name}]")
            i += 2
        elif pair[0] == "\\":
            out.append(pair[1] if pair[1] in "/-'\"`:" else pair)
            i += 2
        else:
            inside = True if pair[0] == "[" else False if pair[0] == "]" else inside
            out.append(pair[0])
            i += 1
    return "".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--slice-mb", type=int, default=2, help="what Python's re gets")
    parser.add_argument("--stream-gb", type=float, default=10)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = patterns()
    report = {"patterns": len(found), "mb": args.mb}
    with tempfile.TemporaryDirectory(prefix="bench-diagnose-") as folder:
        piece = block(32 << 20)
        log = os.path.join(folder, "train.log")
        with open(log, "wb") as out:
            left = args.mb << 20
            while left > 0:
                out.write(piece)
                left -= len(piece)
            out.write(FAILURE.read_bytes())
        size = os.path.getsize(log)
        listed = os.path.join(folder, "patterns")
        with open(listed, "w") as out:
            out.write("\n".join(map(for_grep, found)) + "\n")
        subprocess.run(["cat", log], stdout=subprocess.DEVNULL, check=True)
        ours, grep = [], []
        for _ in range(args.repeat):
            code, wall, cpu, rss, text = usage([LOCKSTEP, "doctor", "diagnose", "--json", log])
            answer = json.loads(text)
            if code != 0 or answer.get("rank") != 3 or "UnicodeDecodeError" not in text.decode():
                sys.exit(f"diagnose did not find the failure at the end: {text[:500]!r}")
            ours.append((size / cpu / 1e6, size / wall / 1e6, rss))
            if not grep or args.mb <= 100 or len(grep) < 2:  # minutes each: two rounds say enough
                code, wall, cpu, _, text = usage(["grep", "-aEc", "-f", listed, log])
                if code > 1:
                    sys.exit("grep does not understand a pattern")
                grep.append((size / cpu / 1e6, size / wall / 1e6, int(text)))
            print(f"  diagnose {ours[-1][0]:.0f} MB/s   grep -E -f {grep[-1][0]:.1f} MB/s", file=sys.stderr)
        whole = re.compile("|".join(f"(?i:{p[4:]})" if p.startswith("(?i)") else f"(?:{p})" for p in found).encode())
        text = piece[:args.slice_mb << 20]
        start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        matched = sum(1 for line in text.split(b"\n") if whole.search(line))
        python = len(text) / (resource.getrusage(resource.RUSAGE_SELF).ru_utime - start) / 1e6
        report.update(diagnose_mb_s=statistics.median(o[0] for o in ours), diagnose_wall_mb_s=statistics.median(o[1] for o in ours), diagnose_rss_mib=max(o[2] for o in ours),
                      grep_mb_s=statistics.median(g[0] for g in grep), grep_lines=grep[-1][2], python_re_mb_s=python, python_lines=matched)
        report["faster_than_grep"] = report["diagnose_mb_s"] / report["grep_mb_s"]
        report["faster_than_python_re"] = report["diagnose_mb_s"] / python
        if args.stream_gb:
            count = int(args.stream_gb * 1e9 / len(piece)) + 1

            def feed(pipe):
                for _ in range(count):
                    pipe.write(piece)
                pipe.write(FAILURE.read_bytes())

            code, wall, cpu, rss, text = usage([LOCKSTEP, "doctor", "diagnose", "--json", "-"], feed=feed)
            if code != 0 or "UnicodeDecodeError" not in text.decode():
                sys.exit(f"the stream was not diagnosed: {text[:500]!r}")
            report.update(stream_gb=count * len(piece) / 1e9, stream_rss_mib=rss, stream_wall_s=wall, stream_mb_s=count * len(piece) / cpu / 1e6)
    report["goals"] = {"diagnose >= 200 MB/s of one core": report["diagnose_mb_s"] >= 200, "< 64 MiB on a stream": report.get("stream_rss_mib", 0) < 64}
    if args.json:
        print(json.dumps(report, indent=1))
        return
    print(f"{report['patterns']} patterns, {size / 1e6:.0f} MB of log")
    print(f"diagnose      {report['diagnose_mb_s']:8.1f} MB/s of processor time ({report['diagnose_wall_mb_s']:.1f} MB/s wall), {report['diagnose_rss_mib']:.1f} MiB")
    print(f"grep -E -f    {report['grep_mb_s']:8.1f} MB/s   diagnose is {report['faster_than_grep']:.1f} times as fast")
    print(f"Python re     {report['python_re_mb_s']:8.2f} MB/s   diagnose is {report['faster_than_python_re']:.0f} times as fast ({args.slice_mb} MB slice)")
    if args.stream_gb:
        print(f"{report['stream_gb']:.1f} GB stream: {report['stream_rss_mib']:.1f} MiB at most, {report['stream_mb_s']:.1f} MB/s")
    for goal, met in report["goals"].items():
        print(f"{'met' if met else 'MISSED':8}{goal}")


if __name__ == "__main__":
    main()

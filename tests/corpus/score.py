#!/usr/bin/env python3
"""How often `lockstep doctor diagnose` is right on the labelled logs.

    python3 tests/corpus/score.py --part dev              # totals, and every wrong one
    python3 tests/corpus/score.py --part heldout          # totals only: nobody tunes on what is held out
    python3 tests/corpus/score.py --part heldout --show   # the final look
    python3 tests/corpus/score.py --part healthy
    python3 tests/corpus/score.py --part dev --noise 1    # with noise mixed in, seed 1

A failure is named right when its signature is among the accepted ones and the cause or the evidence holds one of the
label's words; the rank when it is the label's (or one of several equal ones); the restart advice when it is accepted.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import noise  # noqa: E402

PROGRAM = os.path.join(os.environ.get("LOCKSTEP_BIN", str(HERE.parents[1] / "build" / "bin")), "lockstep")


def cases(part):
    return sorted(p.parent for p in (HERE / part).glob("*/label.json"))


def label(case):
    return json.loads((case / "label.json").read_text())


def diagnose(path, program=PROGRAM, timeout=60):
    """The diagnosis as JSON; {"error": ...} when there is none."""
    done = subprocess.run([program, "doctor", "diagnose", "--json", str(path)], capture_output=True, text=True, errors="replace", timeout=timeout)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"error": f"exit code {done.returncode}: {done.stderr.strip()[:300]}", "verdict": "none"}


def accepted(value, allowed):
    """Whether a found rank or node is the label's; None stands for 'not known'."""
    value = None if value in (-1, "") else value
    return value in (allowed if isinstance(allowed, list) else [allowed])


# Ids that mean the same as one of the label's: rules that were added to the table later, and general rules. The label's
# words must still be found in cause or evidence, so that an id alone is never enough.
TABLE_PY = {"py-fatal", "py-nomodule", "py-glibc", "py-undef", "py-solib", "py-syntax", "py-tb", "py-signal-exception", "py-keyboard-interrupt"}
SIGNALS = {"exit-sigint": 2, "exit-sigill": 4, "illegal-insn": 4, "exit-sigabrt": 6, "exit-sigbus": 7, "exit-sigfpe": 8, "exit-sigkill": 9, "exit-sigsegv": 11, "exit-sigterm": 15}
SAME = {
    "fs-enoent": {"ckpt-missing", "exec-missing"}, "fs-enospc": {"ckpt-write"}, "ckpt-key": {"ckpt-mismatch", "ckpt-world"}, "conda": {"conda-env"}, "cuda-oom": {"xla-oom"}, "mpi-fatal": {"ucx"}, "nccl-warn": {"efa"}, "shm-bus": {"bus-shm"}, "shm-file": {"bus-shm"},
    "pt-store-inuse": {"port-in-use"}, "acc-port": {"port-in-use"}, "eagain-threads": {"thread-oom"}, "slurm-time": {"slurm-time-kill"}, "slurm-nodefail": {"slurm-node-comm"},
    "k8s-sched": {"k8s-unschedulable"}, "pt-store-wait": {"pt-timeout-join", "join-timeout"}, "pt-store-client-to": {"pt-timeout-join"}, "pt-rdzv-timeout": {"join-timeout", "pt-timeout-join"},
    "nccl-conn-fail": {"nccl-refused"}, "cuda-none": {"cuda-not-compiled", "cuda-init"}, "cuda-802": {"cuda-init"}, "gloo-timeout": {"pt-monitored-barrier"}, "hang": {"lockstep-stalled", "nccl-timeout"},
    "pt-wd-timeout": {"nccl-timeout"}, "illegal-insn": {"exit-sigill"}, "preempted": {"signal-15", "exit-sigterm", "py-signal-exception"}, "interrupted": {"signal-2", "py-keyboard-interrupt", "py-signal-exception"},
    "py-memory": {"py-cpu-alloc", "py-memory-error", "py-array-memory-error", "enomem"}, "config": {"config-key", "ds-batch", "usage", "fsdp"}, "omp": {"omp-twice"}, "fortran": {"fortran-runtime"},
    "tokenizer": {"py-hf-load", "hf-load"}, "net": {"hub-auth", "hub-conn", "hub-offline", "hub-rate", "py-ssl", "pt-dns", "py-object-store"}, "hub-auth": {"py-object-store"}, "hub-conn": {"hub-offline"},
    "pt-coll-mismatch": {"gloo-size"}, "nccl-trunc": {"gloo-size"},
    "data-error": {"py-collate", "py-index", "data-empty", "data-stack"}, "data-stack": {"py-collate"}, "k8s-oom": {"k8s-state"}, "k8s-image": {"k8s-state"}, "k8s-evict": {"k8s-state"}, "oom-kernel": {"mem-usage-limit"}, "oom-cgroup": {"mem-usage-limit"},
}


def of_class(signature, wanted):
    """Whether a found id is the wanted one or of the same meaning."""
    if signature == wanted or signature in SAME.get(wanted, ()):
        return True
    if wanted in SIGNALS and signature == f"signal-{SIGNALS[wanted]}":
        return True
    if wanted == "py-exception":
        return signature.startswith("py-") and signature not in TABLE_PY
    if wanted == "exit-code":
        return re.fullmatch(r"exit-\d+", signature) is not None
    return signature == "error-line" and wanted in ("usage", "shell", "omp", "config", "fortran", "join-timeout")


def judge(found, wanted):
    """{"signature": bool, "rank": bool or None (not asked), "restart": ..., "node": ...}"""
    if wanted["verdict"] == "healthy":
        return {"healthy": found.get("verdict") == "healthy", "alarm": found.get("verdict") == "failure"}
    words = " ".join([found.get("cause") or "", *[e.get("text", "") for e in found.get("evidence") or []]])
    names = wanted["names"]
    named = not names or any(n.lower() in words.lower() for n in names)
    return {
        "signature": found.get("verdict") == "failure" and any(of_class(found.get("signature") or "", w) for w in wanted["signature"]) and named,
        "named": named,
        "rank": None if wanted["rank"] is None else accepted(found.get("rank"), wanted["rank"]),
        "node": None if wanted["node"] is None else accepted(found.get("node"), wanted["node"]),
        "restart": found.get("restart") in wanted["restart"],
    }


def run(part, seed=None, program=PROGRAM, every=1):
    """[(case name, label, diagnosis, judgement)] of a part, or of every n-th case of it."""
    rows = []
    for case in cases(part)[::every]:
        path = case / "log"
        with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
            if seed is not None:
                path = pathlib.Path(folder) / "log"
                noise.copy(case / "log", path, f"{seed}/{case.name}")
            found = diagnose(path, program)
        wanted = label(case)
        rows.append((case.name, wanted, found, judge(found, wanted)))
    return rows


def totals(rows):
    """{"signature": (right, asked), ...}"""
    out = {}
    for key in ("signature", "rank", "node", "restart", "healthy", "alarm"):
        asked = [row[3][key] for row in rows if row[3].get(key) is not None]
        if asked:
            out[key] = (sum(asked), len(asked))
    return out


def print_wrong(rows):
    for name, wanted, found, result in rows:
        if wanted["verdict"] == "healthy":
            if not result["healthy"]:
                print(f"  {'ALARM' if result['alarm'] else 'unknown'}  {name}: {found.get('signature')}: {found.get('cause') or found.get('error')}")
            continue
        bad = [key for key in ("signature", "rank", "restart") if result[key] is False]
        if not bad:
            continue
        print(f"  {name}: wrong {', '.join(bad)}")
        print(f"      wanted {'/'.join(wanted['signature'])} rank {wanted['rank']} restart {'/'.join(wanted['restart'])}: {wanted['what']}")
        print(f"      found  {found.get('signature')} rank {found.get('rank')} restart {found.get('restart')} ({found.get('verdict')}, {found.get('confidence')}): "
              f"{(found.get('cause') or found.get('error') or '')[:160]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=["dev", "heldout", "healthy"], default="dev")
    parser.add_argument("--noise", type=int, default=None, metavar="SEED")
    parser.add_argument("--show", action="store_true", help="list wrong ones of the held-out part too")
    parser.add_argument("--lockstep", default=PROGRAM)
    args = parser.parse_args()
    rows = run(args.part, args.noise, args.lockstep)
    if not rows:
        sys.exit(f"no cases in {HERE / args.part}")
    for key, (right, asked) in totals(rows).items():
        word = {"signature": "cause right", "rank": "rank right", "node": "node right", "restart": "restart right", "healthy": "called healthy", "alarm": "false alarms"}[key]
        print(f"{args.part}{'' if args.noise is None else f', noise {args.noise}'}: {word:15} {right:4}/{asked:<4} {100.0 * right / asked:6.1f} %")
    real = sum(row[1]["made"] == "real" for row in rows)
    print(f"{args.part}: {len(rows)} logs, {real} really caused, {len(rows) - real} written after the form")
    if args.part != "heldout" or args.show:
        print_wrong(rows)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

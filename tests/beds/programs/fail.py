"""fail.py FOLDER RANK HOW [WHEN]: once all ranks are up, rank RANK fails and the others wait to be stopped.

HOW: a number (exit code), a signal name (SIGSEGV), or "raise". WHEN: "attempt<N" fails only while the attempt number is
below N and lets the job succeed afterwards.
"""

import os
import signal
import sys
import time

import ready

folder, rank, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
limit = int(sys.argv[4].split("<")[1]) if len(sys.argv) > 4 else None
word = f"ready-{ready.ATTEMPT}"
ready.mark(folder, word)
ready.wait_for_all(folder, word)
if limit is not None and ready.ATTEMPT >= limit:
    sys.exit(0)
if ready.RANK == rank:
    print(f"rank {rank} is about to fail: {how}", file=sys.stderr, flush=True)
    if how == "raise":
        raise ValueError("the loss is not a number")
    if how.startswith("SIG"):
        signal.signal(getattr(signal, how), signal.SIG_DFL) if how != "SIGKILL" else None
        os.kill(os.getpid(), getattr(signal, how))
    os._exit(int(how))
time.sleep(600)

"""signals.py FOLDER [CODE]: appends the name of each signal it gets to FOLDER/signals.<rank>; SIGTERM and SIGINT end it
with CODE (default: by that signal)."""

import os
import pathlib
import signal
import sys

import ready

folder = pathlib.Path(sys.argv[1])
code = int(sys.argv[2]) if len(sys.argv) > 2 else None


def on_signal(number, _):
    with open(folder / f"signals.{ready.RANK}", "a") as out:
        out.write(signal.Signals(number).name + "\n")
    if number in (signal.SIGTERM, signal.SIGINT):
        if code is not None:
            sys.exit(code)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGCONT", "SIGWINCH", "SIGALRM"):
    signal.signal(getattr(signal, name), on_signal)
ready.mark(folder)
while True:
    signal.pause()

"""Programs we compare with. One that crashes is tried again; if it never comes through its figure is missing, ours stays,
and the crash is named at the end. Only a failure of our own programs makes a benchmark fail.

    ours, theirs = in_turns(5, lambda: time_of(lockstep), Peer("torchrun", lambda: time_of(torchrun)))
"""

import json
import os
import signal
import subprocess
import sys

TRIES = 3
LIMIT = 900  # seconds until a peer counts as stuck
crashes = {}  # by the name of the peer: what happened, one text per crash


def how_it_ended(returncode):
    """The end of a process in words: "SIGABRT", "exit code 3"."""
    if returncode < 0:
        return signal.Signals(-returncode).name
    return f"exit code {returncode}"


def note(name, why):
    crashes.setdefault(name, []).append(why)
    print(f"  {name}: {why}", file=sys.stderr)


def one_line(error):
    if isinstance(error, subprocess.CalledProcessError):
        return how_it_ended(error.returncode)
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


class Peer:
    """A work of in_turns. Gives None where it crashed TRIES times in a row; after such a round it is not tried again."""

    def __init__(self, name, work):
        self.name, self.work, self.given_up = name, work, False

    def __call__(self):
        for _ in range(0 if self.given_up else TRIES):
            try:
                return self.work()
            except Exception as error:  # whatever a peer does is no failure of ours
                note(self.name, one_line(error))
        self.given_up = True
        return None


def figures(name, command, **more):
    """The JSON lines a peer prints. What it had measured counts, also when it crashed afterwards, at its exit."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True, start_new_session=True, **more)
    try:
        said = process.communicate(timeout=LIMIT)[0]
        end = how_it_ended(process.returncode)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its ranks as well
        said = process.communicate()[0]
        end = f"no end within {LIMIT} s"
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    if process.returncode != 0 and not found:
        raise RuntimeError(end)
    if process.returncode != 0:
        note(name, f"{end} after its figures were printed; they count")
    return found

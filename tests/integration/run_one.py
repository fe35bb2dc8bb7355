#!/usr/bin/env python3
"""Runs integration tests of one file: run_one.py FILE [Class[.method]].

Exit code 0: passed. 77: skipped, because a component is missing and LOCKSTEP_ALLOW_SKIP names it. 1: anything else,
also a skip nobody allowed, a name that matches no test, and processes left behind. LOCKSTEP_TEST_TIMEOUT (seconds) ends
a test that hangs, with its stack, and cleans up after it.
"""

import ctypes
import faulthandler
import importlib
import os
import pathlib
import signal
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
sys.dont_write_bytecode = True
import harness  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36


def on_alarm(*_):
    faulthandler.dump_traceback(all_threads=True)
    raise TimeoutError("the test reached its time limit")


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    # Orphans come to us instead of init: they can be found and collected.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(int(os.environ.get("LOCKSTEP_TEST_TIMEOUT", "0")))

    file = pathlib.Path(sys.argv[1])
    sys.path.insert(0, str(file.resolve().parent))
    module = importlib.import_module(file.stem)
    loader = unittest.TestLoader()
    suite = loader.loadTestsFromName(sys.argv[2], module) if len(sys.argv) == 3 else loader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2).run(suite)
    signal.alarm(0)

    code = 0 if result.wasSuccessful() else 1
    if result.testsRun == 0 and not result.skipped:
        print("no test has this name", file=sys.stderr)
        code = 1
    skips = [reason for _, reason in result.skipped]
    if skips and code == 0:
        code = 77 if all(reason.endswith("is missing") for reason in skips) else 1
        print(f"skipped: {'; '.join(skips)}", file=sys.stderr)
    try:
        harness.assert_no_processes_left(0 if code == 1 else harness.SETTLE)
    except AssertionError as error:
        print(error, file=sys.stderr)
        code = 1
    harness.kill_leftovers()
    return code


if __name__ == "__main__":
    sys.exit(main())

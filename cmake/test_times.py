#!/usr/bin/env python3
"""Passes ctest's output on and, before its closing lines, says where the time went: minutes per folder and the slowest
tests. Minutes are those of the tests added up; several run at once, so they are more than what a clock shows.

    ctest ... | python3 cmake/test_times.py        # with `set -o pipefail` the exit code stays ctest's
"""
import re
import sys

# "  12/2593 Test  #417: launch.Wire.ReadsBack .....   Passed    0.02 sec"
RESULT = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) .*? +(\d+\.\d+) sec *$")
CLOSING = re.compile(r"^\d+% tests passed, ")
NAMES = {"it": "integration"}  # prefixes that are not their folder's name
TREES = ("asan", "tsan")       # "asan.launch.Wire.ReadsBack": a folder of each tree counts by itself
SLOWEST = 10


def folder(test):
    parts = test.split(".")
    if parts[0] in TREES:
        return ".".join(parts[:2])
    return NAMES.get(parts[0], parts[0])


def report(times):
    """The lines about {test: seconds}."""
    seconds, count = {}, {}
    for test, spent in times.items():
        seconds[folder(test)] = seconds.get(folder(test), 0) + spent
        count[folder(test)] = count.get(folder(test), 0) + 1
    yield "Minutes of tests per folder:"
    for name in sorted(seconds, key=seconds.get, reverse=True):
        yield f"{seconds[name] / 60:8.1f}  {name} ({count[name]} tests)"
    yield f"{sum(seconds.values()) / 60:8.1f}  all"
    yield ""
    yield "Slowest tests, in seconds:"
    for test in sorted(times, key=times.get, reverse=True)[:SLOWEST]:
        yield f"{times[test]:8.1f}  {test}"


def main():
    times = {}
    for line in sys.stdin:
        if match := RESULT.match(line):
            times[match[1]] = float(match[2])
        elif CLOSING.match(line) and times:
            print("\n".join(report(times)), end="\n\n")
        print(line, end="", flush=True)


if __name__ == "__main__":
    main()

"""The short form of the training part of tests/soak/run.py."""

import sys

import harness

sys.path.append(str(harness.ROOT / "tests" / "soak"))
import run as soak  # noqa: E402


class Short(harness.Case):
    TIMEOUT = 180

    def test_killed_ranks_leave_no_trace_in_the_weights(self):
        harness.require("netns")
        row = soak.scenarios(soak.parse(["--train-kills=2"]))["train-kill"]()
        self.assertEqual(row.problems, [])
        self.assertEqual(row.times, 2)

    def test_killed_ranks_of_a_communicator_leave_nothing(self):
        harness.require("netns")
        done = harness.run([harness.PYTHON, str(harness.ROOT / "tests/soak/comm_kills.py"), "8"], timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

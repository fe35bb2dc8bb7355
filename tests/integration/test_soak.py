"""The short form of tests/soak/run.py: each of its scenarios a few times."""

import sys

import harness

sys.path.append(str(harness.ROOT / "tests" / "soak"))
import run as soak  # noqa: E402


class Short(harness.Case):
    TIMEOUT = 180

    def scenario(self, name, *args):
        harness.require("netns")
        row = soak.scenarios(soak.parse(list(args)))[name]()
        self.assertEqual(row.problems, [])
        self.assertGreater(row.times, 0)

    def test_starting_and_stopping_leaves_nothing(self):
        self.scenario("start-stop", "--cycles=20")

    def test_restarts_use_no_more_descriptors(self):
        self.scenario("restarts", "--restarts=20")

    def test_killed_workers_leave_nothing(self):
        self.scenario("kill-worker", "--kills=5")

    def test_killed_launchers_leave_nothing(self):
        self.scenario("kill-launcher", "--kills=6")

    def test_killed_guardians_leave_nothing(self):
        self.scenario("kill-guardian", "--kills=6")

    def test_killed_launchers_of_one_node_leave_nothing(self):
        self.scenario("kill-node", "--kills=4")

    def test_full_disks_harm_nobody(self):
        self.scenario("full-disk", "--disks=2")

"""Who is slow, and in what: real trainings on four ranks with a delay in one of them (tests/beds/delays.py). `make soak` has more of it."""

import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import delays  # noqa: E402


class Delays(harness.Case):
    TIMEOUT = 120

    def test_nobody_is_accused_until_a_rank_waits_for_its_data(self):
        training = delays.Training(self.tmp, "run", "data", rank=2, step=24)
        self.addCleanup(training.stop)
        for step in (12, 18):
            training.wait_step(step)
            self.assertEqual(training.accusations(), [])
        self.assertIsNotNone(training.seconds_until_named(60 * harness.PATIENCE), f"{training.accusations()}\n{training.process.output}")

    def test_a_rank_with_a_slow_link_is_named(self):
        training = delays.Training(self.tmp, "run", "network", rank=3, step=8)
        self.addCleanup(training.stop)
        self.assertIsNotNone(training.seconds_until_named(60 * harness.PATIENCE), f"{training.accusations()}\n{training.process.output}")

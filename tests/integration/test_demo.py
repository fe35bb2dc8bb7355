"""lockstep-demo, the program of ours that other tests start: it trains, and it fails the way it is asked to."""

import harness


def start(world, *flags, extra=None):
    """All ranks of one job, without any launcher."""
    port = harness.free_port()
    for old in harness.tmp_dir().glob(f"world-{world}-*"):
        old.unlink()
    return [harness.spawn(harness.DEMO, *flags, env={
        "RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
        "LOCKSTEP_METRICS": harness.tmp_dir() / f"world-{world}-rank-{rank}.jsonl", **(extra or {})}) for rank in range(world)]


def metrics(world, rank):
    return harness.read_jsonl(harness.tmp_dir() / f"world-{world}-rank-{rank}.jsonl")


class Demo(harness.Case):
    def test_loss_falls_and_nearly_all_flowers_are_recognised(self):
        ranks = start(2, "--steps", "200")
        self.assertEqual([rank.wait() for rank in ranks], [0, 0], ranks[0].output + ranks[1].output)
        lines = metrics(2, 0)
        self.assertEqual([line["step"] for line in lines], list(range(1, 201)))
        self.assertLess(lines[-1]["scalars"]["loss"], lines[0]["scalars"]["loss"] / 10)
        self.assertGreaterEqual(lines[-1]["scalars"]["accuracy"], 0.95)
        self.assertIn("step 200/200 loss", ranks[0].stdout)

    def test_three_ranks_train_the_same_network_as_one(self):
        for world in (1, 3):
            for rank in start(world, "--steps", "50"):
                self.assertEqual(rank.wait(), 0, rank.output)
        alone, together = metrics(1, 0), metrics(3, 2)
        for one, three in zip(alone, together, strict=True):
            self.assertAlmostEqual(one["scalars"]["loss"], three["scalars"]["loss"], places=4)

    def test_a_rank_that_crashes_is_named_by_the_other(self):
        ranks = start(2, "--steps", "20", "--crash-at", "5", "--crash-rank", "1", "--crash-code", "9")
        self.assertEqual(ranks[1].wait(), 9)
        self.assertNotEqual(ranks[0].wait(), 0)
        self.assertIn("from rank 1", ranks[0].stderr)

    def test_crash_once_passes_after_a_restart(self):
        ranks = start(2, "--steps", "5", "--crash-at", "2", "--crash-once", extra={"TORCHELASTIC_RESTART_COUNT": "1"})
        self.assertEqual([rank.wait() for rank in ranks], [0, 0])

    def test_hanging_rank_stays_alive_and_the_other_waits_only_as_long_as_asked(self):
        ranks = start(2, "--steps", "4", "--hang", "--patience", "1")
        ranks[1].wait_for("hanging at step 2")
        self.assertNotEqual(ranks[0].wait(), 0)
        self.assertTrue(ranks[1].alive())
        ranks[1].kill()
        ranks[1].wait()

    def test_without_a_launcher_it_says_what_to_do(self):
        done = harness.run([harness.DEMO])
        self.assertEqual(done.returncode, 2)
        self.assertIn("lockstep run", done.stderr)

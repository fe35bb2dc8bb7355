"""Interrupted trainings: stopped by request, killed, damaged, moved to other numbers of ranks. What comes out must be what
comes out without, to the bit."""

import os
import random
import re
import shutil
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, train  # noqa: E402

STEPS = 24


def resumed_before_the_last(run):
    """What a run says that goes on from its last checkpoint but one: step 8, or later where that save had to wait."""
    steps = list(train.checkpoints(run))
    return f"step-{steps[-2]} at step {steps[-2]}"


class Resume(harness.Case):
    TIMEOUT = 180

    def same(self, one, other):
        self.assertEqual(train.differences(train.last(one), train.last(other)), [])

    def whole(self, name="whole", **kwargs):
        """The uninterrupted training to compare with."""
        done = train.train(name=name, **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr)
        return train.run_path(name)

    def stopped_by(self, number, sets):
        """A training that is asked to stop after step 5, and goes on when it is started again."""
        run = train.run_path("stopped")
        first = train.spawn(name="stopped", sets=sets)
        train.wait_step(run, 5, first)
        first.send_signal(number)
        self.assertEqual(first.wait(60), 75, first.output)
        self.assertEqual(train.exit_codes(self.tmp), {0: 75, 1: 75})
        saved = train.checkpoints(run)
        self.assertEqual(len(saved), 1, saved)
        self.assertTrue(5 <= list(saved)[0] < STEPS, saved)
        self.assertEqual(train.stray(run), [])
        self.assertIn("asked to stop", first.stdout)
        second = train.train(name="stopped", sets=sets)
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertRegex(second.stdout, rf"resuming from \S+/step-{list(saved)[0]} at step {list(saved)[0]}\b")
        self.assertEqual(jobs.report(run)["restarts"], 0)
        self.assertEqual(train.problems_of_lineage(run, STEPS), "")
        return run

    def test_sigterm_saves_and_the_same_name_goes_on_as_if_nothing_had_been(self):
        sets = {"train.steps": STEPS, "checkpoint.every": 0}
        self.same(self.stopped_by(signal.SIGTERM, sets), self.whole(sets=sets))

    def test_sigusr1_saves_likewise(self):
        self.stopped_by(signal.SIGUSR1, {"train.steps": STEPS, "checkpoint.every": 0})

    def test_sigterm_to_one_rank_alone_stops_all_of_them(self):
        sets = {"train.steps": 200, "checkpoint.every": 0}
        run = train.run_path()
        job = train.spawn(sets=sets)
        train.wait_step(run, 3, job)
        os.kill(train.rank_pids(run, 0)[1], signal.SIGTERM)
        self.assertEqual(job.wait(60), 75, job.output)
        self.assertEqual(train.exit_codes(self.tmp), {0: 75, 1: 75})
        self.assertEqual(train.steps_done(run, 0), train.steps_done(run, 1))

    def test_sigterm_while_the_model_is_built_also_ends_with_saved_state(self):
        run = train.run_path()
        job = train.spawn(sets={"train.steps": 200})
        job.wait_for("parameters ")
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(60), 75, job.output)
        self.assertTrue(train.checkpoints(run))

    def test_time_limit_saves_and_asks_to_be_resumed(self):
        sets = {"train.steps": 100000, "checkpoint.every": 0}
        done = train.train("--max-time", "1s", sets=sets)
        self.assertEqual(done.returncode, 75, done.stderr)
        run = train.run_path()
        self.assertIn("time limit reached", done.stdout)
        self.assertEqual(train.exit_codes(self.tmp), {0: 75, 1: 75})
        (step,) = train.checkpoints(run)
        self.assertEqual(step, train.steps_done(run))
        again = train.train("--max-time", "1s", sets=sets)
        self.assertEqual(again.returncode, 75, again.stderr)
        self.assertIn(f"at step {step}", again.stdout)
        self.assertGreater(train.steps_done(run), step)

    def test_stopped_training_is_not_restarted_though_there_is_a_budget(self):
        run = train.run_path()
        job = train.spawn("--max-restarts", 3, sets={"train.steps": 200})
        train.wait_step(run, 2, job)
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(60), 75, job.output)
        self.assertEqual(len(jobs.events(self.tmp, "attempt_started")), 1)

    def test_three_ranks_killed_at_random_steps_leave_no_trace_in_the_result(self):
        rng = random.Random(7)
        sets = {"train.steps": STEPS, "checkpoint.every": 3, "data.threads": 1}
        run = train.run_path("killed")
        job = train.spawn("--max-restarts", 3, "--backoff", "50ms", name="killed", sets=sets)
        for attempt in range(3):
            train.wait_step(run, 4 + 5 * attempt + rng.randrange(3), job, attempt=attempt)
            harness.wait_until(lambda: train.checkpoints(run), 60, "a checkpoint")  # written beside the steps
            os.kill(train.rank_pids(run, attempt)[rng.randrange(2)], signal.SIGKILL)
            harness.wait_until(lambda a=attempt: len(train.rank_pids(run, a + 1)) == 2, 60, "the next attempt")
        self.assertEqual(job.wait(90), 0, job.output)
        report = jobs.report(run)
        self.assertEqual((report["attempts"], report["restarts"]), (4, 3))
        resumed = [int(step) for step in re.findall(r"resuming from \S+ at step (\d+)", train.all_logs(run))]
        self.assertEqual(len(resumed), 3)
        self.assertGreater(min(resumed), 0)
        self.assertEqual(train.problems_of_lineage(run, STEPS), "")
        self.assertEqual(train.stray(run), [])
        self.same(run, self.whole(sets=sets))

    def test_killed_launcher_takes_its_ranks_along_and_the_same_name_goes_on(self):
        sets = {"train.steps": STEPS, "checkpoint.every": 3}
        run = train.run_path("killed")
        job = train.spawn(name="killed", sets=sets)
        train.wait_step(run, 8, job)
        os.kill(jobs.launcher_pid(job.pid), signal.SIGKILL)
        job.wait(60)
        jobs.wait_gone(train.rank_pids(run, 0).values())
        done = train.train(name="killed", sets=sets)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"resuming from \S+ at step [1-9]")
        self.assertEqual(train.problems_of_lineage(run, STEPS), "")
        self.assertEqual(train.stray(run), [])
        self.same(run, self.whole(sets=sets))

    def test_stuck_rank_is_named_by_the_others_and_a_restart_goes_on(self):
        sets = {"train.steps": STEPS, "checkpoint.every": 3, "comm.timeout": "2s"}
        run = train.run_path("stuck")
        job = train.spawn("--max-restarts", 1, "--backoff", "50ms", "--grace", "1s", name="stuck", sets=sets)
        train.wait_step(run, 7, job)
        os.kill(train.rank_pids(run, 0)[1], signal.SIGSTOP)
        self.assertEqual(job.wait(90), 0, job.output)
        self.assertRegex(train.rank_log(run, 0, attempt=0), r"did not finish within 2 s: rank 1\b")
        self.assertEqual(train.problems_of_lineage(run, STEPS), "")
        self.assertRegex(train.rank_log(run, 0, attempt=1), r"resuming from \S+ at step [1-9]")

    def test_training_that_no_longer_improves_ends_on_all_ranks_with_success(self):
        sets = {"train.steps": 500, "train.optimizer.lr": 1e-12, "data.validation.every": 3, "data.validation.patience": 2}
        done = train.train(sets=sets)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(train.exit_codes(self.tmp), {0: 0, 1: 0})
        self.assertRegex(done.stdout, r"no better psnr than [\d.]+ \(step \d+\) in 2 validations: ending")
        self.assertEqual(train.steps_done(train.run_path(), 0), train.steps_done(train.run_path(), 1))
        self.assertLess(train.steps_done(train.run_path()), 500)

    def test_lineage_check_sees_a_sample_that_comes_twice(self):
        """The control of the check that the other tests rely on."""
        done = train.train(ranks=1, sets={"train.steps": 4, "checkpoint.every": 0, "data.validation.fraction": 0})
        self.assertEqual(done.returncode, 0, done.stderr)
        run = train.run_path()
        self.assertEqual(train.problems_of_lineage(run, 4, size=40), "")
        path = run / "samples" / "rank-0.jsonl"
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines[:3], re.sub(r'"step": ?\d+', '"step":4', lines[0])]) + "\n")
        self.assertIn("twice", train.problems_of_lineage(run, 4, size=40))

    def test_reproducible_training_moves_from_four_ranks_to_two_to_one_without_changing_a_bit(self):
        sets = {"train.steps": 12, "train.batch": 8, "train.reproducible": "true", "train.shards": 4, "checkpoint.every": 0,
                "data.clips": 58}
        run = train.run_path("moved")
        for ranks, until in ((4, 4), (2, 8)):
            # A rate that ends elsewhere would be another training: it is stopped, not shortened.
            job = train.spawn(name="moved", ranks=ranks, sets=sets)
            train.wait_step(run, until - 1, job)
            job.send_signal(signal.SIGTERM)
            self.assertEqual(job.wait(60), 75, job.output)
        done = train.train(name="moved", ranks=1, sets=sets)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(train.checkpoints(run)), 3)
        self.assertEqual(train.problems_of_lineage(run, 12, batch=8, size=48), "")
        self.same(run, self.whole(ranks=1, sets=sets))

    def test_damaged_newest_checkpoint_is_passed_over_with_a_warning(self):
        sets = {"train.steps": 12}
        done = train.train(name="a", sets=sets)
        self.assertEqual(done.returncode, 0, done.stderr)
        run = train.run_path("a")
        whole = train.state(train.last(run))
        older = resumed_before_the_last(run)
        newest = train.last(run) / "optimizer.safetensors"
        data = bytearray(newest.read_bytes())
        data[-100] ^= 1
        newest.write_bytes(data)
        again = train.train(name="a", sets=sets)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertRegex(train.all_logs(run), r"checkpoint \S+/step-12 is passed over: ")
        self.assertIn(older, again.stdout)
        self.assertEqual(train.state(train.last(run)), whole)

    def test_any_damage_to_the_newest_is_recognised_and_the_older_one_leads_to_the_same_bits(self):
        # One rank, without the launcher: that several agree on the checkpoint is the test above.
        def trained(name):
            done = harness.engine("train", "taehv", "--name", name, *train.settings({"train.steps": 12, "checkpoint.keep_last": 5}))
            self.assertEqual(done.returncode, 0, done.stderr)
            return done

        trained("clean")
        clean = train.run_path("clean")
        whole = train.state(train.last(clean))
        older = resumed_before_the_last(clean)

        def flip(name, at):
            def do(folder):
                data = bytearray((folder / name).read_bytes())
                data[at] ^= 1 << 3
                (folder / name).write_bytes(data)
            return do

        damages = {
            "a bit of the weights": flip("model.safetensors", -1),
            "a bit of a file's header": flip("optimizer.safetensors", 20),
            "a bit of the manifest": flip("manifest.json", 2000),
            "truncated": lambda folder: os.truncate(folder / "model.safetensors", 1000000),
            "empty": lambda folder: os.truncate(folder / "manifest.json", 0),
            "missing file": lambda folder: (folder / "optimizer.safetensors").unlink(),
            "missing manifest": lambda folder: (folder / "manifest.json").unlink(),
            "never published": lambda folder: folder.rename(folder.with_name("step-12.tmp-1-2-3")),
        }
        for number, (what, damage) in enumerate(damages.items()):
            with self.subTest(what):
                run = train.run_path(f"damaged-{number}")
                shutil.copytree(clean, run, symlinks=True)
                damage(run / "checkpoints" / "step-12")
                done = trained(run.name)
                self.assertIn(older, done.stdout)
                self.assertEqual(train.state(train.last(run)), whole)
                self.assertEqual(train.stray(run), [])
                if what != "never published":
                    self.assertEqual((done.stdout + done.stderr).count("/step-12 is passed over: "), 1, done.stdout + done.stderr)

    def test_resume_none_starts_anew_and_keeps_the_old_checkpoints_aside(self):
        sets = {"train.steps": 8}
        for flags in ((), ("--resume", "none")):
            done = train.train(*flags, sets=sets)
            self.assertEqual(done.returncode, 0, done.stderr)
        run = train.run_path()
        self.assertNotIn("resuming", done.stdout)
        self.assertIn("from 0", done.stdout)
        self.assertEqual(len(list(run.glob("checkpoints-before-*"))), 1)
        self.assertEqual(train.differences(train.last(run), next(run.glob("checkpoints-before-*")) / "step-8"), [])

    def test_resume_of_a_path_starts_there_and_writes_into_the_new_run(self):
        sets = {"train.steps": 12, "checkpoint.keep_last": 5}
        whole = self.whole(sets=sets)
        done = train.train("--resume", whole / "checkpoints" / "step-4", name="other", sets=sets)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("at step 4", done.stdout)
        self.assertEqual(list(train.checkpoints(train.run_path("other"))), [8, 12])
        changed = train.differences(whole / "checkpoints" / "step-4", train.last(whole))
        self.assertIn("model.safetensors:encoder.0.weight", changed, "the control of the comparison")
        self.same(train.run_path("other"), whole)

    def test_finished_training_started_again_has_nothing_to_do(self):
        for _ in range(2):
            done = train.train(sets={"train.steps": 8})
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(train.steps_done(train.run_path(), attempt=1), 0)
        self.assertEqual(list(train.checkpoints(train.run_path())), [4, 8])

    def test_checkpoints_of_another_model_seed_or_dataset_are_refused_by_all_ranks_with_one_message(self):
        done = train.train(sets={"train.steps": 4})
        self.assertEqual(done.returncode, 0, done.stderr)
        before = train.state(train.last(train.run_path()))
        for message, other in (("a checkpoint of another model", {"recipe.model": "taehv"}), ("written with run.seed 42", {"run.seed": 1}),
                               ("written with other training data", {"data.clips": 50})):
            with self.subTest(message):
                done = train.train(sets={"train.steps": 8, **other})
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual((done.stdout + done.stderr).count(message), 1, done.stderr)
                self.assertEqual(train.state(train.last(train.run_path())), before)
        done = train.train(sets={"train.steps": 8, "data.clips": 50, "data.on_change": "new_epoch"})
        self.assertEqual(done.returncode, 0, done.stderr)
        later = [sample for step, samples in train.lineage(train.run_path()).items() if step > 4 for sample in samples]
        self.assertEqual({(epoch, position) for epoch, position, _ in later}, {(1, position) for position in range(16)})

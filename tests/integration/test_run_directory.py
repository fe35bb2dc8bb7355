"""What a run leaves and what can be asked about it: run directory, runs, logs, stop, --dry-run, --json."""

import json
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs  # noqa: E402


class RunDirectory(harness.Case):
    def test_everything_of_the_format_is_there_after_a_run(self):
        done = harness.lockstep("run", "--name", "job", "--nproc-per-node", "2", "--no-python", "sh", "-c", "echo hi $RANK")
        self.assertEqual(done.returncode, 0, done.stderr)
        run = self.tmp / "runs/job"
        identity = json.loads((run / "run.json").read_text())
        self.assertEqual((identity["format"], identity["name"], identity["world_size"], identity["nnodes"]), (1, "job", 2, 1))
        self.assertEqual(identity["program"][-2:], ["-c", "echo hi $RANK"])
        self.assertTrue((run / "config.yaml").read_text().strip())
        kinds = [e["type"] for e in jobs.events(self.tmp)]
        for kind in ("run_started", "attempt_started", "attempt_ended", "run_ended"):
            self.assertEqual(kinds.count(kind), 1, kinds)
        self.assertEqual((kinds.count("rank_started"), kinds.count("rank_exited")), (2, 2), kinds)
        times = [e["t"] for e in jobs.events(self.tmp)]
        self.assertEqual(times, sorted(times))
        self.assertEqual(jobs.logs(self.tmp, 1), "hi 1\n")
        report = jobs.report(self.tmp)
        for field in ("format", "name", "outcome", "exit_code", "reason", "do", "started", "ended", "attempts", "nnodes",
                      "world_size", "first_failure", "warnings"):
            self.assertIn(field, report)
        self.assertFalse((run / "lock").exists(), "the lock is absent when nobody runs it")

    def test_first_line_says_how_many_ranks_and_why(self):
        done = harness.lockstep("run", "--nproc-per-node", "2", "--no-python", "true")
        self.assertRegex(done.stderr.splitlines()[0], r"\b2\b.*--nproc-per-node|--nproc-per-node.*\b2\b")


    def test_second_line_names_the_run_and_its_directory_once(self):
        marks = self.tmp / "marks"
        done = harness.lockstep("run", "--name", "job", "--max-restarts", "2", "--backoff", "20ms",
                                *jobs.program("metric_then_fail.py", marks, 1))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.splitlines()[1], "lockstep: run job in runs/job (lockstep watch job)")
        self.assertEqual(done.stderr.count("lockstep watch job"), 1, done.stderr)
        quiet = harness.lockstep("run", "--quiet", "--no-python", "true")
        self.assertNotIn("lockstep watch", quiet.stderr)

    def test_module_names_its_run(self):
        for part in ("pkg", "pkg/sub"):
            harness.write(f"{part}/__init__.py", "")
        harness.write("pkg/sub/mod.py", "")
        done = harness.lockstep("run", "-m", "pkg.sub.mod")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(jobs.run_path(self.tmp).name, r"^mod-\d{8}-\d{6}-[0-9a-f]{4}$")

    def test_processes_that_a_successful_rank_left_running_are_named(self):
        done = harness.lockstep("run", "--nproc-per-node", "2", "--no-python", "sh", "-c",
                                "[ $RANK = 0 ] || setsid sleep 4711 >/dev/null 2>&1 & exit 0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"rank 1 succeeded and left 1 process running, which was ended: sleep 4711 \(pid \d+\)")
        (event,) = jobs.events(self.tmp, "left_running")
        self.assertEqual([p["rank"] for p in event["processes"]], [1])


class Commands(harness.Case):
    def test_runs_shows_strange_records_as_one_line_each(self):
        strange = {"plain": "failed: first line\nsecond\tcolumn \u001b[31mred\u001b[0m",
                   "\u8bad\u7ec3": "\u7b2c\u4e00", "x" * 100: "long name", "new\nline": "odd name"}
        for name, reason in strange.items():
            folder = self.tmp / "runs" / name
            folder.mkdir(parents=True)
            (folder / "report.json").write_text(json.dumps({"format": 1, "outcome": "failed", "exit_code": 5, "reason": reason}))
        done = harness.lockstep("runs")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 5, done.stdout)
        self.assertIn("failed: first line second column red", done.stdout)
        self.assertNotIn("\x1b", done.stdout)
        at = lines[0].index("STATE")
        for line in lines[1:]:
            wide = sum(1 for c in line[:at] if ord(c) > 0x2e80)
            self.assertEqual(line[at - wide:].split()[0], "failed", done.stdout)
        self.assertEqual({r["reason"] for r in json.loads(harness.lockstep("runs", "--json").stdout)["runs"]},
                         set(strange.values()))

    def start(self, name="job", program="signals.py", *args):
        self.marks = self.tmp / f"marks-{name}"
        run = harness.spawn_lockstep("run", "--name", name, "--nproc-per-node", "2", "--grace", "3s",
                                     *jobs.program(program, self.marks, *args))
        jobs.wait_marks(self.marks, 2, launcher=run)
        return run

    def test_runs_lists_states_and_durations(self):
        harness.lockstep("run", "--name", "good", "--no-python", "true")
        harness.lockstep("run", "--name", "bad", "--no-python", "false")
        live = self.start("live")
        done = harness.lockstep("runs")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name, state in (("good", "succeeded"), ("bad", "failed"), ("live", "running")):
            self.assertRegex(done.stdout, rf"(?m)^.*\b{name}\b.*\b{state}\b")
        listed = json.loads(harness.lockstep("runs", "--json").stdout)
        states = {r["name"]: r["state"] for r in (listed if isinstance(listed, list) else listed["runs"])}
        self.assertEqual(states, {"good": "succeeded", "bad": "failed", "live": "running"})
        live.send_signal(signal.SIGTERM)
        live.wait()

    def test_stop_ends_a_run_as_sigterm_does(self):
        for name, code in (("ended-by-the-signal", ()), ("ended-with-0", (0,))):
            run = self.start(name, "signals.py", *code)
            done = harness.lockstep("stop", name)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(run.wait(), 143, run.output)
            self.assertEqual(jobs.marked(self.marks, "signals", 1), "SIGTERM\n")
        # Stopped in the middle is not succeeded, whatever code the ranks left with.
        listed = json.loads(harness.lockstep("runs", "--json").stdout)
        states = {r["name"]: r["state"] for r in (listed if isinstance(listed, list) else listed["runs"])}
        self.assertEqual(states, {"ended-by-the-signal": "stopped", "ended-with-0": "stopped"})

    def test_stop_of_what_does_not_run_says_so(self):
        harness.lockstep("run", "--name", "over", "--no-python", "true")
        done = harness.lockstep("stop", "over")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"run .over. has already ended: rank 0 succeeded")
        self.assertNotEqual(harness.lockstep("stop", "never-was").returncode, 0)

    def test_logs_shows_all_ranks_or_one(self):
        harness.lockstep("run", "--name", "job", "--nproc-per-node", "2", "--no-python", "sh", "-c", "echo line of $RANK")
        everything = harness.lockstep("logs", "job")
        self.assertIn("line of 0", everything.stdout)
        self.assertIn("line of 1", everything.stdout)
        none = harness.lockstep("logs", "job", "--rank", "7")
        self.assertEqual(none.returncode, 2)
        self.assertIn("do: choose one of these; ", none.stderr, "there is one attempt: nothing to choose there")
        one = harness.lockstep("logs", "job", "--rank", "1")
        self.assertIn("line of 1", one.stdout)
        self.assertNotIn("line of 0", one.stdout)

    def test_logs_follows_until_the_run_ends(self):
        go = self.tmp / "go"
        script = harness.write("slow.sh", f"#!/bin/sh\necho first\nwhile [ ! -e {go} ]; do sleep 0.02; done\necho last\n", 0o755)
        run = harness.spawn_lockstep("run", "--name", "job", "--no-python", script)
        harness.wait_until(lambda: (self.tmp / "runs/job/logs/attempt-0/node-0/rank-0.log").exists())
        follower = harness.spawn_lockstep("logs", "-f", "job")
        follower.wait_for("first")
        go.touch()
        self.assertEqual(run.wait(), 0)
        self.assertEqual(follower.wait(20), 0)
        self.assertIn("last", follower.stdout)

    def test_name_of_no_run_is_an_error_that_names_it(self):
        harness.lockstep("run", "--name", "something", "--no-python", "true")
        done = harness.lockstep("logs", "nothing-here")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("nothing-here", done.stderr)


class Promises(harness.Case):
    def test_dry_run_prints_commands_and_starts_nothing(self):
        done = harness.lockstep("run", "--dry-run", "--nproc-per-node", "2", "--no-python", "touch", self.tmp / "started")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("touch", done.stdout)
        self.assertIn("RANK", done.stdout)
        self.assertFalse((self.tmp / "started").exists())
        self.assertFalse((self.tmp / "runs").exists())

    def test_dry_run_of_several_nodes_neither_listens_nor_waits(self):
        done = harness.lockstep("run", "--dry-run", "--nnodes", "2", "--node-rank", "0", "--master-addr", "some-host",
                                "--nproc-per-node", "2", "--no-python", "true", timeout=10)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_dry_run_as_json_is_one_document(self):
        done = harness.lockstep("run", "--dry-run", "--json", "--nproc-per-node", "2", "--no-python", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        json.loads(done.stdout)

    def test_run_as_json_prints_one_document_and_nothing_else_on_stdout(self):
        done = harness.lockstep("run", "--json", "--nproc-per-node", "2", "--no-python", "echo", "noise")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(document["exit_code"], 0)

    def test_failing_run_as_json_says_why(self):
        done = harness.lockstep("run", "--json", "--no-python", "false")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertEqual(json.loads(done.stdout)["first_failure"]["rank"], 0)

    def test_usage_error_as_json_is_one_document_too(self):
        done = harness.lockstep("run", "--json", "--nproc-per-node", "zero", "--no-python", "true")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(json.loads(done.stdout)["exit_code"], 2)

    def test_env_prints_lines_a_shell_can_eval(self):
        done = harness.run(["sh", "-c", f'eval "$({harness.PROGRAM} env --nnodes 1 --nproc-per-node 2)"; echo "$MASTER_ADDR/$NNODES"'])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotEqual(done.stdout.strip(), "/")

    def test_help_and_version_exit_0(self):
        for args in (["--help"], ["run", "--help"], ["--version"], ["runs", "--help"], ["logs", "--help"], ["stop", "--help"]):
            with self.subTest(args):
                done = harness.lockstep(*args)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout.strip())


class ManyRanks(harness.Case):
    def test_a_hundred_ranks_start_and_end(self):
        done = harness.lockstep("run", "--nproc-per-node", "100", "--console", "none", "--no-python", "true")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_low_limit_of_descriptors_is_survived_or_named(self):
        done = harness.run(["sh", "-c", f"ulimit -n 64; exec {harness.PROGRAM} run --nproc-per-node 40 --no-python true"])
        if done.returncode != 0:
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertRegex(done.stderr, r"EMFILE|[Tt]oo many open files|descriptor")
        self.assertFalse([p for p in harness.leftovers()])

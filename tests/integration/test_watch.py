"""`lockstep watch` on runs that are being written, on logs of other launchers, on terminals and without."""

import fcntl
import gzip
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import harness

# Appends metric lines like a rank of any program would; the last step waits for the gate.
WRITER = """
import json, os, pathlib, sys, time
steps, gate = int(sys.argv[1]), pathlib.Path(sys.argv[2])
rank, attempt = int(os.environ["RANK"]), int(os.environ["LOCKSTEP_ATTEMPT"])
if rank == 0:
    print(f"step 0/{steps} | loss 1.0", flush=True)
for step in range(1, steps + 1):
    while step == steps and not gate.exists():
        time.sleep(0.01)
    scalars = {"rank/loss": 1 / step, "rank/memory/host": 1 << 30, "rank/time/step": 0.5}
    if rank == 0:
        scalars["loss"] = 2 / step
    line = {"t": time.time(), "attempt": attempt, "rank": rank, "step": step, "scalars": scalars}
    with open(os.environ["LOCKSTEP_METRICS"], "a") as file:
        file.write(json.dumps(line) + "\\n")
"""


def watch_json(*arguments):
    done = harness.lockstep("watch", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fake_run(tmp, name="fake", world=2, steps=100):
    """A run directory without a launcher: it counts as lost unless it has a report."""
    path = tmp / "runs" / name
    (path / "metrics").mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"format": 1, "name": name, "world_size": world, "nnodes": 1}))
    (path / "config.yaml").write_text(f"train:\n  steps: {steps}\n")
    return path


def append(path, rank, step, attempt=0, **scalars):
    line = {"t": time.time(), "attempt": attempt, "rank": rank, "step": step, "scalars": scalars}
    with open(path / "metrics" / f"rank-{rank}.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")


class LiveRun(harness.Case):
    def start(self):
        writer = harness.write("writer.py", WRITER)
        self.gate = self.tmp / "gate"
        run = subprocess.Popen([harness.PROGRAM, "run", "--nproc-per-node", "2", "--name", "live", str(writer), "50",
                                str(self.gate)], cwd=self.tmp, env=harness.clean_env(), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        self.addCleanup(run.wait)
        self.addCleanup(self.gate.touch)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            files = [self.tmp / f"runs/live/metrics/rank-{rank}.jsonl" for rank in range(2)]
            if all(file.exists() and '"step": 49' in file.read_text() for file in files):
                return run
            time.sleep(0.05)
        self.fail("the ranks did not reach step 49")

    def test_table_shows_every_rank_and_ends_with_the_run(self):
        run = self.start()
        watch = subprocess.Popen([harness.PROGRAM, "watch", "live", "--interval", "200ms"], cwd=self.tmp,
                                 env=harness.clean_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = [watch.stdout.readline() for _ in range(4)]
        self.assertRegex(first[0], r"^run live \| running \| step 49/50 \(98%\) \| 0\.500 s/it \| loss 0\.0408 \| ETA 500ms")
        self.assertRegex(first[1], r"RANK +STEP +S/IT +STEPS/S +ETA +LOSS +HOST MEM( +CPU)? +LAST LINE")
        for rank in range(2):
            self.assertRegex(first[2 + rank], rf"^ +{rank} +49/50 +0\.500 +2\.00 +500ms +0\.0204 +1\.0 GiB ")
        self.gate.touch()
        rest, errors = watch.communicate(timeout=60)
        self.assertEqual(run.wait(), 0)
        self.assertEqual(watch.returncode, 0, errors)
        self.assertIn("step 50/50 (100%)", rest)
        self.assertRegex(rest, r"run 'live' has ended: succeeded, .*\n$")
        self.assertNotIn("\r", rest)
        self.assertNotIn("\x1b", rest)

    def test_a_terminal_that_cannot_be_drawn_on_gets_the_table_in_place(self):
        self.start()
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.tmp)
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 50, 0, 0))
            env = harness.clean_env({"TERM": "of-nobody", "LC_ALL": "C.UTF-8"})
            os.execve(harness.PROGRAM, [harness.PROGRAM, "watch", "latest", "--interval", "100ms"], env)
        text = b""
        deadline = time.monotonic() + 60
        touched = False
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                piece = os.read(terminal, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
            if not touched and text.count(b"A\x1b[J") >= 3:
                touched = True
                self.gate.touch()
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        os.close(terminal)
        shown = text.decode()
        self.assertIn("has ended: succeeded", shown)
        blocks = re.split(r"\r\x1b\[\d+A\x1b\[J", shown)
        self.assertGreater(len(blocks), 3)
        for block in blocks[:-1]:
            for line in re.sub(r"\x1b\[\d*m", "", block).splitlines():
                self.assertLessEqual(len(line.rstrip("\r")), 49)


# Prints steps as an ordinary program does: every tenth, no times. Rank 0 waits at the end for the gate.
PLAIN = """
import pathlib, sys, time
for step in range(1, 61):
    time.sleep(0.02)
    if step % 10 == 0:
        print(f"step {step}/100 loss {1 / step:.3f}", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    step += 10
    time.sleep(0.2)
    print(f"step {step}/100000 loss {1 / step:.3f}", flush=True)
"""


class PlainProgram(harness.Case):
    def test_one_look_knows_the_speed_of_a_program_that_only_prints_steps(self):
        gate = self.tmp / "gate"
        run = harness.spawn_lockstep("run", "--name", "plain", harness.write("plain.py", PLAIN), gate)
        run.wait_for("step 60/100")
        live = watch_json("plain")
        self.assertIsNotNone(live["seconds_per_step"])
        self.assertAlmostEqual(live["eta"], live["seconds_per_step"] * (live["total"] - live["step"]))
        gate.touch()
        self.assertEqual(run.wait(), 0)
        ended = watch_json("plain")
        self.assertTrue(ended["ended"])
        self.assertGreater(ended["seconds_per_step"], 0.019)


class RunDirectories(harness.Case):
    def test_torn_lines_restarts_and_missing_ranks(self):
        path = fake_run(self.tmp, world=3)
        for step in range(1, 11):
            append(path, 0, step, loss=1.0)
            append(path, 1, step, **{"rank/loss": 1.0})
        with open(path / "metrics/rank-0.jsonl", "a") as file:
            file.write('{"t": 1, "step": 11, "sca\n')
        for step in range(6, 9):
            append(path, 0, step, attempt=1, loss=2.0)
        with open(path / "metrics/rank-0.jsonl", "a") as file:
            file.write('{"t": 1, "attempt": 1, "rank": 0, "step": 9')
        view = watch_json("fake")
        self.assertEqual((view["step"], view["total"], view["attempt"], view["bad_lines"]), (8, 100, 1, 1))
        self.assertEqual([rank["rank"] for rank in view["ranks"]], [0, 1])
        self.assertEqual(view["ranks"][1]["attempt"], 0)
        self.assertEqual([(point[0], point[1]) for point in view["loss_curve"]],
                         [(step, 1.0 if step < 6 else 2.0) for step in range(1, 9)])
        done = harness.lockstep("watch", "fake", "--once")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no step of rank 2", done.stdout)
        self.assertIn("(attempt 0)", done.stdout)
        self.assertIn("has ended: lost", done.stdout)

    def test_names_are_found_as_for_logs_and_unknown_ones_refused(self):
        append(fake_run(self.tmp, "taehv-1"), 0, 5, loss=1.0)
        for arguments in (["taehv"], ["latest"], [], ["runs/taehv-1"], ["taehv-1", "--log-dir", "runs"]):
            self.assertEqual(watch_json(*arguments)["step"], 5, arguments)
        for name in "a/job.log", "b/job.log":
            harness.write(name, "step 9/9 loss 1\n")
        self.assertEqual([log["name"] for log in watch_json("a/job.log", "b/job.log")], ["a/job.log", "b/job.log"])
        for arguments, words in ((["teahv-1"], "did you mean 'taehv-1'"), (["runs/none"], "no log file 'runs/none'"),
                                 (["taehv", "--interval", "soon"], "--interval"), (["taehv", "none.log"], "none.log")):
            done = harness.lockstep("watch", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)

    def test_a_long_run_is_read_in_bounded_memory(self):
        path = fake_run(self.tmp, steps=200000)
        with open(path / "metrics/rank-0.jsonl", "w") as file:
            for step in range(100000):
                file.write(f'{{"t": {1e9 + step}, "attempt": 0, "rank": 0, "step": {step}, "scalars": {{"loss": 1.5}}}}\n')
        view = watch_json("fake")
        self.assertEqual(view["step"], 99999)
        self.assertAlmostEqual(view["seconds_per_step"], 1.0)
        self.assertLessEqual(len(view["loss_curve"]), 1024)


class Logs(harness.Case):
    def test_a_log_is_followed_until_interrupted(self):
        log = harness.write("slurm-4711.out", "0: step 1/90 | loss 0.5 | 0.250 s/it\n1: step 1/90 | loss 0.7\n")
        watch = subprocess.Popen([harness.PROGRAM, "watch", str(log), "--interval", "100ms"], env=harness.clean_env(),
                                 stdout=subprocess.PIPE, text=True)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.kill)
        self.assertRegex(watch.stdout.readline(), r"^log slurm-4711.out \| running \| step 1/90 \(1%\) \| 0.250 s/it \| loss 0.5000 \| ETA 22")
        with open(log, "a") as file:
            file.write("0: step 45/90 | loss 0.25 | 0.250 s/it\n")
        for line in watch.stdout:
            if "step 45/90 (50%)" in line:
                break
        else:
            self.fail("it ended before the log did")
        watch.send_signal(signal.SIGINT)
        self.assertEqual(watch.wait(), -signal.SIGINT)
        watch.stdout.close()

    def test_what_is_no_log_is_named_with_a_remedy(self):
        harness.write("log.txt", "step 1/9 | loss 0.5\n")
        packed = harness.write("log.gz", "")
        packed.write_bytes(gzip.compress(b"step 1/9 | loss 0.5\n"))
        wide = harness.write("wide.txt", "")
        wide.write_bytes("step 1/9 | loss 0.5\n".encode("utf-16"))
        for name, words in (("lgo.txt", "no log file 'lgo.txt' here and no run 'lgo.txt' under 'runs' (did you mean 'log.txt'?)"),
                            ("./lgo.txt", "did you mean './log.txt'?"), ("zzz", "no log file 'zzz'"), (".", "is not a run directory"),
                            ("log.gz", "gunzip -c"), ("wide.txt", "iconv -f UTF-16")):
            done = harness.lockstep("watch", name, "--once")
            self.assertEqual(done.returncode, 2, name)
            self.assertIn(words, done.stderr)

    def test_a_log_without_progress_says_so(self):
        log = harness.write("empty.log", "hello\n")
        done = harness.lockstep("watch", str(log), "--once")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no step seen yet", done.stdout)

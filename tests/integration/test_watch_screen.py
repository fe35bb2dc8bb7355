"""The screen of `lockstep watch` in a real terminal (tmux): sizes, keys, signals, and runs that vanish or grow."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import fake_runs
import harness

SIZES = ((80, 24), (120, 40), (200, 60))


def wait_until(what, seconds=30):
    deadline = time.monotonic() + seconds * harness.PATIENCE
    while time.monotonic() < deadline:
        if (found := what()):
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come to pass")


class Terminal:
    """A tmux server with one window, in which one command runs after the other."""

    def __init__(self, case, columns=80, rows=24, env=None):
        harness.require("tmux")
        self.socket = str(case.tmp / f"tmux-{columns}")
        self.env = harness.clean_env({"LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "TMUX": None, **(env or {})})
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), "sh")
        case.addCleanup(self.tmux, "kill-server")
        self.tmux("set-option", "-g", "status", "off")
        self.size(columns, rows)
        self.type(f"PS1='$ '; cd '{case.tmp}'")

    def tmux(self, *arguments):
        done = subprocess.run(["tmux", "-u", "-S", self.socket, *arguments], env=self.env, capture_output=True, text=True)
        return done.stdout

    def type(self, line):
        self.tmux("send-keys", "-l", line)
        self.tmux("send-keys", "Enter")

    def key(self, *keys):
        self.tmux("send-keys", *keys)

    def size(self, columns, rows):
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def shown(self):
        return self.tmux("capture-pane", "-p").rstrip("\n").split("\n")

    def wait(self, words):
        """The lines, once one of them has these words."""
        pattern = re.compile(words)
        last = []

        def look():
            nonlocal last
            last = self.shown()
            return last if any(pattern.search(line) for line in last) else None
        try:
            return wait_until(look)
        except AssertionError:
            raise AssertionError(f"no '{words}' in\n" + "\n".join(last)) from None

    def modes(self):
        """The terminal's own state: whether a program has left it as it was."""
        return self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}").strip()


class Screen(harness.Case):
    TIMEOUT = 60

    def job(self, **more):
        run = fake_runs.FakeRun(self.tmp / "runs", owner=os.getpid(), **more)
        for step in range(1, 40):
            run.step(step, ranks=[0])
        for step in range(40, 44):
            run.step(step, slow=1)
        run.sample(hot=2)
        run.log(0, "hello from rank 0\n")
        run.log(1, "hello from rank 1\n")
        return run

    def test_every_page_at_three_sizes(self):
        self.job(world=8, nodes=2)
        for columns, rows in SIZES:
            with self.subTest(columns=columns, rows=rows):
                terminal = Terminal(self, columns, rows)
                terminal.type(f"'{harness.PROGRAM}' watch --interval 200ms")
                lines = terminal.wait(r"q quit")
                text = "\n".join(lines)
                self.assertEqual(len(lines), rows)
                self.assertLessEqual(max(map(len, lines)), columns)
                self.assertRegex(lines[0], r"^ fake \| running \| 8 ranks, 2 nodes \| .* \d\d:\d\d:\d\d$")
                self.assertRegex(lines[1], r"^ step 43/1000 +4% .* ETA 7m5[89]s$")
                for words in ("0.500 s/it", "samples/s 61.5", "data wait 1%", "collectives", "loss 0.0455", "LOSS",
                              "RANK", "UTIL", "TEMP", "POWER", "93C", "⠤"):
                    self.assertIn(words, text)
                # Columns are aligned: every row of the table ends where its heading does.
                heading = next(i for i, line in enumerate(lines) if line.startswith("RANK"))
                starts = lines[heading].index("TEMP") + 4
                for line in lines[heading + 1:heading + 4]:
                    self.assertEqual(line[starts - 1], "C", line)
                for key, words in (("2", r"sorted by rank"), ("3", r"mlx5_0:1 +infiniband"), ("4", r"run started: 8 ranks"),
                                   ("5", r"hello from rank 0"), ("Right", r"hello from rank 1"), ("?", r"KEYS AND COLUMNS"),
                                   ("x", r"hello from rank 1")):
                    terminal.key(key)
                    lines = terminal.wait(words)
                    self.assertEqual(len(lines), rows)
                    self.assertLessEqual(max(map(len, lines)), columns)
                terminal.key("q")
                terminal.wait(r"^\$ ?$")
                self.assertEqual(terminal.modes(), "0 1")

    def test_it_follows_the_run_the_window_and_the_keys(self):
        run = self.job(world=4)
        terminal = Terminal(self)
        terminal.type(f"'{harness.PROGRAM}' watch fake --interval 100ms")
        terminal.wait(r"step 43/1000")
        run.step(44)
        terminal.wait(r"step 44/1000")
        terminal.size(120, 40)
        wait_until(lambda: len(terminal.shown()) == 40 and max(map(len, terminal.shown())) > 100)
        terminal.key("p")
        terminal.wait(r"PAUSED")
        run.step(45)
        run.event("restart", why="a test", left=1)
        time.sleep(0.3)  # nothing may change: there is no event to wait for
        self.assertIn("step 44/1000", "\n".join(terminal.shown()))
        terminal.key("p")
        terminal.wait(r"step 45/1000")
        terminal.wait(r"restart: a test, 1 left")
        for _ in range(3):
            terminal.key("2", "s")
        terminal.wait(r"sorted by data wait")
        terminal.key("2", "Down", "Enter")
        terminal.wait(r"log of rank \d")
        # The run directory vanishes.
        shutil.rmtree(run.path)
        terminal.key("1")
        terminal.wait(r"fake \| removed")
        terminal.key("q")
        terminal.wait(r"has ended: removed")
        self.assertEqual(terminal.modes(), "0 1")

    def test_signals_give_the_terminal_back(self):
        self.job(world=2)
        terminal = Terminal(self)
        watch = f"sh -c 'echo $$ > pid; exec \"{harness.PROGRAM}\" watch fake'"
        for number in (signal.SIGTERM, signal.SIGHUP):
            terminal.type(watch + "; echo \"code $?\"")
            terminal.wait(r"q quit")
            self.assertEqual(terminal.modes(), "1 0")
            os.kill(int((self.tmp / "pid").read_text()), number)
            terminal.wait(rf"code {128 + number}")
            self.assertEqual(terminal.modes(), "0 1")
        # A shell leaves out what follows a command that Ctrl-C ended.
        terminal.type("clear; " + watch)
        terminal.wait(r"q quit")
        terminal.key("C-c")
        terminal.wait(r"^\$ ?$")
        self.assertEqual(terminal.modes(), "0 1")

    def test_several_runs_and_logs_at_once(self):
        self.job(world=2)
        fake_runs.FakeRun(self.tmp / "runs", name="other", world=2).step(7)
        (self.tmp / "any.log").write_text("<epoch:  1, iter:  20,000, lr:2.000e-04> G_loss: 1.234e-02 \n")
        terminal = Terminal(self, 100, 24)
        terminal.type(f"'{harness.PROGRAM}' watch fake other any.log --interval 200ms")
        for words in (r"^fake +running +43/1000", r"^other +lost +7/1000", r"^any.log +running +20000"):
            terminal.wait(words)
        terminal.key("Down", "Down", "Enter")
        terminal.wait(r"any.log \(3/3\)")
        terminal.key("n")
        terminal.wait(r"fake \(1/3\)")
        terminal.key("q")
        terminal.wait(r"'other' has ended: lost")
        done = harness.lockstep("watch", "fake", "other", "any.log", "--json")
        self.assertEqual([view["step"] for view in json.loads(done.stdout)], [43, 7, 20000])


class Faults(harness.Case):
    TIMEOUT = 60

    def test_a_snapshot_of_everything(self):
        run = fake_runs.FakeRun(self.tmp / "runs", world=4, nodes=2, owner=os.getpid())
        run.step(5)
        run.sample(hot=3)
        done = harness.lockstep("watch", "--once")
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("COLLECTIVE", "hw thermal slowdown", "gpu-1", "NVIDIA H200", "mlx5_0:1", "1.2 GB/s", "attempt 0 started"):
            self.assertIn(words, done.stdout)
        self.assertNotIn("\x1b", done.stdout)
        view = json.loads(harness.lockstep("watch", "--json").stdout)
        documented = set(re.findall(r"`([a-z_]+)`", (harness.ROOT / "docs" / "watch.md").read_text()))
        for keys in (view, view["ranks"][0], view["nodes"][0], view["nodes"][0]["gpus"][0], view["nodes"][0]["links"][0],
                     view["events"][0]):
            self.assertLessEqual(set(keys), documented)
        self.assertEqual((view["ranks"][3]["node"], view["ranks"][3]["gpu"]), (1, 1))
        self.assertEqual(view["nodes"][1]["gpus"][1]["temperature"], 93)

    def test_ranks_of_other_nodes_without_shared_storage(self):
        run = fake_runs.FakeRun(self.tmp / "runs", world=2, nodes=2, owner=os.getpid())
        run.step(5, ranks=[0])
        line = {"t": time.time(), "attempt": 0, "node": 1, "host": "b", "ranks": [
            {"rank": 1, "pid": 9, "cpu": 99, "rss": 1e9, "step": 4, "step_t": time.time(), "loss": 0.5, "steps": 2,
             "seconds": {"step": 1.0, "data": 0.5, "collective": 0.1}}]}
        (run.path / "telemetry" / "node-1.jsonl").write_text(json.dumps(line) + "\n" + json.dumps(line)[:40])
        rank = json.loads(harness.lockstep("watch", "--json").stdout)["ranks"][1]
        self.assertEqual((rank["step"], rank["seconds_per_step"], rank["data_seconds"], rank["loss"]), (4, 0.5, 0.25, 0.5))

    def test_half_written_lines_and_clocks_that_jump(self):
        run = fake_runs.FakeRun(self.tmp / "runs", world=2, owner=os.getpid())
        now = time.time()
        with open(run.path / "metrics" / "rank-0.jsonl", "w") as file:
            for step, t in ((1, now), (2, now + 9e6), (3, now - 9e6), (4, now - 9e6 + 0.5), (5, now - 9e6 + 1)):
                file.write(fake_runs.metric_line(0, step, t=t, loss=1.0))
            file.write('{"t": 1e999, "step": -4, "scalars": {"loss": [1]}}\n{"t": 1, "step": 6, "sca')
        (run.path / "telemetry" / "node-0.jsonl").write_text('{"t": 1e300, "node": 0, "gpus": [1, {"gpu": "x"}], "ranks": 7}\n{"t"')
        view = json.loads(harness.lockstep("watch", "--json").stdout)
        self.assertEqual((view["step"], view["seconds_per_step"]), (5, 0.5))
        self.assertEqual(harness.lockstep("watch", "--once").returncode, 0)

    def test_a_log_of_ten_million_lines_is_opened_at_once(self):
        # Sparse: its beginning is a hole, as long as ten million lines would be, so that the disk of a test is enough.
        log = self.tmp / "long.log"
        with open(log, "wb") as file:
            file.truncate(600 << 20)
            file.seek(0, os.SEEK_END)
            file.write(b"".join(b"step %d/10000000 | loss %.4f | 0.5 s/it\n" % (step, 1 + 1 / step)
                                for step in range(9_700_000, 10_000_000)))
        watch = subprocess.Popen([harness.PROGRAM, "watch", str(log), "--json"], env=harness.clean_env(),
                                 stdout=subprocess.PIPE, text=True)
        view = json.loads(watch.stdout.read())
        watch.stdout.close()
        _, status, used = os.wait4(watch.pid, 0)
        watch.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual((view["step"], view["total"]), (9_999_999, 10_000_000))
        self.assertLessEqual(len(view["loss_curve"]), 1024)
        self.assertLess(used.ru_maxrss, 100 << 10)  # KiB
        self.assertLess(used.ru_utime, 10)

    def test_a_thousand_ranks_from_their_logs_alone(self):
        run = fake_runs.FakeRun(self.tmp / "runs", world=1000, nodes=125, owner=os.getpid())
        for rank in range(1000):
            run.log(rank, f"step 1/90 | loss 0.5 | 0.250 s/it\nstep {2 + rank % 3}/90 | loss 0.4 | 0.250 s/it\n")
        view = json.loads(harness.lockstep("watch", "--json").stdout)
        self.assertEqual([rank["step"] for rank in view["ranks"]], [2 + rank % 3 for rank in range(1000)])

    def test_a_log_is_shown_beside_the_gpus_of_this_machine(self):
        log = harness.write("any.log", "step 1/90 | loss 0.5 | 0.250 s/it\nstep 2/90 | loss 0.4 | 0.250 s/it\n")
        env = {"LOCKSTEP_NVML": harness.ROOT / "build/release/tests/libfake_nvml.so", "LOCKSTEP_FAKE_NVML": "GPU-aaa,GPU-bbb"}
        done = harness.lockstep("watch", log, "--json", env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        node, = json.loads(done.stdout)["nodes"]
        self.assertEqual([gpu["uuid"] for gpu in node["gpus"]], ["GPU-aaa", "GPU-bbb"])
        self.assertIsNotNone(node["gpus"][0]["temperature"])
        self.assertIn("GPU", harness.lockstep("watch", log, "--once", env=env).stdout)
        self.assertEqual(json.loads(harness.lockstep("watch", log, "--json", env={"LOCKSTEP_NVML": "/nowhere"}).stdout)["nodes"], [])

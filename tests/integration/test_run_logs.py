"""Output of ranks: one file per rank, a console that never mixes lines and never holds up a rank, a disk that may be full."""

import os
import pty
import signal
import subprocess
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, netns  # noqa: E402

MIB = 1 << 20


class Console(harness.Case):
    def test_lines_of_chosen_ranks_carry_node_and_rank_and_go_to_their_stream(self):
        done = harness.lockstep("run", "--nproc-per-node", "2", "--console", "all", "--no-python", "sh", "-c",
                                "echo out $RANK; echo err $RANK >&2")
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(2):
            self.assertRegex(done.stdout, rf"(?m)^\W*0:{rank}\W+out {rank}$")
            self.assertRegex(done.stderr, rf"(?m)^\W*0:{rank}\W+err {rank}$")
        self.assertNotIn("\x1b[", done.stdout + done.stderr)

    def test_every_rank_has_its_file_whatever_the_console_shows(self):
        done = harness.lockstep("run", "--nproc-per-node", "3", "--console", "none", "--no-python", "sh", "-c",
                                "echo only in file $RANK")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("only in file", done.stdout)
        for rank in range(3):
            self.assertEqual(jobs.logs(self.tmp, rank), f"only in file {rank}\n")

    def test_lines_are_never_torn_however_fast_ranks_write(self):
        done = harness.lockstep("run", "--nproc-per-node", "4", "--console", "all",
                                *jobs.program("spew.py", self.tmp / "marks", MIB // 2))
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line for line in done.stdout.splitlines() if "line" in line]
        self.assertGreater(len(lines), 1000)
        for line in lines:
            self.assertRegex(line, r"^\W*0:(\d)\W+rank 000\1 line \d{10} \.{73}$")

    def test_file_holds_every_byte_a_rank_wrote(self):
        done = harness.lockstep("run", "--nproc-per-node", "2", "--redirects", "3",
                                *jobs.program("spew.py", self.tmp / "marks", 4 * MIB))
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(2):
            text = jobs.logs(self.tmp, rank)
            numbers = [int(line[15:25]) for line in text.splitlines()]
            self.assertEqual(numbers, list(range(4 * MIB // 100)))

    def test_progress_bar_and_odd_bytes_survive(self):
        done = harness.lockstep("run", *jobs.program("progress_bar.py"))
        self.assertEqual(done.returncode, 0, done.stderr)
        raw = (jobs.run_path(self.tmp) / "logs/attempt-0/node-0/rank-0.log").read_bytes()
        self.assertIn(b"step 10/10", raw)
        self.assertIn(b"broken \xff\xfe text\n", raw)
        self.assertTrue(raw.rstrip(b"\n").endswith(b"no newline at the end"), raw)
        self.assertIn("step 10/10", done.stdout)
        self.assertIn("no newline at the end", done.stdout)

    def test_console_that_nobody_reads_does_not_hold_up_ranks(self):
        marks = self.tmp / "marks"
        read_end, write_end = os.pipe()
        run = harness.spawn_lockstep("run", "--nproc-per-node", "2", *jobs.program("spew.py", marks, 8 * MIB),
                                     stdout=write_end, stderr=write_end)
        os.close(write_end)
        jobs.wait_marks(marks, 2, "done", launcher=run)
        self.assertEqual(run.wait(), 0)
        os.close(read_end)
        for rank in range(2):
            self.assertEqual(jobs.logs(self.tmp, rank).count("\n"), 8 * MIB // 100)
        self.assertRegex(" ".join(jobs.report(self.tmp)["warnings"]), r"console|skipped")

    def test_closed_console_ends_nothing(self):
        run = harness.spawn_lockstep("run", "--nproc-per-node", "2", *jobs.program("spew.py", self.tmp / "marks", 2 * MIB),
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        run.popen.stdout.close()
        run.popen.stderr.close()
        self.assertEqual(run.wait(), 0)

    def test_stopped_reader_of_a_pipe_does_not_delay_a_sigterm(self):
        marks = self.tmp / "marks"
        read_end, write_end = os.pipe()
        script = harness.write("loud.sh", f"#!/bin/sh\nmkdir -p {marks}; echo $$ > {marks}/ready.$RANK\nexec yes\n", 0o755)
        run = harness.spawn_lockstep("run", "--nproc-per-node", "2", "--grace", "2s", "--log-rotate", "1MiB:1",
                                     "--no-python", script, stdout=write_end, stderr=write_end)
        os.close(write_end)
        jobs.wait_marks(marks, 2, launcher=run)
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(30), 143)
        os.close(read_end)

    def test_launcher_started_with_closed_descriptors_runs(self):
        done = harness.run(["sh", "-c", f"exec {harness.PROGRAM} run --no-python true <&- >&- 2>&-"])
        self.assertEqual(done.returncode, 0)


class Terminal(harness.Case):
    def on_terminal(self, *args):
        """Runs with a terminal as output; returns the exit code and all it showed."""
        master, slave = pty.openpty()
        run = harness.spawn_lockstep("run", *args, stdout=slave, stderr=slave, env={"TERM": "xterm", "NO_COLOR": None})
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the last writer is gone
                break
            if not part:
                break
            shown += part
        os.close(master)
        return run.wait(), shown.decode(errors="replace")

    def test_prefix_is_coloured_and_a_bar_is_redrawn_in_place(self):
        code, shown = self.on_terminal("--nproc-per-node", "2", "--console", "all", *jobs.program("progress_bar.py"))
        self.assertEqual(code, 0, shown)
        self.assertRegex(shown, r"\x1b\[[0-9;]*m")
        self.assertIn("step 10/10", shown)
        self.assertIn("no newline at the end", shown)

    def test_file_has_no_colour(self):
        self.on_terminal("--no-python", "sh", "-c", "echo plain")
        self.assertEqual(jobs.logs(self.tmp, 0), "plain\n")


class Files(harness.Case):
    def test_logs_are_rotated_and_old_ones_removed(self):
        done = harness.lockstep("run", "--redirects", "3", "--log-rotate", "1MiB:2",
                                *jobs.program("spew.py", self.tmp / "marks", 6 * MIB))
        self.assertEqual(done.returncode, 0, done.stderr)
        folder = jobs.run_path(self.tmp) / "logs/attempt-0/node-0"
        names = sorted(p.name for p in folder.iterdir() if p.name.startswith("rank-0.log"))
        self.assertEqual(names, ["rank-0.log", "rank-0.log.1", "rank-0.log.2"])
        text = "".join((folder / name).read_text() for name in reversed(names))
        numbers = [int(line[15:25]) for line in text.splitlines()]
        self.assertEqual(numbers, list(range(numbers[0], 6 * MIB // 100)))
        self.assertTrue(all((folder / name).stat().st_size <= 1.2 * MIB for name in names))

    def test_full_disk_under_the_logs_neither_blocks_nor_kills_a_rank_and_is_reported(self):
        harness.require("netns")
        with netns.Net(["a"]) as net:  # for its mount namespace
            disk = os.path.join(net["a"].folder, "disk")
            os.mkdir(disk)
            script = (f"mount -t tmpfs -o size=1m tmpfs {disk} && {harness.PROGRAM} run --nproc-per-node 2 --log-dir {disk} "
                      f"{' '.join(jobs.program('spew.py', self.tmp / 'marks', 4 * MIB))}; code=$?; cp -r {disk} {disk}.copy; "
                      f"exit $code")
            run = harness.Process(net["a"].command(["sh", "-c", script]), cwd=net["a"].folder)
            jobs.wait_marks(self.tmp / "marks", 2, "done", launcher=run)
            self.assertEqual(run.wait(), 0, run.stderr[-2000:])
            self.assertRegex(run.stderr, r"No space left|ENOSPC|disk is full|full")

    def test_unwritable_log_folder_is_refused_before_anything_starts(self):
        target = harness.write("a-file", "not a folder")
        done = harness.lockstep("run", "--log-dir", str(target), "--no-python", "touch", self.tmp / "started")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(str(target), done.stderr)
        self.assertFalse((self.tmp / "started").exists())

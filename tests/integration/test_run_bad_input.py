"""Bad input, one row each: one message that names the thing, an exit code by class, and nothing half-started."""

import json
import os
import shutil
import socket
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs  # noqa: E402

TRUE = ("--no-python", "true")

# name: (arguments after `run`, exit code, words the message must hold)
USAGE = {
    "unknown flag": (["--nproc-per-nodes", "2", *TRUE], 2, ["--nproc-per-nodes", "--nproc-per-node"]),
    "unknown short flag": (["-Z", *TRUE], 2, ["-Z"]),
    "no program": ([], 2, ["program"]),
    "flags without a program": (["--nproc-per-node", "2"], 2, ["program"]),
    "flag without its value": (["--nproc-per-node"], 2, ["--nproc-per-node"]),
    "nproc no number": (["--nproc-per-node", "two", *TRUE], 2, ["--nproc-per-node", "two"]),
    "nproc zero": (["--nproc-per-node", "0", *TRUE], 2, ["--nproc-per-node", "0"]),
    "nproc negative": (["--nproc-per-node=-1", *TRUE], 2, ["--nproc-per-node", "-1"]),
    "nproc absurd": (["--nproc-per-node", "99999999999999999999", *TRUE], 2, ["--nproc-per-node"]),
    "nnodes zero": (["--nnodes", "0", *TRUE], 2, ["--nnodes", "0"]),
    "nnodes elastic": (["--nnodes", "1:4", *TRUE], 2, ["--nnodes", "1:4"]),
    "nnodes reversed": (["--nnodes", "4:1", *TRUE], 2, ["--nnodes"]),
    "port too large": (["--master-port", "70000", *TRUE], 2, ["--master-port", "70000"]),
    "port range reversed": (["--port-range", "200-100", *TRUE], 2, ["--port-range"]),
    "restarts negative": (["--max-restarts=-3", *TRUE], 2, ["--max-restarts"]),
    "duration without meaning": (["--grace", "soon", *TRUE], 2, ["--grace", "soon"]),
    "rotation without meaning": (["--log-rotate", "big", *TRUE], 2, ["--log-rotate", "big"]),
    "environment without =": (["--env", "ALPHA", *TRUE], 2, ["--env", "ALPHA"]),
    "variable that is ours": (["--env", "RANK=3", *TRUE], 2, ["RANK"]),
    "name with a slash": (["--name", "a/b", *TRUE], 2, ["a/b"]),
    "unknown signal": (["--signals-to-handle", "SIGFOO", *TRUE], 2, ["SIGFOO"]),
    "etcd": (["--rdzv-backend", "etcd", *TRUE], 2, ["etcd"]),
    "bind": (["--bind", "nume", *TRUE], 2, ["--bind", "nume", "numa"]),
    "node rank beyond nodes": (["--nnodes", "2", "--node-rank", "2", "--master-addr", "10.9.9.9", *TRUE], 2, ["2"]),
    "two nodes and no master": (["--nnodes", "2", "--node-rank", "1", *TRUE], 2, ["master"]),
}


class Table(harness.Case):
    def test_usage_errors_exit_2_with_one_message_and_no_trace(self):
        for name, (args, code, words) in USAGE.items():
            with self.subTest(name):
                done = harness.lockstep("run", *args)
                self.assertEqual(done.returncode, code, done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertLess(len(done.stderr.splitlines()), 8, done.stderr)
                self.assertFalse((self.tmp / "runs").exists(), "a refused command leaves no run directory")

    def refuse(self, args, code, *words, **kwargs):
        done = harness.lockstep("run", *args, **kwargs)
        self.assertEqual(done.returncode, code, done.stderr)
        for word in words:
            self.assertIn(str(word), done.stderr)
        self.assertFalse((self.tmp / "runs").exists(), "a refused command leaves no run directory")
        return done.stderr

    def test_missing_program_is_an_environment_error_that_names_it(self):
        self.refuse(["--no-python", "no-such-program-anywhere"], 3, "no-such-program-anywhere")

    def test_missing_script(self):
        self.refuse(["no/such/train.py"], 3, "no/such/train.py")

    def test_folder_as_program(self):
        self.refuse(["--no-python", str(self.tmp)], 3, self.tmp)

    def test_program_without_permission_to_run(self):
        path = harness.write("not-executable", "#!/bin/sh\n")
        self.refuse(["--no-python", str(path)], 3, path)

    def test_program_whose_interpreter_is_missing(self):
        path = harness.write("odd", "#!/no/such/interpreter\n", 0o755)
        text = self.refuse(["--no-python", str(path)], 3, path)
        self.assertIn("/no/such/interpreter", text)

    def test_script_that_cannot_be_read(self):
        path = harness.write("train.py", "print(1)\n")
        path.chmod(0)
        # Root may read everything unless it gives up that right; it then has to be able to reach the program itself,
        # which may lie in a home folder of somebody else.
        program = shutil.copy(harness.PROGRAM, self.tmp)
        like_others = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
        done = harness.run([*like_others, program, "run", path])
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(str(path), done.stderr)
        self.assertRegex(done.stderr, r"[Pp]ermission|EACCES")

    def test_missing_workdir(self):
        self.refuse(["--workdir", "/no/such/folder", *TRUE], 3, "/no/such/folder")

    def test_missing_virtual_environment(self):
        self.refuse(["--venv", "/no/such/venv", *TRUE], 3, "/no/such/venv")

    def test_missing_conda_environment(self):
        text = self.refuse(["--conda", "no-such-env", *TRUE], 3)
        self.assertIn("conda", text)

    def test_missing_environment_module(self):
        text = self.refuse(["--module-load", "cuda/99", *TRUE], 3)
        self.assertRegex(text, r"module")

    def test_missing_token_file(self):
        text = self.refuse(["--token-file", "/no/such/token", *TRUE], 3)
        self.assertIn("/no/such/token", text)

    def test_unwritable_root_of_runs(self):
        path = harness.write("plain-file", "x")
        self.refuse(["--log-dir", str(path), *TRUE], 3, path)

    def test_read_only_working_directory_hints_at_the_flag_that_moves_runs(self):
        harness.require("netns")  # root, to mount
        folder = self.tmp / "read-only"
        folder.mkdir()
        script = (f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder} && cd {folder} && exec "
                  + " ".join(map(str, [harness.PROGRAM, "run", *TRUE])))
        done = harness.run(["unshare", "--mount", "sh", "-c", script])
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"(?s)[Rr]ead-only.*do: .*--log-dir")

    def test_port_in_use_names_its_owner(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            done = harness.lockstep("run", "--nproc-per-node", "1", "--level", "process", "--master-addr", "127.0.0.1",
                                    "--rdzv-endpoint", f"127.0.0.1:{port}", "--join-timeout", "5s", *TRUE,
                                    env={"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                                         "MASTER_PORT": str(port)})
            self.assertIn(done.returncode, (3, 4), done.stderr)
            self.assertIn(str(port), done.stderr)
            self.assertIn(f"pid {os.getpid()}", done.stderr)

    def test_unresolvable_master_exits_4_at_the_deadline(self):
        done = harness.lockstep("run", "--nnodes", "2", "--node-rank", "1", "--master-addr", "no-such-host.invalid",
                                "--master-port", "29500", "--join-timeout", "1s", *TRUE)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("no-such-host.invalid", done.stderr)

    def test_no_port_left_in_the_range(self):
        servers = [socket.create_server(("0.0.0.0", 0))]
        port = servers[0].getsockname()[1]
        try:
            done = harness.lockstep("run", "--nproc-per-node", "2", "--port-range", f"{port}-{port}", *TRUE)
            self.assertIn(done.returncode, (3, 4), done.stderr)
            self.assertIn(str(port), done.stderr)
            self.assertFalse((self.tmp / "runs").exists(), "nothing was started: no run directory")
        finally:
            servers[0].close()

    def test_launch_that_never_started_leaves_nothing_unless_a_record_was_asked_for(self):
        lonely = ["--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port",
                  str(harness.free_port()), "--join-timeout", "1s", *TRUE]
        self.refuse(lonely, 4, "missing: node 1")
        done = harness.lockstep("run", "--json", *lonely)
        self.assertEqual(json.loads(done.stdout)["run_dir"], None)
        self.assertFalse((self.tmp / "runs").exists())
        done = harness.lockstep("run", "--log-dir", "records", *lonely)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertEqual(len(list((self.tmp / "records").glob("*/report.json"))), 1)

    def test_refused_relaunch_leaves_a_finished_run_as_it_was(self):
        self.assertEqual(harness.lockstep("run", "--name", "job", *TRUE).returncode, 0)
        run = self.tmp / "runs/job"

        def everything():
            return {p: p.read_bytes() if p.is_file() else None for p in run.rglob("*")}

        before = everything()
        done = harness.lockstep("run", "--name", "job", "--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1",
                                "--master-port", str(harness.free_port()), "--join-timeout", "1s", *TRUE)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertEqual(everything(), before)

    def test_flags_of_the_launcher_after_the_program_are_warned_of(self):
        done = harness.lockstep("run", "--no-python", "true", "--nproc-per-node", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"warning: --nproc-per-node stands after the program.*come before true")

    def test_no_gpu_where_gpus_are_asked_for(self):
        done = harness.lockstep("run", "--nproc-per-node", "gpu", *TRUE, env={"CUDA_VISIBLE_DEVICES": ""})
        self.assertIn(done.returncode, (2, 3), done.stderr)
        self.assertRegex(done.stderr, r"GPU")

    def test_corrupt_environment_is_an_error_that_names_the_variable(self):
        for env in ({"RANK": "5", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
                    {"RANK": "x", "WORLD_SIZE": "2"}, {"WORLD_SIZE": "-2", "RANK": "0"},
                    {"PET_NNODES": "many"}, {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "zero",
                                             "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_STEP_NODELIST": "n[0-1]"}):
            with self.subTest(env):
                done = harness.lockstep("run", *TRUE, env=env)
                self.assertIn(done.returncode, (2, 3), done.stderr)
                self.assertTrue(any(name in done.stderr for name in env), done.stderr)

    def test_unknown_command_names_the_nearest(self):
        done = harness.lockstep("rnu")
        self.assertEqual(done.returncode, 2)
        self.assertIn("run", done.stderr)


class LockedName(harness.Case):
    def test_name_that_is_running_is_refused_naming_its_launcher(self):
        marks = self.tmp / "marks"
        first = harness.spawn_lockstep("run", "--name", "job", *jobs.program("signals.py", marks))
        jobs.wait_marks(marks, 1, launcher=first)
        second = harness.lockstep("run", "--name", "job", *TRUE)
        self.assertIn(second.returncode, (2, 3), second.stderr)
        self.assertIn(f"pid {jobs.launcher_pid(first.pid)}", second.stderr)
        self.assertTrue(first.alive())
        first.popen.terminate()
        self.assertEqual(first.wait(), 143)

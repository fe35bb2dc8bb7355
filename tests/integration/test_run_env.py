"""What a rank sees: torchrun's environment and ours, its interpreter, arguments, working directory, threads and files."""

import json
import os
import subprocess
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs  # noqa: E402

OURS = {"LOCKSTEP_RUN_DIR", "LOCKSTEP_RUN_ID", "LOCKSTEP_ATTEMPT", "LOCKSTEP_RESTART_COUNT", "LOCKSTEP_METRICS"}


class Environment(harness.Case):
    def show(self, *flags, nproc=2, env=None, args=()):
        folder = self.tmp / "marks"
        done = harness.lockstep("run", "--nproc-per-node", str(nproc), *flags, *jobs.program("show_env.py", folder, *args),
                                env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(jobs.marked(folder, "env", rank)) for rank in range(nproc)]

    def test_ranks_get_everything_torchrun_gives_and_more(self):
        harness.require("torch")
        folder = self.tmp / "peer"
        torchrun = [harness.PYTHON, "-m", "torch.distributed.run"]
        peer = harness.run([*torchrun, "--standalone", "--nproc-per-node", "2", jobs.PROGRAMS / "show_env.py", folder])
        self.assertEqual(peer.returncode, 0, peer.stderr)
        before = set(harness.clean_env())
        for rank, ours in enumerate(self.show()):
            theirs = json.loads(jobs.marked(folder, "env", rank))["env"]
            missing = set(theirs) - before - set(ours["env"])
            self.assertEqual(missing, set())
            for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
                         "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "TORCHELASTIC_RESTART_COUNT",
                         "TORCHELASTIC_MAX_RESTARTS"):
                self.assertEqual(ours["env"][name], theirs[name], name)
            self.assertEqual(OURS - set(ours["env"]), set())
            self.assertEqual(ours["env"]["TORCHELASTIC_USE_AGENT_STORE"], "False")

    def test_paths_in_the_environment_lead_into_the_run_directory(self):
        for rank, seen in enumerate(self.show()):
            run = str(jobs.run_path(self.tmp))
            self.assertEqual(os.path.realpath(seen["env"]["LOCKSTEP_RUN_DIR"]), os.path.realpath(run))
            self.assertTrue(seen["env"]["LOCKSTEP_METRICS"].endswith(f"metrics/rank-{rank}.jsonl"))
            self.assertTrue(os.path.isdir(os.path.dirname(seen["env"]["LOCKSTEP_METRICS"])))
            self.assertIn(f"rank-{rank}", seen["env"]["TORCHELASTIC_ERROR_FILE"])

    def test_threads_are_shared_out_and_not_one_unless_the_user_said_so(self):
        cores = len(os.sched_getaffinity(0))
        seen = self.show(nproc=1)[0]["env"]["OMP_NUM_THREADS"]
        self.assertEqual(int(seen), max(1, cores))

    def test_threads_set_by_the_user_stay(self):
        self.assertEqual(self.show(nproc=1, env={"OMP_NUM_THREADS": "7"})[0]["env"]["OMP_NUM_THREADS"], "7")

    def test_variables_given_on_the_command_line_reach_ranks_and_win(self):
        seen = self.show("--env", "ALPHA=1 2", "--env", "BETA=", nproc=1, env={"ALPHA": "old", "GAMMA": "kept"})[0]["env"]
        self.assertEqual((seen["ALPHA"], seen["BETA"], seen["GAMMA"]), ("1 2", "", "kept"))

    def test_job_token_never_reaches_a_rank(self):
        seen = self.show(nproc=1, env={"LOCKSTEP_TOKEN": "hush-hush-hush-hush"})[0]["env"]
        self.assertNotIn("hush", json.dumps(seen))

    def test_arguments_pass_untouched(self):
        strange = ["--nproc-per-node=9", "--", "", "a b", "$HOME", "ü", "-h", "--help"]
        self.assertEqual(self.show(nproc=1, args=strange)[0]["argv"][2:], strange)

    def test_workdir_is_where_ranks_start(self):
        (self.tmp / "elsewhere").mkdir()
        self.assertEqual(self.show("--workdir", str(self.tmp / "elsewhere"), nproc=1)[0]["cwd"],
                         os.path.realpath(self.tmp / "elsewhere"))

    def test_ranks_inherit_no_descriptor_but_the_three(self):
        for seen in self.show():
            self.assertEqual([fd for fd in seen["fds"] if fd > 2], [])
            self.assertEqual(seen["stdin"], "/dev/null")

    def test_gpus_flag_sets_the_visible_devices(self):
        # No device is needed: the flag is a promise about the variable.
        done = harness.lockstep("run", "--gpus", "2,3", "--nproc-per-node", "1",
                                *jobs.program("show_env.py", self.tmp / "marks"))
        if done.returncode == 0:
            seen = json.loads(jobs.marked(self.tmp / "marks", "env", 0))["env"]
            self.assertEqual(seen["CUDA_VISIBLE_DEVICES"], "2,3")
        else:
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertRegex(done.stderr, "GPU|gpu")

    def test_visible_devices_are_untouched_without_the_flag(self):
        self.assertEqual(self.show(nproc=1, env={"CUDA_VISIBLE_DEVICES": ""})[0]["env"]["CUDA_VISIBLE_DEVICES"], "")

    def test_debug_switches_diagnostics_on(self):
        seen = self.show("--debug", nproc=1)[0]["env"]
        for name in ("NCCL_DEBUG", "TORCH_DISTRIBUTED_DEBUG", "NCCL_DEBUG_FILE"):
            self.assertIn(name, seen)

    def test_flight_recorder_is_on_by_default(self):
        seen = self.show(nproc=1)[0]["env"]
        self.assertGreater(int(seen.get("TORCH_NCCL_TRACE_BUFFER_SIZE", seen.get("TORCH_FR_BUFFER_SIZE", "0"))), 0)


    def test_bind_cores_gives_ranks_processors_of_their_own(self):
        if len(os.sched_getaffinity(0)) < 2:
            return  # one processor cannot be shared out
        sets = [set(seen["affinity"]) for seen in self.show("--bind", "cores")]
        self.assertFalse(sets[0] & sets[1], sets)
        self.assertEqual(sorted(sets[0] | sets[1]), sorted(os.sched_getaffinity(0)))

    def test_without_bind_ranks_may_use_every_processor(self):
        for seen in self.show():
            self.assertEqual(seen["affinity"], sorted(os.sched_getaffinity(0)))


class DropIn(harness.Case):
    """torchrun's own command lines, with the two words replaced."""

    def setUp(self):
        self.marks = self.tmp / "marks"
        self.script = harness.write("train.py", f"""
import sys
sys.path.insert(0, {str(jobs.PROGRAMS)!r})
print("hello", flush=True)
import show_env
""")

    def check(self, *flags, ranks=2, env=None, program=None):
        done = harness.lockstep("run", *flags, *(program or [self.script, self.marks]), env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(jobs.marked(self.marks, "env", rank)) for rank in range(ranks)]

    def test_standalone(self):
        seen = self.check("--standalone", "--nnodes=1", "--nproc-per-node=2")
        self.assertEqual([s["env"]["RANK"] for s in seen], ["0", "1"])
        self.assertTrue(all(s["unbuffered"] for s in seen))

    def test_underscores_and_c10d(self):
        port = harness.free_port()
        seen = self.check("--nnodes", "1:1", "--nproc_per_node", "2", "--rdzv_backend", "c10d",
                          "--rdzv_endpoint", f"localhost:{port}", "--rdzv_id", "job7", "--max_restarts", "3")
        self.assertEqual(seen[1]["env"]["TORCHELASTIC_RUN_ID"], "job7")

    def test_static_master(self):
        port = harness.free_port()
        self.check("--nproc-per-node=2", "--nnodes=1", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={port}")

    def test_pet_variables(self):
        self.check(env={"PET_NPROC_PER_NODE": "2", "PET_NNODES": "1", "PET_STANDALONE": "1"})

    def test_module(self):
        harness.write("package/__init__.py", "")
        harness.write("package/job.py", self.script.read_text())
        seen = self.check("--nproc-per-node", "2", program=["-m", "package.job", self.marks], env={"PYTHONPATH": str(self.tmp)})
        self.assertEqual(seen[0]["argv"][1:], [str(self.marks)])

    def test_run_path(self):
        self.check("--nproc-per-node", "2", "--run-path")

    def test_log_dir_redirects_tee_and_filter(self):
        self.check("--nproc-per-node", "2", "--log-dir", str(self.tmp / "elsewhere"), "--redirects", "3", "--tee", "0:3",
                   "--local-ranks-filter", "0")
        self.assertTrue(list((self.tmp / "elsewhere").rglob("rank-1.log")))

    def test_interpreter_of_the_active_environment_runs_the_script(self):
        folder = self.tmp / "venv"
        subprocess.run([jobs.PYTHON3, "-m", "venv", "--without-pip", folder], check=True)
        seen = self.check("--nproc-per-node", "1", ranks=1,
                          env={"VIRTUAL_ENV": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"})
        self.assertTrue(seen[0]["python"].startswith(str(folder)), seen[0]["python"])
        other = self.check("--nproc-per-node", "1", "--venv", str(folder), ranks=1)
        self.assertTrue(other[0]["python"].startswith(str(folder)), other[0]["python"])

    def test_python_exe_variable_as_torchrun_reads_it(self):
        seen = self.check("--nproc-per-node", "1", ranks=1, env={"PYTHON_EXEC": jobs.PYTHON3})
        self.assertEqual(os.path.realpath(seen[0]["python"]), os.path.realpath(jobs.PYTHON3))


class Nested(harness.Case):
    def test_launch_inside_a_launch_that_fans_out_is_refused_naming_the_outer_pid(self):
        inner = harness.write("inner.sh", f"#!/bin/sh\nexec {harness.PROGRAM} run --nproc-per-node 2 --no-python true\n", 0o755)
        done = harness.lockstep("run", "--nproc-per-node", "2", "--grace", "1s", "--no-python", inner)
        self.assertEqual(done.returncode, 5, done.stderr)
        text = done.stdout + done.stderr
        self.assertRegex(text, r"inside|nested|already")
        self.assertRegex(text, r"pid \d+")

    def test_inside_a_real_torchrun_it_is_refused_naming_torchruns_pid(self):
        harness.require("torch")
        done = harness.run([harness.PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "--no-python",
                            harness.PROGRAM, "run", "--nproc-per-node", "2", "--no-python", "touch", self.tmp / "started"])
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout + done.stderr, r"torchrun.*pid \d+|pid \d+.*torchrun")
        self.assertFalse((self.tmp / "started").exists())

    def test_inside_a_torchrun_worker_it_is_refused_too(self):
        worker = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                  "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "x", "GROUP_RANK": "0"}
        done = harness.lockstep("run", "--nproc-per-node", "2", "--no-python", "true", env=worker)
        self.assertEqual(done.returncode, 2 if done.returncode == 2 else 3, done.stderr)
        self.assertRegex(done.stderr, r"torchrun|inside|nested|already")
        self.assertFalse((self.tmp / "runs").exists())

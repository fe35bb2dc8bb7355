"""Real PyTorch programs under the launcher: DDP on Gloo, @record, a hang, accelerate."""

import json
import pathlib
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, netns  # noqa: E402


def script(name, *args):
    return [str(jobs.PROGRAMS / name), *map(str, args)]


class OneNode(harness.Case):
    TIMEOUT = 180

    def setUp(self):
        harness.require("torch")
        self.marks = self.tmp / "marks"

    def run_it(self, *args, **kwargs):
        return harness.lockstep("run", "--nproc-per-node", "2", "--grace", "5s", *args, env=jobs.torch_env(), timeout=150,
                                **kwargs)

    def test_exception_under_record_is_the_reported_cause(self):
        done = self.run_it(*script("raises_record.py", self.marks, 1))
        self.assertEqual(done.returncode, 5, done.stderr)
        first = jobs.report(self.tmp)["first_failure"]
        self.assertEqual(first["rank"], 1)
        self.assertIn("the dataset has no samples left for rank 1", json.dumps(first["error"]))
        self.assertIn("the dataset has no samples left for rank 1", done.stderr)

    def test_deadlocked_all_reduce_is_ended_by_sigterm(self):
        run = harness.spawn_lockstep("run", "--nproc-per-node", "2", "--grace", "2s", *script("hangs.py", self.marks),
                                     env=jobs.torch_env())
        pids = jobs.wait_marks(self.marks, 2, seconds=120, launcher=run)
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(), 143, run.output)
        jobs.wait_gone(pids)

    def test_accelerate_understands_the_environment(self):
        harness.require("accelerate")
        done = self.run_it(*script("accelerate_env.py", self.marks))
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = [json.loads(jobs.marked(self.marks, "result", rank)) for rank in range(2)]
        self.assertEqual([(s["index"], s["local"], s["processes"], s["sum"]) for s in seen],
                         [(0, 0, 2, 3.0), (1, 1, 2, 3.0)])

    def test_restarted_ddp_job_meets_again_on_its_new_port_and_learns_and_all_ranks_hold_the_same_weights(self):
        program = harness.write("once.py", f"""
import os, runpy, sys
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
    sys.exit("first attempt fails")
sys.path.insert(0, {str(jobs.PROGRAMS)!r})
sys.argv = ["ddp_gloo.py", {str(self.marks)!r}]
runpy.run_path({str(jobs.PROGRAMS / "ddp_gloo.py")!r}, run_name="__main__")
""")
        done = self.run_it("--max-restarts", "1", "--backoff", "50ms", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(jobs.marked(self.marks, "result"))
        self.assertEqual((result["world"], result["same"]), (2, True))
        self.assertLess(result["last"], result["first"] / 100)


class TwoHosts(harness.Case):
    TIMEOUT = 180

    def setUp(self):
        harness.require("torch", "netns")
        self.net = netns.Net(["a", "b"])
        self.addCleanup(self.net.close)
        self.marks = self.tmp / "marks"

    def start(self, program, *flags):
        return jobs.over(self.net, ["a", "b"], ["--nproc-per-node=1", "--grace=5s", *flags], program,
                         env=jobs.torch_env({"GLOO_SOCKET_IFNAME": "eth0", "TORCHELASTIC_ERROR_FILE": "error.json"}))

    def test_ddp_on_gloo_over_two_hosts(self):
        launchers = self.start(script("ddp_gloo.py", self.marks))
        self.assertEqual([p.wait(150) for p in launchers.values()], [0, 0], "\n".join(p.output for p in launchers.values()))
        result = json.loads(jobs.marked(self.marks, "result"))
        self.assertEqual((result["world"], result["same"]), (2, True))

    def test_exception_under_record_on_the_second_host_is_reported_on_the_first(self):
        launchers = self.start(script("raises_record.py", self.marks, 1))
        self.assertEqual([p.wait(150) for p in launchers.values()], [5, 5], "\n".join(p.output for p in launchers.values()))
        first = jobs.report(self.net["a"].folder)["first_failure"]
        self.assertEqual((first["rank"], first["host"]), (1, "b"))
        self.assertIn("no samples left for rank 1", json.dumps(first["error"]))
        # As torchrun does, whoever started the launchers is told in the file that they were given.
        for host in self.net:
            error = json.loads(pathlib.Path(host.folder, "error.json").read_text())["message"]
            self.assertEqual((error["message"], error["errorCode"]),
                             ("RuntimeError: the dataset has no samples left for rank 1", 1))
            self.assertIn("Traceback", error["extraInfo"]["py_callstack"])
            self.assertGreater(int(error["extraInfo"]["timestamp"]), 0)

"""`--profile A..B`: a Chrome trace of every rank and a summary, of trainings and of Python programs that know nothing of it."""

import json
import os
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, train  # noqa: E402

DDP = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)))
optimizer = torch.optim.AdamW(model.parameters())
other = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 64), torch.randn(64, 8)), batch_size=8)
for x, y in data:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    other.step()
dist.destroy_process_group()
os._exit(0)  # PyTorch's threads sometimes abort an interpreter that shuts down on a busy machine
"""


class Profile(harness.Case):
    TIMEOUT = 120

    def nests(self, trace):
        """Perfetto drops events of a thread that overlap others in part."""
        threads = {}
        for event in trace["traceEvents"]:
            if event.get("ph") == "X":
                span = (event["ts"], event["ts"] + event["dur"], event["name"])
                threads.setdefault((event["pid"], event["tid"]), []).append(span)
        for spans in threads.values():
            around = []
            for begin, end, name in sorted(spans, key=lambda span: (span[0], -span[1])):
                while around and around[-1][1] <= begin:
                    around.pop()
                if around:
                    self.assertLessEqual(end, around[-1][1] + 0.002, f"{name} begins in {around[-1][2]}, which ends before it")
                around.append((begin, end, name))

    def check(self, run, steps, ranks=2):
        """What is common to all: traces that name their steps, and parts that add up."""
        summary = json.loads((run / "profile/summary.json").read_text())
        self.assertEqual([rank["rank"] for rank in summary["ranks"]], list(range(ranks)))
        for rank in summary["ranks"]:
            self.assertEqual(rank["steps"], len(steps))
            self.assertAlmostEqual(sum(rank["host"].values()), rank["seconds"], places=6)
            self.assertGreater(rank["host"]["forward"], 0)
            self.assertGreater(rank["host"]["backward"], 0)
            self.assertGreater(rank["host"]["optimizer"], 0)
            self.assertGreater(rank["host"]["data"], 0)
            self.assertGreater(rank["collective"], 0)
            self.assertLessEqual(rank["collective_exposed"], rank["collective"])
            self.assertTrue(rank["operators"])
            trace = json.loads((run / f"profile/rank-{rank['rank']}.json").read_text())
            named = sorted({event["name"] for event in trace["traceEvents"] if event.get("name", "").startswith("ProfilerStep#")})
            self.assertEqual(named, [f"ProfilerStep#{step}" for step in steps])
            self.nests(trace)
        text = (run / "profile/summary.txt").read_text()
        self.assertLess(len(text.splitlines()), 60, "one page")
        return text

    def test_python_program_with_ddp_is_traced_without_a_change_to_it(self):
        harness.require("torch")
        script = harness.write("train.py", DDP)
        own = harness.write("site/sitecustomize.py", "import builtins\nbuiltins.own_site = True\n").parent
        harness.write("train.py", "assert own_site\n" + DDP)
        done = harness.lockstep("run", "--nproc-per-node", "2", "--name", "run", "--profile", "3..4", script,
                                env=jobs.torch_env({"PYTHONPATH": str(own), "OMP_NUM_THREADS": "1"}))
        self.assertEqual(done.returncode, 0, done.stderr)
        text = self.check(self.tmp / "runs/run", [3, 4])
        self.assertIn(text.splitlines()[0], done.stderr)
        self.assertFalse((self.tmp / "runs/run/profile/hook").exists())

    def test_training_is_traced_by_the_same_flag(self):
        harness.require("torch")
        done = train.train("--profile", "3..4", sets={"train.steps": 6})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check(train.run_path(), [3, 4])
        self.assertIn("profile: step ", done.stdout)

    def test_steps_that_are_wrong_or_never_come_are_named(self):
        for steps in ("abc", "5..3", "0..2", "1..99999"):
            done = train.train("--profile", steps)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertRegex(done.stderr, rf"^lockstep train: --profile: expected .*, found '{steps}'")
        harness.require("torch")
        done = train.train("--profile", "9..10", ranks=1, sets={"train.steps": 2, "checkpoint.every": 0})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("there is no trace: it was to begin with step 9 of this process, which did 2", done.stdout + done.stderr)

    def test_programs_that_cannot_be_traced_run_as_ever(self):
        plain = harness.write("plain.py", "import json\nprint('done')\n")
        done = harness.lockstep("run", "--name", "plain", "--profile", "2..3", "--no-python", sys.executable, plain)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("there is no trace", done.stderr)
        for wrong in ("12..10", "0..3", "x", "1..5000", "3..", "-1..2"):
            done = harness.lockstep("run", f"--profile={wrong}", "--no-python", "true")
            self.assertEqual(done.returncode, 2, wrong)
            self.assertIn("--profile", done.stderr)

    def test_program_with_a_profiler_of_its_own_keeps_it_and_the_later_of_two_optimizers_is_followed(self):
        harness.require("torch")
        script = harness.write("own.py", "import os, torch\nbegin = (4, 0)[int(os.environ['RANK'])]\n"
                               "def optimizer():\n    return torch.optim.SGD([p])\n"
                               "p = torch.nn.Parameter(torch.ones(4))\n(p * 2).sum().backward()\noptimizer().step()\no = optimizer()\n"
                               "own = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])\n"
                               "for i in range(12):\n    if i == begin: own.start()\n    (p * 2).sum().backward()\n    o.step()\n"
                               "own.stop()\nassert any(e.key == 'aten::mul' for e in own.key_averages())\n")
        done = harness.lockstep("run", "--nproc-per-node", "2", "--name", "run", "--profile", "3..50", script, env=jobs.torch_env())
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank, words in enumerate(["the program runs torch's profiler itself from here on", "no trace: the program runs torch's profiler itself"]):
            self.assertIn(words, (self.tmp / f"runs/run/logs/attempt-0/node-0/rank-{rank}.log").read_text())
        summary = json.loads((self.tmp / "runs/run/profile/summary.json").read_text())
        self.assertEqual([(rank["rank"], rank["steps"]) for rank in summary["ranks"]], [(0, 3)])

    def test_program_that_ends_early_leaves_what_there_is(self):
        harness.require("torch")
        script = harness.write("short.py", "import torch\np = torch.nn.Parameter(torch.ones(4))\no = torch.optim.SGD([p])\n"
                               "for _ in range(4):\n    (p * 2).sum().backward()\n    o.step()\n")
        done = harness.lockstep("run", "--nproc-per-node", "1", "--name", "run", "--profile", "3..50", script, env=jobs.torch_env())
        self.assertEqual(done.returncode, 0, done.stderr)
        summary = json.loads((self.tmp / "runs/run/profile/summary.json").read_text())
        self.assertEqual([rank["steps"] for rank in summary["ranks"]], [2], os.listdir(self.tmp / "runs/run/profile"))

    def test_program_that_steps_in_threads_or_forks_is_not_harmed(self):
        harness.require("torch")
        script = harness.write("threads.py", "import os, sys, threading, torch\np = torch.nn.Parameter(torch.ones(4))\no = torch.optim.SGD([p])\n"
                               "def steps(n):\n    for _ in range(n):\n        with torch.profiler.record_function('iteration'):\n"
                               "            (p * 2).sum().backward()\n            o.step()\n"
                               "each = (4, 1)[int(os.environ['RANK'])]\nif os.fork() == 0:\n    sys.exit()\nos.wait()\n"
                               "for _ in range(8 // each):\n    thread = threading.Thread(target=steps, args=(each,))\n    thread.start()\n    thread.join()\n"
                               "print('done')\n")
        done = harness.lockstep("run", "--nproc-per-node", "2", "--name", "run", "--profile", "3..6", script, env=jobs.torch_env())
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank, words in enumerate(["the thread of these steps ended\n", "no trace: step 3 did not end\n"]):
            log = (self.tmp / f"runs/run/logs/attempt-0/node-0/rank-{rank}.log").read_text()
            self.assertIn(words, log)
            self.assertIn("done\n", log)
            self.assertNotIn("the program ended", log, "a child told of the trace")
        summary = json.loads((self.tmp / "runs/run/profile/summary.json").read_text())
        self.assertEqual([(rank["rank"], rank["steps"]) for rank in summary["ranks"]], [(0, 2)])
        self.nests(json.loads((self.tmp / "runs/run/profile/rank-0.json").read_text()))

    def test_program_whose_trace_cannot_end_where_it_began_is_not_harmed(self):
        harness.require("torch")
        script = harness.write("given_up.py", "import os, threading, torch\np = torch.nn.Parameter(torch.ones(4))\no = torch.optim.SGD([p])\n"
                               "def steps(n):\n    for _ in range(n):\n        (p * 2).sum().backward()\n        o.step()\n"
                               "if os.environ['RANK'] == '0':\n"
                               "    steps(4)\n    thread = threading.Thread(target=steps, args=(4,))\n    thread.start()\n    thread.join()\n"
                               "else:\n    p.register_post_accumulate_grad_hook(lambda p: o.step() and None)\n"
                               "    for _ in range(8):\n        (p * 2).sum().backward()\n"
                               "print('done')\n")
        done = harness.lockstep("run", "--nproc-per-node", "2", "--name", "run", "--profile", "3..6", script, env=jobs.torch_env())
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank, words in enumerate(["no trace: steps of the program run in several threads\n", "no trace: an optimizer steps inside of the backward\n"]):
            log = (self.tmp / f"runs/run/logs/attempt-0/node-0/rank-{rank}.log").read_text()
            self.assertIn(words, log)
            self.assertIn("done\n", log)

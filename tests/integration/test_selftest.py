"""`lockstep selftest` with real torch.distributed: stages that pass, and faults that really are there: a stopped rank, a
firewall, a cut link, a Python without torch."""

import json
import os
import signal
import subprocess
import sys
import time

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import netns, slurm  # noqa: E402

SMALL = ["--sizes", "8,64KiB", "--limit", "6"]


def venv():
    return ["--venv", os.path.dirname(os.path.dirname(harness.PYTHON))]


def stages(text):
    document = json.loads(text)
    return document, {stage["stage"]: stage for stage in document["stages"]}


def no_torch(tmp):
    """A folder for PYTHONPATH with which no torch is found."""
    folder = tmp / "no_torch"
    folder.mkdir()
    (folder / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    return str(folder)


class OneNode(harness.Case):
    def setUp(self):
        harness.require("torch")

    def test_every_stage_passes_and_speeds_are_told(self):
        done = harness.lockstep("selftest", *venv(), "--nproc-per-node", "4", "--scale", "--json", *SMALL)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        document, by_name = stages(done.stdout)
        self.assertTrue(document["ok"])
        self.assertEqual(list(by_name), ["1 process", "2 processes", "one node"])
        result = by_name["one node"]["result"]
        self.assertEqual([row["bytes"] for row in result["sizes"]], [8, 65536])
        for row in result["sizes"]:  # nccl-tests' factor
            self.assertAlmostEqual(row["busbw"], row["bytes"] / row["us"] / 1e3 * 2 * 3 / 4, delta=0.02 + 0.05 * row["busbw"])
        self.assertEqual([row["ranks"] for row in result["scale"]], [1, 2, 4])
        self.assertTrue(all(check["ok"] for check in result["checks"]))
        self.assertGreaterEqual(len(result["checks"]), 8)
        self.assertEqual(len(result["pairs"]), 12, "every pair, both ways")
        self.assertIsNone(by_name["one node"]["link"], "memory of a host has no figure to compare with")

    def test_a_stopped_rank_is_named(self):
        selftest = subprocess.Popen([harness.PROGRAM, "selftest", *venv(), "--nproc-per-node", "2", "--json", "--sizes",
                                     "8,16MiB,64MiB", "--limit", "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    text=True, env=harness.clean_env({"TMPDIR": str(self.tmp)}), cwd=self.tmp)
        pid = self.wait_for_rank(selftest, 1)
        os.kill(pid, signal.SIGSTOP)
        out, err = selftest.communicate(timeout=90)
        self.assertEqual(selftest.returncode, 3, err)
        _, by_name = stages(out)
        self.assertTrue(by_name["1 process"]["ok"])
        self.assertFalse(by_name["one node"]["ok"])
        self.assertRegex(by_name["one node"]["error"], rf"rank 1 \(node 0, .*pid {pid}\).*does not answer")

    def wait_for_rank(self, selftest, rank):
        """The process of that rank of the stage with two ranks, once it measures."""
        folder = f"{self.tmp}/lockstep-selftest-{selftest.pid}/stage-2"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if selftest.poll() is not None:
                self.fail(f"selftest ended early: {selftest.communicate()}")
            try:
                with open(f"{folder}/progress") as file:
                    if "all-reduce of 8 B" in file.read():
                        break
            except OSError:
                pass
            time.sleep(0.02)

        def wanted(pid):
            with open(f"/proc/{pid}/environ", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read()
            return folder.encode() in command and b"selftest.py" in command and f"RANK={rank}".encode() in words
        found = netns.live_processes(wanted)
        self.assertTrue(found, "no such rank")
        return found[0]

    def test_without_torch_the_engine_is_tested_instead_by_the_program_that_is_named(self):
        mine = harness.write("my-train", f'#!/bin/sh\n[ "$1" != selftest ] || touch {self.tmp}/used\nexec {harness.BIN}/lockstep-train "$@"\n', 0o755)
        done = harness.lockstep("selftest", "--nproc-per-node", "2", "--json", "--program", mine, *SMALL,
                                env={"PYTHON_EXEC": "/usr/bin/python3", "PYTHONPATH": no_torch(self.tmp)})
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        _, by_name = stages(done.stdout)
        self.assertEqual(by_name["one node"]["result"]["backend"], "engine")
        self.assertGreater(by_name["one node"]["result"]["sizes"][1]["busbw"], 0)
        self.assertTrue((self.tmp / "used").exists())

    def test_what_is_missing_is_said_and_what_to_do(self):
        env = {"PYTHON_EXEC": "/usr/bin/python3", "PYTHONPATH": no_torch(self.tmp)}
        for words, said in ((["--backend", "gloo"], r"no torch \(/\S*python3\S*\); do: install it"),
                            (["--venv", str(self.tmp / "none")], r"none: no such folder; do: make it")):
            done = harness.lockstep("selftest", "--nproc-per-node", "1", "--json", *words, env=env)
            self.assertEqual(done.returncode, 3, done.stderr + done.stdout)
            self.assertRegex(stages(done.stdout)[1]["1 process"]["error"], said)

    def test_nccl_without_a_gpu_is_said_in_plain_words(self):
        done = harness.lockstep("selftest", *venv(), "--nproc-per-node", "1", "--json", "--backend", "nccl", *SMALL,
                                env={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(done.returncode, 3, done.stderr + done.stdout)
        self.assertRegex(stages(done.stdout)[1]["1 process"]["error"], r"NCCL needs a GPU .*rank 0 .* has none .*--backend gloo")

    def test_wrong_flags_are_usage(self):
        for words in (["--sizes", "many"], ["--backend", "mpi"], ["--limit", "-1"], ["train.py"], ["--nproc-per-node", "zero"], ["--program", "/bin/true"]):
            done = harness.lockstep("selftest", *words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn("lockstep selftest: ", done.stderr)


class Nodes(harness.Case):
    def setUp(self):
        harness.require("netns")
        harness.require("torch")

    def net(self, *names):
        net = netns.Net(list(names))
        self.addCleanup(net.close)
        return net

    def start(self, net, names, **env_of):
        running = []
        for i, name in enumerate(names):
            argv = [harness.PROGRAM, "selftest", *venv(), "--json", "--nnodes", str(len(names)), "--node-rank", str(i),
                    "--nproc-per-node", "1", "--master-addr", names[0], "--master-port", "29400", *SMALL]
            running.append(net[name].popen(argv, env=harness.clean_env({"TMPDIR": str(self.tmp), **env_of.get(name, {})}), stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True))
        return running

    def finish(self, running):
        out = []
        for process in running:
            text, err = process.communicate(timeout=110)
            out.append((process.returncode, text, err))
        return out

    def test_two_nodes_whose_own_names_are_loopback_pass(self):
        net = self.net("a", "b")  # as Debian installs them
        net["a"].write_hosts({"a": "127.0.1.1", "b": net["b"].address})
        net["b"].write_hosts({"a": net["a"].address, "b": "127.0.1.1"})
        (code, text, err), (other, _, _) = self.finish(self.start(net, ["a", "b"]))
        self.assertEqual((code, other), (0, 0), err + text)
        _, by_name = stages(text)
        self.assertEqual(list(by_name), ["1 process", "all nodes"])
        self.assertEqual(by_name["all nodes"]["ranks"], 2)
        self.assertGreater(by_name["all nodes"]["result"]["sizes"][1]["busbw"], 0)

    def test_a_firewall_that_rejects_is_not_taken_for_a_dead_process(self):
        harness.require("nft")
        net = self.net("a", "b", "c")
        rules = (f"table inet guard {{ chain in {{ type filter hook input priority 0; ip saddr {net['c'].address} "
                 "meta l4proto tcp ct state new reject; }; }")
        net["b"].run(["nft", rules], check=True)
        ended = self.finish(self.start(net, ["a", "b", "c"]))
        self.assertEqual([code for code, _, _ in ended], [3, 3, 3], ended[0][1] + ended[0][2])
        _, by_name = stages(ended[0][1])
        self.assertRegex(by_name["all nodes"]["error"], r"no link from rank 2 \(node 2, c,.* to rank 1 \(node 1, b,.*firewall")
        self.assertEqual(by_name["all nodes"]["result"]["blame"]["nodes"], [1, 2])

    def test_the_one_node_without_torch_is_named(self):
        net = self.net("a", "b")
        ended = self.finish(self.start(net, ["a", "b"], b={"PYTHONPATH": no_torch(self.tmp)}))
        self.assertEqual([code for code, _, _ in ended], [3, 3], ended)
        for _, text, _ in ended:
            self.assertRegex(stages(text)[1]["all nodes"]["error"], r"rank 1 on node 1 \(b\).*the job's Python has no torch")

    def test_nodes_without_torch_test_the_engine(self):
        net = self.net("a", "b")
        bare = {"PYTHONPATH": no_torch(self.tmp)}
        (code, text, err), (other, _, _) = self.finish(self.start(net, ["a", "b"], a=bare, b=bare))
        self.assertEqual((code, other), (0, 0), err + text)
        self.assertEqual(stages(text)[1]["all nodes"]["result"]["backend"], "engine")

    def test_a_link_that_loses_everything_names_the_pair(self):
        net = self.net("a", "b", "c")
        # b and c both reach the master, but what they send each other goes to a card that does not exist.
        for one, other in (("b", "c"), ("c", "b")):
            done = net[one].run(["ip", "neigh", "replace", net[other].address, "lladdr", "02:00:00:00:00:99", "dev", "eth0",
                                 "nud", "permanent"])
            self.assertEqual(done.returncode, 0, done.stderr)
        ended = self.finish(self.start(net, ["a", "b", "c"]))
        self.assertEqual([code for code, _, _ in ended], [3, 3, 3], ended[0][1] + ended[0][2])
        _, by_name = stages(ended[0][1])
        self.assertTrue(by_name["1 process"]["ok"])
        error = by_name["all nodes"]["error"]
        self.assertRegex(error, r"rank [12] \(node [12], [bc],.* to rank [12] \(node [12], [bc],", error)
        self.assertEqual(by_name["all nodes"]["result"]["blame"]["nodes"], [1, 2])

    def test_a_node_that_fails_alone_is_named_to_the_others(self):
        net = self.net("a", "b")
        broken = self.tmp / "broken"
        broken.mkdir()
        # b's installation is broken in one place; a's is whole.
        (broken / "sitecustomize.py").write_text(
            "try:\n    import torch.distributed as d\nexcept ImportError:\n    d = None\n"
            "def gone(*a, **k):\n    raise RuntimeError('broken installation')\n"
            "if d is not None:\n    d.all_gather = gone\n")
        running = self.start(net, ["a", "b"], b={"PYTHONPATH": str(broken)})
        ended = self.finish(running)
        self.assertEqual([code for code, _, _ in ended], [3, 3], ended)
        _, by_name = stages(ended[0][1])
        self.assertTrue(by_name["1 process"]["ok"], "node a itself is well")
        self.assertRegex(by_name["all nodes"]["error"], r"node 1 \(b\) failed by itself: .*broken installation")


class UnderSlurm(harness.Case):
    def test_one_task_per_node_tests_each_node_and_then_both(self):
        harness.require("slurm", "netns", "torch")
        bed = slurm.Slurm()
        self.addCleanup(bed.close)
        done = bed.run(["srun", "-N2", "--ntasks-per-node=1", harness.PROGRAM, "selftest", *venv(), "--nproc-per-node", "1", *SMALL],
                       env={"TMPDIR": str(self.tmp)})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("all nodes", done.stdout)
        self.assertEqual(done.stdout.count("all stages passed"), 1, "node 0 speaks for both")

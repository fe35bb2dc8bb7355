"""Samples of nodes, GPUs, ranks and links in the run directory of node 0 (docs/formats/samples.md)."""

import json
import pathlib
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, netns  # noqa: E402

FAKE_NVML = harness.ROOT / "build" / "release" / "tests" / "libfake_nvml.so"


def samples(folder, node=0):
    return [line for path in (pathlib.Path(folder) / "runs").glob(f"*/telemetry/node-{node}.jsonl") for line in harness.read_jsonl(path)]


def full(line, ranks):
    """Whether each rank of the line has told of its steps."""
    return len(line.get("ranks", [])) == ranks and all(rank.get("steps", 0) > 1 for rank in line["ranks"])


class OneNode(harness.Case):
    TIMEOUT = 60

    def start(self, *args, env=None, program="metric_lines.py", ranks=2):
        self.stop = self.tmp / "stop"
        return harness.Process([harness.PROGRAM, "run", f"--nproc-per-node={ranks}", "--name=r", *args, *jobs.program(program, self.stop)],
                               cwd=self.tmp, env=env)

    def test_a_run_has_samples_of_its_machine_gpus_and_ranks(self):
        launcher = self.start(env={"LOCKSTEP_NVML": str(FAKE_NVML), "LOCKSTEP_FAKE_NVML": "GPU-aaa;throttle=0x40,GPU-bbb;xid=94"})
        line = harness.wait_until(lambda: next((s for s in samples(self.tmp) if full(s, 2)), None), 40, "a sample with steps")
        self.stop.touch()
        self.assertEqual(launcher.wait(30), 0, launcher.output)
        self.assertEqual([(g["gpu"], g["uuid"], g["power_limit"], g.get("throttle"), g.get("xid")) for g in line["gpus"]],
                         [(0, "GPU-aaa", 700, ["hw thermal slowdown"], None), (1, "GPU-bbb", 700, None, 94)])
        for rank in line["ranks"]:
            self.assertAlmostEqual(rank["seconds"]["step"], 0.05 * rank["steps"], places=6)
            self.assertAlmostEqual(rank["seconds"]["data"], 0.01 * rank["steps"], places=6)
            self.assertEqual((rank["gpu"], rank["wait_peer"]), (rank["rank"], 1 - rank["rank"]))
            self.assertGreater(rank["rss"], 1 << 20)
        self.assertGreater(line["cpu"]["percent"], 0)
        self.assertGreater(line["memory"]["total"], line["memory"]["used"])
        self.assertNotIn("links", line)  # one node needs none

    def test_samples_can_be_switched_off(self):
        launcher = self.start("--sample-every=off")
        harness.wait_until(lambda: list(self.tmp.glob("runs/r/metrics/rank-1.jsonl")), 30, "metric lines")
        self.stop.touch()
        self.assertEqual(launcher.wait(30), 0, launcher.output)
        self.assertFalse((self.tmp / "runs/r/telemetry").exists())
        wrong = harness.lockstep("run", "--sample-every=1ms", "true", cwd=self.tmp)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("at least 100ms", wrong.stderr)

    def test_a_program_without_metric_lines_has_the_steps_of_its_log(self):
        launcher = self.start("--sample-every=200ms", program="log_steps.py", ranks=1)
        found = harness.wait_until(lambda: next((s for s in samples(self.tmp) if s["ranks"] and s["ranks"][0].get("seconds")), None),
                                   40, "a sample with steps of the log")
        self.stop.touch()
        self.assertEqual(launcher.wait(30), 0, launcher.output)
        rank = found["ranks"][0]
        self.assertGreater(rank["seconds"]["step"] / rank["steps"], 0.04)

    def test_a_full_disk_ends_nothing(self):
        (self.tmp / "runs" / "r").mkdir(parents=True)
        (self.tmp / "runs" / "r" / "telemetry").write_text("in the way")
        (self.tmp / "runs" / "r" / "events.jsonl").write_text("")
        launcher = self.start("--sample-every=100ms")
        harness.wait_until(lambda: list(self.tmp.glob("runs/r/metrics/rank-1.jsonl")), 30, "metric lines")
        self.stop.touch()
        self.assertEqual(launcher.wait(30), 0, launcher.output)


class SeveralNodes(harness.Case):
    TIMEOUT = 90

    def test_node_0_has_the_samples_of_all_nodes_without_shared_storage(self):
        harness.require("netns")
        net = netns.Net(["a", "b"])
        self.addCleanup(net.close)
        stop = self.tmp / "stop"
        launchers = jobs.over(net, ["a", "b"], ["--nproc-per-node=2", "--name=r"], jobs.program("metric_lines.py", stop))
        try:
            def there():
                found = [next((s for s in samples(net["a"].folder, node) if full(s, 2) and s.get("links")), None) for node in range(2)]
                return found if all(found) else None
            lines = harness.wait_until(there, 60, "samples of both nodes")
        finally:
            stop.touch()
        self.assertEqual([launcher.wait(60) for launcher in launchers.values()], [0, 0])
        self.assertEqual([[rank["rank"] for rank in line["ranks"]] for line in lines], [[0, 1], [2, 3]])
        self.assertEqual([line["host"] for line in lines], ["a", "b"])
        for line in lines:
            self.assertEqual([link["kind"] for link in line["links"]], ["ethernet"], json.dumps(line))
            self.assertGreater(line["links"][0]["bytes_in"], 0)
        self.assertFalse(list((pathlib.Path(net["b"].folder) / "runs").glob("*/telemetry")))
        self.assertEqual(lines[1]["dropped"], 0)

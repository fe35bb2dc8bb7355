"""After a failure `lockstep run` says why, writes it into the report, and lets it decide about a restart."""

import json
import socket
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, netns  # noqa: E402


def said(text):
    """The diagnosis as printed: the lines after the log's, before the run directory's."""
    lines = text.splitlines()
    first = max(i for i, line in enumerate(lines) if line.startswith("  log: "))
    last = max(i for i, line in enumerate(lines) if line.startswith("lockstep: run directory"))
    return lines[first + 1:last]


class Diagnosis(harness.Case):
    def run_script(self, text, *flags, nproc=2):
        script = harness.write("train.py", text)
        return harness.lockstep("run", "--nproc-per-node", nproc, "--backoff", "20ms", "--grace", "2s", *flags, "--no-python",
                                jobs.PYTHON3, "-u", script)

    def test_failed_run_prints_the_cause_in_ten_lines_and_reports_it(self):
        done = self.run_script("""
import os, time
print("loading")
if os.environ["RANK"] == "1":
    def load(path):
        return {"a": 1}[path]
    load("pixels")
time.sleep(60)
""")
        self.assertEqual(done.returncode, 5, done.stderr)
        report = jobs.report(self.tmp)
        found = report["diagnosis"]
        self.assertEqual((found["verdict"], found["rank"], found["node"]), ("failure", 1, socket.gethostname()))
        self.assertIn("KeyError", json.dumps(found["cause"]) + json.dumps(found["evidence"]))
        line = found["evidence"][0]
        self.assertEqual(jobs.logs(self.tmp, 1).splitlines()[line["line"] - 1].strip(), "KeyError: 'pixels'")
        self.assertEqual(report["do"], found["remedy"])
        self.assertLessEqual(len(said(done.stderr)), 10, done.stderr)
        self.assertIn("KeyError", "\n".join(said(done.stderr)))
        self.assertEqual(len(jobs.events(self.tmp, "diagnosis")), 1)

    def test_error_of_the_program_before_progress_is_not_restarted_although_there_is_a_budget(self):
        done = self.run_script("import a_module_nobody_has\n", "--max-restarts", "3")
        self.assertEqual(done.returncode, 5, done.stderr)
        report = jobs.report(self.tmp)
        self.assertEqual(report["attempts"], 1, done.stderr)
        self.assertEqual(report["diagnosis"]["restart"], "no")
        self.assertIn("a restart would only repeat it", report["reason"])

    def test_failure_that_may_pass_is_restarted(self):
        done = self.run_script("""
import os, sys
if os.environ["LOCKSTEP_ATTEMPT"] == "0":
    raise ConnectionResetError(104, "Connection reset by peer")
""", "--max-restarts", "3", nproc=1)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(jobs.report(self.tmp)["attempts"], 2)

    def test_sure_error_after_progress_is_given_one_more_chance(self):
        done = self.run_script("""
for step in range(5):
    print(f"step {step}/10 | loss 1.0")
import a_module_nobody_has
""", "--max-restarts", "5", nproc=1)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertEqual(jobs.report(self.tmp)["attempts"], 2, done.stderr)
        self.assertIn("second time", jobs.report(self.tmp)["reason"])

    def test_success_has_no_diagnosis(self):
        done = harness.lockstep("run", "--no-python", "true")
        self.assertEqual(done.returncode, 0)
        self.assertIsNone(jobs.report(self.tmp)["diagnosis"])
        self.assertEqual(jobs.events(self.tmp, "diagnosis"), [])

    def test_line_numbers_hold_in_a_log_longer_than_what_is_sent(self):
        done = self.run_script("""
for i in range(20000):
    print("a line of no importance, number", i)
raise RuntimeError("the end of a long story")
""", nproc=1)
        self.assertEqual(done.returncode, 5, done.stderr)
        line = jobs.report(self.tmp)["diagnosis"]["evidence"][0]
        self.assertIn("the end of a long story", jobs.logs(self.tmp, 0).splitlines()[line["line"] - 1])


class TwoNodes(harness.Case):
    def test_cause_on_the_other_node_is_found_in_what_it_sent(self):
        harness.require("netns")
        net = netns.Net(["a", "b"])
        self.addCleanup(net.close)
        script = harness.write("train.py", """
import os, time
if os.environ["RANK"] == "1":
    raise PermissionError(13, "Permission denied", "/data/labels.json")
time.sleep(60)
""")
        launchers = jobs.over(net, ["a", "b"], ["--nproc-per-node=1", "--grace=2s"],
                              ["--no-python", jobs.PYTHON3, "-u", str(script)])
        self.assertEqual([p.wait() for p in launchers.values()], [5, 5], launchers["a"].output)
        found = jobs.report(net["a"].folder)["diagnosis"]
        self.assertEqual((found["verdict"], found["rank"], found["node"]), ("failure", 1, "b"))
        self.assertIn("/data/labels.json", json.dumps(found))

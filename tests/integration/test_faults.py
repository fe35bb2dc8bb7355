"""Hosts and launchers that vanish: killed, cut off, starved. Every other node hears of it, ends, and says why."""

import json
import os
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, netns  # noqa: E402


class _Job(harness.Case):
    TIMEOUT = 120
    NAMES = ["a", "b"]
    FLAGS = ["--nproc-per-node=1", "--grace=2s", "--node-timeout=8s"]

    def setUp(self):
        harness.require("netns")
        self.net = netns.Net(self.NAMES)
        self.addCleanup(self.net.close)
        self.marks = self.tmp / "marks"

    def start(self, name="grandchild.py", *args, flags=(), nproc=1):
        self.launchers = jobs.over(self.net, self.NAMES, [*self.FLAGS, *flags], jobs.program(name, self.marks, *args))
        world = nproc * len(self.NAMES)
        self.pids = [int(p) for p in jobs.wait_marks(self.marks, world, launcher=self.launchers["a"])]
        if name == "grandchild.py":
            self.pids += [int(p) for p in jobs.wait_marks(self.marks, world, "daemon")]
        return self.launchers

    def text(self):
        return "\n".join(f"--- {name}\n{p.output}" for name, p in self.launchers.items())

    def nothing_left(self, *names):
        for name in names or self.NAMES:
            host = self.net[name]
            harness.wait_until(lambda: not host.processes(), 20,
                               f"no process on {name}, where there are {[jobs.harness.leftovers().get(p) for p in host.processes()]}")


class Killed(_Job):
    def test_killed_rank_on_one_node_stops_the_other_node_and_its_last_words_travel(self):
        self.launchers = jobs.over(self.net, self.NAMES, self.FLAGS, jobs.program("fail.py", self.marks, 1, "SIGKILL"))
        codes = [p.wait() for p in self.launchers.values()]
        self.assertEqual(codes, [5, 5], self.text())
        first = jobs.report(self.net["a"].folder)["first_failure"]
        self.assertEqual((first["rank"], first["node"], first["host"]), (1, 1, "b"))
        self.assertIn("SIGKILL", json.dumps(first))
        self.assertIn("rank 1 is about to fail: SIGKILL", json.dumps(first["last_lines"]))
        self.assertIn("about to fail: SIGKILL", self.launchers["a"].stderr)
        self.nothing_left()

    def test_killed_launcher_is_seen_at_once_and_everything_ends_with_6(self):
        launchers = self.start()
        victim = jobs.launcher_pid(launchers["b"].pid)
        os.kill(victim, signal.SIGKILL)
        self.assertEqual(launchers["a"].wait(20), 6, self.text())
        self.assertRegex(launchers["a"].stderr, rf"node 1.*pid {victim} on b")
        self.assertNotIn("suspect", launchers["a"].stderr)
        self.nothing_left()

    def test_killed_first_launcher_ends_the_other_node_with_6(self):
        launchers = self.start()
        os.kill(jobs.launcher_pid(launchers["a"].pid), signal.SIGKILL)
        self.assertEqual(launchers["b"].wait(20), 6, self.text())
        self.assertRegex(launchers["b"].stderr, r"node 0")
        self.nothing_left()

    def test_killed_guardian_of_one_node_stops_the_job_everywhere(self):
        launchers = self.start()
        os.kill(launchers["b"].pid, signal.SIGKILL)
        self.assertNotEqual(launchers["a"].wait(20), 0, self.text())
        self.nothing_left()

    def test_sigterm_at_any_node_stops_all_nodes_with_the_same_code(self):
        launchers = self.start("signals.py")
        launchers["b"].send_signal(signal.SIGTERM)
        self.assertEqual([p.wait() for p in launchers.values()], [143, 143], self.text())
        self.assertEqual([jobs.marked(self.marks, "signals", r) for r in range(2)], ["SIGTERM\n", "SIGTERM\n"])
        self.nothing_left()

    def test_forwarded_signal_reaches_ranks_of_all_nodes(self):
        launchers = self.start("signals.py")
        launchers["a"].send_signal(signal.SIGUSR1)
        harness.wait_until(lambda: "SIGUSR1" in (jobs.marked(self.marks, "signals", 0) or ""))
        self.assertTrue(all(p.alive() for p in launchers.values()))
        launchers["a"].send_signal(signal.SIGTERM)
        self.assertEqual([p.wait() for p in launchers.values()], [143, 143], self.text())

    def test_ranks_that_end_with_0_when_told_to_stop_have_not_succeeded(self):
        launchers = self.start("signals.py", 0)
        launchers["b"].send_signal(signal.SIGINT)
        self.assertEqual([p.wait() for p in launchers.values()], [130, 130], self.text())
        report = jobs.report(self.net["a"].folder)
        self.assertEqual((report["outcome"], report["exit_code"]), ("stopped", 130))

    def test_state_saved_on_all_nodes_exits_75_everywhere(self):
        launchers = self.start("exit75.py")
        launchers["a"].send_signal(signal.SIGTERM)
        self.assertEqual([p.wait() for p in launchers.values()], [75, 75], self.text())

    def test_restart_over_nodes_is_a_new_round_with_a_new_port(self):
        self.launchers = jobs.over(self.net, self.NAMES, [*self.FLAGS, "--max-restarts=2", "--backoff=50ms"],
                                   jobs.program("metric_then_fail.py", self.marks, 1))
        self.assertEqual([p.wait() for p in self.launchers.values()], [0, 0], self.text())
        ports = [[jobs.marked(self.marks, f"attempt-{a}", rank) for rank in range(2)] for a in range(2)]
        self.assertEqual([len(set(p)) for p in ports], [1, 1], ports)
        self.assertNotEqual(ports[0][0], ports[1][0])
        self.nothing_left()

    def test_second_ctrl_c_at_one_node_kills_deaf_ranks_of_all_nodes(self):
        launchers = self.start("ignore_term.py", flags=("--grace=300s",))

        def pressed():
            launchers["b"].send_signal(signal.SIGINT)
            return not launchers["b"].alive() and not launchers["a"].alive()

        harness.wait_until(pressed, 40, "the end by repeated Ctrl-C")
        self.assertEqual([p.wait() for p in launchers.values()], [130, 130], self.text())
        self.nothing_left()

    def test_lost_node_can_be_replaced_when_restarts_are_left(self):
        launchers = self.start("signals.py", 0, flags=("--max-restarts=2", "--backoff=50ms", "--join-timeout=40s"))
        os.kill(jobs.launcher_pid(launchers["b"].pid), signal.SIGKILL)
        launchers["b"].wait()
        launchers["a"].wait_for("waiting for a replacement")
        for rank in range(2):
            (self.marks / f"ready.{rank}").unlink()
        newcomer = jobs.on(self.net["b"], "run", "--nnodes=2", "--node-rank=1", "--master-addr=a", "--master-port=29500",
                           *self.FLAGS, *jobs.program("signals.py", self.marks, 0))
        jobs.wait_marks(self.marks, 2, launcher=newcomer)
        launchers["a"].send_signal(signal.SIGTERM)
        self.assertEqual((launchers["a"].wait(), newcomer.wait()), (143, 143), self.text() + newcomer.output)
        self.assertEqual([e["attempt"] for e in jobs.events(self.net["a"].folder, "attempt_started")], [0, 1])

    def test_killed_guardian_of_a_node_that_still_waits_ends_its_launcher(self):
        one = jobs.on(self.net["b"], "run", "--nnodes=2", "--node-rank=1", "--master-addr=a", "--master-port=29500",
                      "--no-python", "true")
        self.launchers = {"b": one}
        jobs.launcher_pid(one.pid)
        one.kill()
        one.wait()
        self.nothing_left("b")

    def test_killed_guardian_of_the_first_node_while_it_waits_ends_its_launcher(self):
        one = jobs.on(self.net["a"], "run", "--nnodes=2", "--node-rank=0", "--master-addr=a", "--master-port=29500",
                      "--no-python", "true")
        self.launchers = {"a": one}
        jobs.launcher_pid(one.pid)
        one.kill()
        one.wait()
        self.nothing_left("a")

    def test_launcher_that_dies_during_the_gathering_frees_its_seat(self):
        one = jobs.on(self.net["b"], "run", "--nnodes=2", "--node-rank=1", "--master-addr=a", "--master-port=29500",
                      "--no-python", "true")
        self.launchers = {"b": one}
        os.kill(jobs.launcher_pid(one.pid), signal.SIGKILL)
        one.wait()
        self.launchers = jobs.over(self.net, self.NAMES, [], ["--no-python", "true"])
        self.assertEqual([p.wait() for p in self.launchers.values()], [0, 0], self.text())


class CutOff(_Job):
    def test_cut_cable_of_the_second_node_is_suspected_then_lost(self):
        launchers = self.start()
        self.net["b"].cut()
        launchers["a"].wait_for("suspect", 30)
        self.assertTrue(launchers["a"].alive(), "suspected is not lost")
        # The cut-off node decides the same for itself: it cannot know that it is the one that was lost.
        self.assertEqual([p.wait(40) for p in launchers.values()], [6, 6], self.text())
        self.assertRegex(launchers["a"].stderr, r"node 1")
        self.nothing_left()
        self.assertTrue(jobs.events(self.net["a"].folder, "node_suspected"))
        self.assertTrue(jobs.events(self.net["a"].folder, "node_lost"))

    def test_short_interruption_is_survived_and_said(self):
        launchers = self.start("signals.py", flags=("--node-timeout=60s",))
        self.net["b"].cut()
        launchers["a"].wait_for("suspect", 30)
        self.net["b"].restore()
        launchers["a"].wait_for("back", 30)
        launchers["a"].send_signal(signal.SIGTERM)
        self.assertEqual([p.wait() for p in launchers.values()], [143, 143], self.text())


class EveryCut(harness.Case):
    """One bed per way to lose the network, all at the same time. The coordinator is on a."""

    TIMEOUT = 120

    def jobs(self, victim, timeout):
        """{name of the cut: (net, launchers)}; the network of `victim` is cut in each once its ranks run."""
        harness.require("netns", "nft")
        beds = {}
        for name in netns.Host.CUTS:
            net = netns.Net(["a", "b"])
            self.addCleanup(net.close)
            marks = os.path.join(net.folder, "marks")
            flags = ["--nproc-per-node=1", "--grace=1s", f"--node-timeout={timeout}"]
            beds[name] = net, jobs.over(net, "ab", flags, jobs.program("signals.py", marks))
        for name, (net, launchers) in beds.items():
            jobs.wait_marks(os.path.join(net.folder, "marks"), 2, launcher=launchers["a"])
            netns.Host.CUTS[name](net[victim])
        return beds

    def all_end(self, beds, expected):
        for name, (net, launchers) in beds.items():
            with self.subTest(name):
                text = "\n".join(f"--- {host}\n{p.output}" for host, p in launchers.items())
                self.assertEqual([p.wait(30) for p in launchers.values()], expected, text)
                harness.wait_until(lambda: not net.processes(), 20, "the end of all ranks")

    def test_at_the_second_node_ends_both_with_6(self):
        beds = self.jobs("b", "4s")
        self.all_end(beds, [6, 6])
        for name, (net, launchers) in beds.items():
            with self.subTest(name):
                report = jobs.report(net["a"].folder)
                self.assertEqual((report["end"], report["nnodes"], report["diagnosis"]["signature"]),
                                 ("node_lost", 2, "node-lost"))
                self.assertNotIn("SIGTERM", json.dumps([report["reason"], report["do"], report["diagnosis"]]))
                self.assertIn(report["do"], launchers["a"].stderr)

    def test_at_the_first_node_ends_both_with_6(self):
        self.all_end(self.jobs("a", "4s"), [6, 6])

    def test_does_not_keep_a_job_from_being_stopped(self):
        # Long before the nodes would be lost, and with ranks that would run for ever.
        beds = self.jobs("b", "3600s")
        for _, launchers in beds.values():
            for launcher in launchers.values():
                launcher.send_signal(signal.SIGTERM)
        self.all_end(beds, [143, 143])


class Starved(_Job):
    def test_starved_nodes_are_not_declared_lost(self):
        launchers = self.start("signals.py", flags=("--node-timeout=4s",))
        hogs = []
        for host in self.net:  # both: neither may blame the other for its own lack of time
            mine = [host.popen(["sh", "-c", "while :; do :; done"]) for _ in range(4)]
            harness.wait_until(lambda: all(h.pid in host.processes() for h in mine))
            host.starve(2)
            hogs += mine
        self.passes(8)
        self.assertTrue(launchers["a"].alive() and launchers["b"].alive(), self.text())
        self.assertNotRegex(self.text(), r"lost node")
        for host in self.net:
            host.feed()
        for hog in hogs:
            hog.kill()
            hog.wait()
        launchers["a"].send_signal(signal.SIGTERM)
        self.assertEqual([p.wait() for p in launchers.values()], [143, 143], self.text())

    def test_stopped_launcher_is_said_and_not_declared_lost(self):
        launchers = self.start("signals.py", flags=("--node-timeout=3s",))
        stopped = jobs.launcher_pid(launchers["b"].pid)
        os.kill(stopped, signal.SIGSTOP)
        launchers["a"].wait_for("not counted as lost", 40)
        self.assertTrue(launchers["a"].alive())
        os.kill(stopped, signal.SIGCONT)
        launchers["a"].wait_for("runs again", 30)
        launchers["a"].send_signal(signal.SIGTERM)
        self.assertEqual([p.wait() for p in launchers.values()], [143, 143], self.text())

    def passes(self, seconds):
        """The fault is the passage of time itself here: nothing else can be waited for."""
        import time
        end = time.monotonic() + seconds
        harness.wait_until(lambda: time.monotonic() > end or not self.launchers["a"].alive(), seconds + 30)

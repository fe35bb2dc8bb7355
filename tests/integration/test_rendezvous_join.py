"""Launchers on several hosts finding each other: who joined, who is missing, who does not belong here."""

import json
import os
import pathlib
import re
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, netns  # noqa: E402


FAKE_NVML = harness.ROOT / "build" / "release" / "tests" / "libfake_nvml.so"


class _Hosts(harness.Case):
    TIMEOUT = 90
    NAMES = ["a", "b"]

    def setUp(self):
        harness.require("netns")
        self.net = netns.Net(self.NAMES)
        self.addCleanup(self.net.close)
        self.marks = self.tmp / "marks"

    def over(self, args=(), program=("--no-python", "true"), names=None, per_host=None, env=None):
        return jobs.over(self.net, names or self.NAMES, list(args), list(program), per_host, env)

    def node(self, name, rank, *args, program=("--no-python", "true"), nnodes=2, master="a", env=None):
        return jobs.on(self.net[name], "run", f"--nnodes={nnodes}", f"--node-rank={rank}", f"--master-addr={master}",
                       "--master-port=29500", *args, *program, env=env)

    def codes(self, launchers, seconds=60):
        return [launcher.wait(seconds) for launcher in launchers.values()]

    def all_output(self, launchers):
        return "\n".join(f"--- {name}\n{launcher.output}" for name, launcher in launchers.items())


class Loopback(_Hosts):
    def test_node_0_that_calls_itself_localhost_is_reached_by_the_ranks_of_others(self):
        launchers = {"a": self.node("a", 0, master="localhost", program=jobs.program("show_env.py", self.marks)),
                     "b": self.node("b", 1, master="a", program=jobs.program("show_env.py", self.marks))}
        self.assertEqual(self.codes(launchers), [0, 0], self.all_output(launchers))
        seen = [json.loads(jobs.marked(self.marks, "env", rank))["env"] for rank in range(2)]
        self.assertEqual([s["MASTER_ADDR"] for s in seen], ["localhost", "a"])

    def test_two_nodes_on_one_host_share_it(self):
        env = {"LOCKSTEP_NVML": str(FAKE_NVML), "LOCKSTEP_FAKE_NVML": "GPU-a,GPU-b,GPU-c,GPU-d,GPU-e"}
        launchers = {rank: self.node("a", rank, "--nproc-per-node=2", master="127.0.0.1", env=env,
                                     program=jobs.program("show_env.py", self.marks)) for rank in range(2)}
        self.assertEqual(self.codes(launchers), [0, 0], self.all_output(launchers))
        for launcher in launchers.values():
            self.assertIn("all of them are launchers on this host", launcher.stderr)
        seen = [json.loads(jobs.marked(self.marks, "env", rank))["env"] for rank in range(4)]
        self.assertEqual([(s["LOCAL_RANK"], s["GROUP_RANK"], s["CUDA_VISIBLE_DEVICES"]) for s in seen],
                         [("0", "0", "0,1"), ("1", "0", "0,1"), ("0", "1", "2,3"), ("1", "1", "2,3")])
        threads = str(max(1, len(os.sched_getaffinity(0)) // 4))
        self.assertEqual([s["OMP_NUM_THREADS"] for s in seen], [threads] * 4)
        # One run directory, in which each node has its own tree.
        run = jobs.run_path(self.net["a"].folder)
        self.assertEqual(sorted(str(p.relative_to(run / "logs")) for p in (run / "logs").rglob("rank-?.log")),
                         [f"attempt-0/node-{rank // 2}/rank-{rank}.log" for rank in range(4)])


class Join(_Hosts):
    NAMES = ["a", "b", "c"]

    def test_three_hosts_form_one_job_with_ranks_in_the_order_of_nodes(self):
        launchers = self.over(["--nproc-per-node=2"], jobs.program("show_env.py", self.marks))
        self.assertEqual(self.codes(launchers), [0, 0, 0], self.all_output(launchers))
        seen = [json.loads(jobs.marked(self.marks, "env", rank))["env"] for rank in range(6)]
        self.assertEqual([(s["RANK"], s["LOCAL_RANK"], s["GROUP_RANK"], s["WORLD_SIZE"]) for s in seen],
                         [(str(r), str(r % 2), str(r // 2), "6") for r in range(6)])
        self.assertEqual(len({(s["MASTER_ADDR"], s["MASTER_PORT"]) for s in seen}), 1)
        self.assertNotEqual(seen[0]["MASTER_PORT"], "29500")
        self.assertEqual(len({s["LOCKSTEP_RUN_ID"] for s in seen}), 1)
        names = {jobs.run_path(self.net[name].folder).name for name in self.NAMES}
        self.assertEqual(len(names), 1)
        self.assertEqual(jobs.report(self.net["a"].folder)["nnodes"], 3)

    def test_order_of_arrival_does_not_matter(self):
        late = self.node("c", 2, nnodes=3)
        late.wait_for("a")
        others = {"b": self.node("b", 1, nnodes=3), "a": self.node("a", 0, nnodes=3), "c": late}
        self.assertEqual(self.codes(others), [0, 0, 0], self.all_output(others))

    def test_who_is_missing_is_said_while_waiting_and_at_the_deadline_everywhere(self):
        launchers = {"a": self.node("a", 0, "--join-timeout=4s", nnodes=3),
                     "c": self.node("c", 2, "--join-timeout=4s", nnodes=3)}
        self.assertEqual(self.codes(launchers), [4, 4], self.all_output(launchers))
        self.assertRegex(launchers["a"].stderr, r"2 of 3 nodes")
        for launcher in launchers.values():
            self.assertRegex(launcher.stderr, r"missing:? node 1\b")

    def test_unequal_nodes_add_up_where_each_says_its_own_number_is_settled_by_a_refusal(self):
        launchers = self.over(["--join-timeout=4s"], per_host=lambda name, rank: [f"--nproc-per-node={1 + (rank == 1)}"])
        codes = self.codes(launchers)
        self.assertTrue(all(code == 4 for code in codes), (codes, self.all_output(launchers)))
        self.assertRegex(self.all_output(launchers), r"do(es)? not add up|nproc")


class Addresses(_Hosts):
    def test_master_given_as_an_ipv6_address(self):
        launchers = {"a": self.node("a", 0, master="fd77::1"), "b": self.node("b", 1, master="fd77::1")}
        self.assertEqual(self.codes(launchers), [0, 0], self.all_output(launchers))

    def test_dead_first_address_of_the_master_is_passed_over(self):
        self.net["b"].write_hosts([("a", "10.77.0.99"), ("a", "10.77.0.1")])
        launchers = {"a": self.node("a", 0, "--join-timeout=40s"), "b": self.node("b", 1, "--join-timeout=40s")}
        self.assertEqual(self.codes(launchers), [0, 0], self.all_output(launchers))

    def test_endpoint_without_node_ranks_as_torchrun_allows_it(self):
        launchers = {name: jobs.on(self.net[name], "run", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=a:29400",
                                   "--rdzv-id=job", *jobs.program("show_env.py", self.marks)) for name in ("b", "a")}
        self.assertEqual(self.codes(launchers), [0, 0], self.all_output(launchers))
        seen = [json.loads(jobs.marked(self.marks, "env", rank))["env"] for rank in range(2)]
        self.assertEqual([e["RANK"] for e in seen], ["0", "1"])

    def test_shared_storage_holds_one_run_directory_for_both(self):
        shared = self.tmp / "shared"
        launchers = self.over([f"--log-dir={shared}", "--name=job"], ["--no-python", "sh", "-c", "echo I am $RANK"])
        self.assertEqual(self.codes(launchers), [0, 0], self.all_output(launchers))
        for rank in range(2):
            self.assertEqual((shared / f"job/logs/attempt-0/node-{rank}/rank-{rank}.log").read_text(), f"I am {rank}\n")
        self.assertEqual(json.loads((shared / "job/report.json").read_text())["outcome"], "succeeded")

    def test_second_launch_of_a_name_continues_on_all_nodes_with_the_same_attempt(self):
        for attempt in range(2):
            launchers = self.over(["--name=job"], ["--no-python", "sh", "-c", "echo attempt $LOCKSTEP_ATTEMPT"])
            self.assertEqual(self.codes(launchers), [0, 0], self.all_output(launchers))
        for rank, name in enumerate(self.NAMES):
            self.assertEqual(jobs.logs(self.net[name].folder, rank, rank, 1), "attempt 1\n")

    def test_name_that_only_the_first_node_knows_is_agreed(self):
        launchers = self.over(per_host=lambda name, rank: ["--name=mine"] if rank == 0 else [])
        self.assertEqual(self.codes(launchers), [0, 0], self.all_output(launchers))
        self.assertEqual([jobs.run_path(self.net[n].folder).name for n in self.NAMES], ["mine", "mine"])


class Waiting(_Hosts):
    def test_signal_while_waiting_ends_the_first_node_at_once(self):
        lonely = self.node("a", 0)
        lonely.wait_for("missing")
        lonely.send_signal(signal.SIGTERM)
        self.assertEqual(lonely.wait(20), 143, lonely.output)
        harness.wait_until(lambda: not self.net.processes(), 10, "an empty host")

    def test_signal_while_waiting_ends_the_second_node_at_once(self):
        lonely = self.node("b", 1)
        lonely.wait_for("a")
        lonely.send_signal(signal.SIGINT)
        self.assertEqual(lonely.wait(20), 130, lonely.output)

    def test_signal_at_a_joined_node_while_a_third_is_missing_ends_all_that_wait(self):
        launchers = {"a": self.node("a", 0, nnodes=3), "b": self.node("b", 1, nnodes=3)}
        launchers["b"].wait_for("missing")
        launchers["b"].send_signal(signal.SIGTERM)
        self.assertEqual(self.codes(launchers, 20), [143, 143], self.all_output(launchers))

    def test_first_node_killed_while_waiting_does_not_leave_the_second_for_ever(self):
        launchers = {"a": self.node("a", 0, nnodes=3), "b": self.node("b", 1, "--join-timeout=6s", nnodes=3)}
        launchers["b"].wait_for("missing")
        os.kill(jobs.launcher_pid(launchers["a"].pid), signal.SIGKILL)
        self.assertIn(launchers["b"].wait(30), (4, 6), self.all_output(launchers))
        launchers["a"].wait()

    def test_newcomer_to_a_running_job_is_refused(self):
        launchers = self.over(program=jobs.program("signals.py", self.marks))
        jobs.wait_marks(self.marks, 2, launcher=launchers["a"])
        late = self.node("b", 1, "--join-timeout=10s")
        self.assertEqual(late.wait(), 4, late.output)
        self.assertTrue(all(p.alive() for p in launchers.values()))
        launchers["a"].send_signal(signal.SIGTERM)
        self.assertEqual(self.codes(launchers), [143, 143], self.all_output(launchers))


class Refusals(_Hosts):
    def test_first_node_alone_names_the_missing_one_and_exits_4(self):
        lonely = self.node("a", 0, "--join-timeout=2s")
        self.assertEqual(lonely.wait(), 4, lonely.output)
        self.assertRegex(lonely.stderr, r"node 1\b")
        self.assertFalse(os.path.exists(os.path.join(self.net["a"].folder, "runs")), "nothing was started")

    def test_second_node_alone_says_that_nobody_answers_at_the_master_and_exits_4(self):
        lonely = self.node("b", 1, "--join-timeout=2s")
        self.assertEqual(lonely.wait(), 4, lonely.output)
        self.assertRegex(lonely.stderr, r"\ba:29500\b|10\.77\.0\.1")
        self.assertRegex(lonely.stderr.lower(), r"refused|nobody|not.*listen")

    def test_silent_master_is_told_from_a_refusing_one(self):
        self.net["a"].drop()
        lonely = self.node("b", 1, "--join-timeout=3s")
        self.assertEqual(lonely.wait(), 4, lonely.output)
        self.assertRegex(lonely.stderr.lower(), r"no answer|timed out|unreachable|no route|does not answer")

    def test_name_that_appears_later_is_waited_for(self):
        self.net["b"].forget("a")
        launchers = {"a": self.node("a", 0), "b": self.node("b", 1)}
        launchers["b"].wait_for("resolve")
        self.assertTrue(launchers["b"].alive())
        self.net["b"].learn_all()
        self.assertEqual(self.codes(launchers), [0, 0], self.all_output(launchers))

    def test_name_that_never_appears_exits_4_naming_it(self):
        self.net["b"].forget("a")
        lonely = self.node("b", 1, "--join-timeout=2s")
        self.assertEqual(lonely.wait(), 4, lonely.output)
        self.assertRegex(lonely.stderr, r"'?a'?.*(resolve|known|name)|resolve.*'?a'?")

    def test_two_launchers_with_one_rank_are_refused_naming_both(self):
        self.net = self.replace_net(["a", "b", "c"])
        first = self.node("b", 1, nnodes=3)
        master = self.node("a", 0, "--join-timeout=8s", nnodes=3)
        harness.wait_until(lambda: re.search(r"2 of 3", master.output), 20, "two nodes joined")
        second = self.node("c", 1, nnodes=3)
        self.assertEqual(second.wait(), 4, second.output)
        for word in (f"pid {jobs.launcher_pid(first.pid)} on b", r"pid \d+ on c", "node 1"):
            self.assertRegex(second.stderr, word)
            self.assertRegex(master.stderr, word)
        self.assertTrue(master.alive())
        third = self.node("c", 2, nnodes=3)
        self.assertEqual([p.wait() for p in (third, first, master)], [0, 0, 0], master.output)

    def test_two_first_nodes_are_refused_naming_who_holds_the_port(self):
        first = self.node("a", 0, "--join-timeout=20s")
        owner = jobs.launcher_pid(first.pid)
        harness.wait_until(lambda: 29500 in harness.listening_ports(owner), 20, "the first to listen")
        second = self.node("a", 0, "--join-timeout=20s")
        self.assertIn(second.wait(), (3, 4), second.output)
        self.assertRegex(second.stderr, rf"29500.*pid {owner}|pid {owner}.*29500")
        self.assertTrue(first.alive())
        other = self.node("b", 1)
        self.assertEqual((other.wait(), first.wait()), (0, 0), first.output)

    def test_different_job_ids_never_form_one_job(self):
        master = self.node("a", 0, "--rdzv-id=red", "--join-timeout=5s")
        stranger = self.node("b", 1, "--rdzv-id=blue")
        self.assertEqual(stranger.wait(), 4, stranger.output)
        self.assertRegex(stranger.stderr, r"red")
        self.assertRegex(stranger.stderr, r"blue")
        self.assertEqual(master.wait(), 4, master.output)

    def test_different_sizes_are_refused(self):
        master = self.node("a", 0, "--join-timeout=5s", nnodes=2)
        stranger = self.node("b", 1, nnodes=3)
        self.assertEqual(stranger.wait(), 4, stranger.output)
        self.assertRegex(stranger.stderr, r"expects 3")
        self.assertRegex(stranger.stderr, r"expects 2")
        master.wait()

    def test_loopback_master_on_a_host_without_node_0_is_named_when_the_wait_ends(self):
        for address in ("127.0.0.1", "localhost", "::1"):
            with self.subTest(address):
                done = self.node("b", 1, "--join-timeout=1s", master=address)
                self.assertEqual(done.wait(), 4, done.output)
                self.assertIn(f"{address} is this host itself", done.stderr)

    def test_different_arguments_are_a_warning_that_shows_the_difference(self):
        launchers = {"a": self.node("a", 0, program=["--no-python", "true", "--lr", "1e-4"]),
                     "b": self.node("b", 1, program=["--no-python", "true", "--lr", "3e-4"])}
        self.assertEqual(self.codes(launchers), [0, 0], self.all_output(launchers))
        self.assertRegex(launchers["a"].stderr, r"warning.*3e-4.*1e-4|warning.*1e-4.*3e-4")

    def test_node_rank_beyond_the_job_is_refused_at_once(self):
        done = self.node("b", 2)
        self.assertEqual(done.wait(), 2, done.output)
        self.assertRegex(done.stderr, r"2")

    def test_missing_program_on_one_node_stops_the_job_naming_that_node_and_leaves_nothing(self):
        with open(self.net["a"].folder + "/only-here", "w") as script:
            script.write("#!/bin/sh\nsleep 600\n")
        os.chmod(self.net["a"].folder + "/only-here", 0o755)
        launchers = self.over(["--join-timeout=4s", "--grace=1s"], ["--no-python", "./only-here"])
        codes = self.codes(launchers)
        self.assertEqual(codes[1], 3, self.all_output(launchers))
        self.assertNotEqual(codes[0], 0)
        self.assertIn("only-here", launchers["b"].stderr)
        harness.wait_until(lambda: not self.net.processes(), 10, "empty hosts")

    def replace_net(self, names):
        self.net.close()
        net = netns.Net(names)
        self.addCleanup(net.close)
        return net


class Versions(_Hosts):
    def test_different_versions_are_refused_naming_both(self):
        ours = harness.run([harness.PROGRAM, "--version"]).stdout.split()[1]
        theirs = ours[:-1] + ("9" if ours[-1] != "9" else "8")
        # Another version in all but code: the same program with its version string changed in place.
        image = pathlib.Path(harness.PROGRAM).read_bytes()
        other = self.tmp / "lockstep-of-another-version"
        other.write_bytes(image.replace(b"\0" + ours.encode() + b"\0", b"\0" + theirs.encode() + b"\0"))
        other.chmod(0o755)
        self.assertIn(theirs, harness.run([other, "--version"]).stdout)
        master = self.node("a", 0, "--join-timeout=5s")
        stranger = harness.Process(self.net["b"].command([str(other), "run", "--nnodes=2", "--node-rank=1", "--master-addr=a",
                                                          "--master-port=29500", "--no-python", "true"]),
                                   cwd=self.net["b"].folder)
        self.assertEqual(stranger.wait(), 4, stranger.output)
        self.assertRegex(stranger.stderr, r"version")
        for version in (ours, theirs):
            self.assertIn(version, stranger.stderr)
            self.assertIn(version, master.stderr)
        self.assertEqual(master.wait(), 4, master.output)

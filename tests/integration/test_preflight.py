"""`lockstep doctor preflight` and `lockstep run --preflight`: what is wrong on a node or between nodes is found before the
start, named with the node or pair, and nobody starts."""

import json
import os
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, netns, slurm  # noqa: E402

FAKE_NVML = harness.ROOT / "build" / "release" / "tests" / "libfake_nvml.so"


class _Hosts(harness.Case):
    TIMEOUT = 90
    NAMES = ["a", "b"]

    def setUp(self):
        harness.require("netns")
        self.net = netns.Net(self.NAMES)
        self.addCleanup(self.net.close)

    def start(self, *args, names=None, per_host=None, env=None, master=None):
        names = names or self.NAMES
        started = {}
        for rank, name in enumerate(names):
            extra = per_host(name, rank) if per_host else []
            own = env(name) if callable(env) else env
            started[name] = jobs.on(self.net[name], "doctor", "preflight", f"--nnodes={len(self.NAMES)}",
                                    f"--node-rank={rank}", f"--master-addr={master or self.NAMES[0]}",
                                    "--master-port=29500", "--nproc-per-node=1", "--json", *args, *extra, env=own)
        return started

    def preflight(self, *args, code=None, **kwargs):
        """All nodes to their end: they end alike, and with the same conclusions. Node 0's document."""
        started = self.start(*args, **kwargs)
        codes = [process.wait() for process in started.values()]
        output = "\n".join(f"--- {name}\n{process.output}" for name, process in started.items())
        self.assertEqual(len(set(codes)), 1, (codes, output))
        if code is not None:
            self.assertEqual(codes[0], code, output)
        documents = [json.loads(process.stdout) for process in started.values()]
        for document in documents:
            self.assertEqual(document["exit_code"], codes[0])
            self.assertEqual(document["all_nodes"], documents[0]["all_nodes"])
        return documents[0]

    def problems(self, document, check=None):
        """[(state, check, text)] of everything that is not well, each with a remedy."""
        found = []
        for node in document["nodes"]:
            for one in node["checks"]:
                found += [(p["state"], one["id"], f"{node['host']}: {p['text']}", p["do"]) for p in one["problems"]]
        for one in document["all_nodes"]:
            found += [(p["state"], one["id"], p["text"], p["do"]) for p in one["problems"]]
        for problem in found:
            self.assertTrue(problem[3], f"no remedy: {problem}")
        return [p[:3] for p in found if check in (None, p[1])]

    def failed(self, document):
        return sorted({check for state, check, _ in self.problems(document) if state == "fail"})

    def the_failure(self, document, check):
        """The text of the only failed check."""
        self.assertEqual(self.failed(document), [check], json.dumps(document, indent=1))
        return "\n".join(text for state, _, text in self.problems(document, check) if state == "fail")


class TwoNodes(_Hosts):
    def test_all_is_well_and_every_direction_is_measured(self):
        document = self.preflight(code=0)
        self.assertEqual(self.failed(document), [])
        self.assertEqual([node["host"] for node in document["nodes"]], ["a", "b"])
        self.assertEqual([(p["from"], p["to"]) for p in document["pairs"]], [(0, 1), (1, 0)])
        for pair in document["pairs"]:
            self.assertTrue(pair["reached"])
            self.assertEqual(pair["packet_through"], 1500)
            self.assertGreater(pair["gbit_per_second"], 0)
            self.assertGreater(pair["round_trip_us"], 0)
        self.assertIn("same-software", [check["id"] for check in document["all_nodes"]])

    def test_over_ipv6(self):
        document = self.preflight(master="fd77::1", code=0)
        self.assertEqual([node["network"]["address"] for node in document["nodes"]], ["fd77::1", "fd77::2"])
        self.assertEqual([pair["packet_through"] for pair in document["pairs"]], [1500, 1500])

    def test_the_table_for_people_names_nodes_and_says_ok_in_one_line(self):
        started = {name: jobs.on(self.net[name], "doctor", "preflight", "--nnodes=2", f"--node-rank={rank}",
                                 "--master-addr=a", "--nproc-per-node=1") for rank, name in enumerate(self.NAMES)}
        self.assertEqual([p.wait() for p in started.values()], [0, 0], started["a"].output)
        lines = started["a"].stdout.splitlines()
        self.assertRegex(lines[0], r"^preflight: ok \(2 nodes, \d+ checks")
        self.assertIn("0 a, 1 b", lines[1])
        self.assertRegex(started["a"].stdout, r"reach +\.  \.")
        self.assertIn("Gbit/s by one TCP stream", started["a"].stdout)
        self.assertEqual(len(started["b"].stdout.splitlines()), 1)

    def test_an_interface_with_a_smaller_mtu_on_one_side(self):
        self.net["b"].run(["ip", "link", "set", "eth0", "mtu", "1400"], check=True)
        text = self.the_failure(self.preflight(code=3), "mtu")
        self.assertIn("node 0 (a) to node 1 (b)", text)
        self.assertIn("1500 bytes is lost, 1400 came through", text)

    def test_a_switch_in_between_that_drops_large_packets(self):
        self.net.switch.ip("link set p1 mtu 1300")
        text = self.the_failure(self.preflight(code=3), "mtu")
        self.assertIn("1280 came through", text)

    def test_a_firewall_on_the_port_range_names_pair_and_ports(self):
        harness.require("nft")
        rules = "table inet guard { chain in { type filter hook input priority 0; tcp dport 21000-21999 drop; }; }"
        self.net["a"].run(["nft", rules], check=True)
        text = self.the_failure(self.preflight("--port-range=21000-21999", code=3), "port-range")
        self.assertRegex(text, r"node 1 \(b\) to node 0 \(a\): cannot connect to port 21\d\d\d, 21\d\d\d, 21\d\d\d")
        self.assertIn("no answer", text)

    def test_a_range_outside_the_firewall_is_fine(self):
        harness.require("nft")
        rules = "table inet guard { chain in { type filter hook input priority 0; tcp dport 21000-21999 drop; }; }"
        self.net["a"].run(["nft", rules], check=True)
        self.assertEqual(self.failed(self.preflight("--port-range=22000-22999", code=0)), [])

    def test_ports_the_kernel_chooses_closed_by_a_firewall(self):
        harness.require("nft")
        rules = ("table inet guard { chain in { type filter hook input priority 0; tcp dport 29500 accept; "
                 "ct state established accept; meta l4proto tcp reject with tcp reset; }; }")
        self.net["a"].run(["nft", rules], check=True)
        text = self.the_failure(self.preflight(code=3), "reach")
        self.assertRegex(text, r"node 1 \(b\) to node 0 \(a\): cannot connect to 10\.77\.0\.1 .*refused")

    def test_a_changed_file_on_one_node_is_named(self):
        for name in self.NAMES:
            folder = self.net[name].folder
            os.makedirs(f"{folder}/job/models")
            for file, text in (("train.py", "print(1)\n"), ("models/net.py", f"# {name == 'b'}\n")):
                with open(f"{folder}/job/{file}", "w") as out:
                    out.write(text)
            os.makedirs(f"{folder}/same")
        # The same path on both hosts, as on two machines.
        place = self.tmp / "job"
        place.mkdir()
        for name in self.NAMES:
            self.net[name].run(["mount", "--bind", f"{self.net[name].folder}/job", str(place)], check=True)
        text = self.the_failure(self.preflight("--program", str(place / "train.py"), code=3), "same-code")
        self.assertIn("different: models/net.py", text)
        self.assertIn("node 1 (b) has 2 files", text)

    def test_different_configuration_and_data(self):
        config, data = self.tmp / "config", self.tmp / "data"
        for folder in (config, data):
            folder.mkdir()
        for name in self.NAMES:
            base = self.net[name].folder
            for folder, file, text in (("config", "c.yaml", f"lr: {name == 'b'}"), ("data", "clip.bin", "x" * (1 + (name == "b")))):
                os.makedirs(f"{base}/{folder}")
                with open(f"{base}/{folder}/{file}", "w") as out:
                    out.write(text)
                self.net[name].run(["mount", "--bind", f"{base}/{folder}", str(self.tmp / folder)], check=True)
        document = self.preflight(f"--config={config}/c.yaml", f"--data={data}", code=3)
        self.assertEqual(self.failed(document), ["same-config", "same-data"])
        self.assertIn("different: clip.bin", self.problems(document, "same-data")[0][2])

    def test_environments_that_must_agree(self):
        document = self.preflight(env=lambda name: {"NCCL_ALGO": "Ring" if name == "a" else "Tree"}, code=3)
        self.assertIn("same-env", self.failed(document))
        self.assertIn("node 1 (b) has Tree", self.problems(document, "same-env")[0][2])

    def test_a_full_disk_on_one_node(self):
        logs = self.tmp / "logs"
        logs.mkdir()
        self.net["b"].run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(logs)], check=True)
        self.net["b"].run(["dd", "if=/dev/zero", f"of={logs}/fill", "bs=128k", "count=1"])
        document = self.preflight(f"--log-dir={logs}", code=3)
        text = self.the_failure(document, "log-dir")
        self.assertIn("b: ", text)
        self.assertIn("No space left", text)
        self.assertNotIn("a: ", text)

    def test_a_data_folder_that_one_node_does_not_have(self):
        data = self.tmp / "data"
        data.mkdir()
        (data / "clip.bin").write_text("x")
        self.net["b"].run(["mount", "-t", "tmpfs", "tmpfs", str(data)], check=True)  # as if it were not mounted there
        document = self.preflight(f"--data={data}", code=3)
        self.assertEqual(self.failed(document), ["data", "same-data"])
        self.assertEqual([text.split(":")[0] for _, _, text in self.problems(document, "data")], ["b"])

    def test_a_name_that_leads_elsewhere(self):
        self.net["b"].write_hosts({"a": "10.77.0.99", "b": "10.77.0.2"})
        text = self.the_failure(self.preflight(master="10.77.0.1", code=3), "dns")
        self.assertIn("on node 1 (b): 'a' is 10.77.0.99, but that node is 10.77.0.1", text)

    def test_a_name_that_does_not_resolve_is_a_warning(self):
        self.net["b"].forget("a")
        document = self.preflight(master="10.77.0.1", code=0)
        self.assertEqual([(state, check) for state, check, _ in self.problems(document, "dns")], [("warn", "dns")])

    def test_its_own_name_on_loopback_is_the_trap_of_gloo(self):
        self.net["b"].write_hosts({"a": "10.77.0.1", "b": "127.0.1.1"})
        document = self.preflight("--tune=off", code=3)
        self.assertIn("host-name", self.failed(document))
        self.assertIn("127.0.1.1", self.problems(document, "host-name")[0][2])
        # What `lockstep run` mends by itself stops nobody.
        document = self.preflight(code=0)
        self.assertEqual([state for state, _, _ in self.problems(document, "host-name")], ["warn"])

    def test_a_slow_way_is_named_also_where_no_card_says_how_fast_it_is(self):
        if self.net["b"].run("tc qdisc add dev eth0 root tbf rate 20mbit burst 32kbit latency 50ms".split()).returncode:
            self.skipTest("no token bucket in this kernel")
        texts = [text for _, _, text in self.problems(self.preflight("--checks=rate,reach", code=0), "rate")]
        self.assertIn(": slow: ", "\n".join(texts))

    def test_a_node_that_does_not_come_is_named(self):
        started = self.start("--timeout=3s", names=["a"])
        self.assertEqual(started["a"].wait(), 4, started["a"].output)
        document = json.loads(started["a"].stdout)
        self.assertIn("missing: node 1", document["rendezvous"])
        self.assertGreater(len(document["nodes"][0]["checks"]), 20)
        self.assertIn("1 of 2 nodes joined", started["a"].stderr)

    def test_node_0_that_does_not_come_is_said(self):
        process = jobs.on(self.net["b"], "doctor", "preflight", "--nnodes=2", "--node-rank=1", "--master-addr=a",
                          "--timeout=2s", "--nproc-per-node=1")
        self.assertEqual(process.wait(), 4, process.output)
        self.assertIn("could not join at a:29500", process.output)

    def test_nodes_that_do_not_agree_on_their_number_are_told_so(self):
        first = jobs.on(self.net["a"], "doctor", "preflight", "--nnodes=2", "--node-rank=0", "--master-addr=a",
                        "--timeout=30s", "--nproc-per-node=1")
        other = jobs.on(self.net["b"], "doctor", "preflight", "--nnodes=3", "--node-rank=1", "--master-addr=a",
                        "--timeout=20s", "--nproc-per-node=1")
        self.assertEqual(other.wait(), 4, other.output)
        self.assertIn("the sizes differ", other.output)
        right = jobs.on(self.net["b"], "doctor", "preflight", "--nnodes=2", "--node-rank=1", "--master-addr=a",
                        "--timeout=20s", "--nproc-per-node=1")
        self.assertEqual([first.wait(), right.wait()], [0, 0], first.output + right.output)

    def test_one_machine_that_joined_under_two_ranks(self):
        started = [jobs.on(self.net["a"], "doctor", "preflight", "--nnodes=2", f"--node-rank={rank}", "--json",
                           "--master-addr=a", "--nproc-per-node=1") for rank in range(2)]
        self.assertEqual([p.wait() for p in started], [3, 3], "\n".join(p.output for p in started))
        self.assertIn("nodes 0, 1 (a, a) are the same machine",
                      self.the_failure(json.loads(started[1].stdout), "same-machine"))

    def test_another_token_is_refused_and_a_job_is_not_taken_for_a_preflight(self):
        first = jobs.on(self.net["a"], "doctor", "preflight", "--nnodes=2", "--node-rank=0", "--master-addr=a",
                        "--timeout=30s", "--nproc-per-node=1", env={"LOCKSTEP_TOKEN": "one"})
        wrong = jobs.on(self.net["b"], "doctor", "preflight", "--nnodes=2", "--node-rank=1", "--master-addr=a",
                        "--timeout=20s", "--nproc-per-node=1", env={"LOCKSTEP_TOKEN": "two"})
        self.assertEqual(wrong.wait(), 4, wrong.output)
        self.assertIn("token", wrong.output)
        job = jobs.on(self.net["b"], "run", "--nnodes=2", "--node-rank=1", "--master-addr=a", "--join-timeout=20s",
                      "--nproc-per-node=1", "--no-python", "true", env={"LOCKSTEP_TOKEN": "one"})
        self.assertEqual(job.wait(), 4, job.output)
        self.assertIn("preflight", job.output)
        right = jobs.on(self.net["b"], "doctor", "preflight", "--nnodes=2", "--node-rank=1", "--master-addr=a",
                        "--timeout=20s", "--nproc-per-node=1", env={"LOCKSTEP_TOKEN": "one"})
        self.assertEqual([first.wait(), right.wait()], [0, 0], first.output)

    def test_gpus_that_are_seen_on_two_nodes_are_one_machine(self):
        fake = {"LOCKSTEP_NVML": FAKE_NVML, "LOCKSTEP_FAKE_NVML": "GPU-aaa,GPU-bbb"}
        document = self.preflight("--checks=gpu,same", env=fake, code=3)
        self.assertIn("nodes 0, 1 (a, b) all have GPU-aaa", self.problems(document, "same-machine")[0][2])

    def test_a_gpu_lost_and_a_gpu_sick_on_one_node(self):
        cards = {"a": "GPU-a0,GPU-a1", "b": "GPU-b0;ecc=3"}
        document = self.preflight("--checks=gpu,same-gpus", code=3, env=lambda name: {
            "LOCKSTEP_NVML": FAKE_NVML, "LOCKSTEP_FAKE_NVML": cards[name]})
        self.assertEqual(self.failed(document), ["gpu-memory", "same-gpus"])
        self.assertIn("b: GPU 0", self.problems(document, "gpu-memory")[0][2])
        self.assertIn("node 1 (b) has 1", self.problems(document, "same-gpus")[0][2])


class ThreeNodes(_Hosts):
    NAMES = ["a", "b", "c"]

    def test_a_rank_claimed_twice_is_refused_and_the_missing_one_named(self):
        started = [jobs.on(self.net[name], "doctor", "preflight", "--nnodes=3", f"--node-rank={rank}",
                           "--master-addr=a", "--timeout=4s", "--nproc-per-node=1")
                   for name, rank in (("a", 0), ("b", 1), ("c", 1))]
        self.assertEqual([p.wait() for p in started], [4, 4, 4], "\n".join(p.output for p in started))
        self.assertIn("node 1 is claimed twice", started[1].output + started[2].output)
        self.assertIn("missing: node 2", started[0].output)

    def test_one_pair_without_a_way_is_named_and_the_others_are_not(self):
        harness.require("nft")
        rules = "table inet guard { chain in { type filter hook input priority 0; ip saddr 10.77.0.3 drop; }; }"
        self.net["b"].run(["nft", rules], check=True)
        text = self.the_failure(self.preflight(code=3), "reach")
        self.assertIn("node 2 (c) to node 1 (b)", text)
        self.assertNotIn("(a)", text)

    def test_nodes_without_ranks_of_their_own_are_given_them(self):
        started = [jobs.on(self.net[name], "doctor", "preflight", "--nnodes=3", "--rdzv-backend=c10d",
                           "--rdzv-endpoint=a:29500", "--nproc-per-node=1", "--json") for name in self.NAMES]
        self.assertEqual([p.wait() for p in started], [0, 0, 0], "\n".join(p.output for p in started))
        hosts = [node["host"] for node in json.loads(started[2].stdout)["nodes"]]
        self.assertEqual((hosts[0], sorted(hosts)), ("a", ["a", "b", "c"]))


class Gate(_Hosts):
    def run_over(self, *flags, per_host=None):
        program = jobs.program("show_env.py", self.tmp / "marks")
        return jobs.over(self.net, self.NAMES, ["--nproc-per-node=1", *flags], program, per_host)

    def test_a_job_whose_nodes_are_well_starts(self):
        launchers = self.run_over("--preflight")
        self.assertEqual([p.wait() for p in launchers.values()], [0, 0], launchers["a"].output + launchers["b"].output)
        self.assertIn("preflight: ok (2 nodes", launchers["a"].stderr)
        self.assertIsNotNone(jobs.marked(self.tmp / "marks", "env", 1))

    def test_nobody_starts_when_a_check_fails_on_one_node(self):
        self.net["b"].run(["ip", "link", "set", "eth0", "mtu", "1400"], check=True)
        launchers = self.run_over("--preflight=standard")
        self.assertEqual([p.wait() for p in launchers.values()], [3, 3], launchers["a"].output)
        self.assertIn("nothing was started", launchers["a"].stderr)
        self.assertIn("fail mtu", launchers["a"].stderr)
        self.assertIn("failed: mtu", launchers["b"].stderr)
        self.assertFalse((self.tmp / "marks").exists())
        for name in self.NAMES:
            self.assertFalse(os.path.exists(f"{self.net[name].folder}/runs"))

    def test_json_of_a_closed_gate_is_one_document(self):
        self.net["b"].run(["ip", "link", "set", "eth0", "mtu", "1400"], check=True)
        launchers = self.run_over("--preflight", "--json")
        self.assertEqual([p.wait() for p in launchers.values()], [3, 3], launchers["a"].output)
        document = json.loads(launchers["a"].stdout)
        self.assertEqual((document["exit_code"], document["outcome"]), (3, "failed"))
        self.assertIn("mtu", document["reason"])
        self.assertEqual(self.failed(document["preflight"]), ["mtu"])

    def test_a_gate_on_one_node_only_is_refused_by_the_other(self):
        launchers = self.run_over("--join-timeout=4s", per_host=lambda name, rank: ["--preflight"] if rank == 0 else [])
        self.assertEqual([p.wait() for p in launchers.values()], [4, 4], launchers["a"].output)
        self.assertIn("preflight", launchers["b"].stderr)

    def test_an_unknown_kind_is_a_usage_error_and_the_next_word_is_the_program(self):
        done = harness.lockstep("run", "--preflight=quick", "--no-python", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("standard", done.stderr)
        done = harness.lockstep("run", "--nproc-per-node=1", "--preflight", "--no-python", "true")
        self.assertEqual(done.returncode, 0, done.stderr)


class OneNode(harness.Case):
    def test_the_list_help_and_bad_names(self):
        done = harness.lockstep("doctor", "preflight", "--list")
        self.assertEqual(done.returncode, 0)
        self.assertIn("memlock", done.stdout)
        help_text = harness.lockstep("doctor", "preflight", "--help").stdout
        self.assertIn("examples:", help_text)
        wrong = harness.lockstep("doctor", "preflight", "--checks=memlok")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("memlock", wrong.stderr)
        self.assertEqual(harness.lockstep("doctor", "preflight", "--dta=x").returncode, 2)

    def test_only_the_chosen_checks_run(self):
        done = harness.lockstep("doctor", "preflight", "--checks=shm,nofile", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([c["id"] for c in json.loads(done.stdout)["nodes"][0]["checks"]], ["nofile", "shm"])

    def test_a_program_that_is_not_there(self):
        done = harness.lockstep("doctor", "preflight", "--nproc-per-node=1", "nowhere.py")
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertRegex(done.stdout, r"fail python: .*nowhere\.py")

    def test_a_program_that_imports_torch_where_there_is_none(self):
        script = harness.write("train.py", "import torch\n")
        done = harness.lockstep("doctor", "preflight", "--nproc-per-node=1", script,
                                env={"PYTHON_EXEC": jobs.PYTHON3, "PATH": "/usr/bin:/bin"})
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertIn("fail torch", done.stdout)

    def test_torch_is_found_without_being_imported(self):
        harness.require("torch")
        script = harness.write("train.py", "import torch\n")
        done = harness.lockstep("doctor", "preflight", "--nproc-per-node=1", "--checks=python,torch", script,
                                env=jobs.torch_env())
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"torch +ok +2\.")

    def test_sick_gpus_are_named_one_by_one(self):
        cards = "GPU-a,GPU-b;ecc=2,GPU-c;recovery=2,GPU-d;remap=failed"
        done = harness.lockstep("doctor", "preflight", "--checks=gpu", "--nproc-per-node=4", "--json",
                                env={"LOCKSTEP_NVML": FAKE_NVML, "LOCKSTEP_FAKE_NVML": cards})
        self.assertEqual(done.returncode, 3, done.stderr)
        problems = [p["text"] for c in json.loads(done.stdout)["nodes"][0]["checks"] for p in c["problems"]]
        for gpu in (1, 2, 3):
            self.assertTrue(any(f"GPU {gpu}" in text for text in problems), problems)
        self.assertFalse(any("GPU 0" in text for text in problems), problems)

    def test_a_master_port_in_use_names_its_holder(self):
        import socket
        with socket.socket() as holder:
            holder.bind(("0.0.0.0", 0))
            holder.listen()
            done = harness.lockstep("doctor", "preflight", "--checks=ports", "--nproc-per-node=1",
                                    f"--master-port={holder.getsockname()[1]}")
            self.assertEqual(done.returncode, 3, done.stdout)
            self.assertIn(f"pid {os.getpid()}", done.stdout)


class Slurm(harness.Case):
    def setUp(self):
        harness.require("slurm", "netns")
        self.bed = slurm.Slurm()
        self.addCleanup(self.bed.close)

    def test_started_once_in_a_batch_script_it_examines_all_nodes(self):
        job = self.bed.sbatch(f"#!/bin/sh\nexec {harness.PROGRAM} doctor preflight --json --nproc-per-node=1\n", "-N2")
        self.assertEqual(self.bed.wait(job)["ExitCode"], "0:0", self.bed.output(job))
        self.assertIn('"host": "n0"', self.bed.output(job))
        self.assertIn('"host": "n1"', self.bed.output(job))

    def test_one_task_per_rank_meets_beside_the_workers_port(self):
        done = self.bed.run(["srun", "-N2", "--ntasks-per-node=2", harness.PROGRAM, "doctor", "preflight"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("preflight: ok (2 nodes", done.stdout)


class ProcessLevel(_Hosts):
    def test_ranks_of_one_host_are_one_node(self):
        started = []
        for rank in range(4):
            name = self.NAMES[rank // 2]
            env = {"RANK": rank, "LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2, "WORLD_SIZE": 4, "MASTER_ADDR": "a",
                   "MASTER_PORT": 29600}
            started.append(jobs.on(self.net[name], "doctor", "preflight", "--level=process", "--json", env=env))
        self.assertEqual([p.wait() for p in started], [0] * 4, "\n".join(p.output for p in started))
        document = json.loads(started[3].stdout)
        self.assertEqual([node["host"] for node in document["nodes"]], ["a", "b"])
        self.assertEqual([(p["from"], p["to"]) for p in document["pairs"]], [(0, 1), (1, 0)])

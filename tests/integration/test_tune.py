"""`lockstep tune` and `lockstep run --tune`: every node applies its own settings, the user's win, and what network NCCL says
it uses is read back. GPUs come from a library that looks like NVML; NCCL's lines from a program that writes as NCCL does."""

import json
import subprocess
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import netns  # noqa: E402

FAKE_NVML = harness.ROOT / "build" / "release" / "tests" / "libfake_nvml.so"
GPUS = {"LOCKSTEP_NVML": str(FAKE_NVML), "LOCKSTEP_FAKE_NVML": "GPU-aaa,GPU-bbb"}

# A rank that says what it was given, and writes NCCL's lines where NCCL would.
RANK = r"""
import json, os, re, sys
who = {name: os.environ.get(name) for name in sys.argv[2].split(",")}
print("ENV " + json.dumps(who), flush=True)
target = os.environ.get("NCCL_DEBUG_FILE")
if target and len(sys.argv) > 3:
    rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
    meaning = {"%%": "%", "%p": str(os.getpid()), "%h": "host"}  # as NCCL expands it
    path = re.sub("%.", lambda found: meaning[found.group()], target)
    with open(path, "w") as out:
        network = json.loads(sys.argv[3])[int(os.environ["GROUP_RANK"])]
        for line in network:
            out.write(f"host:{os.getpid()}:{os.getpid()} [0] NCCL INFO {line}\n")
        out.write(f"host:1:1 [0] NCCL INFO comm 0x1 rank {rank} nranks {world} cudaDev 0 busId 1b000 commId 0x2 - Init COMPLETE\n")
"""
IB = ["NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.77.0.1<0>", "Using network IB"]
SOCKET = ["NET/IB : No device found.", "NET/Socket : Using [0]eth0:10.77.0.2<0>", "Using network Socket"]


def environment_of(text):
    return [json.loads(line[line.index("ENV ") + 4:]) for line in text.splitlines() if "ENV {" in line]


def events(folder, kind):
    return [event for event in harness.read_jsonl(folder / "events.jsonl") if event["type"] == kind]


class OneNode(harness.Case):
    def script(self):
        return str(harness.write("rank.py", RANK))

    def test_gpus_get_evidence_and_a_file_for_nccls_lines(self):
        names = "NCCL_DEBUG,NCCL_DEBUG_SUBSYS,NCCL_DEBUG_FILE,PYTHONFAULTHANDLER,TORCH_FR_BUFFER_SIZE,NCCL_SOCKET_IFNAME"
        done = harness.lockstep("run", "--nproc-per-node", "2", "--name", "gpus", "--log-dir", str(self.tmp), self.script(), "x",
                                names, json.dumps([IB]), env=GPUS)
        self.assertEqual(done.returncode, 0, done.stderr)
        given = environment_of(done.stdout)
        self.assertEqual(len(given), 2)
        for env in given:
            self.assertEqual((env["NCCL_DEBUG"], env["NCCL_DEBUG_SUBSYS"]), ("INFO", "INIT,NET"))
            self.assertRegex(env["NCCL_DEBUG_FILE"], r"/gpus/logs/attempt-0/node-0/nccl-rank-[01]\.%p\.log$")
            self.assertIsNone(env["NCCL_SOCKET_IFNAME"], "one node needs none")
        (tuned,) = events(self.tmp / "gpus", "tuned")
        self.assertEqual(tuned["mode"], "apply")
        self.assertIn("TORCH_NCCL_ASYNC_ERROR_HANDLING", tuned["applied"])
        (ready,) = events(self.tmp / "gpus", "comm_ready")
        (group,) = ready["transports"]
        self.assertEqual((group["ranks"], group["network"]), ("0-1", None), "one node uses none, whatever NCCL would take")
        self.assertEqual(group["hcas"], ["mlx5_0:1/IB", "mlx5_1:1/IB"])
        self.assertNotIn("warning", ready)

    def test_a_folder_with_a_percent_sign_reaches_nccl_unharmed(self):
        done = harness.lockstep("run", "--nproc-per-node", "1", "--name", "r%h", "--log-dir", str(self.tmp), self.script(), "x",
                                "NCCL_DEBUG_FILE", json.dumps([IB]), env=GPUS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("r%%h", environment_of(done.stdout)[0]["NCCL_DEBUG_FILE"])

    def test_the_users_word_about_debugging_is_kept_whole(self):
        for name, value in (("NCCL_DEBUG", "WARN"), ("NCCL_DEBUG_FILE", "/dev/null")):
            done = harness.lockstep("run", "--nproc-per-node", "1", "--log-dir", str(self.tmp), self.script(), "x",
                                    "NCCL_DEBUG,NCCL_DEBUG_SUBSYS,NCCL_DEBUG_FILE", env={**GPUS, name: value})
            (env,) = environment_of(done.stdout)
            self.assertEqual({k: v for k, v in env.items() if v}, {name: value})

    def test_off_and_report_set_nothing_of_it(self):
        for mode in ("off", "report"):
            done = harness.lockstep("run", "--tune", mode, "--nproc-per-node", "1", "--log-dir", str(self.tmp), "--name", mode,
                                    self.script(), "x", "NCCL_DEBUG,NCCL_DEBUG_FILE,NCCL_RAS_ADDR", env=GPUS)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(set(environment_of(done.stdout)[0].values()), {None})
            self.assertEqual(len(events(self.tmp / mode, "tuned")), 1 if mode == "report" else 0)
        self.assertIn("would set", done.stderr)
        done = harness.lockstep("run", "--tune", "maybe", "true")
        self.assertEqual(done.returncode, 2)

    def test_a_program_without_nccl_has_no_such_event(self):
        done = harness.lockstep("run", "--nproc-per-node", "2", "--name", "r", "--log-dir", str(self.tmp), self.script(), "x",
                                "RANK", env=GPUS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(events(self.tmp / "r", "comm_ready"), [])

    def test_differences_and_mistakes_are_said_once_and_not_with_quiet(self):
        env = {**GPUS, "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "NCCL_TIMEOUT": "1800"}
        done = harness.lockstep("run", "--nproc-per-node", "2", "--log-dir", str(self.tmp), "--no-python", "true", env=env)
        self.assertEqual(done.stderr.count("TORCH_NCCL_ASYNC_ERROR_HANDLING=1 is yours"), 1, done.stderr)
        self.assertEqual(done.stderr.count("lint: warning: NCCL_TIMEOUT"), 1, done.stderr)
        done = harness.lockstep("run", "--quiet", "--nproc-per-node", "2", "--log-dir", str(self.tmp), "--no-python", "true",
                                env=env)
        self.assertNotIn("NCCL_", done.stderr)

    def test_dry_run_shows_what_would_be_set(self):
        done = harness.lockstep("run", "--dry-run", "--json", "--nproc-per-node", "1", "--no-python", "true", env=GPUS)
        document = json.loads(done.stdout)
        self.assertIn("TORCH_FR_BUFFER_SIZE", document["tuned"]["applied"])
        self.assertEqual(document["environment"]["TORCH_FR_BUFFER_SIZE"], "2000")


class Print(harness.Case):
    def test_a_shell_can_eval_what_is_printed(self):
        done = harness.run(["sh", "-ec", f'eval "$({harness.PROGRAM} tune --print-env)"; echo "$PYTHONFAULTHANDLER:$OMP_NUM_THREADS"'])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^1:\d+\n$")

    def test_the_users_own_values_are_not_printed(self):
        done = harness.lockstep("tune", "--print-env", env={"OMP_NUM_THREADS": "3"})
        self.assertNotIn("OMP_NUM_THREADS", done.stdout)

    def test_another_machine_is_read_from_its_file(self):
        machine = {"host": "n7", "cpus": 96, "gpus": [{"index": i} for i in range(8)],
                   "interfaces": [{"name": "eth0", "up": True, "kind": "ethernet", "addresses": ["10.0.0.7/16"]},
                                  {"name": "eth1", "up": True, "kind": "ethernet", "addresses": ["172.16.0.7/16"]}],
                   "routes": [{"destination": "10.0.0.0/16", "interface": "eth0"}],
                   "ib": [{"device": f"mlx5_{i}", "port": 1, "state": "ACTIVE", "link_layer": "InfiniBand", "gbit": 400}
                          for i in range(8)] + [{"device": "mlx5_bond_0", "port": 1, "state": "ACTIVE",
                                                 "link_layer": "Ethernet", "gbit": 25}]}
        path = harness.write("n7.json", json.dumps(machine))
        done = harness.lockstep("tune", "--hardware", str(path), "--peer", "10.0.0.1", "--nnodes", "2", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {row["name"]: row for row in json.loads(done.stdout)["set"]}
        self.assertEqual(found["NCCL_SOCKET_IFNAME"]["value"], "eth0")
        self.assertEqual(found["NCCL_IB_HCA"]["value"], "=" + ",".join(f"mlx5_{i}" for i in range(8)))
        done = harness.lockstep("tune", "--hardware", str(path), "--peer", "10.0.0.1", "--nnodes", "2")
        self.assertIn("left alone", done.stdout)
        self.assertNotIn("\x1b", done.stdout)

    def test_what_cannot_be_read_is_usage(self):
        for words in (["--hardware", "/nonexistent"], ["--hardware", __file__], ["--nnodes", "0"], ["--json", "--print-env"]):
            done = harness.lockstep("tune", *words)
            self.assertEqual(done.returncode, 2, words)
            self.assertTrue(done.stderr.strip())


class Nodes(harness.Case):
    def setUp(self):
        harness.require("netns")

    def run_on(self, net, names, *program, env=None):
        running = []
        for i, name in enumerate(names):
            argv = [harness.PROGRAM, "run", "--nnodes", str(len(names)), "--node-rank", str(i), "--nproc-per-node", "1",
                    "--master-addr", names[0], "--master-port", "29400", "--name", "r", *program]
            running.append(net[name].popen(argv, env=harness.clean_env(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                           text=True))
        return [(*process.communicate(timeout=60), process.returncode) for process in running]

    def test_each_node_names_its_own_interface(self):
        net = netns.Net(["a", "b"])
        self.addCleanup(net.close)
        # Node b has a second network, and a name that leads to loopback, as Debian installs it.
        for words in ("link add store0 type veth peer name far0", "addr add 172.30.0.1/24 dev store0", "link set store0 up",
                      "link set far0 up"):
            done = net["b"].run(["ip", *words.split()])
            self.assertEqual(done.returncode, 0, done.stderr)
        net["b"].write_hosts({"a": net["a"].address, "b": "127.0.1.1"})
        script = str(harness.write("rank.py", RANK))
        (out_a, err_a, code_a), (out_b, err_b, code_b) = self.run_on(
            net, ["a", "b"], script, "x", "NCCL_SOCKET_IFNAME,GLOO_SOCKET_IFNAME", env=GPUS)
        self.assertEqual((code_a, code_b), (0, 0), err_a + err_b)
        (a,), (b,) = environment_of(out_a), environment_of(out_b)
        self.assertEqual(a, {"NCCL_SOCKET_IFNAME": None, "GLOO_SOCKET_IFNAME": None}, "its only interface is right")
        self.assertEqual(b, {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"})

    def test_node_0_that_knows_itself_as_loopback_learns_the_way_from_who_came(self):
        net = netns.Net(["a", "b"])
        self.addCleanup(net.close)
        for words in ("link add store0 type veth peer name far0", "addr add 172.30.0.1/24 dev store0", "link set store0 up",
                      "link set far0 up"):
            done = net["a"].run(["ip", *words.split()])
            self.assertEqual(done.returncode, 0, done.stderr)
        net["a"].write_hosts({"a": "127.0.1.1", "b": net["b"].address})
        script = str(harness.write("rank.py", RANK))
        (out, err, code), _ = self.run_on(net, ["a", "b"], script, "x", "NCCL_SOCKET_IFNAME,GLOO_SOCKET_IFNAME", env=GPUS)
        self.assertEqual(code, 0, err)
        self.assertEqual(environment_of(out), [{"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}])

    def test_ranks_that_differ_in_their_network_are_warned_about(self):
        net = netns.Net(["a", "b"])
        self.addCleanup(net.close)
        script = str(harness.write("rank.py", RANK))
        (_, err, code), (_, _, other) = self.run_on(net, ["a", "b"], script, "x", "RANK", json.dumps([IB, SOCKET]), env=GPUS)
        self.assertEqual((code, other), (0, 0), err)
        self.assertEqual(err.count("ranks do not use the same network"), 1, err)
        self.assertIn("ranks 1 TCP", err)
        path = harness.pathlib.Path(net["a"].folder) / "runs" / "r"
        (ready,) = events(path, "comm_ready")
        self.assertEqual([group["network"] for group in ready["transports"]], ["IB", "Socket"])

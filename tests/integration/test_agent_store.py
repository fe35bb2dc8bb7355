"""The TCPStore that the launcher of node 0 hosts for the workers: with PyTorch's clients, and beside PyTorch's server."""

import json
import re
import socket
import struct
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs  # noqa: E402

CASES = harness.ROOT / "tests" / "launch" / "store_cases.txt"
NAMES = ("VALIDATE SET COMPARE_SET GET ADD CHECK WAIT GETNUMKEYS DELETE_KEY APPEND MULTI_GET MULTI_SET CANCEL_WAIT "
         "PING QUEUE_PUSH QUEUE_POP QUEUE_LEN LIST_KEYS BARRIER").split()
HELLO = struct.pack("<BI", 0, 0x3C85F7CE)


def encode(word, prefix=""):
    """One word of store_cases.txt; keys, which begin with a slash, get a prefix."""
    if word in NAMES:
        return bytes([NAMES.index(word)])
    kind, value = word.split(":", 1)
    if value.startswith("/"):
        value = prefix + value
    if kind == "t":
        text, _, times = value.partition("*")
        text = text * int(times or 1)
        return struct.pack("<Q", len(text)) + text.encode()
    return struct.pack({"i": "<q", "u": "<I", "b": "<B"}[kind], int(value))


def cases():
    """(name, lines) of those where both servers agree."""
    found = []
    for line in CASES.read_text().splitlines():
        if line.startswith("= "):
            found.append((line[2:], []))
        elif line and line[0] != "#":
            found[-1][1].append(line)
    return [case for case in found if not case[0].startswith("ours: ")]


def step(line, prefix):
    """A line of a case: client, request or None, {client: bytes} or "refused"."""
    request, _, expected = line.partition(" -> ")
    client, *words = request.split()
    sent = None if words == ["leaves"] else b"".join(encode(word, prefix) for word in words)
    if expected == "refused":
        return client, sent, expected
    replies = [part.split() for part in expected.split(";") if part]
    return client, sent, {to: b"".join(encode(word, prefix) for word in words) for to, *words in replies}


class Clients:
    """Connections to a store, spoken to in bytes."""

    def __init__(self, port):
        self.port = port
        self.sockets = {}

    def of(self, name):
        if name not in self.sockets:
            self.sockets[name] = socket.create_connection(("127.0.0.1", self.port), timeout=20)
            self.sockets[name].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets[name].sendall(HELLO)
        return self.sockets[name]

    def read(self, name, size):
        data = b""
        while len(data) < size:
            piece = self.of(name).recv(size - len(data))
            if not piece:
                break
            data += piece
        return data

    def settled(self, name):
        """The server has done all that this client asked for: nothing but this ping is on its way back."""
        self.of(name).sendall(encode("PING") + struct.pack("<I", 4711))
        return self.read(name, 4) == struct.pack("<I", 4711)

    def close(self):
        for connection in self.sockets.values():
            connection.close()


class Peer(harness.Case):
    def test_the_cases_of_the_unit_test_hold_for_the_server_of_the_installed_torch(self):
        harness.require("torch")
        server = harness.write("server.py", """
import os, sys, torch.distributed as dist
stores = []  # to end one takes half a second
for line in sys.stdin:
    stores.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
    print(stores[-1].port, flush=True)
os._exit(0)
""")
        # It looks up the name of every client: no waiting for a name server that does not answer.
        run = harness.subprocess.Popen([harness.PYTHON, server], stdin=harness.subprocess.PIPE,
                                       stdout=harness.subprocess.PIPE, stderr=harness.subprocess.DEVNULL, text=True,
                                       env=harness.clean_env({"RES_OPTIONS": "timeout:1 attempts:1"}))
        self.addCleanup(run.wait)
        self.addCleanup(run.stdin.close)
        self.addCleanup(run.stdout.close)
        self.assertGreater(len(cases()), 25)
        port = None
        for number, (name, lines) in enumerate(cases()):
            # Who asks for all keys needs a store of its own; the others share one, with keys of their own.
            fresh = port is None or any(word in line for line in lines for word in ("LIST_KEYS", "GETNUMKEYS"))
            if fresh:
                run.stdin.write("next\n")
                run.stdin.flush()
                port = int(run.stdout.readline())
            clients = Clients(port)
            gone = set()
            for line in lines:
                with self.subTest(name, line=line):
                    client, sent, replies = step(line, "" if fresh else f"/case-{number}")
                    if sent is None:
                        clients.of(client).close()
                        gone.add(client)
                        continue
                    clients.of(client).sendall(sent)
                    if replies == "refused":
                        self.assertEqual(clients.read(client, 1), b"")
                        gone.add(client)
                        continue
                    for to, expected in replies.items():
                        self.assertEqual(clients.read(to, len(expected)), expected)
                    self.assertTrue(clients.settled(client))
            for client in set(clients.sockets) - gone:
                with self.subTest(name, client=client):
                    self.assertTrue(clients.settled(client), "more came back than expected")
            clients.close()


class Hosted(harness.Case):
    def setUp(self):
        harness.require("torch")
        self.marks = self.tmp / "marks"
        self.program = [str(jobs.PROGRAMS / "store_ops.py"), str(self.marks)]

    def results(self):
        return [json.loads(jobs.marked(self.marks, "result", rank)) for rank in range(2)]

    def test_all_operations_in_the_second_attempt_and_rank_0_may_end_first(self):
        done = harness.lockstep("run", "--nproc-per-node", "2", "--max-restarts", "1", "--backoff", "50ms",
                                *self.program, "fail-first", env=jobs.torch_env())
        self.assertEqual(done.returncode, 0, done.stderr)
        first, second = self.results()
        self.assertEqual([(r["hosted"], r["attempt"]) for r in (first, second)], [(True, "1")] * 2)
        self.assertIn("keys of a new store", first["done"])
        self.assertIn("wait without rank 0", second["done"])
        started = jobs.events(self.tmp, "attempt_started")
        self.assertEqual([event["agent_store"] for event in started], [True, True])
        self.assertNotEqual(started[0]["master_port"], started[1]["master_port"])

    def test_switched_off_rank_0_hosts_a_store_with_the_same_answers(self):
        done = harness.lockstep("run", "--nproc-per-node", "2", "--agent-store", "off", *self.program,
                                env=jobs.torch_env())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([r["hosted"] for r in self.results()], [False, False])
        self.assertIn("list_keys", self.results()[0]["done"])

    def test_two_nodes_obey_node_0(self):
        port = harness.free_port()
        # Node 1 alone would decide otherwise.
        nodes = [harness.spawn_lockstep("run", "--nnodes", "2", "--node-rank", str(rank), "--master-addr", "127.0.0.1",
                                        "--master-port", str(port), "--nproc-per-node", "1",
                                        *(["--agent-store", "off"] if rank == 1 else []), *self.program,
                                        env=jobs.torch_env(), cwd=self.folder(rank)) for rank in range(2)]
        self.assertEqual([node.wait() for node in nodes], [0, 0], nodes[0].output + nodes[1].output)
        self.assertEqual([r["hosted"] for r in self.results()], [True, True])
        self.assertIn("wait without rank 0", self.results()[1]["done"])

    def test_one_launcher_per_rank_and_a_second_attempt_on_the_platforms_port(self):
        port = harness.free_port()
        launchers = [harness.spawn_lockstep(
            "run", "--level", "process", "--max-restarts", "1", "--backoff", "10ms", *self.program, "fail-first",
            env=jobs.torch_env({"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}),
            cwd=self.folder(rank)) for rank in range(2)]
        self.assertEqual([each.wait() for each in launchers], [0, 0], launchers[0].output + launchers[1].output)
        self.assertEqual([(r["hosted"], r["attempt"]) for r in self.results()], [(True, "1")] * 2)
        started = jobs.events(self.tmp / "node-0", "attempt_started")
        self.assertEqual([event["master_port"] for event in started], [port, port])

    def folder(self, rank):
        folder = self.tmp / f"node-{rank}"
        folder.mkdir()
        return folder


class Choice(harness.Case):
    """Without torch: the program asks the store by its wire protocol."""

    ASKS = """
import os, socket, struct, sys
def connect():
    connection = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=20)
    connection.sendall(struct.pack("<BI", 0, 0x3C85F7CE))
    return connection
def ping(connection):
    connection.sendall(struct.pack("<BI", 13, 42))
    return connection.recv(4) == struct.pack("<I", 42)
"""

    def run_it(self, text, *args, **kwargs):
        program = harness.write("asks.py", self.ASKS + text)
        return harness.lockstep("run", *args, "--no-python", jobs.PYTHON3, str(program), **kwargs)

    def test_who_breaks_the_protocol_is_disconnected_with_a_line_and_others_go_on(self):
        done = self.run_it("""
good = connect()
for request in (b"GET / HTTP/1.1", struct.pack("<BI", 0, 7)):
    bad = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=20)
    bad.sendall(request)
    assert bad.recv(1) == b""
bad = connect()
bad.sendall(struct.pack("<BQ", 3, 1 << 60))
assert bad.recv(1) == b""
waits = connect()
waits.sendall(struct.pack("<BQQ", 6, 1, 1) + b"k")
waits.close()
# One that asks for much and reads nothing holds up nobody, and gets it all when it reads.
value = b"v" * (4 << 20)
good.sendall(struct.pack("<BQ", 1, 3) + b"big" + struct.pack("<Q", len(value)) + value)
assert ping(good)
slow = connect()
slow.sendall((struct.pack("<BQ", 3, 3) + b"big") * 8)
assert ping(good) and ping(connect())
expected = (struct.pack("<Q", len(value)) + value) * 8
got = bytearray()
while len(got) < len(expected):
    got += slow.recv(1 << 20)
assert got == expected and ping(slow)
""", "--agent-store", "on")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = re.findall(r"lockstep: store: disconnected 127\.0\.0\.1:\d+: ", done.stderr)
        self.assertEqual(len(lines), 3, done.stderr)
        for words in ("no client of a TCPStore", "VALIDATE: expected 0x3c85f7ce, found 0x7",
                      "GET: a key of 1152921504606846976 bytes, expected at most 8192"):
            self.assertIn(words, done.stderr)

    def test_the_store_answers_while_ranks_are_being_stopped(self):
        done = self.run_it("""
import signal
if os.environ["RANK"] == "1":
    store = connect()
    store.sendall(struct.pack("<BQQ", 6, 1, 1) + b"k")  # until rank 0 is ready to be stopped
    store.recv(1)
    sys.exit(1)
def stopped(*_):
    print("after the signal:", ping(connect()), flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, stopped)
connect().sendall(struct.pack("<BQ", 1, 1) + b"k" + struct.pack("<Q", 0))
signal.pause()
""", "--nproc-per-node", "2", "--agent-store", "on")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("after the signal: True", done.stdout + done.stderr)

    def test_the_port_of_one_node_is_open_to_this_machine_only(self):
        done = self.run_it("""
connect()
table = open("/proc/net/tcp").read() + open("/proc/net/tcp6").read()
port = "%04X" % int(os.environ["MASTER_PORT"])
print(sorted(line.split()[1] for line in table.splitlines() if f":{port} " in line and line.split()[3] == "0A"))
""", "--agent-store", "on")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\['0100007F:[0-9A-F]{4}'\]")

    def test_a_port_that_the_platform_chose_and_another_holds_is_refused_with_its_owner(self):
        with socket.create_server(("127.0.0.1", 0)) as holder:
            port = holder.getsockname()[1]
            done = self.run_it("", "--level", "process", "--agent-store", "on", env={
                "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(f"port {port} is in use by pid {harness.os.getpid()} (", done.stderr)

    def test_who_hosts_the_store_is_said_before_the_start(self):
        script = harness.write("train.py", "")
        venv = self.tmp / "old"
        for folder in ("bin", "lib/python3.11/site-packages/torch"):
            (venv / folder).mkdir(parents=True)
        (venv / "bin" / "python").symlink_to(jobs.PYTHON3)
        version = venv / "lib/python3.11/site-packages/torch/version.py"
        python = {"PYTHON_EXEC": str(venv / "bin" / "python")}
        rows = [("2.13.0", [script], {}, True, "torch 2.13"),
                ("2.5.1", [script], {}, True, "torch 2.5"),
                ("2.4.1", [script], {}, False, "torch 2.4 is older than 2.5"),
                ("2.4.1", ["--agent-store", "on", script], {}, True, "--agent-store on"),
                ("2.13.0", ["--agent-store", "off", script], {}, False, "--agent-store off"),
                ("2.13.0", [script], {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, False,
                 "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"),
                ("2.13.0", ["--env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", script], {}, False,
                 "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"),
                ("2.13.0", ["--no-python", "true"], {}, False, "the program is not run by Python"),
                (None, [script], {}, False, f"no torch was found for {venv}/bin/python")]
        for torch, args, env, on, because in rows:
            with self.subTest(because, args=args):
                version.unlink(missing_ok=True)
                if torch:
                    version.write_text(f"__version__ = '{torch}'\n")
                done = harness.lockstep("run", "--tune", "off", "--dry-run", "--json", *args, env={**python, **env})
                self.assertEqual(done.returncode, 0, done.stderr)
                plan = json.loads(done.stdout)
                self.assertEqual(plan["agent_store"], {"on": on, "because": because})
                self.assertEqual(plan["environment"]["TORCHELASTIC_USE_AGENT_STORE"], str(on))
        words = harness.lockstep("run", "--dry-run", script, env=python).stdout
        self.assertRegex(words, r"(?m)^store: +of rank 0 \(no torch was found for ")
        self.assertEqual(harness.lockstep("run", "--agent-store", "on", "--exec", script).returncode, 2)

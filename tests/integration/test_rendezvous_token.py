"""Who may join: the job token, and everything on the network that is no launcher at all."""

import os
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, netns  # noqa: E402

SECRET = "a-very-secret-token-0123456789"

# A visitor of the rendezvous port: argv = host, port, manner.
VISITOR = r"""
import os, random, socket, sys, time
host, port, manner = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 7)
deadline = time.monotonic() + 30
def connect():
    while True:
        try:
            return socket.create_connection((host, port), 2)
        except OSError:
            if time.monotonic() > deadline: sys.exit("nobody listens")
            time.sleep(0.02)
held = []
if manner == "garbage":
    for i in range(200):
        s = connect(); s.sendall(bytes(rng.randrange(256) for _ in range(rng.randrange(1, 4000)))); s.close()
elif manner == "scan":
    for i in range(300): connect().close()
elif manner == "http":
    for i in range(50):
        s = connect(); s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"); s.settimeout(1)
        try: s.recv(4096)
        except OSError: pass
        s.close()
elif manner == "oversized":
    for size in (0xffffffff, 0x7fffffff, 1 << 28, 1 << 20):
        s = connect(); s.sendall(b"LKS\x01" + size.to_bytes(4, "big") + b"{" * 65536); held.append(s)
elif manner == "slow":
    for i in range(50):
        s = connect(); s.sendall(b"LKS\x01\x00\x00"); held.append(s)
elif manner == "json":
    for body in (b"{}", b"[]", b"null", b'{"type":"hello"}', b'{"type":7}', b'{"type":"hello","claims":"{}","proof":""}',
                 b'{"type":"exit","rank":0}', b'{"type":"stop_request","signal":9}', b"{" * 1000, b'{"type":"finish","exit_code":0}'):
        s = connect(); s.sendall(b"LKS\x01" + len(body).to_bytes(4, "big") + body); held.append(s)
elif manner == "reset":
    import struct
    for i in range(100):
        s = connect(); s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); s.sendall(b"LKS"); s.close()
print("visited", flush=True)
if held: time.sleep(600)
"""


class _Hosts(harness.Case):
    TIMEOUT = 90

    def setUp(self):
        harness.require("netns")
        self.net = netns.Net(["a", "b", "x"])
        self.addCleanup(self.net.close)
        self.marks = self.tmp / "marks"

    def node(self, name, rank, *args, program=("--no-python", "true"), env=None):
        return jobs.on(self.net[name], "run", "--nnodes=2", f"--node-rank={rank}", "--master-addr=a", "--master-port=29500",
                       *args, *program, env=env)


class Token(_Hosts):
    def token_file(self, text, mode=0o600):
        return str(harness.write(f"token-{len(text)}", text + "\n", mode))

    def test_same_token_from_file_and_environment_joins_and_is_seen_nowhere(self):
        one = self.node("a", 0, "--token-file", self.token_file(SECRET), program=jobs.program("signals.py", self.marks))
        two = self.node("b", 1, env={"LOCKSTEP_TOKEN": SECRET}, program=jobs.program("signals.py", self.marks))
        jobs.wait_marks(self.marks, 2, launcher=one)
        for pid in self.net.processes():
            try:
                with open(f"/proc/{pid}/cmdline") as line:
                    self.assertNotIn(SECRET, line.read())
            except OSError:
                continue
        one.send_signal(signal.SIGTERM)
        self.assertEqual((one.wait(), two.wait()), (143, 143), one.output)
        for launcher in (one, two):
            self.assertNotIn(SECRET, launcher.output)
            self.assertNotIn("without a token", launcher.output)
        for name in ("a", "b"):
            for folder, _, files in os.walk(os.path.join(self.net[name].folder, "runs")):
                for file in files:
                    with open(os.path.join(folder, file), errors="replace") as text:
                        self.assertNotIn(SECRET, text.read(), file)

    def refused(self, env_a, env_b, words):
        master = self.node("a", 0, "--join-timeout=6s", env=env_a)
        other = self.node("b", 1, "--join-timeout=6s", env=env_b)
        self.assertEqual(other.wait(), 4, other.output)
        self.assertRegex(other.stderr, words)
        self.assertEqual(master.wait(), 4, master.output)
        self.assertRegex(master.stderr, r"refused.*token")
        self.assertNotIn(SECRET, master.output + other.output)

    def test_wrong_token_is_refused_on_both_sides(self):
        self.refused({"LOCKSTEP_TOKEN": SECRET}, {"LOCKSTEP_TOKEN": SECRET + "x"}, r"token")

    def test_missing_token_is_refused(self):
        self.refused({"LOCKSTEP_TOKEN": SECRET}, {}, r"token")

    def test_token_that_only_the_newcomer_has_is_refused(self):
        self.refused({}, {"LOCKSTEP_TOKEN": SECRET}, r"token")

    def test_no_token_on_a_real_address_is_a_warning(self):
        one, two = self.node("a", 0), self.node("b", 1)
        self.assertEqual((one.wait(), two.wait()), (0, 0), one.output)
        self.assertRegex(one.stderr, r"(?i)warning.*token|token.*warning")

    def test_token_file_that_others_may_read_is_refused(self):
        done = self.node("a", 0, "--token-file", self.token_file(SECRET, 0o644))
        self.assertIn(done.wait(), (2, 3), done.output)
        self.assertRegex(done.stderr, r"token-\d+")
        self.assertRegex(done.stderr, r"chmod|mode|read")

    def test_token_on_the_command_line_is_refused(self):
        done = self.node("a", 0, f"--token={SECRET}")
        self.assertEqual(done.wait(), 2, done.output)
        self.assertNotIn(SECRET, done.output)


class Strangers(_Hosts):
    """Visitors come before, while and after the nodes meet; the job must not notice."""

    MANNERS = ("garbage", "scan", "http", "oversized", "slow", "json", "reset")

    def visit(self, manner, seed=7):
        return harness.Process(self.net["x"].command([sys.executable, "-c", VISITOR, "10.77.0.1", "29500", manner, str(seed)]))

    def test_visitors_before_all_nodes_have_joined_disturb_nothing(self):
        master = self.node("a", 0)
        visitors = [self.visit(manner) for manner in self.MANNERS]
        for visitor in visitors:
            visitor.wait_for("visited")
        self.assertTrue(master.alive(), master.output)
        other = self.node("b", 1)
        self.assertEqual((other.wait(), master.wait()), (0, 0), master.output)
        for visitor in visitors:
            visitor.kill()
            visitor.wait()

    def test_visitors_during_the_job_disturb_nothing(self):
        program = jobs.program("signals.py", self.marks, 0)
        master, other = self.node("a", 0, program=program), self.node("b", 1, program=program)
        jobs.wait_marks(self.marks, 2, launcher=master)
        visitors = [self.visit(manner, 11) for manner in self.MANNERS]
        for visitor in visitors:
            visitor.wait_for("visited")
        self.assertTrue(master.alive() and other.alive(), master.output)
        self.assertIsNone(jobs.marked(self.marks, "signals", 0))
        master.send_signal(signal.SIGTERM)
        self.assertEqual((master.wait(), other.wait()), (143, 143), master.output)
        for visitor in visitors:
            visitor.kill()
            visitor.wait()

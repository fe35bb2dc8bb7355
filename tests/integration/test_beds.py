"""The beds themselves: hosts that can be cut off, a SLURM, an mpirun. Without lockstep, so that a failing launcher test
can be told from a failing bed."""

import os
import signal
import subprocess
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import mpi, netns, slurm  # noqa: E402

CONNECT = ("import socket,sys\n"
           "try: socket.create_connection((sys.argv[1], 9), 0.5)\n"
           "except ConnectionRefusedError: print('answered')\n"
           "except OSError as e: print('silent')\n")


class Hosts(harness.Case):
    def setUp(self):
        harness.require("netns")
        self.net = netns.Net(["a", "b"])
        self.addCleanup(self.net.close)

    def reach(self, source, target):
        return self.net[source].run([sys.executable, "-c", CONNECT, target]).stdout.strip()

    def test_each_host_has_its_own_name_address_and_folder(self):
        for name, address in (("a", "10.77.0.1"), ("b", "10.77.0.2")):
            done = self.net[name].run(["sh", "-c", "hostname; ip -4 -o addr show eth0; pwd"])
            self.assertEqual(done.stdout.split("\n")[0], name)
            self.assertIn(f"inet {address}/24", done.stdout)
            self.assertIn(self.net[name].folder, done.stdout)

    def test_hosts_reach_each_other_by_name_and_not_with_any_cut(self):
        harness.require("nft")
        b = self.net["b"]
        self.assertEqual(self.reach("a", "b"), "answered")
        for name, fault in netns.Host.CUTS.items():
            with self.subTest(name):
                fault(b)
                self.assertEqual((self.reach("a", "b"), self.reach("b", "a")), ("silent", "silent"))
                b.restore()
                harness.wait_until(lambda: self.reach("a", "b") == "answered")

    def test_name_that_a_host_forgot_is_unknown_until_it_learns_it(self):
        a = self.net["a"]
        a.forget("b")
        self.assertEqual(a.run(["getent", "hosts", "b"]).returncode, 2)
        a.learn_all()
        self.assertIn("10.77.0.2", a.run(["getent", "hosts", "b"]).stdout)

    def test_nothing_of_a_host_is_visible_in_the_machines_own_network(self):
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout
        self.assertNotIn("br0", links)
        self.assertNotIn("eth0@", links)

    def test_starved_host_gets_less_processor_time_and_runs_on_when_fed(self):
        busy = self.net["a"].popen(["sh", "-c", "while :; do :; done"])
        harness.wait_until(lambda: busy.pid in self.net["a"].processes())
        self.net["a"].starve(5)
        with open("/proc/self/cgroup") as mine, open(f"/proc/{busy.pid}/cgroup") as its:
            self.assertNotEqual(mine.read(), its.read())
        self.net["a"].feed()
        with open("/proc/self/cgroup") as mine, open(f"/proc/{busy.pid}/cgroup") as its:
            self.assertNotIn(netns.PREFIX, its.read())
        busy.kill()
        busy.wait()

    def test_closing_ends_even_daemons_in_sessions_of_their_own(self):
        host = self.net["a"]
        host.popen(["sh", "-c", "setsid sh -c 'setsid sleep 1000 & exit' & exit"]).wait()
        left = harness.wait_until(lambda: [p for p in host.processes() if "sleep" in command_line(p)])
        self.net.close()
        self.assertFalse([pid for pid in left if "sleep" in command_line(pid)])


class KilledOwner(harness.Case):
    def test_hosts_of_a_killed_test_are_emptied_and_its_folder_goes_with_the_next(self):
        harness.require("netns")
        code = (f"import sys; sys.path.append({str(harness.ROOT / 'tests')!r})\n"
                "from beds import netns\nimport time\nnet = netns.Net(['a'])\n"
                "p = net['a'].popen(['sleep', '1000'], start_new_session=True)\n"
                "print('sleeper', p.pid, 'folder', net.folder, 'end', flush=True)\ntime.sleep(600)\n")
        owner = harness.spawn(sys.executable, "-c", code)
        words = owner.wait_for(" end").split()
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        harness.wait_until(lambda: "sleep 1000" not in command_line(int(words[1])))
        harness.wait_until(lambda: not harness.leftovers(), what="an empty machine")
        netns.Net([]).close()
        self.assertFalse(os.path.exists(words[3]))


class Schedulers(harness.Case):
    def test_srun_reaches_two_nodes_with_their_own_names_and_tasks_share_a_node(self):
        harness.require("slurm", "netns")
        with slurm.Slurm() as bed:
            self.assertEqual(sorted(bed.run(["srun", "-N2", "hostname"]).stdout.split()), ["n0", "n1"])
            done = bed.run(["srun", "-N2", "--ntasks-per-node=2", "sh", "-c", "echo $(hostname)$SLURM_PROCID"])
            self.assertEqual(sorted(done.stdout.split()), ["n00", "n01", "n12", "n13"])
            job = bed.sbatch("#!/bin/sh\nhostname\nexit 5\n", "-N2")
            self.assertEqual(bed.wait(job)["ExitCode"], "5:0")
            self.assertEqual(bed.output(job), "n0\n")
            harness.wait_until(lambda: not bed.job_processes())

    def test_mpirun_gives_each_process_its_rank(self):
        harness.require("mpirun")
        done = harness.run(mpi.command(3, ["sh", "-c", "echo $OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE"]))
        self.assertEqual(sorted(done.stdout.split()), ["0/3", "1/3", "2/3"], done.stderr)


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as text:
            return text.read().replace(b"\0", b" ").decode()
    except OSError:
        return ""

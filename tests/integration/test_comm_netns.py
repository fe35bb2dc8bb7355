"""Ranks on hosts of their own (network namespaces, one machine): TCP carries the bytes between hosts, shared memory only
those inside one. And ranks under torchrun, whose agent holds the master port."""

import json
import os
import subprocess
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import netns  # noqa: E402

# Test programs lie beside the programs' folder, or in the release tree when that folder is shared (build/bin).
PROBE = next(str(path) for path in (harness.BIN.parent / "tests" / "comm_probe",
                                    harness.BIN.parent / "release" / "tests" / "comm_probe") if path.exists())
MEGABYTES, ROUNDS = 4, 3
PAYLOAD = MEGABYTES * ROUNDS << 20


def rows(texts):
    found = [json.loads(line) for text in texts for line in text.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda row: row["rank"])


class Hosts(harness.Case):
    def setUp(self):
        harness.require("netns")
        self.net = netns.Net(["a", "b", "c"])
        self.addCleanup(self.net.close)

    def ranks(self, hosts, **more):
        """Starts one rank per entry of `hosts`; returns what each printed."""
        running = []
        for rank, host in enumerate(hosts):
            env = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "TORCHELASTIC_"))}
            # The number of local ranks is a lie: who shares memory is found out, not believed.
            env.update(RANK=str(rank), WORLD_SIZE=str(len(hosts)), LOCAL_RANK="0", LOCAL_WORLD_SIZE=str(len(hosts)),
                       MASTER_ADDR=hosts[0], MASTER_PORT="29400", **more)
            running.append(self.net[host].popen([PROBE, str(MEGABYTES), str(ROUNDS)], env=env, text=True,
                                                stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        texts, self.errors = [], ""
        for process in running:
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, err)
            texts.append(out)
            self.errors += err
        return rows(texts)

    def test_ranks_on_different_hosts_use_tcp_and_no_shared_memory(self):
        for row in self.ranks(["a", "b"]):
            self.assertEqual((row["transport"], row["nodes"], row["shm_bytes"]), ("tcp", 2, 0))
            self.assertEqual(row["tcp_bytes"], PAYLOAD)  # 2 (N-1)/N of the data, N = 2

    def test_three_hosts_send_four_thirds_of_the_data_each(self):
        for row in self.ranks(["a", "b", "c"]):
            self.assertEqual(row["shm_bytes"], 0)
            self.assertAlmostEqual(row["tcp_bytes"] / PAYLOAD, 4 / 3, places=2)

    def test_two_ranks_on_each_of_two_hosts_use_both(self):
        found = self.ranks(["a", "a", "b", "b"])
        self.assertEqual([row["node"] for row in found], [0, 0, 1, 1])
        for row in found:
            self.assertEqual((row["transport"], row["local_size"]), ("shm+tcp", 2))
            self.assertGreater(row["shm_bytes"], PAYLOAD / 2)
            # The first rank of a host talks for both.
            self.assertEqual(row["tcp_bytes"], PAYLOAD if row["local_rank"] == 0 else 0)

    def test_ranks_on_one_host_use_shared_memory_and_no_tcp(self):
        for row in self.ranks(["a", "a"]):
            self.assertEqual((row["transport"], row["tcp_bytes"]), ("shm", 0))
            self.assertGreater(row["shm_bytes"], PAYLOAD / 2)

    def test_hosts_that_claim_to_be_one_node_fall_back_to_tcp_and_say_so(self):
        found = self.ranks(["a", "a", "b", "b"], LOCKSTEP_NODE="the same everywhere")
        self.assertEqual([row["node"] for row in found], [0, 0, 1, 1])
        self.assertEqual({row["transport"] for row in found}, {"shm+tcp"})
        self.assertIn("ranks 2, 3 claim to be on one node with rank 0 but cannot share memory", self.errors)
        self.assertIn("TCP is used between them", self.errors)


class Torchrun(harness.Case):
    def test_ranks_find_each_other_through_the_agents_store(self):
        harness.require("torch")
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python",
                               PROBE, "1", "2"], capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        found = rows([done.stdout])
        self.assertEqual([row["transport"] for row in found], ["shm", "shm"])
        self.assertEqual({row["gathered"] for row in found}, {"rank 1"})

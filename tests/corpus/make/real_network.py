"""Rendezvous, ports, names, collectives and lost hosts, really caused."""

import subprocess
import sys
import time

from forms import Log, keep
from program import program
from register import ANY, USER, case, lockstep, log_folder, one_file_per_rank, plain, take_run, torchrun
from stage import LOCKSTEP, PYTHON, ROOT, TRAIN, environment, mounts

sys.path.append(str(ROOT / "tests"))

PY = "py-exception"
LISTEN = f"{PYTHON} -c 'import socket,time; s=socket.socket(); s.bind((\"\", 29500)); s.listen(); time.sleep(45)' &\nsleep 0.5"


@case("barrier-skipped-by-rank3-of-4-gloo-timeout-torchrun", "torchrun", ["gloo-timeout", "hang"], ["Timed out waiting", "timed out", "Timeout"], ANY,
      "rank 3 does not come to the collective the others wait in", rank=3)
def _(s):
    """Rank 3 sleeps in its own code; the others give up in an all-reduce after 6 s."""
    s.write("train.py", program(batch="""
        if rank == 3 and global_step == 11:
            logger.info("rank 3: waiting for the annotation server")
            time.sleep(40)
        """))
    torchrun(s, 4, "train.py", "--timeout", "6")


@case("lock-deadlock-rank1-of-2-gloo-timeout-lockstep", "lockstep", ["gloo-timeout", "hang"], ["Timed out waiting", "timed out", "Timeout"], ANY,
      "rank 1 waits for a lock it holds itself; rank 0 waits for rank 1", rank=[1, 0])
def _(s):
    """A threading.Lock taken twice on rank 1; rank 0 gives up after 6 s."""
    s.write("train.py", program(imports="import threading\nLOCK = threading.Lock()", batch="""
        if rank == 1 and global_step == 9:
            LOCK.acquire()
            LOCK.acquire()
        """))
    lockstep(s, 2, "train.py", "--timeout", "6")


@case("monitored-barrier-rank2-of-4-missing-torchrun", "torchrun", ["gloo-timeout", "hang", PY], ["monitoredBarrier", "failed to pass"], ANY,
      "rank 2 does not come to the barrier", rank=2)
def _(s):
    """monitored_barrier names the rank that is missing."""
    s.write("train.py", program(epoch="""
    if rank == 2:
        time.sleep(30)
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=5))
    """))
    torchrun(s, 4)


@case("collective-mismatch-rank1-of-2-debug-detail-torchrun", "torchrun", ["pt-coll-mismatch"], ["Detected mismatch between collectives"], USER,
      "rank 1 calls another collective than rank 0", rank=[0, 1], made="after the form")
def _(s):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL; all_reduce against broadcast. (This torch crashes on Gloo in that mode.)"""
    log = Log(70, ranks=2).banner().hf(10, 40)
    frames = [("/workspace/train.py", 97, "<module>", "main()"), ("/workspace/train.py", 81, "main", "dist.all_reduce(value)"), ("/opt/conda/lib/python3.10/site-packages/torch/distributed/distributed_c10d.py", 2806, "all_reduce", "work = group.allreduce([tensor], opts)")]
    log.mixed(*[log.trace(r, frames, f"RuntimeError: Detected mismatch between collectives on ranks. Rank {r} is running collective: CollectiveFingerPrint(SequenceNumber=41, OpType={ops[r]}, TensorShape=[4], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, layout=Strided (default), requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))), but Rank {1 - r} is running collective: CollectiveFingerPrint(SequenceNumber=41, OpType={ops[1 - r]}, TensorShape=[4], TensorDtypes=Float).Collectives differ in the following aspects: \t Op type: {ops[r]}vs {ops[1 - r]}")
                for ops in [["ALLREDUCE", "BROADCAST"]] for r in range(2)])
    keep(s, train_log=log.elastic(0, 1, [1], other_code=1))


@case("port-in-use-static-2-ranks-torchrun", "torchrun", ["pt-store-inuse"], ["EADDRINUSE", "already in use"], ["after-fix", "yes", "no"], "another program listens on the port of the store", rank=None)
def _(s):
    """torchrun with --master-port 29500, which somebody holds."""
    s.write("train.py", program())
    torchrun(s, 2, flags=["--nnodes", "1", "--master-addr", "127.0.0.1", "--master-port", "29500"], before=LISTEN)


@case("port-in-use-rank0-of-2-one-file-per-rank", "plain, one file per rank", ["pt-store-inuse"], ["EADDRINUSE", "already in use"], ["after-fix", "yes", "no"],
      "another program listens on the port; rank 1 talks to that stranger", rank=0)
def _(s):
    """Ranks started by hand while port 29500 is held."""
    s.write("train.py", program())
    one_file_per_rank(s, 2, before=LISTEN, script="train.py --timeout 10")


@case("dns-failure-master-name-2-ranks-one-file-per-rank", "plain, one file per rank", ["pt-dns", "pt-store-client-to", "net"], ["name resolution", "Name or service not known", "can't be retrieved", "cannot be retrieved"], ["yes", "after-fix", "no"],
      "the host name of the master is unknown", rank=[0, 1])
def _(s):
    """MASTER_ADDR is a pod name that nobody resolves."""
    s.write("train.py", program())
    one_file_per_rank(s, 2, env={"MASTER_ADDR": "train-job-master-0.train-job"}, script="train.py --timeout 6", ranks=[1])
    (s.work / "log" / "rank_1.log").rename(s.work / "log" / "keep")
    one_file_per_rank(s, 2, env={"MASTER_ADDR": "train-job-master-0.train-job"}, script="train.py --timeout 6", ranks=[0])
    (s.work / "log" / "keep").rename(s.work / "log" / "rank_1.log")


@case("wrong-master-address-2-ranks-one-file-per-rank", "plain, one file per rank", ["pt-store-client-to", "pt-store-wait", "net"], ["timed out", "Connection refused", "retry"], ["yes", "after-fix", "no"],
      "rank 1 looks for the store at an address where nobody listens", rank=1)
def _(s):
    """Rank 1 has another MASTER_PORT than rank 0; rank 0 waits for it."""
    s.write("train.py", program())
    one_file_per_rank(s, 2, script="train.py --timeout 8", per_rank={1: {"MASTER_PORT": 29600}})


@case("missing-rank-3-of-4-joined-one-file-per-rank", "plain, one file per rank", ["pt-store-wait", "pt-store-client-to", "pt-rdzv-timeout", "gloo-mesh"], ["imed out", "imeout"], ["yes", "after-fix", "no"],
      "three of four ranks came; rank 2 was never started", rank=[2, None])
def _(s):
    """WORLD_SIZE 4, ranks 0, 1 and 3."""
    s.write("train.py", program())
    one_file_per_rank(s, 4, script="train.py --timeout 8", ranks=[0, 1, 3])


@case("missing-node-rendezvous-timeout-torchrun", "torchrun", ["pt-rdzv-timeout"], ["RendezvousTimeoutError"], ["yes", "after-fix", "no"], "the second node never came", rank=None)
def _(s):
    """--nnodes 2 with one node and join_timeout=5."""
    s.write("train.py", program())
    torchrun(s, 2, flags=["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:29400", "--rdzv-id", "job7", "--rdzv-conf", "join_timeout=5,is_host=1"])


@case("missing-node-join-timeout-lockstep", "lockstep", ["node-lost", "pt-rdzv-timeout", "join-timeout"], ["missing", "node 1"], ["yes", "after-fix", "no"], "the second node never came", rank=None)
def _(s):
    """--nnodes 2 with one node and --join-timeout 4s."""
    s.write("train.py", program())
    log_folder(s)
    s.run(f"{LOCKSTEP} run --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --nproc-per-node 2 --join-timeout 4s --name train train.py >log/console.log 2>&1; exit 0")


@case("gloo-interface-missing-rank1-of-2-one-file-per-rank", "plain, one file per rank", [PY, "gloo-mesh", "net"], ["eth7", "Unable to find"], USER,
      "GLOO_SOCKET_IFNAME of rank 1 names an interface that is not there", rank=1)
def _(s):
    """eth7 exists nowhere."""
    s.write("train.py", program())
    one_file_per_rank(s, 2, script="train.py --timeout 8", per_rank={1: {"GLOO_SOCKET_IFNAME": "eth7"}})


@case("hub-not-reachable-2-ranks-torchrun", "torchrun", ["hub-conn", "pt-dns", "net"], ["huggingface.co", "LocalEntryNotFoundError", "name resolution", "ConnectError"], ["yes", "after-fix", "no"],
      "the model hub cannot be reached and the file is not in the cache", rank=[0, 1])
def _(s):
    """huggingface_hub downloads in a network without a way out."""
    s.write("train.py", program(imports="from huggingface_hub import hf_hub_download", start='''
    config = json.load(open(hf_hub_download("facebook/opt-125m", "config.json")))
    '''))
    torchrun(s, 2, env={"HF_HUB_DOWNLOAD_TIMEOUT": "3"}, timeout=200)


@case("hub-repository-not-found-plain", "plain", ["hub-conn", PY, "hub-auth"], ["RepositoryNotFoundError", "401"], USER, "the repository does not exist or needs a token", rank=None)
def _(s):
    """huggingface_hub against a local server that answers 401 as the hub does."""
    s.write("server.py", '''import http.server


class Hub(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(401)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("X-Error-Message", "Repository not found")
        self.send_header("X-Request-Id", "Root=1-690f2a11-1f2e3d4c5b6a798800112233")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


http.server.HTTPServer(("127.0.0.1", 8080), Hub).serve_forever()
''')
    s.write("train.py", '''from huggingface_hub import hf_hub_download

print("loading config of example-org/vla-7b")
path = hf_hub_download("example-org/vla-7b", "config.json")
print(path)
''')
    plain(s, "python train.py\n", env={"HF_ENDPOINT": "http://127.0.0.1:8080"}, before=f"{PYTHON} server.py >/dev/null 2>&1 & sleep 1.5")


class Hosts:
    """Two hosts with their own network, both with the neutral folders; a cable that can be pulled."""

    def __init__(self, stage, names):
        from beds import netns

        self.net = netns.Net(names)
        self.names = names
        for name in names:
            script = stage.top / f"mounts-{name}.sh"
            script.write_text("set -e\n" + mounts(stage.work, host=None))
            done = self.net[name].run(["bash", str(script)])
            if done.returncode:
                raise RuntimeError(done.stderr)

    def start(self, name, shell, env=None):
        return self.net[name].popen(["bash", "-c", f"cd {TRAIN}; {shell}"], env=environment({"GLOO_SOCKET_IFNAME": "eth0", **(env or {})}),
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")


def pull_cable(s, shells, names, seconds, ready):
    """Starts both, waits for the line of a step, pulls the cable of the second host, waits for the first to end."""
    hosts = Hosts(s, names)
    try:
        running = [hosts.start(name, shell) for name, shell in zip(names, shells)]
        end = time.monotonic() + 90
        while time.monotonic() < end and not ready():
            time.sleep(0.2)
        time.sleep(1)
        hosts.net[names[1]].drop()
        running[0].wait(seconds)
    finally:
        hosts.net.close()


@case("node-lost-cable-pulled-lockstep-2-hosts", "lockstep", ["node-lost", "gloo-timeout"], ["lost", "silent", "gpu-12", "Timed out"], ["yes", "after-fix"],
      "the second host fell silent: its cable was pulled", rank=[1, None], node="gpu-12")
def _(s):
    """Two hosts (network namespaces), one rank each; all packets of the second are dropped. The first host's run directory."""
    s.write("train.py", program())
    log_folder(s)
    common = f"{LOCKSTEP} run --nnodes 2 --master-addr gpu-11 --master-port 29500 --nproc-per-node 1 --node-timeout 5s --grace 2s"
    tail = "train.py --steps 400 --pace 0.1 --timeout 60"
    shells = [f"{common} --node-rank 0 --name train --log-dir runs {tail} >console.txt 2>&1",
              f"{common} --node-rank 1 --name train --log-dir other {tail} >console1.txt 2>&1"]
    console = s.work / "console.txt"
    pull_cable(s, shells, ["gpu-11", "gpu-12"], 90, lambda: console.exists() and "'loss'" in console.read_text())
    take_run(s)


@case("node-lost-cable-pulled-torchrun-2-hosts", "torchrun", ["gloo-timeout", "node-lost", "hang", "gloo-io"], ["imed out", "imeout", "closed"], ["yes", "after-fix"],
      "the second host fell silent: its cable was pulled; the first sees a timed-out collective", rank=[1, None, 0], node=None)
def _(s):
    """Two hosts, one rank each; only the log of the first host is there."""
    s.write("train.py", program())
    log_folder(s)
    common = f"{PYTHON} -m torch.distributed.run --nnodes 2 --master-addr gpu-11 --master-port 29500 --nproc-per-node 1"
    tail = "train.py --steps 400 --pace 0.1 --timeout 10"
    shells = [f"{common} --node-rank 0 {tail} >log/gpu-11.log 2>&1", f"{common} --node-rank 1 {tail} >other.txt 2>&1"]
    log = s.work / "log" / "gpu-11.log"
    pull_cable(s, shells, ["gpu-11", "gpu-12"], 90, lambda: log.exists() and "'loss'" in log.read_text())


_ = lockstep

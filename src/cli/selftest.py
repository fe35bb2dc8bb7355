"""Collectives with known answers, then their speed, under the interpreter, torch and NCCL the job itself will load.

Embedded in `lockstep` and started by `lockstep selftest` as the program of every rank. Ranks tell each other how they fare
through a store of their own, so that when a collective fails or hangs, it can be said who is missing and which link is cut.
"""

import argparse
import datetime
import json
import os
import re
import socket
import sys
import threading
import time

NO_TORCH = 42
try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    print(f"selftest: {error} ({sys.executable})", file=sys.stderr)
    sys.exit(NO_TORCH)

ECHO = b"lockstep-selftest"
MANY = 48  # ranks; with more, links are tried along rings instead of between all


class Stuck(Exception):
    """A collective failed or did not end in time: what it was, and what was said."""


def text_of_size(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} TiB"


class Rank:
    def __init__(self, options):
        self.options = options
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.local_world = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self.node = int(os.environ.get("GROUP_RANK", "0"))
        self.host = socket.gethostname()
        self.limit = options.limit
        self.store = None
        self.who = {}  # rank -> what it said about itself
        self.result = {"ok": False, "rank": self.rank, "world": self.world, "node": self.node, "host": self.host,
                       "torch": str(torch.__version__), "checks": [], "sizes": [], "pairs": [], "notes": []}
        self.done = 0
        self.began = time.monotonic()
        self.steps = 1
        self.doing = "start"

    # --- saying how it goes ---
    def progress(self, doing):
        self.doing = doing
        self.done += 1
        if self.rank != 0 or not self.options.progress:
            return
        spent = time.monotonic() - self.began
        left = spent / self.done * max(0, self.steps - self.done)
        self.replace(self.options.progress, {"doing": doing, "done": self.done, "of": self.steps, "eta": round(left, 1)})

    @staticmethod
    def replace(path, document):
        with open(path + ".part", "w") as file:
            json.dump(document, file)
        os.replace(path + ".part", path)

    def write(self):
        """Every rank leaves its own view; rank 0's is the one that is shown when there is one."""
        path = os.path.join(self.options.out, f"rank-{self.rank}.json")
        self.replace(path, self.result)

    def name(self, rank):
        about = self.who.get(rank, {})
        return f"rank {rank} (node {about.get('node', '?')}, {about.get('host', '?')}, pid {about.get('pid', '?')})"

    # --- links, without any library between ---
    def listen(self):
        both = socket.has_dualstack_ipv6()
        self.listener = socket.create_server(("", 0), family=socket.AF_INET6 if both else socket.AF_INET,
                                             backlog=1024, dualstack_ipv6=both)
        threading.Thread(target=self.answer, daemon=True).start()

    def address(self):
        """The address of the interface that leads to the master."""
        master = os.environ.get("MASTER_ADDR", "127.0.0.1")
        try:
            family, kind, _, _, target = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(target)
                return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"

    def address_of(self, rank):
        """Where this rank finds it. A host whose own name is loopback (127.0.1.1 of Debian) tells that address of itself;
        only the master's can, so from other nodes it is the master."""
        about = self.who[rank]
        loopback = about["address"].startswith("127.") or about["address"] == "::1"
        return os.environ["MASTER_ADDR"] if loopback and about["node"] != self.node else about["address"]

    def answer(self):
        while True:
            try:
                peer, _ = self.listener.accept()
                threading.Thread(target=self.echo, args=(peer,), daemon=True).start()
            except OSError:
                return

    @staticmethod
    def echo(peer):
        with peer:
            peer.settimeout(30)
            try:
                peer.sendall(peer.recv(len(ECHO)))
            except OSError:
                pass

    def try_link(self, rank, seconds):
        target = (self.address_of(rank), self.who[rank]["port"])
        where = f"{target[0]}:{target[1]}"
        try:
            with socket.create_connection(target, timeout=seconds) as link:
                link.settimeout(seconds)
                link.sendall(ECHO)
                if link.recv(len(ECHO)) == ECHO:
                    return None
                return ("silent", f"{where} closed the connection")
        except (socket.timeout, TimeoutError):
            # A stopped process still has its connections accepted, by its kernel.
            pass
        except ConnectionRefusedError:
            return ("gone", f"{where} refuses the connection: the process is gone")
        except OSError as error:
            return ("cut", f"{where}: {error.strerror or error}")
        try:
            with socket.create_connection(target, timeout=seconds):
                return ("silent", f"{where} is connected but does not answer: the process is stopped or stuck")
        except (socket.timeout, TimeoutError):
            return ("cut", f"{where} cannot be connected to within {seconds:g} s: packets are dropped")
        except OSError as error:
            return ("cut", f"{where}: {error.strerror or error}")

    def partners(self):
        others = [r for r in sorted(self.who) if r != self.rank]
        if self.world <= MANY:
            return others
        wanted, step = set(), 1
        while step < self.world:
            wanted.add((self.rank + step) % self.world)
            step *= 2
        return [r for r in others if r in wanted]

    def try_links(self, seconds=3):
        found, threads = {}, []
        for rank in self.partners():
            def probe(rank=rank):
                trouble = self.try_link(rank, seconds)
                if trouble:
                    found[rank] = trouble
            threads.append(threading.Thread(target=probe, daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join(3 * seconds)
        return found

    def links(self, key):
        """Tries the links, tells rank 0, and there turns everybody's findings into one sentence (or None)."""
        mine = {str(rank): list(trouble) for rank, trouble in self.try_links().items()}
        own = self.from_links({self.rank: mine})
        try:
            self.store.set(f"{key}/{self.rank}", json.dumps(mine))
        except Exception:
            return own
        if self.rank != 0:
            return own
        told = {0: mine}
        end = time.monotonic() + self.limit + 12
        for rank in range(1, self.world):
            # Who does not answer here is not waited for.
            answer = self.ask(f"{key}/{rank}", 0.2 if str(rank) in mine else max(0.2, end - time.monotonic()))
            if answer is not None:
                told[rank] = answer
        return self.from_links(told)

    def ask(self, key, seconds):
        try:
            self.store.wait([key], datetime.timedelta(seconds=seconds))
            return json.loads(self.store.get(key))
        except Exception:
            return None

    def from_links(self, told):
        """Who is to blame: a process all others find silent or gone, a node nobody reaches, else a pair."""
        trouble = {}  # (from, to) -> (kind, words)
        for source, found in told.items():
            for target, (kind, words) in found.items():
                # Who has told what it found is alive: something between refuses in its name.
                if kind == "gone" and int(target) in told:
                    kind, words = "cut", words.replace("the process is gone", "the process is alive, so a firewall rejects it")
                trouble[(int(source), int(target))] = (kind, words)
        if not trouble:
            return None
        verdict = {"kind": "link", "ranks": [], "nodes": [], "pair": None}
        for kind in ("gone", "silent"):
            bad = sorted({target for (_, target), (k, _) in trouble.items() if k == kind})
            if bad:
                words = next(w for (_, t), (k, w) in trouble.items() if k == kind and t == bad[0])
                verdict.update(kind=kind, ranks=bad, nodes=sorted({self.who[r].get("node") for r in bad}))
                verdict["text"] = f"{', '.join(self.name(r) for r in bad[:4])}: {words}"
                return verdict
        nodes = {}
        for source, target in trouble:
            a, b = self.who[source].get("node"), self.who[target].get("node")
            nodes.setdefault((min(a, b), max(a, b)), []).append((source, target))
        involved = [set(pair) for pair in nodes]
        common = set.intersection(*involved) if involved else set()
        all_nodes = {about.get("node") for about in self.who.values()}
        (source, target), (_, words) = sorted(trouble.items())[0]
        verdict["ranks"] = sorted({r for pair in trouble for r in pair})
        if len(nodes) >= max(2, len(all_nodes) - 1) and len(common) == 1:
            node = common.pop()
            host = next(about["host"] for about in self.who.values() if about.get("node") == node)
            verdict["nodes"] = [node]
            verdict["text"] = f"node {node} ({host}) is cut off: {self.name(source)} to {self.name(target)}: {words}"
        else:
            verdict["nodes"] = sorted(next(iter(nodes)))
            verdict["pair"] = [source, target]
            more = f" (and {len(trouble) - 1} more links)" if len(trouble) > 1 else ""
            verdict["text"] = f"no link from {self.name(source)} to {self.name(target)}: {words}{more}"
        return verdict

    # --- meeting ---
    def meet(self):
        master, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))
        hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # by the launcher of node 0
        try:
            self.store = dist.TCPStore(master, port, self.world, self.rank == 0 and not hosted,
                                       timeout=datetime.timedelta(seconds=self.options.meet), wait_for_workers=False)
        except Exception as error:
            raise Stuck(f"rank {self.rank} on {self.host} does not reach the master at {master}:{port}: {first_line(error)}")
        self.listen()
        usable = torch.cuda.is_available() and torch.cuda.device_count() >= self.local_world and dist.is_nccl_available()
        about = {"host": self.host, "node": self.node, "pid": os.getpid(), "address": self.address(),
                 "port": self.listener.getsockname()[1], "nccl": bool(usable), "torch": str(torch.__version__),
                 "failed": self.options.failed}
        self.store.set(f"who/{self.rank}", json.dumps(about))
        missing = []
        end = time.monotonic() + self.options.meet
        for rank in range(self.world):
            said = self.ask(f"who/{rank}", max(0.2, end - time.monotonic()))
            if said is None:
                missing.append(rank)
            else:
                self.who[rank] = said
        if missing:
            raise Stuck(f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing[:8]))} of {self.world} did not "
                        f"come within {self.options.meet:g} s")
        failed = [(r, a["failed"]) for r, a in sorted(self.who.items()) if a["failed"]]
        if failed:
            rank, why = failed[0]
            about = self.who[rank]
            self.result["blame"] = {"kind": "node", "ranks": [], "nodes": [about["node"]], "pair": None}
            raise Stuck(f"node {about['node']} ({about['host']}) failed by itself: {why}")
        versions = {about["torch"] for about in self.who.values()}
        if len(versions) > 1:
            self.result["notes"].append(f"torch differs between ranks: {', '.join(sorted(versions))}")

    def open_group(self):
        backend = self.options.backend
        if backend == "auto":
            backend = "nccl" if all(about["nccl"] for about in self.who.values()) else "gloo"
        self.backend = backend
        if backend == "nccl" and not all(about["nccl"] for about in self.who.values()):
            without = [rank for rank, about in sorted(self.who.items()) if not about["nccl"]]
            raise Stuck(f"NCCL needs a GPU for every rank of a node: {self.name(without[0])} has none "
                        f"(torch {self.who[without[0]]['torch']}); use --backend gloo, or fewer ranks")
        self.device = torch.device("cuda", self.local_rank) if backend == "nccl" else torch.device("cpu")
        if backend == "nccl":
            torch.cuda.set_device(self.device)
            version = torch.cuda.nccl.version()
            self.result["nccl"] = ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
        self.result["backend"] = backend
        # NCCL's own watchdog ends the process: it must come after ours, which says who is missing.
        patience = self.limit if backend == "gloo" else 3 * self.limit + 60
        self.call("making the process group", lambda: dist.init_process_group(
            backend, store=dist.PrefixStore("group", self.store), rank=self.rank, world_size=self.world,
            timeout=datetime.timedelta(seconds=patience)))

    def call(self, what, action):
        """Runs it; an exception and a GPU that does not finish in time are both Stuck."""
        try:
            out = action()
            self.settle(what)
            return out
        except Stuck:
            raise
        except Exception as error:
            raise Stuck(f"{what}: {first_line(error)}")

    def settle(self, what):
        if getattr(self, "backend", "gloo") != "nccl" or not torch.cuda.is_initialized():
            return
        event = torch.cuda.Event()
        event.record()
        end = time.monotonic() + self.limit
        while not event.query():
            if time.monotonic() > end:
                raise Stuck(f"{what}: not finished after {self.limit:g} s")
            time.sleep(0.0005)

    def barrier(self, what):
        """Through the store, so that ranks that are not in a group wait without using a processor."""
        count = self.store.add(f"barrier/{what}", 1)
        if count == self.world:
            self.store.set(f"passed/{what}", "1")
        if self.ask(f"passed/{what}", self.limit + 5) is None:
            raise Stuck(f"waiting for the others before {what}")

    # --- known answers ---
    def check(self, what, action):
        self.progress(what)
        wrong = self.call(what, action)
        entry = {"what": what, "ok": not wrong}
        if wrong:
            entry["ranks"] = sorted(wrong)
        self.result["checks"].append(entry)
        # All ranks hear of a wrong answer anywhere, and stop together.
        if self.world > 1:
            self.store.set(f"wrong/{what}/{self.rank}", json.dumps(sorted(wrong)))
            self.barrier(f"check {what}")
            for rank in range(self.world):
                wrong = set(wrong) | set(self.ask(f"wrong/{what}/{rank}", self.limit) or [])
        if wrong:
            self.result["blame"] = {"kind": "wrong answer", "ranks": sorted(wrong), "pair": None,
                                    "nodes": sorted({self.who[r].get("node") for r in wrong})}
            raise Stuck(f"{what}: the contribution of {', '.join(self.name(r) for r in sorted(wrong)[:4])} arrived altered")

    def all_reduce(self, dtype, count):
        # Element r is rank r's alone, the rest holds a sum that is exact in every type: a wrong one names its rank.
        def run():
            x = torch.zeros(count, dtype=dtype, device=self.device)
            x[self.rank] = self.rank + 1
            x[self.world:] = self.rank % 7 + 1
            dist.all_reduce(x)
            want = torch.zeros(count, dtype=dtype)
            want[:self.world] = torch.arange(1, self.world + 1).to(dtype)
            want[self.world:] = sum(r % 7 + 1 for r in range(self.world))
            bad = (x.cpu() != want).nonzero().flatten().tolist()
            named = {i for i in bad if i < self.world}
            return named or ({self.rank} if bad else set())
        return run

    def all_gather(self):
        count = 1000
        mine = torch.arange(count, dtype=torch.int64, device=self.device) + self.rank * 1000003
        parts = [torch.zeros_like(mine) for _ in range(self.world)]
        dist.all_gather(parts, mine)
        return {r for r, part in enumerate(parts)
                if not torch.equal(part.cpu(), torch.arange(count, dtype=torch.int64) + r * 1000003)}

    def reduce_scatter(self):
        count = 1000
        # Block k of rank r: digits of base 1000 tell who gave what.
        parts = [torch.full((count,), (self.rank + 1) * (k + 1), dtype=torch.int64, device=self.device)
                 for k in range(self.world)]
        out = torch.zeros(count, dtype=torch.int64, device=self.device)
        dist.reduce_scatter(out, parts)
        want = sum(r + 1 for r in range(self.world)) * (self.rank + 1)
        return set() if bool((out.cpu() == want).all()) else {self.rank}

    def broadcasts(self):
        wrong = set()
        for root in sorted({0, self.world // 2, self.world - 1}):
            x = torch.full((1000,), self.rank, dtype=torch.int64, device=self.device)
            dist.broadcast(x, root)
            if not bool((x.cpu() == root).all()):
                wrong.add(root)
        return wrong

    def ring(self, distance):
        """Everybody sends to the rank `distance` ahead, in both orders at once; the pair's speed is a by-product."""
        count = 1 << (20 if self.backend == "nccl" else 16)
        to, source = (self.rank + distance) % self.world, (self.rank - distance) % self.world
        out = torch.full((count,), self.rank, dtype=torch.int32, device=self.device)
        x = torch.zeros(count, dtype=torch.int32, device=self.device)

        def swap():
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, out, to), dist.P2POp(dist.irecv, x, source)])
            for work in works:
                work.wait()
        swap()
        self.settle(f"send and receive at distance {distance}")
        seconds = float("inf")
        for _ in range(3):
            started = time.perf_counter()
            swap()
            self.settle(f"send and receive at distance {distance}")
            seconds = min(seconds, time.perf_counter() - started)
        self.mine_pairs.append([source, self.rank, round(count * 4 / seconds / 1e9, 3)])
        return set() if bool((x.cpu() == source).all()) else {source}

    def distances(self):
        if self.world <= 16:
            return list(range(1, self.world))
        return sorted({1, self.world - 1, self.world // 2, *(1 << k for k in range(self.world.bit_length() - 1))})

    # --- speed ---
    def measure(self, size):
        count = max(1, size // 4)
        x = torch.ones(count, dtype=torch.float32, device=self.device)
        what = f"all-reduce of {text_of_size(size)}"
        self.progress(what)

        def run():
            dist.all_reduce(x)
            self.settle(what)
            dist.barrier()
            rounds, total = 0, 0.0
            best = float("inf")
            # The same number everywhere: rank 0 says it after one trial.
            trial = time.perf_counter()
            dist.all_reduce(x)
            self.settle(what)
            trial = time.perf_counter() - trial
            wanted = torch.tensor([max(3, min(200, int(self.options.seconds / max(trial, 1e-6) / 4)))], device=self.device)
            dist.broadcast(wanted, 0)
            per = 4
            for _ in range(int(wanted.item())):
                x.fill_(1)
                started = time.perf_counter()
                for _ in range(per):
                    dist.all_reduce(x)
                self.settle(what)
                spent = (time.perf_counter() - started) / per
                best, total, rounds = min(best, spent), total + spent, rounds + 1
            return best, total / rounds
        best, mean = self.call(what, run)
        factor = 2 * (self.world - 1) / self.world if self.world > 1 else 0
        self.result["sizes"].append({"bytes": size, "us": round(mean * 1e6, 1), "best_us": round(best * 1e6, 1),
                                     "algbw": round(size / mean / 1e9, 4), "busbw": round(factor * size / mean / 1e9, 4)})

    # --- scaling ---
    def scale(self):
        sizes, n = [], 1
        while n < self.world:
            sizes.append(n)
            n *= 2
        sizes.append(self.world)
        gradient = torch.ones((64 << 20 if self.backend == "nccl" else 4 << 20) // 4, device=self.device)
        side = 4096 if self.backend == "nccl" else 384
        a = torch.rand(side, side, device=self.device)
        b = torch.rand(side, side, device=self.device)

        def compute():
            for _ in range(8):
                torch.mm(a, b)
            self.settle("a step of work")
        rows = []
        for n in sizes:
            self.progress(f"steps on {n} rank{'s' if n > 1 else ''}")
            group = dist.new_group(list(range(n))) if n > 1 else None
            self.barrier(f"scale {n}")
            if self.rank < n:
                worked = exchanged = 0.0
                rounds = 12
                for i in range(rounds + 2):
                    if i == 2:
                        worked = exchanged = 0.0
                    t0 = time.perf_counter()
                    compute()
                    t1 = time.perf_counter()
                    if group is not None:
                        self.call(f"a step on {n} ranks", lambda: dist.all_reduce(gradient.fill_(1), group=group))
                    t2 = time.perf_counter()
                    worked, exchanged = worked + t1 - t0, exchanged + t2 - t1
                rows.append({"ranks": n, "compute_ms": round(worked / rounds * 1e3, 3),
                             "exchange_ms": round(exchanged / rounds * 1e3, 3)})
            self.barrier(f"scaled {n}")
        if self.rank == 0:
            alone = rows[0]["compute_ms"]
            for row in rows:
                step = row["compute_ms"] + row["exchange_ms"]
                row["efficiency"] = round(alone / step, 4)
                row["lost_to_exchange"] = round(row["exchange_ms"] / step, 4)
                row["lost_to_compute"] = round(max(0.0, row["compute_ms"] - alone) / step, 4)
            self.result["scale"] = rows
            self.result["gradient_bytes"] = gradient.numel() * 4

    # --- all of it ---
    def run(self):
        sizes = [int(s) for s in self.options.sizes.split(",")] if self.options.sizes else None
        self.steps = 4 + 8 + len(self.distances()) + (len(sizes) if sizes else 5) + (self.world.bit_length() if self.options.scale else 0)
        self.progress("rendezvous")
        self.meet()
        self.progress("links between the ranks")
        blame = self.links("links")
        if self.world > 1:
            # Rank 0 has seen everybody's; a cut link would only make the collectives hang.
            if self.rank == 0:
                self.store.set("links-verdict", json.dumps(blame))
            else:
                blame = self.ask("links-verdict", 30) or blame
        if blame:
            self.result["blame"] = blame
            raise Stuck(blame["text"])
        self.progress("making the process group")
        self.open_group()
        sizes = sizes or ([8, 1 << 16, 1 << 20, 1 << 24, 1 << 28] if self.backend == "nccl" else [8, 1 << 14, 1 << 18, 1 << 21, 1 << 24])
        self.check("all-reduce of integers", self.all_reduce(torch.int64, self.world + 5000))
        self.check("all-reduce of floats", self.all_reduce(torch.float32, self.world + 5000))
        self.check("all-gather", self.all_gather)
        if self.backend == "nccl" or tuple(int(p) for p in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 6):
            self.check("reduce-scatter", self.reduce_scatter)
        else:
            self.result["notes"].append("reduce-scatter left out: this torch's Gloo has none")
        self.check("broadcast", self.broadcasts)
        self.mine_pairs = []
        for distance in self.distances():
            self.check(f"send and receive at distance {distance}", lambda: self.ring(distance))
        if self.world > 1:
            every = [None] * self.world
            self.call("gathering the pairs", lambda: dist.all_gather_object(every, self.mine_pairs))
            self.result["pairs"] = [pair for pairs in every for pair in pairs]
            for size in sizes:
                self.measure(size)
        if self.options.scale:
            self.scale()
        self.result["ok"] = True
        self.write()
        # Rank 0 has the store, and so leaves last.
        if self.rank != 0:
            self.store.add("left", 1)
            return
        end = time.monotonic() + self.limit
        while self.store.add("left", 0) < self.world - 1 and time.monotonic() < end:
            time.sleep(0.01)


def first_line(error):
    # Without the place in the library's source.
    lines = [re.sub(r"^\[\S+:\d+\] ", "", line.strip()) for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:400]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True, help="folder for rank-<r>.json")
    parser.add_argument("--progress", default="")
    parser.add_argument("--backend", default="auto", choices=["auto", "gloo", "nccl"])
    parser.add_argument("--sizes", default="")
    parser.add_argument("--seconds", type=float, default=0.5, help="spent on each size")
    parser.add_argument("--limit", type=float, default=15, help="seconds a collective may take")
    parser.add_argument("--meet", type=float, default=60, help="seconds until all ranks must be here")
    parser.add_argument("--failed", default="", help="what this node failed at by itself")
    parser.add_argument("--scale", action="store_true")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    me = Rank(options)
    try:
        me.run()
    except Stuck as stuck:
        me.result["error"] = str(stuck)
        me.result["during"] = me.doing
        # Who is missing is asked of the links, which need no library.
        if "blame" not in me.result and me.who:
            blame = me.links("after")
            if blame:
                me.result["blame"] = blame
                me.result["error"] = f"{blame['text']} (noticed at {stuck})"
        me.write()
        print(f"selftest: {me.result['error']}", file=sys.stderr, flush=True)
        # The first to leave ends them all: rank 0 must have had its say.
        if me.rank == 0 and me.store is not None:
            me.store.set("verdict", "1")
            time.sleep(0.5)
        elif me.who and 0 not in me.result.get("blame", {}).get("ranks", []):
            waiting = threading.Thread(target=me.ask, args=("verdict", me.limit + 20), daemon=True)
            waiting.start()
            waiting.join(me.limit + 20)
        os._exit(1)
    except Exception as error:  # a fault of the test itself or of the environment; never a silent pass
        me.result["error"] = first_line(error)
        me.write()
        raise
    sys.stdout.flush()
    os._exit(0)  # tearing groups down is not what is tested


main()

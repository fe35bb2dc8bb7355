"""store_ops.py FOLDER [fail-first]: every operation of torch's TCPStore on the store of the env:// rendezvous.

Two ranks, whoever hosts the store. With fail-first the first attempt leaves a key behind and fails. Where a launcher
hosts the store, rank 0 ends first and rank 1 goes on using it. Each rank writes FOLDER/result.RANK (JSON).
"""

import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import ready

torch.set_num_threads(1)
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SHORT = timedelta(milliseconds=60)
HOSTED = os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True"

store, _, _ = next(iter(dist.rendezvous("env://")))
other = store.clone()  # a second connection of the same process
done = []


def check(name, found, expected):
    if found != expected:
        sys.exit(f"rank {RANK}: {name}: expected {expected!r}, found {found!r}")
    done.append(name)


def raises(name, call, words=""):
    try:
        call()
    except (dist.DistStoreError, dist.QueueEmptyError) as error:
        check(name, words in str(error), True)
    else:
        sys.exit(f"rank {RANK}: {name}: expected an error")


def meet(name):
    store.add(f"meet/{name}", 1)
    while store.add(f"meet/{name}", 0) < WORLD:
        time.sleep(0.002)


def alone():
    """One client: what each request answers."""
    check("keys of a new store", sorted(k for k in store.list_keys() if not k.startswith("meet/")), [])
    store.set("a", "1")
    check("get", store.get("a"), b"1")
    store.set("empty", "")
    check("get of an empty value", store.get("empty"), b"")
    raises("get of a missing key", lambda: impatient.get("missing"), "wait timeout")
    check("add to a new key", store.add("n", 5), 5)
    check("add", store.add("n", -7), -2)
    check("a counter is decimal text", store.get("n"), b"-2")
    check("add to a text", store.add("a", 41), 42)
    check("check of keys", store.check(["a", "n"]), True)
    check("check of a missing key", store.check(["a", "missing"]), False)
    check("compare_set of a missing key, empty expected", store.compare_set("c", "", "first"), b"first")
    check("compare_set that matches", store.compare_set("c", "first", "second"), b"second")
    check("compare_set that does not match", store.compare_set("c", "first", "third"), b"second")
    check("compare_set of a missing key, a value expected", store.compare_set("d", "x", "y"), b"x")
    check("which stores nothing", store.check(["d"]), False)
    before = store.num_keys()
    check("delete_key", store.delete_key("c"), True)
    check("delete_key of a missing key", store.delete_key("c"), False)
    check("num_keys", store.num_keys(), before - 1)
    store.append("log", "one")
    store.append("log", ",two")
    check("append", store.get("log"), b"one,two")
    store.multi_set(["m0", "m1", "m2"], ["x", "", "z" * 100000])
    check("multi_get", store.multi_get(["m2", "m1", "m0"]), [b"z" * 100000, b"", b"x"])
    raises("wait for one of two keys", lambda: store.wait(["a", "missing"], SHORT), "wait timeout")
    check("after a cancelled wait", store.get("a"), b"42")
    big = bytes(range(256)) * (5 << 12)  # 5 MiB
    store.set("big", big)
    check("a value of 5 MiB", other.get("big"), big)
    check("queue_len of no queue", store.queue_len("q"), 0)
    raises("queue_pop of an empty queue", lambda: store.queue_pop("q", False), "empty")
    raises("blocking queue_pop of an empty queue", lambda: impatient.queue_pop("q"), "wait timeout")
    store.queue_push("q", "first")
    store.queue_push("q", "second")
    check("queue_len", store.queue_len("q"), 2)
    check("a queue is a key for check", store.check(["q"]), True)
    check("queue_pop", [store.queue_pop("q"), other.queue_pop("q", False)], [b"first", b"second"])
    if hasattr(store, "barrier"):
        store.barrier("alone", 1)
        raises("barrier nobody else comes to", lambda: store.barrier("lonely", WORLD + 1, SHORT), "barrier timeout")
        check("barrier after a cancelled one", store.add("lonely", 0), 1)
    listed = store.list_keys()
    check("list_keys", {"a", "n", "log", "m0", "big"} <= set(listed) and "q" not in listed, True)


def together():
    """Two clients: what one does ends the wait of the other."""
    if RANK == 0:
        store.wait(["w/1", "w/2"])
        check("wait for two keys", store.multi_get(["w/1", "w/2"]), [b"one", b"2"])
        check("blocking queue_pop", store.queue_pop("jobs"), b"job")
    else:
        store.set("w/1", "one")
        meet_half = store.add("w/2", 2)
        check("add as the last key of a wait", meet_half, 2)
        store.queue_push("jobs", "job")
    if hasattr(store, "barrier"):
        for _ in range(2):  # whoever comes to a complete barrier passes
            store.barrier("all", WORLD)
    check("clients that came", store.add("came", 1) in range(1, WORLD + 1), True)


attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
if "fail-first" in sys.argv and attempt == "0":
    store.set("left behind", "by the first attempt")
    meet("to fail")
    if RANK == 1:
        sys.exit("the first attempt fails")
    store.wait(["what never comes"])
impatient = store.clone()
impatient.set_timeout(SHORT)
if RANK == 0:
    alone()
meet("both")
together()
dist.init_process_group("gloo", store=dist.PrefixStore("group", store), rank=RANK, world_size=WORLD)
total = torch.tensor([float(RANK + 1)])
dist.all_reduce(total)
check("all_reduce", total.item(), WORLD * (WORLD + 1) / 2)
if RANK == 0:
    store.set("pid of rank 0", str(os.getpid()))
    if not HOSTED:
        store.wait(["rank 1 is done"])  # it takes the store with it
elif HOSTED:
    pid = int(store.get("pid of rank 0"))
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.002)
    check("set without rank 0", (store.set("late", "still here"), other.get("late"))[1], b"still here")
    check("a new connection without rank 0", store.clone().get("a"), b"42")
    raises("wait without rank 0", lambda: store.wait(["missing"], SHORT), "wait timeout")
ready.mark(sys.argv[1], "result", json.dumps({"hosted": HOSTED, "attempt": attempt, "done": done}))
if RANK == 1 and not HOSTED:
    store.set("rank 1 is done", "")
# Process groups are left as they are: their end would need rank 0.
os._exit(0)

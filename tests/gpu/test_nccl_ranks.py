"""DDP over NCCL with several ranks that share one GPU. NCCL tells hosts apart by NCCL_HOSTID and refuses two ranks of one
host on one GPU; with another value for each rank it talks over sockets. Good for whether results are right, not for speed.

    make test-gpu                              # on a machine with a GPU; LOCKSTEP_BIN names the programs

`cuda_rank` trains many small cases in one start per world size; TAEHV is trained by `lockstep train` itself.
"""

import array
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BIN = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build" / "bin")).resolve()
CUDA_RANK = pathlib.Path(os.environ.get("LOCKSTEP_CUDA_RANK", ROOT / "build" / "cuda" / "tests" / "cuda_rank")).resolve()
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-gpu-"))
LIMIT = 240  # seconds; ends what hangs

FP32 = ["plain", "accumulation", "find-unused", "graph", "graph-accumulation", "discriminator", "graph-discriminator"]
HALF = ["fp16", "bf16", "graph-fp16"]
BITS = ["reproducible", "reproducible-graph"]
RESUMED = ["resumed", "graph-resumed"]
# (case, the case whose bits it has in the same world)
SAME = [("graph", "plain"), ("graph-accumulation", "accumulation"), ("graph-fp16", "fp16"),
        ("graph-discriminator", "discriminator"), ("resumed", "plain"), ("graph-resumed", "graph"),
        ("reproducible-graph", "reproducible")]
ZERO = ["", "-bf16", "-accumulation", "-recompute", "-offload", "-offload-share", "-bf16-offload",
        "-offload-resumed", "-reproducible", "-validated"]
# (case, the case of stage 0 whose bits it has)
OFFLOADED = [("zero-3-offload-parameters", "zero-0-offload"), ("zero-3-bf16-offload-parameters", "zero-0-bf16-offload")]
SHARDED = [f"zero-{stage}{change}" for stage in range(4) for change in ZERO] + [f"zero-{stage}-graph" for stage in range(3)]
SHARDED += [case for case, _ in OFFLOADED]
CASES = FP32 + HALF + BITS + RESUMED + SHARDED
NCCL_ONLY = ["zero-2-graph"]  # gradients leave inside a captured pass


def cases_of(backend):
    return [case for case in CASES if backend == "nccl" or case not in NCCL_ONLY]


def tearDownModule():
    shutil.rmtree(SCRATCH, ignore_errors=True)


def environment(**more):
    env = dict(os.environ, NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", CUDA_VISIBLE_DEVICES="0", **more)
    return env


def as_hosts(program):
    """A program that starts `program` as if each rank were a host of its own."""
    path = SCRATCH / f"host-of-{pathlib.Path(program).name}"
    path.write_text(f'#!/bin/sh\nexport NCCL_HOSTID="rank-$RANK"\nexec "{program}" "$@"\n')
    path.chmod(0o755)
    return path


def lockstep(*words, env=None, check=True, program=None):
    done = subprocess.run([str(program or BIN / "lockstep"), *map(str, words)], cwd=SCRATCH, env=env or environment(),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}\nended with {done.returncode}:\n{done.stdout[-6000:]}")
    return done


_trained = {}


def trained(world, backend="nccl"):
    """{case: [weights of rank 0, of rank 1, ...]} and {case: what rank 0 printed}; each world is started once."""
    key = (world, backend)
    if key not in _trained:
        folder = SCRATCH / f"{backend}-{world}"
        folder.mkdir()
        done = lockstep("run", "--nproc-per-node", world, "--name", f"cases-{backend}-{world}", "--no-python",
                        as_hosts(CUDA_RANK), backend, folder, *cases_of(backend))
        said = {}
        for log in glob.glob(str(SCRATCH / f"runs/cases-{backend}-{world}/logs/*/*/rank-0.log")):
            for line in pathlib.Path(log).read_text().splitlines():
                if line.startswith("{"):
                    one = json.loads(line)
                    said[one["case"]] = one
        if len(said) < len(cases_of(backend)):
            raise AssertionError(done.stdout[-4000:])
        _trained[key] = ({case: [floats(folder / f"{case}.{rank}.bin") for rank in range(world)] for case in cases_of(backend)}, said)
    return _trained[key]


def floats(path):
    values = array.array("B" if "zero-" in str(path) else "f")
    values.frombytes(pathlib.Path(path).read_bytes())
    return values


def difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


class NcclRanks(unittest.TestCase):
    def test_every_rank_ends_with_the_same_weights_over_nccl(self):
        for world in (2, 4):
            weights, said = trained(world)
            for case in CASES:
                self.assertEqual(said[case]["transport"], "nccl", (world, case))
                for rank in range(1, world):
                    self.assertEqual(weights[case][0].tobytes(), weights[case][rank].tobytes(), (world, case, rank))

    def test_several_ranks_equal_one_up_to_rounding(self):
        one, _ = trained(1)
        for world in (2, 4):
            several, _ = trained(world)
            for case in FP32 + HALF:
                bound = 1e-5 if case in FP32 else 3e-2  # three steps of the optimizer
                found = difference(several[case][0], one[case][0])
                print(f"  {world} ranks, {case}: largest difference to one rank {found:.2g}", file=sys.stderr)
                self.assertLess(found, bound, (world, case))

    def test_reproducible_has_the_bits_of_one_rank(self):
        one, _ = trained(1)
        for world in (2, 4):
            several, _ = trained(world)
            for case in BITS:
                self.assertEqual(several[case][0].tobytes(), one[case][0].tobytes(), (world, case))
        # The control: without it the bits do differ.
        self.assertNotEqual(trained(4)[0]["plain"][0].tobytes(), one["plain"][0].tobytes())

    def test_graphs_with_the_all_reduce_inside_and_resumed_runs_have_the_bits_of_plain_ones(self):
        for world in (1, 2, 4):
            weights, said = trained(world)
            for case, other in SAME:
                self.assertEqual(weights[case][0].tobytes(), weights[other][0].tobytes(), (world, case, other))
                if "graph" in case:
                    self.assertGreater(said[case]["replayed"], 0, (world, case))

    def test_every_stage_of_zero_has_the_bits_of_ddp(self):
        for world in (2, 4):
            weights, said = trained(world)
            for case, other in OFFLOADED:
                same = weights[case][0] == weights[other][0]
                self.assertTrue(same or world > 2, (world, case))
            if world == 2:
                self.assertEqual(len({said[f"zero-{stage}-validated"]["best"] for stage in range(4)}), 1)
            for change in [*ZERO, "-graph"]:
                for stage in (1, 2, 3):
                    if stage == 3 and change == "-graph":
                        continue
                    same = weights[f"zero-{stage}{change}"][0] == weights[f"zero-0{change}"][0]
                    if world == 2 or change == "-reproducible":
                        self.assertTrue(same, (world, stage, change))
                    else:  # NCCL promises no order of additions beyond two ranks
                        print(f"  4 ranks, stage {stage}{change}: the bits of DDP: {same}", file=sys.stderr)
            for stage in range(4):
                for change in ("-offload-resumed", "-offload-share", ""):  # the optimizer has one result everywhere
                    self.assertEqual(weights[f"zero-{stage}{change}"][0], weights[f"zero-{stage}-offload"][0], change)
                self.assertEqual(weights[f"zero-{stage}-reproducible"][0], trained(1)[0]["zero-0-reproducible"][0])

    def test_two_ranks_over_nccl_have_the_bits_of_two_over_host_memory(self):
        nccl, _ = trained(2)
        host, said = trained(2, "host")
        self.assertTrue(said["plain"]["transport"].startswith("staged"), said["plain"])
        for case in cases_of("host"):
            self.assertEqual(nccl[case][0].tobytes(), host[case][0].tobytes(), case)


TAEHV = ["train", "taehv", "--config", ROOT / "examples" / "taehv-small.yaml", "--set", "comm.backend=nccl",
         "--set", "data.validation.every=0", "--set", "checkpoint.every=5", "--set", "train.steps=40",
         "--set", "train.schedule.warmup=5", "--set", "track.tensorboard=false"]


def launcher_of_hosts():
    """A launcher beside which `lockstep-train` starts each rank as a host of its own."""
    folder = SCRATCH / "bin"
    if not folder.exists():
        folder.mkdir()
        shutil.copy(BIN / "lockstep", folder)
        shutil.copy(as_hosts(BIN / "lockstep-train"), folder / "lockstep-train")
    return folder / "lockstep"


def train_taehv(name, world, *words):
    return lockstep(*TAEHV, "--nproc-per-node", world, "--name", name, *words, program=launcher_of_hosts())


def model(name):
    return (SCRATCH / "runs" / name / "checkpoints" / "latest" / "model.safetensors").read_bytes()


class NcclTaehv(unittest.TestCase):
    def test_a_killed_rank_is_restarted_and_the_run_ends_with_the_bits_of_an_untouched_one(self):
        for world in (2, 4):
            train_taehv(f"whole-{world}", world)
            name = f"killed-{world}"
            run = subprocess.Popen([str(launcher_of_hosts()), *map(str, TAEHV), "--nproc-per-node", str(world), "--name", name,
                                    "--max-restarts", "2", "--set", "train.steps=40"], cwd=SCRATCH, env=environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            killed = self.kill_a_rank_after_its_first_checkpoint(name, run)
            output, _ = run.communicate(timeout=LIMIT)
            self.assertEqual(run.returncode, 0, output[-4000:])
            self.assertTrue(killed, output[-2000:])
            logs = glob.glob(str(SCRATCH / f"runs/{name}/logs/attempt-*/*/rank-0.log"))
            self.assertIn("resuming from", "".join(pathlib.Path(p).read_text() for p in logs))
            self.assertEqual(model(name), model(f"whole-{world}"), world)

    def kill_a_rank_after_its_first_checkpoint(self, name, run):
        while run.poll() is None:
            if any(re.fullmatch(r"step-\d+", path.name) for path in (SCRATCH / f"runs/{name}/checkpoints").glob("step-*")):
                for pid in ranks_of(name):
                    if b"RANK=1" in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                        os.kill(pid, signal.SIGKILL)
                        return True
            time.sleep(0.01)
        return False

    def test_reproducible_gives_the_bits_of_one_rank(self):
        words = ["--set", "train.reproducible=true", "--set", "train.shards=4", "--set", "train.precision=fp32",
                 "--set", "train.steps=12"]
        for world in (1, 2, 4):
            train_taehv(f"bits-{world}", world, *words)
        self.assertEqual(model("bits-2"), model("bits-1"))
        self.assertEqual(model("bits-4"), model("bits-1"))

    def test_ranks_that_share_a_gpu_as_one_host_are_refused_with_the_way_out(self):
        done = lockstep(*TAEHV, "--nproc-per-node", 2, "--name", "one-host", env=environment(), check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("share one GPU", done.stdout)
        self.assertIn("NCCL_HOSTID", done.stdout)


def ranks_of(name):
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            words = pathlib.Path(path).read_bytes().split(b"\0")
            program = os.readlink(path.replace("environ", "exe"))
        except OSError:
            continue
        if b"RANK=1" in words and program.endswith("lockstep-train") and any(
                w.startswith(b"LOCKSTEP_RUN_DIR=") and w.endswith(b"/" + name.encode()) for w in words):
            yield int(path.split("/")[2])


MISMATCH = '''
import datetime, os, torch, torch.distributed as dist
os.environ["NCCL_HOSTID"] = "rank-" + os.environ["RANK"]
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()
x = torch.ones(1024, device="cuda")
for step in range(3):
    dist.all_reduce(x)
torch.cuda.synchronize()
print("step 3 done", flush=True)
if rank == 1:
    out = torch.empty(2 * 1024, device="cuda")
    dist.all_gather_into_tensor(out, x)   # the others sum
else:
    dist.all_reduce(x)
torch.cuda.synchronize()
'''


class FlightRecorder(unittest.TestCase):
    def test_a_real_mismatch_is_named_from_the_dumps_of_both_ranks(self):
        script = SCRATCH / "mismatch.py"
        script.write_text(MISMATCH)
        done = lockstep("run", "--nproc-per-node", 2, "--name", "mismatch", script, check=False)
        self.assertNotEqual(done.returncode, 0)
        run = SCRATCH / "runs" / "mismatch"
        report = json.loads((run / "report.json").read_text())
        dumps = list(run.rglob("nccl_trace_rank_*"))
        self.assertGreaterEqual(len(dumps), 2)
        text = done.stdout.lower() + json.dumps(report).lower()
        self.assertIn("allgather", text.replace("_", ""))
        self.assertIn("allreduce", text.replace("_", ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)

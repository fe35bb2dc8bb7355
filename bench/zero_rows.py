"""The benchmarks of sharded models and offloaded optimizers, each beside its peer; bench/run.py calls them.

DeepSpeed is not in .venv. LOCKSTEP_DEEPSPEED_PYTHON names a Python that has it; without one its rows say so:

    python3 -m venv DIR && DIR/bin/pip install torch==2.13.0 setuptools wheel ninja packaging
    DIR/bin/pip install --no-build-isolation deepspeed==0.19.8
"""

import os
import pathlib
import sys

import peers
from peers import Peer
from rows import in_turns, median, median_of, missing, row, share_of, times_faster
from train_rows import PROGRAMS, ROOT, built, lines_of

DEEPSPEED = os.environ.get("LOCKSTEP_DEEPSPEED_PYTHON")


def added(results, mode):
    """Median over all pairs of neighbouring blocks: with the others, less alone."""
    return median(b - a for r in results for a, b in zip(r["alone"], r[mode]))


def bench_zero(folder, repeat):
    built("train_zero_bench")
    for width, layers, batch, blocks, steps in ((512, 8, 64, 12, 12), (1600, 8, 64, 5, 4)):
        shape = (width, layers, batch, blocks, steps)
        ours, other = in_turns(max(2, repeat // 2), lambda: lines_of([PROGRAMS / "train_zero_bench", *shape])[-1], Peer(
            "FSDP2 on Gloo", lambda: peers.figures("FSDP2 on Gloo", [sys.executable, ROOT / "bench/zero_peer.py", *shape])[-1]))
        alone = median(a for r in ours for a in r["alone"])
        model = f"{ours[0]['parameters'] / 1e6:.1f} M parameters, {layers} layers of {width}, batch {batch}"
        print(f"  {model}: alone {alone * 1e3:.3f} ms (PyTorch {(median(a for r in other for a in r['alone']) or 0) * 1e3:.3f}), "
              f"added by DDP {added(ours, 'stage0') * 1e3:.3f}", file=sys.stderr)
        for stage, mode, peer in ((1, "fsdp2", "FSDP2, parameters kept"), (2, "fsdp2", "FSDP2, parameters kept"),
                                  (3, "fsdp3", "FSDP2, resharded after forward")):
            yield share_of(f"ZeRO-{stage}, added to a step of {alone * 1e3:.1f} ms: {model}", added(ours, f"stage{stage}"),
                           added(other, mode), peer, 0.25)


# Bytes per parameter of the ZeRO paper (mixed precision, gradients in bf16) and the same sum for float32 throughout.
PAPER = {"bf16": (lambda n: 16, lambda n: 4 + 12 / n, lambda n: 2 + 14 / n, lambda n: 16 / n),
         "fp32": (lambda n: 16, lambda n: 8 + 8 / n, lambda n: 4 + 12 / n, lambda n: 16 / n)}


def bench_zero_bytes(folder, repeat):
    built("train_zero_bench")
    for ranks in (2, 4):
        got = lines_of([PROGRAMS / "train_zero_bench", "bytes", 1024, 8, 8, 1, 1, ranks])[-1]
        for kind, words in (("fp32", "fp32"), ("bf16", "bf16 with a float32 master")):
            for stage in range(4):
                ours, paper = got[f"{kind}_stage{stage}"] / got["parameters"], PAPER[kind][stage](ranks)
                yield row(f"{'DDP' if stage == 0 else f'ZeRO-{stage}'}, {words}, {ranks} ranks", ours, paper, "formula",
                          "bytes per parameter", "", None, ours / paper, "its size")


def bench_offload(folder, repeat):
    built("train_offload_bench")
    usable = DEEPSPEED and pathlib.Path(DEEPSPEED).exists()
    if not usable:
        why = (f"LOCKSTEP_DEEPSPEED_PYTHON={DEEPSPEED} is not there" if DEEPSPEED else
               "LOCKSTEP_DEEPSPEED_PYTHON names no Python that has it (bench/zero_rows.py says how to make one)")
        yield missing("DeepSpeed's CPU Adam", why)
    for millions in (20, 100):
        for threads in (1, 2):
            rounds = max(5, 220 // millions)

            def peer(name, python, kind):
                # Programs of a virtual environment (ninja, for the first use) are beside its Python.
                env = {**os.environ, "PATH": f"{pathlib.Path(python).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": str(threads)}
                return Peer(name, lambda: peers.figures(name, [python, ROOT / "bench/offload_peer.py", kind, millions, threads, rounds],
                                                        env=env)[-1])
            works = {"DeepSpeed": peer("DeepSpeed", DEEPSPEED, "deepspeed")} if usable else {}
            works["torch.optim, fused"] = peer("torch.optim, fused", sys.executable, "torch")
            mine, *others = in_turns(max(2, repeat // 2),
                                     lambda: lines_of([PROGRAMS / "train_offload_bench", millions, threads, rounds])[-1], *works.values())
            for ours, theirs, text, goal in (("bf16", "step", "gradients in bf16", 1.8), ("fp32", "step", "gradients in float32", 1.8),
                                             ("norm_and_fp32", "norm_and_step", "the norm and float32 gradients", 1.8)):
                for name, results in zip(works, others):
                    yield times_faster(f"{text}, AdamW, bf16 out: {millions} M parameters, {threads} thread{'s' * (threads > 1)}",
                                       median_of(mine, ours), median_of(results, theirs), name, goal if name == "DeepSpeed" else None)


BENCHES = {"zero": bench_zero, "zero-bytes": bench_zero_bytes, "offload": bench_offload}

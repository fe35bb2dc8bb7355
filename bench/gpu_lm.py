#!/usr/bin/env python3
"""A language model on one GPU: Lockstep and PyTorch in one go, in turns; tokens/s, peak memory and their ratios.

    python3 bench/gpu_lm.py --lockstep build/bin/lockstep [--models 124m,1.5b] [--rounds 2] [--modes eager,compile]
    python3 bench/gpu_lm.py --lockstep build/bin/lockstep --offload --models 3b [--modes fsdp]

Both sides: Qwen2.5's layout, tied head, float32 parameters with bf16 autocast (offloaded: bf16 parameters with a float32
master), AdamW, clipping at 1, rows of one document. A profile (`--set track.profile.steps=2`) belongs into a run of its
own: writing it takes time. PyTorch: scaled_dot_product_attention, the fused AdamW, eager or
torch.compile; offloaded: FSDP2 with CPUOffloadPolicy, recomputing each block. Times are means of the steps after the
warm-up, memory is what the allocator held at most.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

# vocabulary, width, layers, heads, key heads, mlp, rows, length
MODELS = {
    "124m": ("124m", 50257, 768, 12, 12, 12, 2048, 32, 1024),
    "1.5b": ("qwen2.5-1.5b", 151936, 1536, 28, 12, 2, 8960, 8, 2048),
    "3b": ("qwen2.5-3b", 151936, 2048, 36, 16, 2, 11008, 8, 4096),
    "7b": ("qwen2.5-7b", 152064, 3584, 28, 28, 4, 18944, 8, 4096),
}


def peer(name, mode, steps):
    import torch
    from torch import nn
    from torch.nn import functional as F

    _, vocabulary, width, layers, heads, kv_heads, mlp, rows, length = MODELS[name]
    size = width // heads
    offload = mode == "fsdp"

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x):
            y = x.float()
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
            return self.weight * y.to(x.dtype)

    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Norm(), Norm()
            self.q, self.k, self.v = nn.Linear(width, width), *(nn.Linear(width, kv_heads * size) for _ in range(2))
            self.o = nn.Linear(width, width, bias=False)
            self.gate, self.up = (nn.Linear(width, mlp, bias=False) for _ in range(2))
            self.down = nn.Linear(mlp, width, bias=False)

        def forward(self, x, cos, sin):
            batch, tokens, _ = x.shape
            h = self.first(x)
            q, k, v = (p(h).view(batch, tokens, -1, size).transpose(1, 2) for p in (self.q, self.k, self.v))
            y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
            x = x + self.o(y.transpose(1, 2).reshape(batch, tokens, width))
            h = self.second(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = Norm()

        def forward(self, tokens, labels):
            x = self.embedding(tokens).to(torch.bfloat16)
            f = 1e6 ** (-torch.arange(0, size, 2, device=tokens.device).float() / size)
            angles = torch.arange(tokens.shape[1], device=tokens.device).float()[:, None] * f
            cos, sin = (torch.cat((t, t), -1).to(x.dtype) for t in (angles.cos(), angles.sin()))
            for block in self.blocks:
                if offload:
                    x = torch.utils.checkpoint.checkpoint(block, x, cos, sin, use_reentrant=False)
                else:
                    x = block(x, cos, sin)
            x = self.norm(x)
            if not offload:
                return F.cross_entropy(F.linear(x, self.embedding.weight).float().view(-1, vocabulary), labels.view(-1))
            # All logits in float32 at once would not leave room for anything else: row by row, recomputed.
            def one(h, y):
                return F.cross_entropy(F.linear(h, self.embedding.weight).float(), y)
            parts = [torch.utils.checkpoint.checkpoint(one, h, y, use_reentrant=False) for h, y in zip(x, labels)]
            return torch.stack(parts).mean()

    torch.manual_seed(0)
    tokens = torch.randint(0, 256, (rows, length), device="cuda")
    if offload:
        import torch.distributed as dist
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29581")
        dist.init_process_group("cpu:gloo,cuda:nccl", rank=0, world_size=1)
        torch.set_num_threads(os.cpu_count())
        with torch.device("meta"):
            model = Model()
        options = dict(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
                       offload_policy=CPUOffloadPolicy())
        for block in model.blocks:
            fully_shard(block, **options)
        fully_shard(model, **options)
        model.to_empty(device="cpu")
        some = torch.randn(1 << 20) * 0.02  # the same numbers again and again: drawing billions takes a minute
        for parameter in model.parameters():
            flat = parameter.to_local().detach().view(-1)
            if parameter.dim() == 1:
                flat.fill_(1)
            else:
                for begin in range(0, flat.numel(), some.numel()):
                    flat[begin:begin + some.numel()].copy_(some[:flat.numel() - begin])
    else:
        with torch.device("cuda"):
            model = Model()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward = model
    if mode.startswith("compile"):
        kind = mode.partition(":")[2]
        forward = torch.compile(model, mode=kind or None)

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=not offload):
            loss = forward(tokens, tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for _ in range(1 if offload else 5):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    seconds = sum(times) / len(times)
    print(json.dumps({"seconds": seconds, "memory": torch.cuda.max_memory_allocated() / 2**30, "loss": loss.item()}))


def ours(lockstep, name, steps, offload, folder, extra):
    preset, vocabulary, *_, rows, length = MODELS[name]
    text = pathlib.Path(folder, "text.txt")
    if not text.exists():  # one document
        draw = random.Random(0)
        words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 9))) for _ in range(2000)]
        text.write_text(" ".join(draw.choices(words, k=4_000_000)))
    run = f"{name}-{time.time_ns()}"
    keys = {"data.kind": "text", "data.path": text, "data.length": length, "train.batch": rows, "train.steps": steps,
            "recipe.model": preset, "recipe.vocabulary": vocabulary, "data.validation.fraction": 0, "train.clip_norm": 1,
            "track.tensorboard": "false", "checkpoint.every": 0, "train.precision": "bf16"}
    if offload:
        keys |= {"train.parameters": "bf16", "train.recompute": "true", "train.zero.stage": 2,
                 "train.offload.optimizer": "true", "train.threads": os.cpu_count()}
    keys |= dict(pair.split("=", 1) for pair in extra)
    command = [lockstep, "train", "lm", "--name", run]
    for key, value in keys.items():
        command += ["--set", f"{key}={value}"]
    metrics = pathlib.Path(folder, "runs", run, "metrics", "rank-0.jsonl")
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    for line in child.stdout:
        lines.append(line)
        if f"step {steps}/{steps}" in line:
            break
    child.kill()  # the last checkpoint of a large model is not what is measured
    lines += child.communicate()[0].splitlines(True)
    if not metrics.exists():
        sys.exit("".join(lines[-30:]))
    times, values = [], {}
    for line in metrics.read_text().splitlines():
        row = json.loads(line)
        if "loss" not in row["scalars"]:  # of a checkpoint
            continue
        times.append(row["t"])
        for key in ("rank/memory/device", "rank/time/data", "loss"):
            values.setdefault(key, []).append(row["scalars"].get(key, 0))
    # Rows of the last two steps come as soon as the GPU is done, the others up to two steps later; steps under the
    # profiler are slower.
    times = times[:int(keys.get("track.profile.start", len(times) - 2))]
    first = 2 if offload else len(times) // 2
    seconds = (times[-1] - times[first]) / (len(times) - 1 - first)  # of single steps the host is ahead, or behind
    seen = [line.strip() for line in lines if "profile:" in line]
    return {"seconds": seconds, "memory": max(values["rank/memory/device"]) / 2**30,
            "data": statistics.median(values["rank/time/data"]), "loss": values["loss"][-1], "profile": seen}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/bin/lockstep")
    parser.add_argument("--models", default="124m,1.5b")
    parser.add_argument("--modes", default=None, help="eager, compile, compile:max-autotune-no-cudagraphs, fsdp; '' for none")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--set", action="append", default=[], help="further keys of ours")
    parser.add_argument("--keep", help="folder for text and runs of ours; kept")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peer", nargs=3, metavar=("MODEL", "MODE", "STEPS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        return peer(arguments.peer[0], arguments.peer[1], int(arguments.peer[2]))
    modes = arguments.modes if arguments.modes is not None else ("fsdp" if arguments.offload else "eager,compile")
    steps = arguments.steps or (6 if arguments.offload else 30)
    lockstep = str(pathlib.Path(arguments.lockstep).resolve())
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or temporary
        for name in arguments.models.split(","):
            *_, rows, length = MODELS[name]
            results = {}
            for _ in range(arguments.rounds):
                results.setdefault("lockstep", []).append(
                    ours(lockstep, name, steps, arguments.offload, folder, arguments.set))
                for mode in filter(None, modes.split(",")):
                    done = subprocess.run([sys.executable, __file__, "--peer", name, mode, str(3 if arguments.offload else max(4, steps // 2))],
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
                    if done.returncode:
                        print(f"{name} {mode}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
                        continue
                    results.setdefault(mode, []).append(json.loads(done.stdout.splitlines()[-1]))
            base = statistics.median(r["seconds"] for r in results["lockstep"])
            for mode, rounds in results.items():
                seconds = statistics.median(r["seconds"] for r in rounds)
                row = {"model": name, "side": mode, "tokens_per_second": rows * length / seconds, "seconds": seconds,
                       "memory_gib": max(r["memory"] for r in rounds), "ratio": seconds / base,
                       "rounds": [round(r["seconds"], 4) for r in rounds]}
                if arguments.json:
                    print(json.dumps(row), flush=True)
                else:
                    print(f"{name:5} {mode:24} {row['tokens_per_second']:10.0f} tokens/s {seconds * 1e3:8.1f} ms "
                          f"{row['memory_gib']:6.1f} GiB  ours is {row['ratio']:.2f}x  rounds {row['rounds']}", flush=True)
            for line in results["lockstep"][-1]["profile"]:
                print("  " + line, flush=True)
            print(f"  waiting for data {results['lockstep'][-1]['data'] * 1e3:.1f} ms a step; losses",
                  {mode: round(rounds[-1]["loss"], 3) for mode, rounds in results.items()}, flush=True)


if __name__ == "__main__":
    main()

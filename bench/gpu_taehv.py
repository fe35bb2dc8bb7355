#!/usr/bin/env python3
"""TAEHV on one GPU against PyTorch: the joint training step (encode, decode, MSE, backward, clip to norm 1, AdamW) and the
reconstruction of 720p video. The model is the one of tests/golden/taehv.py, with upstream's vectorised layers.

    python3 bench/gpu_taehv.py --ours build/release/bench/taehv_bench --trainer build/bin/lockstep [--only step,reconstruct] [--rounds 5] [--json FILE]

PyTorch's ways: `upstream` eager autocast; `fused` the same with fused AdamW; `channels_last`; `graph` the whole eager step
in one CUDA graph made by hand; `compile` torch.compile; `compile_graphs` torch.compile(mode="reduce-overhead");
`compile_whole` what torch.compile made, with clipping and AdamW, in one CUDA graph made by hand. The compiled ones are
channels-last and fused too. All live in one process and take turns; a figure is the median over rounds of the mean of a
few steps. Ours runs between the rounds: `lockstep train`, a training as users start it (gpu_train.py), and `lockstep`,
the model's step alone. Memory is the peak while a way was built and first run, less what was there before.
"""

import argparse
import gc
import json
import signal
import statistics
import subprocess
import time

import gpu_peer
import gpu_train
import torch
from torch.nn import functional as F

SIZES = {"small": (16, 12, 3, 64, 64), "large": (2, 12, 3, 480, 480)}
WAYS = ("upstream", "fused", "channels_last", "graph", "compile", "compile_whole", "compile_graphs")


class Step:
    def __init__(self, way, shape, precision):
        torch.manual_seed(0)
        self.way, self.type = way, gpu_peer.TYPES[precision]
        self.model = gpu_peer.taehv.Taehv()
        self.model.start_near_identity()
        self.model.cuda()
        best = way == "channels_last" or way.startswith("compile")
        if best:
            self.model.to(memory_format=torch.channels_last)
        fused = way != "upstream"
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=fused, capturable=fused)
        self.frames = torch.rand(shape, device="cuda")
        self.loss = self.forward
        if way.startswith("compile"):
            self.loss = torch.compile(self.forward, mode="reduce-overhead" if way == "compile_graphs" else None, dynamic=False)
        self.graph = None
        by_hand = way in ("graph", "compile_whole")
        side = torch.cuda.Stream() if by_hand else torch.cuda.current_stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(4):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        if by_hand:
            self.optimizer.zero_grad(set_to_none=True)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step()
            self.graph.replay()
        torch.cuda.synchronize()

    def forward(self, frames):
        with torch.autocast("cuda", self.type, enabled=self.type != torch.float32):
            decoded = self.model.decode(self.model.encode(frames)).float()
            return F.mse_loss(decoded, frames[:, :decoded.shape[1]])

    def step(self):
        if self.way == "compile_graphs":
            torch.compiler.cudagraph_mark_step_begin()
        self.loss(self.frames).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def run(self, times):
        again = self.graph.replay if self.graph else self.step
        again()  # a device that was idle is slow at first
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            again()
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start) / times


class Rows(list):
    """Shown as they come: a job that is cut off leaves what it had."""

    def append(self, row):
        super().append(row)
        print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}), flush=True)


class TooLong(Exception):
    pass


def give_up(*_):
    raise TooLong("took too long to compile")


def steps(arguments):
    rows = Rows()
    for name in arguments.sizes.split(","):
        torch._dynamo.reset()  # else the second size is compiled for any size, slowly
        shape, ways, memory = SIZES[name], {}, {}
        times, left = 20 if name == "small" else 5, arguments.compile_limit
        signal.signal(signal.SIGALRM, give_up)
        for way in arguments.ways.split(","):
            gc.collect()
            torch.cuda.empty_cache()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            start = time.perf_counter()
            signal.alarm(max(1, int(left)) if way.startswith("compile") else 0)
            try:
                ways[way] = Step(way, shape, arguments.precision)
            except Exception as error:  # a way that does not work here is a row too
                rows.append({"what": "step", "size": name, "way": way, "failed": (str(error).splitlines() or [repr(error)])[0][:200]})
                continue
            finally:
                signal.alarm(0)
                took = time.perf_counter() - start
                left -= took if way.startswith("compile") else 0
                print(f"{name} {way}: ready after {took:.1f} s", flush=True)
            memory[way] = (torch.cuda.max_memory_allocated() - before) / 2**30
        measured = {way: [] for way in ways}
        ours, trained = [], []
        for turn in range(arguments.rounds):
            for way, step in ways.items():
                measured[way].append(step.run(times))
            print(name, turn, {way: round(ms[-1], 2) for way, ms in measured.items()}, flush=True)
            if arguments.ours:
                ours.append(program(arguments, "step", "fast", shape))
                print(name, turn, "lockstep", ours[-1], flush=True)
            if arguments.trainer:
                trained.append(gpu_train.joint(arguments.trainer, shape, arguments.precision, f"{name}-{turn}"))
                print(name, turn, "lockstep train", trained[-1], flush=True)
        for way, ms in measured.items():
            rows.append({"what": "step", "size": name, "way": way, "ms": statistics.median(ms), "from": min(ms), "to": max(ms), "peak_gib": memory[way]})
        if ours:
            rows.append(summary("step", name, "lockstep", ours))
        if trained:
            rows.append(summary("step", name, "lockstep train", trained))
        ways.clear()
    return rows


def program(arguments, what, execution, shape, *more):
    clips, frames, _, height, width = shape
    command = [arguments.ours, what, "cuda:0", "fp16" if what == "reconstruct" else arguments.precision, execution]
    command += [str(n) for n in (clips, frames, height, width, 10)] + list(more)
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0])


def summary(what, size, way, runs):
    ms = [run["ms"] for run in runs]
    return {"what": what, "size": size, "way": way, "ms": statistics.median(ms), "from": min(ms), "to": max(ms), "peak_gib": max(run["peak_gib"] for run in runs),
            "frames_per_s": statistics.median(run["frames_per_s"] for run in runs)}


class Sequential:
    """Upstream's sequential mode, from its description: one frame at a time through the layers, each memory block keeping
    the frame before, each pooling layer waiting for its frames."""

    def __init__(self, layers):
        self.layers, self.memory = layers, {}

    def __call__(self, frame, first=0):
        for i in range(first, len(self.layers)):
            layer = self.layers[i]
            if isinstance(layer, gpu_peer.taehv.Memory):
                past = self.memory.get(i)
                self.memory[i] = frame
                frame = F.relu(frame + layer.conv(torch.cat([frame, torch.zeros_like(frame) if past is None else past], 1)))
            elif isinstance(layer, gpu_peer.taehv.Pool):
                waiting = self.memory.setdefault(i, [])
                waiting.append(frame)
                if len(waiting) < layer.frames:
                    return
                frame = layer.conv(torch.cat(waiting, 1))
                waiting.clear()
            elif isinstance(layer, gpu_peer.taehv.Grow):
                for part in layer.conv(frame).chunk(layer.frames, 1):
                    yield from self(part, i + 1)
                return
            else:
                frame = layer(frame)
        yield frame


@torch.no_grad()
def reconstruct(model, frames, way):
    if way == "parallel":
        return model.decode(model.encode(frames))
    encoder, decoder, out = Sequential(model.encoder), Sequential(model.decoder), []
    for t in range(frames.shape[1]):
        for latent in encoder(frames[:, t]):
            for frame in decoder(latent):
                out.append(frame.clamp(0, 1))
    return torch.stack(out[model.up - 1:], 1)


def reconstructions(arguments):
    torch.manual_seed(0)
    model = gpu_peer.taehv.Taehv()
    model.start_near_identity()
    model.cuda().half()
    shape = (1, arguments.frames, 3, 720, 1280)
    frames = torch.rand(shape, device="cuda").half()
    same = (reconstruct(model, frames[:, :8, :, :64, :64], "parallel") - reconstruct(model, frames[:, :8, :, :64, :64], "sequential")).abs().max()
    assert float(same) < 1e-2, "the peer's two modes differ"
    measured, memory, ours = {"parallel": [], "sequential": []}, {}, {}
    for turn in range(arguments.rounds + 1):
        for way, times in measured.items():
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
            start = time.perf_counter()
            reconstruct(model, frames, way)
            torch.cuda.synchronize()
            if turn:  # the first warms up
                times.append(1e3 * (time.perf_counter() - start))
            memory[way] = torch.cuda.max_memory_allocated() / 2**30
        torch.cuda.empty_cache()
        if turn and arguments.ours:
            for way, more in (("whole", ()), ("pieces of 8", ("piece=8",)), ("pieces of 4", ("piece=4",))):
                ours.setdefault(way, []).append(program(arguments, "reconstruct", "fast", shape, *more))
    rows = Rows()
    for way, times in measured.items():
        rows.append({"what": "reconstruct", "size": f"{arguments.frames}x720p", "way": way, "ms": statistics.median(times), "peak_gib": memory[way],
                     "frames_per_s": 1e3 * arguments.frames / statistics.median(times)})
    for way, runs in ours.items():
        rows.append(summary("reconstruct", f"{arguments.frames}x720p", "lockstep " + way, runs))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", help="the program taehv_bench")
    parser.add_argument("--trainer", help="the program lockstep")
    parser.add_argument("--only", default="step,reconstruct")
    parser.add_argument("--sizes", default="small,large")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--precision", default="bf16", choices=list(gpu_peer.TYPES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=24)
    parser.add_argument("--compile-limit", type=int, default=600, help="seconds that torch.compile may take for all its ways of a size")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    found = (reconstructions(arguments) if "reconstruct" in arguments.only else []) + (steps(arguments) if "step" in arguments.only else [])
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=1)

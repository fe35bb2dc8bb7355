#!/usr/bin/env python3
"""The peers of VRT on a GPU, in PyTorch; gpu_vrt.py runs them beside ours.

    LOCKSTEP_UPSTREAM_VRT=.../models/network_vrt.py gpu_vrt_peer.py upstream --batch 1
    gpu_vrt_peer.py best --batch 4 --attention sdpa --compile default --graph
    LOCKSTEP_UPSTREAM_VRT=... gpu_vrt_peer.py restore --frames 12
    LOCKSTEP_UPSTREAM_VRT=... gpu_vrt_peer.py check          on a CPU: best and upstream give the same with the same weights

A training step of 006 with one spike channel: 6 x 224 x 224, forward, Charbonnier in float32, backward, Adam; all parameters train.
upstream: network_vrt.py of JingyunLiang/VRT (or KAIR's, S-VRT's) as S-VRT runs it: eager, bf16 autocast, checkpointing of the option file, torch.optim.Adam,
torchvision's deformable convolution. What S-VRT changed for a fourth channel (SpyNet sees RGB, the result is added to RGB) is a subclass here.
best: gpu_vrt_best.py. Each prints one JSON line: milliseconds (median of the steps after the warm-up) and what the allocator held at most.
"""

import argparse
import functools
import importlib.util
import json
import os
import pathlib
import statistics
import sys
import time
import types

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

SHAPE = dict(upscale=1, in_chans=4, out_chans=3, img_size=[6, 224, 224], window_size=[6, 8, 8], depths=[8] * 7 + [4] * 4, indep_reconsts=[9, 10],
             embed_dims=[96] * 7 + [120] * 4, num_heads=[6] * 11, mul_attn_ratio=0.75, drop_path_rate=0.2, pa_frames=2, deformable_groups=16,
             use_checkpoint_attn=True, use_checkpoint_ffn=True, no_checkpoint_attn_blocks=[2, 3, 4], no_checkpoint_ffn_blocks=[1, 2, 3, 4, 5, 9])
TINY = dict(SHAPE, img_size=[4, 64, 64], window_size=[4, 8, 8], depths=[4] * 7 + [2] * 2, indep_reconsts=[8], embed_dims=[24] * 7 + [40] * 2,
            num_heads=[2] * 9, mul_attn_ratio=0.5, deformable_groups=4, no_checkpoint_attn_blocks=[2], no_checkpoint_ffn_blocks=[1])
EPSILON = 1e-9


def rearrange(x, pattern, **known):
    """einops' function for patterns of names and of (products) of them."""
    left, right = (side.replace("(", " ( ").replace(")", " ) ").split() for side in pattern.split("->"))

    def groups(words):
        out, inside = [], None
        for word in words:
            if word == "(":
                inside = []
            elif word == ")":
                out, inside = out + [inside], None
            elif inside is None:
                out.append([word])
            else:
                inside.append(word)
        return out
    sizes, names = dict(known), []
    for group, size in zip(groups(left), x.shape):
        unknown = [name for name in group if name not in known]
        for name in unknown:
            sizes[name] = size // functools.reduce(lambda a, b: a * b, [sizes[n] for n in group if n != name], 1)
        names += group
    x = x.reshape([sizes[name] for name in names])
    order = [name for group in groups(right) for name in group]
    x = x.permute([names.index(name) for name in order])
    return x.reshape([functools.reduce(lambda a, b: a * b, [sizes[name] for name in group], 1) for group in groups(right)])


def stand_ins():
    """einops, distutils and (on a CPU) torchvision are not everywhere."""
    if importlib.util.find_spec("einops") is None:
        class Rearrange(torch.nn.Module):
            def __init__(self, pattern, **known):
                super().__init__()
                self.pattern, self.known = pattern, known

            def forward(self, x):
                return rearrange(x, self.pattern, **self.known)
        layers = types.ModuleType("einops.layers.torch")
        layers.Rearrange = Rearrange
        whole = types.ModuleType("einops")
        whole.rearrange = rearrange
        sys.modules.update({"einops": whole, "einops.layers": types.ModuleType("einops.layers"), "einops.layers.torch": layers})
    if importlib.util.find_spec("distutils") is None:
        version = types.ModuleType("distutils.version")
        version.LooseVersion = lambda text: tuple(int(p) for p in text.split("+")[0].split(".")[:3])
        sys.modules.update({"distutils": types.ModuleType("distutils"), "distutils.version": version})
    if importlib.util.find_spec("torchvision") is None:
        from vrt import deform
        vision = types.ModuleType("torchvision")
        vision.ops = types.SimpleNamespace(deform_conv2d=lambda x, offset, weight, bias, stride, padding, dilation, mask: deform(x, offset, mask, weight, bias))
        sys.modules["torchvision"] = vision


def upstream(options):
    path = os.environ.get("LOCKSTEP_UPSTREAM_VRT")
    if not path:
        sys.exit("LOCKSTEP_UPSTREAM_VRT: expected the path of upstream's network_vrt.py, found nothing")
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "golden"))
    stand_ins()
    spec = importlib.util.spec_from_file_location("network_vrt", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # What it was written for is today not the default.
    module.checkpoint = types.SimpleNamespace(checkpoint=functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=True))

    class Fused(module.VRT):
        def get_flow_2frames(self, x):
            return super().get_flow_2frames(x[:, :, :3])

        def forward(self, x):
            base = x[:, :, :self.out_chans]
            flows_backward, flows_forward = self.get_flows(x)
            back, ahead = self.get_aligned_image_2frames(x, flows_backward[0], flows_forward[0])
            x = self.conv_first(torch.cat([x, back, ahead], 2).transpose(1, 2))
            x = x + self.conv_after_body(self.forward_features(x, flows_backward, flows_forward).transpose(1, 4)).transpose(1, 4)
            return self.conv_last(x).transpose(1, 2) + base
    torch.manual_seed(0)
    return Fused(**options)


def charbonnier(out, target):
    return ((out.float() - target) ** 2 + EPSILON).sqrt().mean()


def clips_for(options, batch, device):
    torch.manual_seed(1)
    shape = (batch, options["img_size"][0], options["in_chans"], *options["img_size"][1:])
    clips = torch.rand(shape, device=device)
    return clips, torch.rand(batch, shape[1], 3, *shape[3:], device=device)


def timed(step, warm, steps, cuda):
    def sync():
        if cuda:
            torch.cuda.synchronize()
    for _ in range(warm):
        step()
    sync()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        sync()
        times.append(1e3 * (time.perf_counter() - begin))
    return {"ms": round(statistics.median(times), 2), "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if cuda else None,
            "all_ms": [round(t, 1) for t in times]}


def train_upstream(options, batch, warm, steps, device):
    cuda = device == "cuda"
    model = upstream(options).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-4, betas=(0.9, 0.99))
    clips, target = clips_for(options, batch, device)

    def step():
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            out = model(clips)
        charbonnier(out, target).backward()
        optimizer.step()
    return {"way": "upstream", "batch": batch, **timed(step, warm, steps, cuda)}


def train_best(options, batch, warm, steps, device, args, compiled):
    from gpu_vrt_best import Best, kernels
    cuda = device == "cuda"
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    if args.recompute == "none":
        options = dict(options, use_checkpoint_attn=False, use_checkpoint_ffn=False)
    model = Best(options, args.attention, compiled)
    model.net.draw(0)
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-4, betas=(0.9, 0.99), fused=cuda, capturable=cuda)
    clips, target = clips_for(options, batch, device)
    keeps = model.keeps(batch, device)

    def compute():
        with kernels(args.attention, cuda):
            loss = charbonnier(model(clips, keeps), target)
            loss.backward()
        optimizer.step()
        return loss
    begin = time.perf_counter()
    step = compute
    if args.graph and cuda:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                optimizer.zero_grad(set_to_none=True)
                compute()
        torch.cuda.current_stream().wait_stream(side)
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            compute()
        held = torch.cuda.max_memory_allocated() / 2**30  # replays allocate nothing

        def step():
            keeps.copy_(model.keeps(batch, device))
            graph.replay()
    else:
        def step():
            optimizer.zero_grad(set_to_none=True)
            keeps.copy_(model.keeps(batch, device))
            compute()
    step()
    if cuda:
        torch.cuda.synchronize()
    ready = time.perf_counter() - begin
    if args.wait:
        print("ready", flush=True)
        sys.stdin.readline()
    row = timed(step, warm, steps, cuda)
    if args.graph and cuda:
        row["peak_gib"] = round(held, 2)
    name = "+".join([args.attention, f"compile:{args.compile}" if compiled is not None else "eager", *(["graph"] if args.graph else []),
                     *(["no recomputation"] if args.recompute == "none" else [])])
    return {"way": "best", "variant": name, "batch": batch, **row, "ready_s": round(ready, 1)}


@torch.no_grad()
def restore(frames, height, width, precision, device, options, weights, tile=224, overlap=20, window=18):
    """S-VRT's test: windows of 18 frames (a shorter clip is one), tiles of 224 that overlap by 20 and are put together on the CPU; RGB alone."""
    cuda = device == "cuda"
    model = upstream(dict(options, in_chans=3)).to(device).eval()
    if weights:
        torch.save({"params": model.state_dict()}, weights)
    torch.manual_seed(2)
    clip = torch.rand(1, min(frames, window), 3, height, width)

    def starts(size):
        return list(range(0, size - tile, tile - overlap)) + [max(0, size - tile)]
    rows, columns = starts(height), starts(width)

    def run(places):
        out, count = torch.zeros_like(clip), torch.zeros_like(clip)
        for y, x in places:
            with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
                part = model(clip[..., y:y + tile, x:x + tile].to(device)).float().cpu()
            mask = torch.ones_like(part)
            for there, at in ((y < rows[-1], (..., slice(-overlap // 2, None), slice(None))), (x < columns[-1], (..., slice(-overlap // 2, None))),
                              (y > 0, (..., slice(overlap // 2), slice(None))), (x > 0, (..., slice(overlap // 2)))):
                if there:
                    part[at] = mask[at] = 0
            out[..., y:y + tile, x:x + tile].add_(part)
            count[..., y:y + tile, x:x + tile].add_(mask)
        return out / count.clamp(min=1)
    places = [(y, x) for y in rows for x in columns]
    run(places[:1])
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    run(places)
    seconds = time.perf_counter() - begin
    return {"way": "upstream restore", "precision": precision, "frames": clip.shape[1], "size": [width, height], "tiles": len(places),
            "seconds": round(seconds, 3), "frames_per_s": round(clip.shape[1] / seconds, 3),
            "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if cuda else None}


def check(how, compiled, against):
    """Outputs and gradients of a small model in float32: best against upstream, and against tests/golden/vrt.py with DropPath."""
    from gpu_vrt_best import Best
    theirs = upstream(TINY)
    from vrt import Vrt
    Vrt.draw(theirs, 3)
    Vrt.stir(theirs, 3)
    ours = Best(TINY, how, compiled, torch.float32)
    assert not ours.net.load_state_dict(theirs.state_dict(), strict=False).missing_keys
    clips, target = clips_for(TINY, 2, "cpu")
    draws = torch.rand(2, len(ours.rates))
    ours.net.draws["values"] = draws
    keeps = None if against == "upstream" else ours.keeps(2, "cpu", draws)
    results = []
    for side, owner in ((theirs.eval(), theirs) if against == "upstream" else (ours.net, ours.net), (lambda c: ours(c, keeps), ours.net)):
        owner.zero_grad()
        out = side(clips)
        charbonnier(out, target).backward()
        results.append((out.detach(), {n: p.grad.clone() for n, p in owner.named_parameters()}))
    (a, ga), (b, gb) = results
    row = {"check": against, "attention": how, "compiled": compiled, "output": (a - b).abs().max().item(),
           "gradients": max(((gb[n] - g).abs().max() / (g.abs().max() + 1e-6)).item() for n, g in ga.items())}
    assert row["output"] < 1e-4 and row["gradients"] < 2e-2, row
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("upstream", "best", "restore", "check"))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--attention", default="sdpa", choices=("sdpa", "flex", "math"))
    parser.add_argument("--compile", default="default", help="none, default, a mode of torch.compile, or aot_eager (traces only)")
    parser.add_argument("--against", default="upstream", choices=("upstream", "golden"), help="of check")
    parser.add_argument("--graph", action="store_true", help="the whole step as one CUDA graph")
    parser.add_argument("--wait", action="store_true", help="best: print 'ready' when all is compiled, and time the steps after a line of input")
    parser.add_argument("--recompute", default="option", choices=("option", "none"))
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--height", type=int, default=720)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--precision", default="bf16", choices=("bf16", "fp32"))
    parser.add_argument("--weights", help="restore: writes upstream's weights here, for ours")
    parser.add_argument("--tiny", action="store_true", help="a small shape, to try this script on a CPU")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    options = TINY if args.tiny else SHAPE
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    compiled = None
    if args.compile != "none":
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1024
        compiled = {} if args.compile == "default" else {"backend" if args.compile == "aot_eager" else "mode": args.compile}
    if args.what == "check":
        row = check(args.attention, compiled, args.against)
    elif args.what == "upstream":
        row = train_upstream(options, args.batch, args.warm, args.steps, device)
    elif args.what == "best":
        row = train_best(options, args.batch, args.warm, args.steps, device, args, compiled)
    else:
        row = restore(args.frames, args.height, args.width, args.precision, device, options, args.weights)
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

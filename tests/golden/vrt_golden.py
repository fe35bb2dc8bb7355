#!/usr/bin/env python3
"""Golden values for VRT from the module of vrt.py: vrt_golden.py writes tests/golden/data/vrt*, vrt_golden.py --check compares.

Values are computed in float64, and the tests run in float64 too. Weights and clips are not stored: both sides draw
them by formula (draw.py). Of every gradient and every trained parameter the norm and four values are kept.
"""
import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from draw import probability, uniform  # noqa: E402
from make import EPSILON, differences  # noqa: E402
from vrt import Vrt  # noqa: E402

SEED, LR = 11, 1e-3
SMALL = dict(img_size=(4, 32, 40), window_size=(4, 4, 4), depths=(4, 2, 2, 2, 2, 2, 2, 2, 2), indep_reconsts=(8,),
             embed_dims=(8,) * 7 + (12, 12), num_heads=(2,) * 9, mul_attn_ratio=0.5, drop_path_rate=0.0, deformable_groups=4)
CASES = {  # configuration, clip [batch, frames, height, width], steps of Adam (SpyNet frozen, as before fix_iter)
    "deblur": (dict(SMALL), (1, 4, 32, 40), 2),
    "spike": (dict(SMALL, in_chans=4, drop_path_rate=0.3, qkv_bias=False), (2, 3, 32, 32), 2),
    "denoise": (dict(SMALL, nonblind_denoising=True, window_size=(3, 4, 4)), (1, 5, 32, 32), 2),
    "sr4": (dict(SMALL, upscale=4, pa_frames=4), (1, 4, 32, 32), 2),
    "sr3": (dict(SMALL, upscale=3, pa_frames=6, embed_dims=(12,) * 9, depths=(2,) * 9), (1, 5, 32, 32), 2),
    "interpolate": (dict(SMALL, pa_frames=0, indep_reconsts=()), (1, 4, 40, 32), 2),
    "steps": (dict(SMALL, depths=(2,) * 9, img_size=(2, 32, 32)), (1, 2, 32, 32), 20),
}


def five(tensor):
    flat = tensor.detach().flatten().double()
    return torch.cat([flat.norm()[None], flat[torch.arange(4) * (len(flat) - 1) // 3]])


def in_order(model):
    """Parameters in the order of their names."""
    return sorted(model.named_parameters())


def names_hash(model):
    """Of all names and shapes, FNV-1a."""
    hashed = 0xcbf29ce484222325
    for c in "".join(f"{n} {list(p.shape)}\n" for n, p in in_order(model)).encode():
        hashed = (hashed ^ c) * 0x100000001b3 % 2**64
    return f"{hashed:016x}"


def some(tensor):
    flat = tensor.detach().flatten()
    return flat[torch.arange(256) * (len(flat) - 1) // 255]


def clips_for(name, seed, config, shape):
    b, n, h, w = shape
    channels = config["in_chans"] + config["nonblind_denoising"]
    smooth = uniform(seed, f"clip.{name}", (b, n, channels, h // 4, w // 4), 0.5) + 0.5
    return F.interpolate(smooth.flatten(0, 1), scale_factor=4).unflatten(0, (b, n))


def build(name, seed, dtype):
    options, shape, _ = CASES[name]
    model = Vrt(**options)
    model.draw(seed)
    model.stir(seed)
    return model.to(dtype), clips_for(name, seed, model.config, shape).to(dtype)


@torch.no_grad()
def seed_for(name):
    """The first one with which no flow ends so close to a pixel that rounding decides which four pixels are taken."""
    for seed in range(SEED, SEED + 50):
        model, clips = build(name, seed, torch.float64)
        if not model.config["pa_frames"]:
            return seed
        flows = model.flows(clips[:, :, :3])[0]
        if min((f[0] - f[0].round()).abs().min().item() for f in flows) > 2e-5:
            return seed
    raise AssertionError(name)


def run(name, seed, dtype):
    _, shape, steps = CASES[name]
    model, clips = build(name, seed, dtype)
    count = model.draws["count"]
    model.draws["values"] = probability(seed, f"draws.{name}", shape[0] * max(count, 1)).float().view(shape[0], -1)
    trained = [p for n, p in model.named_parameters() if not n.startswith("spynet.")]
    optimizer = torch.optim.Adam(trained, lr=LR, eps=EPSILON)
    tensors, losses = {}, []
    for step in range(steps):
        out = model(clips)
        target = 0.5 + 0.25 * torch.sin(torch.arange(out.numel(), dtype=dtype)).view(out.shape)
        loss = ((out - target).square() + 1e-6).sqrt().mean()
        model.zero_grad()
        loss.backward()
        if step == 0:
            tensors["output"] = some(out)
            tensors["gradients"] = torch.stack([five(p.grad) for _, p in in_order(model)])
        losses.append(loss.item())
        optimizer.step()
    tensors["ends"] = torch.stack([five(p) for _, p in in_order(model)])
    config = {k: list(v) if isinstance(v, tuple) else v for k, v in model.config.items()}
    row = {"seed": seed, "config": config, "clip": list(shape), "steps": steps, "draws": count,
           "names": names_hash(model), "parameters": sum(p.numel() for p in model.parameters()), "loss": losses}
    return tensors, row


def make(names):
    doc, tensors = {"lr": LR, "epsilon": EPSILON, "cases": {}}, {}
    for name in names:
        made, doc["cases"][name] = run(name, seed_for(name), torch.float64)
        tensors.update({f"{name}.{k}": v.float().contiguous() for k, v in made.items()})
    return doc, tensors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare what is stored with what this machine computes")
    parser.add_argument("--data", type=pathlib.Path, default=HERE / "data")
    parser.add_argument("cases", nargs="*", help=f"to check, of {', '.join(CASES)}; default: all")
    args = parser.parse_args()
    torch.set_num_threads(1)
    doc, tensors = make(args.cases or CASES)
    if not args.check:
        (args.data / "vrt.json").write_text(json.dumps(doc) + "\n")
        save_file(tensors, args.data / "vrt.safetensors")
        return 0
    stored, stored_tensors = json.loads((args.data / "vrt.json").read_text()), load_file(args.data / "vrt.safetensors")
    stored["cases"] = {n: stored["cases"][n] for n in doc["cases"]}
    stored_tensors = {n: stored_tensors[n] for n in tensors}
    for name in doc["cases"]:
        assert stored["cases"][name].pop("config") == doc["cases"][name].pop("config"), name
    problems = differences(stored, doc, "vrt.json", 1e-6) + differences(stored_tensors, tensors, "vrt.safetensors", 1e-6)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Golden values for every variant of TAEHV: variants.py writes tests/golden/data/taehv_variants.*, --check compares.

As in make.py the truth is computed in float64, and `noise` is what float32 costs PyTorch itself. Outputs are stored whole, the
gradients of all tensors as one matrix of digests (norm and eight values), in the order of the state dict.
"""
import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from make import differences, digest, distance, waves  # noqa: E402
from taehv import VARIANTS, Taehv  # noqa: E402

SEED = 5
# Clips of odd lengths; taeh3 spans two chunks.
FRAMES = {"taehv": 5, "taecvx": 6, "taehv1_5": 3, "taew2_2": 5, "taeh3": 18, "taeltx_2": 9, "taehv1_5_super": 5, "taew2_2_super": 2}


def compute(name, dtype):
    torch.manual_seed(SEED)
    model = Taehv(**VARIANTS[name])
    drawn = torch.stack([digest(p.detach()) for p in model.parameters()])
    model.start_near_identity()
    model = model.to(dtype)
    side = 8 * model.patch
    frames = waves(2 if model.patch == 1 else 1, FRAMES[name], side, 2 * side).to(dtype)
    latents = model.encode(frames)
    decoded = model.decode(latents)
    ((decoded - 0.3).square().mean() + 0.1 * latents.square().mean()).backward()
    gradients = torch.stack([digest(p.grad) for p in model.parameters()])
    return {"drawn": drawn, "frames": frames, "latents": latents.detach(), "decoded": decoded.detach(), "gradients": gradients}


def tensor_distance(kind, a, b):
    """Digests belong to tensors of different sizes: each is compared with its own largest value."""
    return max(distance(x, y) for x, y in zip(a, b)) if kind == "gradients" else distance(a, b)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("variants", nargs="*", default=list(FRAMES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    path = HERE / "data" / "taehv_variants.safetensors"
    if args.check:
        stored = load_file(path)
        problems = []
        for name in args.variants:
            made = {f"{name}.{kind}": t.float() for kind, t in compute(name, torch.float64).items()}
            problems += [p for key, t in made.items() for p in differences(stored[key], t, key, 1e-6)]
        for problem in problems:
            print(problem)
        return 1 if problems else 0
    tensors, doc = {}, {"seed": SEED, "variants": {}}
    for name in args.variants:
        truth, rough = compute(name, torch.float64), compute(name, torch.float32)
        tensors.update({f"{name}.{kind}": t.float().contiguous() for kind, t in truth.items()})
        torch.manual_seed(SEED)
        model = Taehv(**VARIANTS[name])
        count = {part: sum(p.numel() for n, p in model.named_parameters() if n.startswith(part)) for part in ("encoder.", "decoder.")}
        doc["variants"][name] = {"parameters": count, "names": [n for n, _ in model.named_parameters()],
                                 "noise": {kind: tensor_distance(kind, rough[kind], truth[kind]) for kind in truth}}
        print(name, count, doc["variants"][name]["noise"])
    save_file(tensors, path)
    path.with_suffix(".json").write_text(json.dumps(doc) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Golden values for the parity tests, from PyTorch and NumPy alone: make.py writes tests/golden/data, make.py --check compares.

What has rounding of its own (a network, an optimizer) is computed here in float64 and stored as float32: the truth, the same on
every machine. Beside it stands `noise`, the distance of PyTorch's own float32 run from that truth; the C++ tests allow a small
multiple of it, so the tolerance is what float32 costs and not what happens to pass.
"""
import argparse
import json
import math
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from taehv import SMALL, Taehv  # noqa: E402

# Larger than the usual 1e-8, with which the first updates of a weight without gradient are rounding errors divided by themselves:
# +-lr by chance, in PyTorch too.
EPSILON = 1e-4  # larger than usual, so that rounding errors of tiny gradients do not become steps
TINY = dict(latent=4, encoder_width=(8, 8, 8, 8), decoder_width=(12, 8, 8, 8))


def distance(a, b):
    """Largest difference, relative to the largest value."""
    a, b = torch.as_tensor(a).double(), torch.as_tensor(b).double()
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-30))


# ---- TAEHV: forward, loss, gradients, 20 steps of AdamW with clipping

def waves(clips, count, height, width):
    """Clips of smooth moving colour with a little noise, in [0, 1]."""
    n, t, c, y, x = torch.meshgrid(*(torch.arange(s, dtype=torch.float64) for s in (clips, count, 3, height, width)), indexing="ij")
    wave = torch.sin(0.4 * x + 0.3 * n + 0.5 * t + c) * torch.cos(0.3 * y - 0.2 * t * (1 + n))
    return (0.5 + 0.4 * wave + 0.1 * (torch.rand(wave.shape, generator=torch.Generator().manual_seed(8)) - 0.5)).float()


def train(options, dtype, steps=20, nudge=0.0):
    torch.manual_seed(7)
    model = Taehv(**options)
    out = {f"drawn.{n}": digest(p.detach()) for n, p in model.named_parameters()}
    model.start_near_identity()
    model = model.to(dtype)
    frames = waves(2, 5, 16, 24).to(dtype)
    seen = frames + nudge
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=EPSILON, weight_decay=1e-2)
    out["frames"] = frames
    out.update({f"start.{n}": p.detach().clone() for n, p in model.named_parameters()})
    losses, norms = [], []
    for step in range(steps):
        latents = model.encode(seen)
        decoded = model.decode(latents)
        loss = torch.nn.functional.mse_loss(decoded, seen[:, :decoded.shape[1]])
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            out["latents"], out["decoded"] = latents.detach().clone(), decoded.detach().clone()
            out.update({f"gradient.{n}": p.grad.clone() for n, p in model.named_parameters()})
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
    out.update({f"end.{n}": p.detach().clone() for n, p in model.named_parameters()})
    return out, {"loss": losses, "norm": norms}


def digest(tensor):
    """What stands for a tensor too large to store: its norm, and eight of its values."""
    flat = tensor.flatten().double()
    at = torch.arange(8) * (len(flat) - 1) // 7
    return torch.cat([flat.norm()[None], flat[at]])


def taehv(name, options, whole, measure_noise):
    truth, numbers = train(options, torch.float64)
    def kept(tensors):
        return {n: t if whole or n in ("frames", "latents", "decoded") or n.startswith("drawn.") else digest(t) for n, t in tensors.items()}

    truth = kept(truth)
    noise = {}
    for nudge in (0.0, 1e-7, -1e-7) if measure_noise else ():  # where a value just passes a limit or not, one run is a poor measure
        float32, numbers32 = train(options, torch.float32, nudge=nudge)
        float32 = kept(float32)
        for n in truth:
            kind = n.split(".")[0]
            noise[kind] = max(noise.get(kind, 0), distance(float32[n], truth[n]))
        for n in numbers:
            noise[n] = max(noise.get(n, 0), distance(numbers32[n], numbers[n]))
    doc = {"config": {k: v for k, v in options.items()}, "seed": 7, "lr": 1e-3, "betas": [0.9, 0.95], "epsilon": EPSILON, "weight_decay": 1e-2,
           "clip": 1.0, "whole": whole, **numbers, "noise": noise}
    return {f"{name}.safetensors": truth, f"{name}.json": doc}


# ---- learning rates

def schedules():
    """The formulas of diffusers' optimization module (and of torch.optim.lr_scheduler where it has them; asserted below)."""
    def rest(step, warmup, steps):
        return min(1.0, (step - warmup) / max(1, steps - warmup))

    forms = {
        "constant": lambda c, s, p: 1.0,
        "linear": lambda c, s, p: 1 - p,
        "cosine": lambda c, s, p: 0.5 * (1 + math.cos(math.pi * p)),
        "cosine_restarts": lambda c, s, p: 0.0 if p >= 1 else 0.5 * (1 + math.cos(math.pi * ((c["cycles"] * p) % 1.0))),
        "multistep": lambda c, s, p: c["gamma"]**sum(m <= s for m in c["milestones"]),
        "polynomial": lambda c, s, p: (1 - p)**c["power"],
    }
    extra = {"cosine_restarts": {"cycles": 3}, "multistep": {"milestones": [12, 20, 33], "gamma": 0.3}, "polynomial": {"power": 2.5}}
    cases = []
    for kind, form in forms.items():
        for warmup, floor in ((0, 0.0), (10, 0.0), (5, 0.1)):
            if floor and kind in ("constant", "multistep"):
                continue
            case = {"kind": kind, "warmup": warmup, "steps": 40, "floor": floor, **extra.get(kind, {})}

            def factor(s):
                if s < warmup:
                    return s / max(1, warmup)
                return floor + (1 - floor) * form(case, s, rest(s, warmup, 40))
            parameter = torch.nn.Parameter(torch.zeros(1))
            optimizer = torch.optim.SGD([parameter], lr=1.0)
            scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
            case["factors"] = []
            for _ in range(45):  # five beyond the end
                case["factors"].append(scheduler.get_last_lr()[0])
                optimizer.step()
                scheduler.step()
            cases.append(case)
            if warmup == 0 and floor == 0:
                against_torch(case)
    return {"schedules.json": {"cases": cases}}


def against_torch(case):
    s = torch.optim.lr_scheduler
    make = {"linear": lambda o: s.LinearLR(o, 1.0, 0.0, 40), "cosine": lambda o: s.CosineAnnealingLR(o, 40),
            "multistep": lambda o: s.MultiStepLR(o, case["milestones"], case["gamma"]),
            "polynomial": lambda o: s.PolynomialLR(o, 40, case["power"])}.get(case["kind"])
    if make is None:
        return
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    for step in range(40):
        assert abs(scheduler.get_last_lr()[0] - case["factors"][step]) < 1e-9, (case["kind"], step)
        optimizer.step()
        scheduler.step()


# ---- optimizers on fixed gradients

OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, dict(lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)),
    "adamw_plain": (torch.optim.AdamW, dict(lr=1e-3, betas=(0.9, 0.999), weight_decay=0.0)),
    "adam": (torch.optim.Adam, dict(lr=1e-2, betas=(0.9, 0.99), weight_decay=0.05)),
    "sgd": (torch.optim.SGD, dict(lr=0.1, weight_decay=0.01)),
    "momentum": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.01)),
    "nesterov": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
}
SHAPES = {"a": (7, 5), "b": (11,), "c": (3, 2, 2, 2)}


def optimizers():
    random = torch.Generator().manual_seed(3)
    start = {n: torch.randn(s, generator=random) for n, s in SHAPES.items()}
    gradients = {n: torch.randn(20, *s, generator=random) * torch.logspace(-3, 1, 20).view(20, *[1] * len(s)) for n, s in SHAPES.items()}
    tensors = {f"start.{n}": t for n, t in start.items()} | {f"gradients.{n}": t for n, t in gradients.items()}
    doc = {"groups": {"b": {"lr_scale": 0.25, "weight_decay": 0.0}}, "cases": {}}
    for name, (kind, options) in OPTIMIZERS.items():
        ends = {}
        for dtype in (torch.float64, torch.float32):
            parameters = {n: torch.nn.Parameter(t.to(dtype, copy=True)) for n, t in start.items()}
            groups = [{"params": [p for n, p in parameters.items() if n != "b"]},
                      {"params": [parameters["b"]], "lr": 0.25 * options["lr"], "weight_decay": 0.0}]
            optimizer = kind(groups, **options)
            for step in range(20):
                for n, p in parameters.items():
                    p.grad = gradients[n][step].to(dtype)
                optimizer.step()
                if step in (0, 19):
                    ends.update({(dtype, f"{name}.after{step + 1}.{n}"): p.detach().clone() for n, p in parameters.items()})
        for (dtype, key), value in ends.items():
            if dtype == torch.float64:
                tensors[key] = value
        noise = max(distance(ends[torch.float32, k], v) for (d, k), v in ends.items() if d == torch.float64)
        doc["cases"][name] = {"kind": kind.__name__.lower(), **options, "noise": noise}
    return {"optimizers.safetensors": tensors, "optimizers.json": doc}


# ---- the loss scale

def scaler():
    cases = []
    for initial, interval, finite in ((65536.0, 3, "1110111110011111111"), (4.0, 1, "1101"), (1024.0, 5, "0001111111111111")):
        parameter = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        grad_scaler = torch.amp.GradScaler("cpu", init_scale=initial, growth_factor=2.0, backoff_factor=0.5, growth_interval=interval)
        case = {"initial": initial, "growth": 2.0, "backoff": 0.5, "interval": interval,
                "finite": [f == "1" for f in finite], "scale": [], "good_steps": [], "stepped": []}
        for ok in case["finite"]:
            before = parameter.detach().clone()
            optimizer.zero_grad()
            grad_scaler.scale((parameter * (1.0 if ok else math.inf)).sum()).backward()
            grad_scaler.step(optimizer)
            grad_scaler.update()
            case["stepped"].append(not torch.equal(before, parameter.detach()))
            case["scale"].append(grad_scaler.get_scale())
            case["good_steps"].append(grad_scaler._get_growth_tracker())
        cases.append(case)
    return {"scaler.json": {"cases": cases}}


# ---- PSNR and SSIM, from the formulas

def to_bytes(x):
    return np.round(np.clip(x, 0, 1) * np.float32(255)).astype(np.float64)


def psnr(a, b):
    mse = np.mean((a - b)**2)
    return math.inf if mse == 0 else 20 * math.log10(255 / math.sqrt(mse))


def ssim(a, b):  # one channel
    w = np.exp(-(np.arange(11) - 5.0)**2 / (2 * 1.5**2))
    window = np.outer(w / w.sum(), w / w.sum())

    def mean(x):
        return np.einsum("ijkl,kl->ij", np.lib.stride_tricks.sliding_window_view(x, (11, 11)), window)
    ma, mb = mean(a), mean(b)
    va, vb, cov = mean(a * a) - ma**2, mean(b * b) - mb**2, mean(a * b) - ma * mb
    c1, c2 = (0.01 * 255)**2, (0.03 * 255)**2
    return np.mean((2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2)))


def kair_luma(rgb):
    """Y of 8-bit RGB planes as KAIR's validation gets it: float32 pictures of range 1, times 255, not rounded."""
    picture = rgb.astype(np.float32).transpose(1, 2, 0) / np.float32(255) * np.float32(255)
    luma = np.dot(picture, [65.481, 128.553, 24.966]) / 255.0 + 16.0
    return (luma / 255.0).astype(np.float32).astype(np.float64) * 255.0


def metrics():
    random = np.random.default_rng(11)
    y, x = np.mgrid[0:24, 0:20] / 20.0
    base = np.stack([0.5 + 0.5 * np.sin(5 * x + c + f) * np.cos(4 * y) for f in range(4) for c in range(3)])
    base = base.reshape(2, 2, 3, 24, 20)
    noisy = base + random.normal(0, 1, base.shape) * np.array([0.02, 0.15]).reshape(2, 1, 1, 1, 1)  # leaves [0, 1]
    a, b = base.astype(np.float32), noisy.astype(np.float32)
    qa, qb = to_bytes(a), to_bytes(b)
    doc = {"psnr": [], "ssim": [], "psnr_y": [], "ssim_y": []}
    for n in range(2):
        ya, yb = [[kair_luma(q[n, t]) for t in range(2)] for q in (qa, qb)]
        doc["psnr_y"].append(float(np.mean([psnr(ya[t], yb[t]) for t in range(2)])))
        doc["ssim_y"].append(float(np.mean([ssim(ya[t], yb[t]) for t in range(2)])))
        doc["psnr"].append(float(np.mean([psnr(qa[n, t], qb[n, t]) for t in range(2)])))
        doc["ssim"].append(float(np.mean([ssim(qa[n, t, c], qb[n, t, c]) for t in range(2) for c in range(3)])))
    return {"metrics.safetensors": {"a": torch.from_numpy(a), "b": torch.from_numpy(b)}, "metrics.json": doc}


TOPICS = {
    "taehv_tiny": lambda check: taehv("taehv_tiny", TINY, True, not check),
    "taehv_small": lambda check: taehv("taehv_small", SMALL, False, not check),
    "schedules": lambda check: schedules(), "optimizers": lambda check: optimizers(), "scaler": lambda check: scaler(),
    "metrics": lambda check: metrics(),
}


def differences(stored, made, where, allowed):
    """Names where two documents disagree by more than `allowed`, relatively."""
    if isinstance(made, dict):
        if set(stored) != set(made):
            return [f"{where}: other names"]
        return [d for k in made for d in ([] if k == "noise" else differences(stored[k], made[k], f"{where}.{k}", allowed))]
    if isinstance(made, (list, tuple)) and len(made) != len(stored):
        return [f"{where}: other length"]
    if isinstance(made, (list, tuple)) and not all(isinstance(v, (int, float)) for v in made):
        return [d for i, v in enumerate(made) for d in differences(stored[i], v, f"{where}[{i}]", allowed)]
    if isinstance(made, str):
        return [] if stored == made else [f"{where}: {stored} became {made}"]
    if isinstance(made, torch.Tensor) and stored.shape != made.shape:
        return [f"{where}: other shape"]
    far = distance(stored, made)
    return [] if far <= allowed else [f"{where}: differs by {far:.2g}"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare what is stored with what this machine computes")
    parser.add_argument("--data", type=pathlib.Path, default=HERE / "data")
    parser.add_argument("topics", nargs="*", default=[], help=f"of {', '.join(TOPICS)}; default: all")
    args = parser.parse_args()
    args.data.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    problems = []
    for name, made in [item for topic in args.topics or TOPICS for item in TOPICS[topic](args.check).items()]:
        path = args.data / name
        tensors = name.endswith(".safetensors")
        if tensors:
            made = {k: v.float().contiguous() for k, v in made.items()}
        if args.check:
            stored = load_file(path) if tensors else json.loads(path.read_text())
            problems += differences(stored, made, name, 1e-6)
        elif tensors:
            save_file(made, path)
        else:
            path.write_text(json.dumps(made, indent=1) + "\n")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

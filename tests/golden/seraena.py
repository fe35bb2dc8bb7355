#!/usr/bin/env python3
"""Seraena and the ways to train TAEHV, in PyTorch from their description: seraena.py writes tests/golden/data/seraena*, seraena.py --check compares.

As in make.py, values are computed in float64, and `noise` is the distance of PyTorch's own float32 run from them.
"""
import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from make import differences, digest, distance, waves  # noqa: E402
from taehv import SMALL, Taehv  # noqa: E402


class Discriminator(nn.Module):
    """Six blocks of convolution, batch normalisation and ReLU over pictures and their context; a score map of each."""

    def __init__(self, images, context):
        super().__init__()
        widths = [images + context, 64, 128, 256, 512, 512, 512]
        strides = [1, 2, 2, 2, 1, 1]
        blocks = []
        for i, stride in enumerate(strides):
            convolution = nn.Conv2d(widths[i], widths[i + 1], 4 if stride == 2 else 3, stride=stride, padding=1, bias=False)
            blocks.append(nn.Sequential(convolution, nn.BatchNorm2d(widths[i + 1]), nn.ReLU()))
        self.blocks = nn.Sequential(*blocks)
        self.proj = nn.ModuleList([nn.Conv2d(width, 1, 1, bias=False) for width in widths[1:]])

    def forward(self, images, context):
        height, width = images.shape[2:]
        x = torch.cat([2 * images - 1, F.interpolate(context, size=(height, width), mode="nearest")], dim=1)
        maps = []
        for block, proj in zip(self.blocks, self.proj):
            x = block(x)
            maps.append(F.adaptive_avg_pool2d(proj(x), (height // 8, width // 8)))
        return torch.cat(maps, dim=1)


def discriminator_loss(disc, real, fake, context, fake_context, is_fake):
    disc.train()
    pick = is_fake.view(-1, 1, 1, 1)
    scores = disc(torch.where(pick, fake, real), torch.where(pick, fake_context, context))
    wanted = torch.where(pick, 1.0, -1.0).to(scores.dtype).expand_as(scores)
    return ((scores - wanted)**2).mean()


def correction(disc, real, fake, context):
    disc.eval()
    step = torch.zeros_like(fake, requires_grad=True)
    with torch.no_grad():
        wanted = disc(real, context)
    per_picture = ((disc(fake + step, context) - wanted)**2).flatten(1).mean(dim=1)
    gradient, = torch.autograd.grad(per_picture.sum(), step)
    return -gradient / (gradient.std(unbiased=False) + 1e-5)


# ---- the random numbers of the replay buffer: a counter mixed with a key

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & WORD
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & WORD
    return x ^ (x >> 31)


def fold(key, value):
    return mix(((key + GOLDEN) & WORD) ^ mix((value + GOLDEN) & WORD))


class Stream:
    def __init__(self, *keys):
        self.key, self.count = 0, 0
        for key in keys:
            self.key = fold(self.key, key)

    def next(self):
        self.count += 1
        return mix((self.key + GOLDEN * self.count) & WORD)

    def coin(self):
        return (self.next() >> 11) * 2.0**-53 < 0.5

    def below(self, n):
        while (x := self.next()) < (1 << 64) % n:
            pass
        return x % n


class Lane:
    """What is kept of the fakes at one place of the batch."""

    def __init__(self, place, room):
        self.place, self.room, self.kept = place, room, []

    def step(self, seed, step, fakes):
        """The coins of these fakes, and for each one that was kept, these included."""
        random = Stream(seed, int.from_bytes(b"replay", "big"), step, self.place)
        coins = [random.coin() for _ in fakes]
        taken = set()
        for fake in fakes:
            if len(self.kept) < self.room:
                taken.add(len(self.kept))
                self.kept.append(fake)
                continue
            while (slot := random.below(self.room)) in taken:
                pass
            taken.add(slot)
            self.kept[slot] = fake
        return coins, [self.kept[random.below(len(self.kept))] for _ in fakes]


# ---- training

MODES = {  # mode, weights (reconstruction, encoder, adversarial), frames of a picture, half that is trained
    "joint": ("joint", (1, 0, 0), 3, "both"),
    "joint_encoder": ("joint", (2, 0.5, 0), 3, "both"),
    "joint_adversarial": ("joint", (1, 0, 0.5), 4, "both"),
    "distill": ("distill", (1, 1, 0), 3, "both"),
    "distill_adversarial": ("distill", (1, 1, 1), 3, "both"),
    "distill_decoder": ("distill", (1, 1, 1), 2, "decoder"),
}
SEED, CLIPS, FRAMES, SIDE, ROOM, STEPS = 7, 2, 12, 16, 24, 20
EPSILON = 1e-4  # larger than usual, so that rounding errors of tiny gradients do not become steps


def train(mode, weights, group, half, dtype, nudge=0.0):
    torch.manual_seed(SEED)
    model = Taehv(**SMALL)
    torch.nn.init.constant_(model.decoder[-1].bias, 0.5)
    model = model.to(dtype)
    reconstruction, encoder, adversarial = weights
    if half == "decoder":
        model.encoder.requires_grad_(False)
        encoder = 0
    torch.manual_seed(SEED + 1)
    disc = Discriminator(3 * group, 16).to(dtype) if adversarial else None
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-4, betas=(0.9, 0.95), eps=EPSILON, weight_decay=1e-2)
    if disc:
        disc_optimizer = torch.optim.AdamW(disc.parameters(), lr=3e-4, betas=(0.9, 0.99), eps=EPSILON, weight_decay=1e-2)
    frames = pictures_of_clips().to(dtype) / 255 + nudge
    latents = teacher_latents().to(dtype)
    pictures = FRAMES // group
    lanes = [Lane(place, ROOM) for place in range(CLIPS)]
    series = {"loss": [], "reconstruction": [], "encoder": [], "adversarial": [], "discriminator": []}

    def group_up(clip):
        missing = FRAMES - clip.shape[1]
        whole = torch.cat([clip, clip[:, :missing]], dim=1)
        return whole.reshape(CLIPS * pictures, group * 3, SIDE, SIDE)

    for step in range(STEPS):
        encoded = model.encode(frames)
        fed = latents if mode == "distill" else encoded
        decoded = model.decode(fed)
        target = frames[:, :decoded.shape[1]]
        if disc:
            real, fake = group_up(target), group_up(decoded.detach())
            context = fed.detach().mean(dim=1).repeat_interleave(pictures, dim=0)
            coins, shown = [], []
            for place in range(CLIPS):
                mine = range(place * pictures, (place + 1) * pictures)
                new_coins, old = lanes[place].step(SEED, step, [(fake[i], context[i]) for i in mine])
                coins += new_coins
                for i, replayed in zip(mine, old):
                    first_half = i < CLIPS * pictures // 2
                    shown.append((fake[i], context[i]) if first_half else replayed)
            loss = discriminator_loss(disc, real, torch.stack([s[0] for s in shown]), context, torch.stack([s[1] for s in shown]), torch.tensor(coins))
            disc_optimizer.zero_grad()
            loss.backward()
            disc_optimizer.step()
            series["discriminator"].append(loss.item())
            wanted = fake + correction(disc, real, fake, context)
            wanted = wanted.reshape(CLIPS, FRAMES, 3, SIDE, SIDE)[:, :decoded.shape[1]]
        total = 0
        if reconstruction:
            part = F.mse_loss(decoded, target)
            series["reconstruction"].append(part.item())
            total = total + reconstruction * part
        if encoder:
            part = F.mse_loss(encoded, latents)
            series["encoder"].append(part.item())
            total = total + encoder * part
        if disc:
            part = F.mse_loss(decoded, wanted)
            series["adversarial"].append(part.item())
            total = total + adversarial * part
        series["loss"].append(total.item())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    ends = {f"model.{n}": digest(p.detach()) for n, p in model.named_parameters()}
    if disc:
        ends |= {f"disc.{n}": digest(t.detach()) for n, t in disc.state_dict().items() if "tracked" not in n}
    return series, ends


def pictures_of_clips():
    return (waves(CLIPS, FRAMES, SIDE, SIDE).double() * 255).round()


def teacher_latents():
    return torch.randn(CLIPS, FRAMES // 4, 16, SIDE // 8, SIDE // 8, generator=torch.Generator().manual_seed(9)) * 0.7


def modes(measure_noise, names):
    tensors = {"frames": pictures_of_clips(), "latents": teacher_latents()}
    doc = {"seed": SEED, "batch": CLIPS, "frames": FRAMES, "side": SIDE, "replay": ROOM * CLIPS, "lr": 3e-4, "betas": [0.9, 0.95], "epsilon": EPSILON,
           "weight_decay": 1e-2, "cases": {}}
    for name in names:
        mode, weights, group, half = MODES[name]
        truth, ends = train(mode, weights, group, half, torch.float64)
        noise = {}
        for nudge in (0.0, 1e-7, -1e-7) if measure_noise else ():  # a pixel that just reaches its limit or not makes one run a poor measure
            rough, rough_ends = train(mode, weights, group, half, torch.float32, nudge)
            for k, v in truth.items():
                if v:
                    noise[k] = max(noise.get(k, 0), distance(rough[k], v))
            noise["end"] = max(noise.get("end", 0), max(distance(rough_ends[k], v) for k, v in ends.items()))
        doc["cases"][name] = {"mode": mode, "weights": list(weights), "group": group, "train": half, **{k: v for k, v in truth.items() if v}, "noise": noise}
        tensors |= {f"{name}.{k}": v for k, v in ends.items()}
    return {"seraena_modes.json": doc, "seraena_modes.safetensors": tensors}


# ---- one look at a batch

SHAPES = {"author": (9, 16, 6, 16, 24, 2, 3), "odd": (3, 4, 3, 20, 27, 5, 4)}  # channels, pictures, size of pictures and of context


def look(images, channels, count, height, width, low, wide, dtype):
    torch.manual_seed(5)
    disc = Discriminator(images, channels)
    out = {f"drawn.{n}": digest(p.detach()) for n, p in disc.named_parameters()}
    disc = disc.to(dtype)
    random = torch.Generator().manual_seed(6)
    real = torch.rand(count, images, height, width, generator=random).to(dtype)
    fake = torch.rand(count, images, height, width, generator=random).to(dtype).requires_grad_(True)
    context, other = (torch.randn(count, channels, low, wide, generator=random).to(dtype) for _ in range(2))
    is_fake = torch.arange(count) % 3 != 1
    loss = discriminator_loss(disc, real, fake, context, other, is_fake)
    loss.backward()
    out.update(real=real, fake=fake.detach(), context=context, other=other, is_fake=is_fake.to(dtype), loss=loss.detach()[None], fake_gradient=fake.grad)
    out.update({f"gradient.{n}": digest(p.grad) for n, p in disc.named_parameters()})
    out.update({f"running.{n}": digest(b) for n, b in disc.named_buffers() if "tracked" not in n})
    out["correction"] = correction(disc, real, fake.detach(), context)
    out["scores"] = disc(real, context).detach()
    return out, sum(p.numel() for p in disc.parameters())


def looks(measure_noise):
    tensors, doc = {}, {}
    for name, shape in SHAPES.items():
        truth, parameters = look(*shape, torch.float64)
        rough, _ = look(*shape, torch.float32) if measure_noise else (truth, 0)
        noise = {}
        for n in truth:
            kind = n.split(".")[0]
            noise[kind] = max(noise.get(kind, 0), distance(rough[n], truth[n]))
        tensors |= {f"{name}.{n}": t for n, t in truth.items()}
        doc[name] = {"images": shape[0], "context": shape[1], "parameters": parameters, "seed": 5, "noise": noise}
    return {"seraena.json": doc, "seraena.safetensors": tensors}


def against_upstream(path):
    """Largest differences from upstream's own seraena.py (github.com/madebyollin/seraena, never part of this tree), for docs/taehv.md."""
    import importlib.util
    import random

    spec = importlib.util.spec_from_file_location("upstream_seraena", path)
    upstream = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(upstream)
    for name, (images, channels, count, height, width, low, wide) in SHAPES.items():
        torch.manual_seed(5)
        theirs = upstream.Seraena(images, channels, use_amp=False)
        torch.manual_seed(5)
        ours = Discriminator(images, channels)
        same = all(torch.equal(a, b) for a, b in zip(theirs.disc.state_dict().values(), ours.state_dict().values(), strict=True))
        assert list(theirs.disc.state_dict()) == list(ours.state_dict())
        optimizer = torch.optim.AdamW(ours.parameters(), 3e-4, betas=(0.9, 0.99))
        count -= count % 2
        worst = {"loss": 0.0, "corrected": 0.0}
        kept = []
        for step in range(5):
            made = torch.Generator().manual_seed(step)
            real, fake = (torch.rand(count, images, height, width, generator=made) for _ in range(2))
            context = torch.randn(count, channels, low, wide, generator=made)
            random.seed(step)
            torch.manual_seed(step)
            wanted, debug = theirs.step_and_make_correction_targets(real, fake, context)
            random.seed(step)
            torch.manual_seed(step)
            kept += [(f, c) for f, c in zip(fake, context)]
            old = [random.choice(kept) for _ in range(count // 2)]
            shown = list(zip(fake, context))[:count // 2] + old
            is_fake = torch.rand(count, 1, 1, 1).flatten() < 0.5
            loss = discriminator_loss(ours, real, torch.stack([s[0] for s in shown]), context, torch.stack([s[1] for s in shown]), is_fake)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            corrected = fake + correction(ours, real, fake, context)
            worst["loss"] = max(worst["loss"], abs(loss.item() - debug["disc_loss"]) / debug["disc_loss"])
            worst["corrected"] = max(worst["corrected"], distance(corrected, wanted))
        print(f"{name}: first weights {'equal' if same else 'DIFFER'}, 5 steps: loss {worst['loss']:.1e}, corrected {worst['corrected']:.1e}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--upstream", type=pathlib.Path, help="upstream's seraena.py, to compare with")
    parser.add_argument("--check", action="store_true", help="compare what is stored with what this machine computes")
    parser.add_argument("--data", type=pathlib.Path, default=HERE / "data")
    parser.add_argument("topics", nargs="*", help=f"to check, of looks, {', '.join(MODES)}; default: all")
    args = parser.parse_args()
    if args.topics and not args.check:
        parser.error("topics are for --check; writing writes all")
    torch.set_num_threads(1)
    if args.upstream:
        return against_upstream(args.upstream)
    names = [n for n in MODES if not args.topics or n in args.topics]
    made = looks(not args.check) if not args.topics or "looks" in args.topics else {}
    made |= modes(not args.check, names) if names else {}
    problems = []
    for file, content in made.items():
        path = args.data / file
        tensors = file.endswith(".safetensors")
        if tensors:
            content = {k: v.float().contiguous() for k, v in content.items()}
        if args.check:
            stored = load_file(path) if tensors else json.loads(path.read_text())
            if tensors:  # of the topics asked for
                stored = {k: v for k, v in stored.items() if "." not in k or k.split(".")[0] in (*names, *SHAPES)}
            elif "cases" in content:
                stored["cases"] = {n: stored["cases"][n] for n in names}
            problems += differences(stored, content, file, 1e-6)
        elif tensors:
            save_file(content, path)
        else:
            path.write_text(json.dumps(content, indent=1) + "\n")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

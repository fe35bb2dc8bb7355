#!/usr/bin/env python3
"""The peer of a full distillation step on a GPU (teacher, encoder loss, decoder loss, Seraena with its replay buffer): PyTorch as the author's notebook
does it, fp16 autocast with two gradient scalers, 16 clips of 12 x 64 x 64. gpu_distill_peer.py TEACHER.pt [STEPS]; one JSON line with milliseconds
per step and peak memory in GiB, as it is (`eager`) and with channels-last weights, fused AdamW and no loss read back (`tuned`)."""

import json
import pathlib
import random
import statistics
import sys
import time

import torch
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "golden")]
import gpu_peer  # noqa: E402,F401  (makes the model's layers as fast as upstream's)
import seraena  # noqa: E402
import taehv  # noqa: E402

CLIPS, FRAMES, SIDE, GROUP, ROOM = 16, 12, 64, 3, 16384


def group_up(clips):
    clips = torch.cat([clips, clips[:, :FRAMES - clips.shape[1]]], dim=1)
    return clips.reshape(-1, 3 * GROUP, SIDE, SIDE)


def measure(teacher, tuned, steps, warm=10):
    torch.manual_seed(0)
    random.seed(0)
    model, disc = taehv.Taehv().cuda(), seraena.Discriminator(3 * GROUP, 16).cuda()
    if tuned:
        model, disc = model.to(memory_format=torch.channels_last), disc.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, betas=(0.9, 0.95), fused=tuned)
    disc_optimizer = torch.optim.AdamW(disc.parameters(), 3e-4, betas=(0.9, 0.99), fused=tuned)
    scaler, disc_scaler = torch.amp.GradScaler(), torch.amp.GradScaler()
    kept = []
    batch = torch.randint(0, 256, (CLIPS, FRAMES, 3, SIDE, SIDE), dtype=torch.uint8).pin_memory()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(steps + warm):
        torch.cuda.synchronize()
        start = time.perf_counter()
        frames = batch.cuda(non_blocking=True).float() / 255
        with torch.no_grad():
            mean, deviation = teacher((frames * 2 - 1).bfloat16())
            latents = (mean + deviation * torch.randn_like(mean)).float()
        with torch.autocast("cuda", torch.float16):
            encoder = F.mse_loss(model.encode(frames), latents)
            decoded = model.decode(latents).float()
        target = frames[:, :decoded.shape[1]]
        real, fake = group_up(target), group_up(decoded.detach())
        context = latents.mean(dim=1).repeat_interleave(FRAMES // GROUP, dim=0)
        for pair in zip(fake, context):
            if len(kept) < ROOM:
                kept.append([one.clone() for one in pair])
            else:
                kept[random.randrange(ROOM)] = [one.clone() for one in pair]
        half = len(fake) // 2
        old = [random.choice(kept) for _ in range(half)]
        shown = torch.cat([fake[:half], torch.stack([one[0] for one in old])])
        shown_context = torch.cat([context[:half], torch.stack([one[1] for one in old])])
        with torch.autocast("cuda", torch.float16):
            loss = seraena.discriminator_loss(disc, real, shown, context, shown_context, torch.rand(len(real), device="cuda") < 0.5)
        disc_optimizer.zero_grad()
        disc_scaler.scale(loss).backward()
        disc_scaler.step(disc_optimizer)
        disc_scaler.update()
        if not tuned:
            loss.item()  # the notebook shows it
        with torch.autocast("cuda", torch.float16):
            wanted = fake + seraena.correction(disc, real, fake, context)
        wanted = wanted.reshape(CLIPS, FRAMES, 3, SIDE, SIDE)[:, :decoded.shape[1]]
        total = encoder + F.mse_loss(decoded, target) + F.mse_loss(decoded, wanted)
        optimizer.zero_grad()
        scaler.scale(total).backward()
        scaler.step(optimizer)
        scaler.update()
        if not tuned:
            total.item()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return {"ms": 1e3 * statistics.median(times[warm:]), "peak_gib": torch.cuda.max_memory_allocated() / 2**30}


if __name__ == "__main__":
    torch.backends.cudnn.benchmark = True
    script = torch.jit.load(sys.argv[1], map_location="cuda").eval()
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    print(json.dumps({"eager": measure(script, False, count), "tuned": measure(script, True, count)}))

#!/usr/bin/env python3
"""Runs upstream's own TAEHV (github.com/madebyollin/taehv, never part of this tree) for the comparison in docs/parity.md.

    LOCKSTEP_UPSTREAM=<taehv.py of a checkout> build/release/tests/models_test --gtest_also_run_disabled_tests --gtest_filter='TaehvUpstream.*'

The test calls this script: `upstream.py <taehv.py> <folder>` computes, `upstream.py <taehv.py> <folder> --load` reads what we exported.
"""
import importlib.util
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

LONG = dict(patch_size=4, latent_channels=128, encoder_time_downscale=(True,) * 3, decoder_time_upscale=(True,) * 3)
VARIANTS = {  # constructor arguments, attributes upstream takes from the name of a weight file, frames
    "taehv": ({}, {}, 13),
    "taecvx": ({}, {"is_cogvideox": True}, 8),
    "taehv1_5": (dict(patch_size=2, latent_channels=32), {}, 11),
    "taew2_2": (dict(patch_size=2, latent_channels=48), {}, 5),
    "taeh3": (dict(patch_size=2, latent_channels=24), {"is_h3": True}, 20),
    "taeltx_2": (LONG, {}, 10),
    "taehv1_5_super": (dict(patch_size=2, latent_channels=32, arch_variant="super"), {}, 7),
    "taew2_2_super": (dict(patch_size=2, latent_channels=48, arch_variant="super"), {}, 5),
}


def make(name):
    arguments, attributes, count = VARIANTS[name]
    model = upstream.TAEHV(None, **arguments)
    for key, value in attributes.items():
        setattr(model, key, value)
    return model, count


@torch.no_grad()
def strengthen(model):
    """PyTorch's draw passes hardly any signal through forty layers; with this, frames differ visibly."""
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter *= 1.6
    model.decoder[-1].bias.fill_(0.5)


@torch.no_grad()
def stream(model, frames):
    """One frame, then one latent at a time, as the wrapper's own description does it."""
    streaming = upstream.StreamingTAEHV(model)
    latents = [latent for frame in frames.split(1, dim=1) if (latent := streaming.encode(frame)) is not None]
    latents += streaming.flush_encoder()
    decoded = []
    for latent in latents:
        frame = streaming.decode(latent)
        while frame is not None:
            decoded.append(frame)
            frame = streaming.decode()
    decoded += streaming.flush_decoder()
    return torch.cat(latents, 1).contiguous(), torch.cat(decoded, 1).contiguous()


def compute(folder, name):
    torch.manual_seed(7)
    model, count = make(name)
    out = {f"drawn.{n}": p.detach().clone() for n, p in model.named_parameters()}
    strengthen(model)
    out.update({f"weights.{n}": p.detach().clone() for n, p in model.named_parameters()})
    side = 8 * model.patch_size
    frames = torch.rand(2, count, 3, 2 * side, 3 * side, generator=torch.Generator().manual_seed(8))
    latents = model.encode_video(frames, show_progress_bar=False)
    decoded = model.decode_video(latents, show_progress_bar=False)
    (decoded.square().mean() + latents.square().mean()).backward()
    out.update({f"gradient.{n}": p.grad for n, p in model.named_parameters()})
    out.update(frames=frames, latents=latents.detach().contiguous(), decoded=decoded.detach().contiguous())
    with torch.no_grad():
        one_by_one = model.encode_video(frames, parallel=False, show_progress_bar=False)
        out["sequential.latents"] = one_by_one.contiguous()
        out["sequential.decoded"] = model.decode_video(one_by_one, parallel=False, show_progress_bar=False).contiguous()
    if name != "taeh3":  # upstream's wrapper knows nothing of chunks
        out["stream.latents"], out["stream.decoded"] = stream(model, frames)
    save_file(out, folder / f"{name}.safetensors")
    print(name, list(latents.shape), list(decoded.shape), f"frames differ by {decoded.std(dim=1).mean().item():.2g}")


@torch.no_grad()
def load(folder, name):
    model, _ = make(name)
    model.load_state_dict(load_file(folder / f"{name}.export"), strict=True)
    frames = load_file(folder / f"{name}.safetensors")["frames"]
    latents = model.encode_video(frames, show_progress_bar=False)
    decoded = model.decode_video(latents, show_progress_bar=False)
    save_file({"latents": latents.contiguous(), "decoded": decoded.contiguous()}, folder / f"{name}.loaded")


spec = importlib.util.spec_from_file_location("upstream_taehv", sys.argv[1])
upstream = importlib.util.module_from_spec(spec)
spec.loader.exec_module(upstream)
for variant in VARIANTS:
    (load if "--load" in sys.argv else compute)(pathlib.Path(sys.argv[2]), variant)

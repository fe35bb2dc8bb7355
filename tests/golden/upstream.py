#!/usr/bin/env python3
"""Runs upstream's own TAEHV (github.com/madebyollin/taehv, never part of this tree) for the comparison in docs/parity.md.

    upstream.py <taehv.py of a checkout> <folder>
    LOCKSTEP_UPSTREAM=<folder> build/release/tests/models_test --gtest_also_run_disabled_tests --gtest_filter='TaehvUpstream.*'
"""
import importlib.util
import pathlib
import sys

import torch
from safetensors.torch import save_file

VARIANTS = {  # constructor arguments, attributes upstream takes from the name of a weight file, frames
    "taehv": ({}, {}, 13),
    "taecvx": ({}, {"is_cogvideox": True}, 8),
    "taehv1_5": (dict(patch_size=2, latent_channels=32), {}, 11),
    "taew2_2": (dict(patch_size=2, latent_channels=48), {}, 5),
    "taeh3": (dict(patch_size=2, latent_channels=24), {"is_h3": True}, 20),
    "taeltx_2": (dict(patch_size=4, latent_channels=128, encoder_time_downscale=(True,) * 3, decoder_time_upscale=(True,) * 3), {}, 10),
}

spec = importlib.util.spec_from_file_location("upstream_taehv", sys.argv[1])
upstream = importlib.util.module_from_spec(spec)
spec.loader.exec_module(upstream)
folder = pathlib.Path(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
for name, (arguments, attributes, count) in VARIANTS.items():
    torch.manual_seed(7)
    model = upstream.TAEHV(None, **arguments)
    for key, value in attributes.items():
        setattr(model, key, value)
    out = {f"drawn.{n}": p.detach().clone() for n, p in model.named_parameters()}
    torch.nn.init.constant_(model.decoder[-1].bias, 0.5)
    side = 8 * model.patch_size
    frames = torch.rand(2, count, 3, 2 * side, 3 * side, generator=torch.Generator().manual_seed(8))
    latents = model.encode_video(frames, show_progress_bar=False)
    decoded = model.decode_video(latents, show_progress_bar=False)
    (decoded.square().mean() + latents.square().mean()).backward()
    out.update({f"gradient.{n}": p.grad for n, p in model.named_parameters()})
    out.update(frames=frames, latents=latents.detach().contiguous(), decoded=decoded.detach().contiguous())
    save_file(out, folder / f"{name}.safetensors")
    print(name, list(latents.shape), list(decoded.shape))

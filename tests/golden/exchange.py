#!/usr/bin/env python3
"""The Python side of weight files: loads what we exported, and writes files as upstream ships them.

    exchange.py <folder>

For every <name>.safetensors in the folder: strict load into the module written from the description, configured by the file's own
metadata; then <name>.out (its outputs for the same frames), and copies of the weights as torch.save and safetensors files in
float32, float16 and bfloat16, plain and wrapped as training scripts wrap them.
"""
import json
import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from taehv import Taehv  # noqa: E402

torch.set_num_threads(1)
folder = pathlib.Path(sys.argv[1])
for path in sorted(folder.glob("*.safetensors")):
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert metadata["format"] == "pt", metadata
    config = json.loads(metadata["lockstep.taehv"])
    assert config.pop("name") == metadata["lockstep.model"] == path.name.split(".")[0]
    config["wide"] = config.pop("super")
    model = Taehv(**config)
    weights = load_file(path)
    model.load_state_dict({n: t.float() for n, t in weights.items()}, strict=True)
    side = 8 * model.patch
    frames = torch.rand(1, 5, 3, side, 2 * side, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        latents = model.encode(frames)
        decoded = model.decode(latents)
    save_file({"frames": frames, "latents": latents.contiguous(), "decoded": decoded.contiguous()}, path.with_suffix(".out"))
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        kind = str(dtype).split(".")[1]
        cast = {n: t.to(dtype) for n, t in weights.items()}
        torch.save(cast, path.with_suffix(f".{kind}.pth"))
        save_file(cast, path.with_suffix(f".{kind}.plain"))
    optimizer = torch.optim.AdamW(model.parameters())
    torch.save({"model": {f"module.{n}": t for n, t in weights.items()}, "optimizer": optimizer.state_dict(), "step": 3},
               path.with_suffix(".wrapped.pth"))

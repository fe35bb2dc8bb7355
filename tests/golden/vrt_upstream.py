#!/usr/bin/env python3
"""Upstream's own VRT beside ours, run by hand through the disabled test VrtUpstream:

    LOCKSTEP_UPSTREAM_VRT=.../models/network_vrt.py build/release/tests/models_test --gtest_also_run_disabled_tests --gtest_filter='VrtUpstream*'

vrt_upstream.py <network_vrt.py> <folder>: parameter counts of all shipped configurations, and for every case of vrt_golden.py the
state dict, and output and gradients of upstream's code in float64. --load: strict load of the files that the test wrote. Needs `pip install einops`.
torchvision's deformable convolution (no CPU build for this torch) is replaced by the one of vrt.py.
"""
import importlib.util
import json
import pathlib
import sys
import types

import torch
from safetensors.torch import save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from vrt import Vrt, deform  # noqa: E402
from vrt_golden import CASES, SEED, clips_for  # noqa: E402


def deform_conv2d(x, offset, weight, bias, stride, padding, dilation, mask):
    return deform(x, offset, mask, weight, bias)


def load_upstream(path):
    torchvision = types.ModuleType("torchvision")
    torchvision.ops = types.SimpleNamespace(deform_conv2d=deform_conv2d)
    sys.modules["torchvision"] = torchvision
    distutils = types.ModuleType("distutils.version")
    distutils.LooseVersion = lambda text: tuple(int(p) for p in text.split("+")[0].split("."))
    sys.modules.update({"distutils": types.ModuleType("distutils"), "distutils.version": distutils})
    spec = importlib.util.spec_from_file_location("network_vrt", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.VRT


SR = dict(upscale=4, img_size=[6, 64, 64], window_size=[6, 8, 8], depths=[8] * 7 + [4] * 6, indep_reconsts=[11, 12],
          embed_dims=[120] * 7 + [180] * 6, num_heads=[6] * 13, deformable_groups=12)
DEBLUR = dict(upscale=1, img_size=[6, 192, 192], window_size=[6, 8, 8], depths=[8] * 7 + [4] * 4, indep_reconsts=[9, 10],
              embed_dims=[96] * 7 + [120] * 4, num_heads=[6] * 11, deformable_groups=16)
LONG = dict(SR, window_size=[8, 8, 8], pa_frames=4, deformable_groups=16)
SHIPPED = {"001": SR, "002": dict(LONG, img_size=[16, 64, 64]), "003": dict(LONG, img_size=[8, 64, 64]), "004": dict(LONG, img_size=[8, 64, 64]),
           "005": DEBLUR, "006": DEBLUR, "007": DEBLUR, "008": dict(DEBLUR, nonblind_denoising=True),
           "009": dict(DEBLUR, img_size=[4, 192, 192], window_size=[4, 8, 8], indep_reconsts=[], pa_frames=0),
           "006-spike": dict(DEBLUR, in_chans=4)}


def draw(model, seed):
    """As Vrt.draw and Vrt.stir of vrt.py, which go by names."""
    Vrt.draw(model, seed)
    Vrt.stir(model, seed)


def make(vrt, config):
    return vrt(**{k: list(v) if isinstance(v, tuple) else v for k, v in config.items()})


def main():
    vrt = load_upstream(sys.argv[1])
    folder = pathlib.Path(sys.argv[2])
    torch.set_num_threads(2)
    if "--load" in sys.argv:
        for name in CASES:
            if not (folder / f"{name}.written.pth").exists():
                continue
            model = make(vrt, {**Vrt.DEFAULTS, **CASES[name][0]})
            model.load_state_dict(torch.load(folder / f"{name}.written.pth")["params"], strict=True)
        return
    counts = {}
    for name, options in SHIPPED.items():
        model = vrt(**options)
        counts[name] = sum(p.numel() for p in model.parameters())
    print(counts)
    (folder / "counts.json").write_text(json.dumps(counts))
    for name, (options, shape, _) in CASES.items():
        if options.get("in_chans", 3) != 3:
            continue  # upstream adds all input channels to its output: RGB alone is S-VRT's change
        config = {**Vrt.DEFAULTS, **options}
        model = make(vrt, config)
        draw(model, SEED)
        torch.save({"params": model.state_dict()}, folder / f"{name}.pth")
        model = model.double()
        clips = clips_for(name, SEED, config, (*shape[:2], 2 * shape[2], 2 * shape[3])).double()  # its SpyNet takes 64 pixels or more
        out = model(clips)
        target = 0.5 + 0.25 * torch.sin(torch.arange(out.numel(), dtype=torch.float64)).view(out.shape)
        ((out - target).square() + 1e-6).sqrt().mean().backward()
        tensors = {f"gradient.{n}": p.grad for n, p in model.named_parameters()} | {"output": out.detach(), "clips": clips}
        save_file({n: t.contiguous() for n, t in tensors.items()}, folder / f"{name}.safetensors")
        print(name, list(out.shape))


if __name__ == "__main__":
    main()

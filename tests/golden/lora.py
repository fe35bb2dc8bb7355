#!/usr/bin/env python3
"""Golden values for LoRA, from PEFT on Hugging Face's Qwen2ForCausalLM: lora.py writes tests/golden/data/lora*, lora.py --check
compares. Needs `pip install transformers peft` in a Python with torch 2.13 (stored values: transformers 5.22.2, peft 0.21.2).

Weights, tokens and precision are those of decoder.py; noise is the largest of three float32 runs whose A and B differ in the
last bits, since AdamW's first steps divide small gradients by themselves (as in make.py). A and B are drawn by its formula under the names that they have here.
lora.py --adapter BASE ADAPTER OUT loads an exported folder and an exported adapter with PEFT and writes its logits.
"""
import argparse
import json
import pathlib
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from decoder import ADAMW, CASES, SEED, build, draw, noise_of, tokens_of  # noqa: E402
from make import differences  # noqa: E402

LORA = {  # case of decoder.py, rank, alpha, the last parts of the targets' names
    "attention": ("tied_2", 4, 8.0, ["q_proj", "v_proj"]),
    "all": ("untied_1", 3, 5.0, ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
}
STEPS, DEVIATION = 5, 0.25


def name_here(name):
    return name.replace("base_model.model.", "", 1).replace(".default.weight", "")


def run(case, dtype, nudge=0.0):
    options, rank, alpha, targets = CASES[case[0]], *case[1:]
    model = get_peft_model(build(options[0]), LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, task_type="CAUSAL_LM"))
    trained = {name_here(n): p for n, p in model.named_parameters() if p.requires_grad}
    assert all(".lora_" in n for n in trained)
    with torch.no_grad():
        for name, p in trained.items():
            p.copy_(draw(SEED, name, p.shape, DEVIATION) * (1 + nudge))
    model = model.to(dtype)
    tokens, labels = tokens_of(*options[1])
    optimizer = torch.optim.AdamW(trained.values(), **ADAMW)
    out, losses = {}, []
    for step in range(STEPS):
        result = model(input_ids=tokens, labels=labels)
        optimizer.zero_grad()
        result.loss.backward()
        if step == 0:
            out["logits"] = result.logits.detach().clone()
            out.update({f"gradient.{n}": p.grad.clone() for n, p in trained.items()})
        losses.append(result.loss.item())
        optimizer.step()
    out.update({f"end.{n}": p.detach().clone() for n, p in trained.items()})
    with torch.no_grad():
        out["merged"] = model.merge_and_unload()(input_ids=tokens).logits
    return out, losses


def adapter(base, folder, out):
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder)
    with torch.no_grad():
        save_file({"logits": model(torch.arange(14).view(2, 7)).logits.contiguous()}, out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare what is stored with what this machine computes")
    parser.add_argument("--adapter", nargs=3, metavar=("BASE", "ADAPTER", "OUT"), help="what PEFT makes of exported folders")
    args = parser.parse_args()
    if args.adapter:
        return adapter(*args.adapter)
    torch.set_num_threads(1)
    tensors, doc = {}, {"adamw": ADAMW, "seed": SEED, "deviation": DEVIATION}
    for name, case in LORA.items():
        truth, losses = run(case, torch.float64)
        runs = [noise_of(truth, losses, *run(case, torch.float32, nudge)) for nudge in (0.0, 1e-7, -1e-7)]
        noise = {kind: max(one[kind] for one in runs) for kind in runs[0]}
        options, shape = CASES[case[0]]
        tokens, labels = tokens_of(*shape)
        doc[name] = {"config": {"model_type": "qwen2", **options}, "rank": case[1], "alpha": case[2],
                     "targets": [f"*.{target}.weight" for target in case[3]], "tokens": tokens.tolist(), "labels": labels.tolist(),
                     "losses": losses, "noise": noise}
        tensors.update({f"{name}.{k}": v.float().contiguous() for k, v in truth.items()})
    data = HERE / "data"
    if not args.check:
        save_file(tensors, data / "lora.safetensors")
        (data / "lora.json").write_text(json.dumps(doc, indent=1) + "\n")
        return 0
    problems = differences(load_file(data / "lora.safetensors"), tensors, "lora", 1e-6)
    problems += differences(json.loads((data / "lora.json").read_text()), json.loads(json.dumps(doc)), "lora", 1e-6)
    print("\n".join(problems), end="")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

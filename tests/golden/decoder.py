#!/usr/bin/env python3
"""Golden values for the decoder, from Hugging Face's own Qwen2ForCausalLM and LlamaForCausalLM: decoder.py writes
tests/golden/data/decoder*, decoder.py --check compares. Needs `pip install transformers` in a Python with torch 2.13 (stored
values: transformers 5.22.2).

As in make.py, values are computed in float64 (Hugging Face's norms and rotary angles stay float32 inside), and `noise` is the
distance of its own float32 run from them, `noise_bf16` that of its run under bf16 autocast. Weights are not stored: both sides
draw them by the formula of src/models/normal.h, written here a second time.
"""
import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from statistics import NormalDist
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from draw import normal as draw  # noqa: E402
from make import differences, digest, distance  # noqa: E402

SMALL = dict(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             rope_theta=1e6, rms_norm_eps=1e-6, max_position_embeddings=64, tie_word_embeddings=True)
CASES = {  # Hugging Face's configuration, tokens [batch, length]
    "tied_2": (dict(SMALL, num_key_value_heads=2), (2, 7)),
    "untied_1": (dict(SMALL, num_key_value_heads=1, tie_word_embeddings=False), (3, 5)),
    "untied_4": (dict(SMALL, num_key_value_heads=4, tie_word_embeddings=False, rope_theta=1e4, rms_norm_eps=1e-5), (1, 13)),
    "llama": (dict(SMALL, num_key_value_heads=2, model_type="llama", rope_theta=1e4), (2, 9)),
}
WIDE = dict(vocab_size=16, hidden_size=3584, num_hidden_layers=1, num_attention_heads=28, num_key_value_heads=4,
            intermediate_size=18944, rope_theta=1e6, rms_norm_eps=1e-6, max_position_embeddings=64, tie_word_embeddings=False)
SEED, STEPS, NEW_TOKENS = 5, 20, 20
ADAMW = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-4, weight_decay=1e-2)  # epsilon as in make.py


def fill(model, deviation):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(draw(SEED, name, p.shape, deviation) + (1 if name.endswith("norm.weight") else 0))


def build(options, deviation=0.25):
    options = dict(options)
    llama = options.pop("model_type", "qwen2") == "llama"
    options["rope_parameters"] = {"rope_type": "default", "rope_theta": options.pop("rope_theta")}
    model = LlamaForCausalLM(LlamaConfig(**options)) if llama else Qwen2ForCausalLM(Qwen2Config(**options))
    fill(model, deviation)
    return model


# ---- one case

def tokens_of(batch, length, vocabulary=61):
    tokens = (torch.arange(batch * length).view(batch, length) * 37 + 11) % vocabulary
    labels = tokens.clone()
    labels[0, :3] = -100  # a prompt, which is not learned
    return tokens, labels


def run(options, shape, dtype, steps):
    """Logits, loss, gradients, and the losses and weights of AdamW's steps."""
    autocast = dtype == torch.bfloat16
    model = build(options).to(torch.float32 if autocast else dtype)
    tokens, labels = tokens_of(*shape)
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    out, losses = {}, []
    for step in range(steps):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            result = model(input_ids=tokens, labels=labels)
        optimizer.zero_grad()
        result.loss.backward()
        if step == 0:
            out["logits"] = result.logits.detach().clone()
            out.update({f"gradient.{n}": digest(p.grad) for n, p in model.named_parameters()})
        losses.append(result.loss.item())
        optimizer.step()
    out.update({f"end.{n}": digest(p.detach()) for n, p in model.named_parameters()})
    return out, losses


def noise_of(truth, losses, other, other_losses):
    noise = {}
    for n, t in truth.items():
        kind = n.split(".")[0]
        noise[kind] = max(noise.get(kind, 0), distance(other[n], t))
    return dict(noise, loss=distance(other_losses, losses))


def case(name, options, shape):
    truth, losses = run(options, shape, torch.float64, STEPS)
    noise = noise_of(truth, losses, *run(options, shape, torch.float32, STEPS))
    first = {n: t for n, t in truth.items() if not n.startswith("end.")}
    noise_bf16 = noise_of(first, losses[:1], *run(options, shape, torch.bfloat16, 1))
    tokens, labels = tokens_of(*shape)
    model = build(options)
    generated = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=NEW_TOKENS, pad_token_id=0)
    doc = {"config": {"model_type": "qwen2", **options}, "tokens": tokens.tolist(), "labels": labels.tolist(), "losses": losses,
           "generated": generated[:, shape[1]:].tolist(), "noise": noise, "noise_bf16": noise_bf16}
    return {f"{name}.{k}": v for k, v in truth.items()}, doc


def packed():
    """Documents of 5, 8 and 3 tokens, each run alone; the loss is the mean over all their labels."""
    options, lengths = CASES["tied_2"][0], (5, 8, 3)
    runs = {}
    for dtype in (torch.float64, torch.float32):
        model = build(options).to(dtype)
        tokens = tokens_of(1, sum(lengths))[0]
        total, parts = 0, []
        for part in tokens.split(lengths, dim=1):
            result = model(input_ids=part, labels=part)
            total = total + result.loss * (part.shape[1] - 1)
            parts.append(result.logits.detach())
        loss = total / (sum(lengths) - len(lengths))
        loss.backward()
        out = {f"gradient.{n}": digest(p.grad) for n, p in model.named_parameters()}
        runs[dtype] = dict(out, logits=torch.cat(parts, 1)), [loss.item()]
    noise = noise_of(*runs[torch.float64], *runs[torch.float32])
    doc = {"config": {"model_type": "qwen2", **options}, "lengths": list(lengths), "tokens": tokens.tolist(), "losses": runs[torch.float64][1],
           "noise": noise}
    return {f"packed.{k}": v for k, v in runs[torch.float64][0].items()}, doc


def wide():
    """One layer of the 7B model at its full size."""
    runs = {}
    for dtype in (torch.float64, torch.float32):
        model = build(WIDE, 0.02).to(dtype)
        tokens = tokens_of(1, 8, 16)[0]
        result = model(input_ids=tokens, labels=tokens, output_hidden_states=True)
        result.loss.backward()
        out = {f"gradient.{n}": digest(p.grad) for n, p in model.named_parameters()}
        runs[dtype] = dict(out, hidden=digest(result.hidden_states[-1].detach()), logits=result.logits.detach()), [result.loss.item()]
        del model, result
    noise = noise_of(*runs[torch.float64], *runs[torch.float32])
    doc = {"config": {"model_type": "qwen2", **WIDE}, "tokens": tokens.tolist(), "losses": runs[torch.float64][1], "noise": noise}
    return {f"wide.{k}": v for k, v in runs[torch.float64][0].items()}, doc


def drawn():
    """First weights, as the constructor draws them; against Python's own quantile function too."""
    values = draw(7, "model.layers.0.mlp.up_proj.weight", (1000,), 1.0)
    assert abs(float(values.std()) - 1) < 0.1 and len(values.unique()) == 1000
    for p in (1e-300, 1e-12, 0.001, 0.2, 0.5, 0.93, 1 - 1e-9):
        assert abs(float(torch.special.ndtri(torch.tensor(p, dtype=torch.float64))) - NormalDist().inv_cdf(p)) < 1e-6
    return values


def convert(source, target):
    """Loads a folder with transformers, saves it again with transformers, and its logits beside it."""
    model, info = AutoModelForCausalLM.from_pretrained(source, output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    model.save_pretrained(target)
    with torch.no_grad():
        save_file({"logits": model(torch.arange(14).view(2, 7)).logits.contiguous()}, pathlib.Path(target) / "logits.safetensors")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare what is stored with what this machine computes")
    parser.add_argument("--convert", nargs=2, metavar=("FROM", "TO"), help="a model's folder through transformers, for the tests")
    parser.add_argument("topics", nargs="*", help="of " + ", ".join([*CASES, "packed", "wide"]) + "; default: all (10 GB of memory)")
    args = parser.parse_args()
    if args.convert:
        return convert(*args.convert)
    torch.set_num_threads(1 if args.check else torch.get_num_threads())
    torch.manual_seed(0)
    tensors, doc = {"drawn": drawn()}, {"adamw": ADAMW, "seed": SEED, "deviation": 0.25, "wide_deviation": 0.02}
    for topic in args.topics or [*CASES, "packed", "wide"]:
        made, doc[topic] = {"packed": packed, "wide": wide}.get(topic, lambda: case(topic, *CASES[topic]))()
        tensors.update(made)
    tensors = {k: v.float().contiguous() for k, v in tensors.items()}
    data = HERE / "data"
    if not args.check:
        save_file(tensors, data / "decoder.safetensors")
        (data / "decoder.json").write_text(json.dumps(doc, indent=1) + "\n")
        return 0
    stored, stored_doc = load_file(data / "decoder.safetensors"), json.loads((data / "decoder.json").read_text())
    stored_doc = {k: {n: v for n, v in stored_doc[k].items() if n != "noise_bf16"} if isinstance(doc[k], dict) else stored_doc[k] for k in doc}
    made = {k: {n: v for n, v in doc[k].items() if n != "noise_bf16"} if isinstance(doc[k], dict) else doc[k] for k in doc}
    problems = differences({k: stored[k] for k in tensors}, tensors, "decoder", 1e-6) + differences(stored_doc, made, "decoder", 1e-6)
    print("\n".join(problems), end="")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

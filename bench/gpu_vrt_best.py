"""VRT for deblurring (pa_frames 2, upscale 1) as fast as PyTorch's own operators allow: the parameters of tests/golden/vrt.py, another way to compute
the same function. gpu_vrt_peer.py measures it.

- Parameters stay float32; one multi-tensor copy a step makes those of matrices and convolutions bf16. The residual stream is bf16, LayerNorm, softmax
  and the deformable convolution (torchvision's) compute in float32.
- A block is two functions for torch.compile, LayerNorm to residual each; windows are views, so that shift, padding and partition become part of the
  kernels before and after. The shift's mask is part of q k^T: tokens carry the one-hot number of their region, which adds 100 to the scores of equal
  regions (softmax sees no difference between this and -100 elsewhere). So attention gets no mask, and the position bias alone is an argument.
- attention: sdpa (position bias as attn_mask), flex (FlexAttention, bias in score_mod), math (matrix products, the rest compiled).
- All neighbours of a stage, and both directions, are warped and convolved at once; convolutions are channels-last.
- Units that the option file recomputes are checkpointed inside of the compiled function: backward recomputes what it needs and no more.
"""

import contextlib
import pathlib
import sys

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "golden"))
from vrt import Vrt, deform, position_index, sine_code  # noqa: E402

try:
    from torchvision.ops import deform_conv2d
except Exception:  # no build of it for this torch: the check on a CPU gathers instead
    def deform_conv2d(x, offset, weight, bias, padding, mask):
        return deform(x, offset, mask, weight, bias)


def up_to(value, multiple):
    return -(-value // multiple) * multiple


class Cast(torch.autograd.Function):
    """All parameters in the type of the matrix products, each at an aligned address, in a few kernels."""

    @staticmethod
    def forward(ctx, dtype, *parameters):
        sizes = [up_to(p.numel(), 64) for p in parameters]
        flat = torch.zeros(sum(sizes), dtype=dtype, device=parameters[0].device)
        out = [part[:p.numel()].view(p.shape) for part, p in zip(flat.split(sizes), parameters)]
        torch._foreach_copy_(out, list(parameters))
        return tuple(out)

    @staticmethod
    def backward(ctx, *gradients):
        whole = [torch.empty_like(g, dtype=torch.float32, memory_format=torch.contiguous_format) for g in gradients]
        torch._foreach_copy_(whole, list(gradients))
        return (None, *whole)


class Window:
    """What a block needs to know about windows of a size: sizes, shift, the tokens' regions."""

    def __init__(self, size, window, shift, device, dtype):
        self.size = tuple(size)
        self.window = tuple(min(s, t) for s, t in zip(size, window))
        self.shift = tuple(0 if s <= t else u for s, t, u in zip(size, window, shift))
        self.padded = tuple(up_to(s, t) for s, t in zip(size, self.window))
        self.regions = self.spatial = self.marks = None
        if not any(self.shift):
            return
        label = torch.zeros(self.padded, dtype=torch.long)
        for axis, (length, s) in enumerate(zip(self.padded, self.shift)):  # within one window an axis has two parts
            part = torch.zeros(length, dtype=torch.long)
            part[length - s:] = 1 if s else 0
            label = label * 2 + part.view([-1 if a == axis else 1 for a in range(3)])
        self.regions = self.cut(F.one_hot(label, 8).to(device, dtype).unsqueeze(0)).contiguous()  # [windows, tokens, 8]
        # Rows: places of the mark in q and k, columns: regions. Between two frames, only rows and columns count.
        self.spatial = F.one_hot(torch.arange(8) % 4, 4).t().to(device, dtype)
        self.marks = torch.eye(8, device=device, dtype=dtype) if self.shift[0] else self.spatial

    def cut(self, x):
        b, c, (p, q, r) = x.shape[0], x.shape[-1], self.window
        d, h, w = self.padded
        x = x.view(b, d // p, p, h // q, q, w // r, r, c)
        return x.permute(0, 1, 3, 5, 2, 4, 6, 7).reshape(-1, p * q * r, c)

    def join(self, x, b):
        d, h, w = (s // t for s, t in zip(self.padded, self.window))
        return x.view(b, d, h, w, *self.window, -1).permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(b, *self.padded, -1)

    def into(self, x):
        before = [p for s, q in zip(reversed(self.size), reversed(self.padded)) for p in (0, q - s)]
        if any(before):
            x = F.pad(x, [0, 0, *before])
        if any(self.shift):
            x = torch.roll(x, [-s for s in self.shift], (1, 2, 3))
        return self.cut(x)

    def back(self, x, b):
        x = self.join(x, b)
        if any(self.shift):
            x = torch.roll(x, self.shift, (1, 2, 3))
        d, h, w = self.size
        return x[:, :d, :h, :w]


def norm(x, weight, bias):
    return F.layer_norm(x.float(), (x.shape[-1],), weight, bias).to(x.dtype)


def projected(x, weight, bias, heads, regions, marks):
    """q, k, v [windows, heads, tokens, width] by one product; widths are multiples of 8, q and k carry the marks of the region."""
    c = weight.shape[1]
    size = c // heads
    wide = both = up_to(size, 8)
    rows = list(weight.view(3, heads, size, c))
    if regions is not None:
        both = up_to(size + marks.shape[0], 8)
        x = torch.cat([x, regions.repeat(x.shape[0] // regions.shape[0], 1, 1)], 2)  # further input of the product
        marks = F.pad(marks, (c, 0)).unsqueeze(0).expand(heads, -1, -1)
        rows = [F.pad(r, (0, 8)) for r in rows]
        rows[:2] = [torch.cat([rows[0], marks * (100 * size**0.5)], 1), torch.cat([rows[1], marks], 1)]
    widths = (both, both, wide)
    rows = [F.pad(r, (0, 0, 0, w - r.shape[1])).flatten(0, 1) for r, w in zip(rows, widths)]
    offsets = [F.pad(o, (0, w - size)).flatten() for o, w in zip(bias.view(3, heads, size), widths)]
    y = F.linear(x, torch.cat(rows), torch.cat(offsets))
    return [p.unflatten(2, (heads, -1)).transpose(1, 2) for p in y.split([heads * w for w in widths], 2)]


def attend(q, k, v, scale, bias, how):
    if how == "flex":
        from torch.nn.attention.flex_attention import flex_attention
        score = None if bias is None else lambda s, b, h, i, j: s + bias[h, i, j]
        return flex_attention(q, k, v, score_mod=score, scale=scale)
    if how == "math":
        scores = (q @ k.transpose(-2, -1)).float() * scale
        return (scores if bias is None else scores + bias).softmax(-1).to(v.dtype) @ v
    mask = None if bias is None else bias.unsqueeze(0).expand(q.shape[0], -1, -1, -1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


def attention_part(x, keep, norm_w, norm_b, qkv_w, qkv_b, mut_w, mut_b, proj_w, proj_b, table, index, code, regions, marks, spatial, heads, window, how):
    b, c = x.shape[0], x.shape[-1]
    size = c // heads
    y = window.into(norm(x, norm_w, norm_b))
    n = y.shape[1]
    bias = table[index[:n, :n]].permute(2, 0, 1).to(y.dtype).contiguous()
    out = attend(*projected(y, qkv_w, qkv_b, heads, regions, marks), size**-0.5, bias, how)
    wide = out.shape[-1]
    out = out.transpose(1, 2).reshape(-1, n, heads * wide)
    if mut_w is not None:
        q, k, v = projected(y + code, mut_w, mut_b, heads, regions, spatial)
        m = n // 2
        pair = [attend(q[:, :, m:], k[:, :, :m], v[:, :, :m], size**-0.5, None, how),
                attend(q[:, :, :m], k[:, :, m:], v[:, :, m:], size**-0.5, None, how)]
        pair = torch.cat([p.transpose(1, 2) for p in pair], 1).reshape(-1, n, heads * wide)
        out = torch.cat([pair, out], 2)
    weight = F.pad(proj_w.view(c, -1, size), (0, wide - size)).flatten(1)
    y = window.back(F.linear(out, weight, proj_b), b)
    return x + (y if keep is None else y * keep.view(-1, 1, 1, 1, 1))


def mlp(x, first_w, first_b, second_w, second_b, out_w, out_b):
    y, gate = F.linear(x, torch.cat([first_w, second_w]), torch.cat([first_b, second_b])).chunk(2, -1)
    return F.linear(F.gelu(y) * gate, out_w, out_b)


def mlp_part(x, keep, norm_w, norm_b, *weights):
    y = mlp(norm(x, norm_w, norm_b), *weights)
    return x + (y if keep is None else y * keep.view(-1, 1, 1, 1, 1))


def fuse_part(x, back, ahead, *weights):
    return mlp(torch.cat([x, back, ahead], -1), *weights)


def linear_part(x, base, weight, bias):
    return F.linear(x, weight, bias) + base


def scaled_part(x, kind, norm_w, norm_b, weight, bias):
    b, d, h, w, c = x.shape
    if kind == "down":
        x = x.view(b, d, h // 2, 2, w // 2, 2, c).permute(0, 1, 2, 4, 5, 3, 6).reshape(b, d, h // 2, w // 2, 4 * c)
    elif kind == "up":
        x = x.view(b, d, h, w, 2, 2, c // 4).permute(0, 1, 2, 5, 3, 4, 6).reshape(b, d, 2 * h, 2 * w, c // 4)
    x = norm(x, norm_w, norm_b)
    return x if weight is None else F.linear(x, weight, bias)


def offsets_part(x, flow, reach):
    """x [n, h, w, 27 * groups] of the last convolution; what torchvision takes, float32 planes."""
    x = x.float()
    taps = x.shape[-1] // 3
    offset = reach * x[..., :2 * taps].tanh() + flow.flip(-1).repeat(1, 1, 1, taps)
    return offset.permute(0, 3, 1, 2).contiguous(), x[..., 2 * taps:].sigmoid().permute(0, 3, 1, 2).contiguous()


def grid_of(flow):
    h, w = flow.shape[1:3]
    rows, columns = torch.meshgrid(*(torch.arange(s, dtype=torch.float32, device=flow.device) for s in (h, w)), indexing="ij")
    return torch.stack([columns, rows], -1) + flow


SCALES = {}


def sample(x, at, mode, padding="zeros"):
    h, w = x.shape[2:]
    if (h, w) not in SCALES:
        SCALES[h, w] = torch.tensor([2.0 / max(w - 1, 1), 2.0 / max(h - 1, 1)], device=x.device)
    return F.grid_sample(x, at * SCALES[h, w] - 1, mode=mode, padding_mode=padding, align_corners=True)


def conv(x, weight, bias, padding=1):
    """x [n, h, w, c] and the result likewise; input channels are padded to a multiple of 8."""
    c = x.shape[-1]
    if c % 8:
        x, weight = F.pad(x, (0, up_to(c, 8) - c)), F.pad(weight, (0, 0, 0, 0, 0, up_to(c, 8) - c))
    y = F.conv2d(x.permute(0, 3, 1, 2), weight.contiguous(memory_format=torch.channels_last), bias, padding=padding)
    return y.permute(0, 2, 3, 1).contiguous()


class Best(torch.nn.Module):
    def __init__(self, options, how="sdpa", compiled=None, dtype=torch.bfloat16):
        super().__init__()
        self.net = Vrt(**dict(options, window_size=tuple(options["window_size"])))
        self.how, self.dtype, self.options = how, dtype, options
        self.windows, self.codes, self.indices = {}, {}, {}
        wrap = (lambda f: torch.compile(f, dynamic=False, **compiled)) if compiled is not None else (lambda f: f)
        once = dict(use_reentrant=False, preserve_rng_state=False)
        self.attention = {False: wrap(lambda *a: attention_part(*a)), True: wrap(lambda *a: checkpoint(attention_part, *a, **once))}
        self.mlp = {False: wrap(lambda *a: mlp_part(*a)), True: wrap(lambda *a: checkpoint(mlp_part, *a, **once))}
        self.fuse, self.linear, self.scaled, self.offsets = wrap(fuse_part), wrap(linear_part), wrap(scaled_part), wrap(offsets_part)
        self.names = [n for n, p in self.net.named_parameters() if not self.stays(n)]
        self.rates = [rate for m in self.net.modules() if hasattr(m, "drop") and m.drop for rate in (m.drop, m.drop)]

    @staticmethod
    def stays(name):
        """Float32: LayerNorm, position bias, the deformable convolution's own weights."""
        leaf = name.rsplit(".", 2)
        return "norm" in name or name.endswith("bias_table") or ".reshape.1." in name or "stage8.0.1." in name or leaf[-2] == "pa_deform"

    def window_of(self, size, block):
        key = (tuple(size), tuple(block.attn.window), tuple(block.shift))
        if key not in self.windows:
            device = next(self.net.parameters()).device
            self.windows[key] = Window(size, block.attn.window, block.shift, device, self.dtype)
            if block.attn.window not in self.indices:
                self.indices[block.attn.window] = position_index(block.attn.window).to(device)
        return self.windows[key]

    def code_of(self, block, width):
        key = (*block.attn.window[1:], width)
        if key not in self.codes:
            table = self.indices[block.attn.window]
            self.codes[key] = sine_code(*key).float().to(table.device, self.dtype).repeat(2, 1)
        return self.codes[key]

    def keeps(self, batch, device, draws=None):
        """For each sample and part with DropPath: 0, or 1 / the chance to be kept."""
        rates = torch.tensor(self.rates, device=device)
        draws = torch.rand(batch, len(self.rates), device=device) if draws is None else draws
        return ((draws >= rates).float() / (1 - rates)).to(self.dtype)

    def block(self, x, name, block, weights, keeps, attention, ffn):
        window = self.window_of(x.shape[1:4], block)
        keep = [None, None]
        if block.drop and keeps is not None:
            keep = [keeps[:, block.first_draw], keeps[:, block.first_draw + 1]]
        a, mutual = block.attn, block.attn.mutual

        def of(*leaves):
            return [weights[f"{name}.{leaf}"] for leaf in leaves]
        x = self.attention[attention](
            x, keep[0], *of("norm1.weight", "norm1.bias", "attn.qkv_self.weight", "attn.qkv_self.bias"),
            *(of("attn.qkv_mut.weight", "attn.qkv_mut.bias") if mutual else (None, None)), *of("attn.proj.weight", "attn.proj.bias"),
            a.relative_position_bias_table, self.indices[a.window], self.code_of(block, x.shape[-1]) if mutual else None,
            window.regions, window.marks, window.spatial, a.heads, window, self.how)
        return self.mlp[ffn](x, keep[1], *of("norm2.weight", "norm2.bias", "mlp.fc11.weight", "mlp.fc11.bias", "mlp.fc12.weight", "mlp.fc12.bias",
                                             "mlp.fc2.weight", "mlp.fc2.bias"))

    def group(self, x, name, group, *rest):
        for i, block in enumerate(group.blocks):
            x = self.block(x, f"{name}.blocks.{i}", block, *rest)
        return x

    def recomputes(self, which, i):
        o = self.options
        return bool(torch.is_grad_enabled() and o.get(f"use_checkpoint_{which}") and i not in o.get(f"no_checkpoint_{which}_blocks", ()))

    def stage(self, x, i, weights, keeps, flow):
        stage, name = getattr(self.net, f"stage{i + 1}"), f"stage{i + 1}"
        one, two = (stage.reshape["1"], stage.reshape["2"] if stage.kind != "none" else None)
        x = self.scaled(x, stage.kind, one.weight, one.bias, *((weights[f"{name}.reshape.2.weight"], weights[f"{name}.reshape.2.bias"]) if two else (None, None)))
        attention, ffn = self.recomputes("attn", i), self.recomputes("ffn", i)
        always = torch.is_grad_enabled() and bool(self.options.get("use_checkpoint_attn"))  # upstream: whatever the options say
        for k, again in ((1, attention), (2, always)):
            y = self.group(x, f"{name}.residual_group{k}", getattr(stage, f"residual_group{k}"), weights, keeps, again, ffn)
            x = self.linear(y, x, weights[f"{name}.linear{k}.weight"], weights[f"{name}.linear{k}.bias"])
        back, ahead = self.aligned(x, name, stage, weights, flow)
        fc = [weights[f"{name}.pa_fuse.{n}.{leaf}"] for n in ("fc11", "fc12", "fc2") for leaf in ("weight", "bias")]
        return self.fuse(x, back, ahead, *fc)

    def aligned(self, x, name, stage, weights, flow):
        """Frame t from t + 1 and from t - 1. flow [2 * b * (n - 1), h, w, 2]: all backward ones, then all forward ones."""
        b, n, h, w, c = x.shape
        source = torch.cat([x[:, 1:].flatten(0, 1), x[:, :-1].flatten(0, 1)])
        current = torch.cat([x[:, :-1].flatten(0, 1), x[:, 1:].flatten(0, 1)])
        planes = source.permute(0, 3, 1, 2).float().contiguous()
        warped = sample(planes, grid_of(flow), "bilinear").permute(0, 2, 3, 1).to(x.dtype)
        y = torch.cat([warped, current, flow.to(x.dtype)], -1)
        for k in "024":
            y = F.leaky_relu(conv(y, weights[f"{name}.pa_deform.conv_offset.{k}.weight"], weights[f"{name}.pa_deform.conv_offset.{k}.bias"]), 0.1)
        y = conv(y, weights[f"{name}.pa_deform.conv_offset.6.weight"], weights[f"{name}.pa_deform.conv_offset.6.bias"])
        offset, mask = self.offsets(y, flow, stage.pa_deform.reach)
        out = deform_conv2d(planes, offset, stage.pa_deform.weight, stage.pa_deform.bias, padding=1, mask=mask)
        back, ahead = out.permute(0, 2, 3, 1).to(x.dtype).unflatten(0, (2, b, n - 1)).unbind(0)
        none = torch.zeros_like(x[:, :1])
        return torch.cat([back, none], 1), torch.cat([none, ahead], 1)

    def flows(self, rgb, weights):
        """Four scales of [2 * b * (n - 1), h, w, 2], float32; both directions at once."""
        a, z = rgb[:, :-1].flatten(0, 1), rgb[:, 1:].flatten(0, 1)
        first, second = torch.cat([a, z]), torch.cat([z, a])
        h, w = first.shape[2:]
        height, width = up_to(h, 32), up_to(w, 32)

        def pyramid(x):
            if (height, width) != (h, w):
                x = F.interpolate(x, size=(height, width), mode="bilinear", align_corners=False)
            levels = [(x - self.mean) / self.deviation]
            for _ in range(5):
                levels.insert(0, F.avg_pool2d(levels[0], 2))
            return levels
        out, flow = [], None
        for level, (x, y) in enumerate(zip(pyramid(first), pyramid(second))):
            up = torch.zeros_like(x[:, :2]) if flow is None else 2 * F.interpolate(flow, scale_factor=2, mode="bilinear", align_corners=True)
            moved = sample(y, grid_of(up.permute(0, 2, 3, 1)), "bilinear", "border")
            v = torch.cat([x, moved, up], 1).permute(0, 2, 3, 1).to(self.dtype)
            for i in "02468":
                key = f"spynet.basic_module.{level}.basic_module.{i}"
                v = conv(v if i == "0" else F.relu(v), weights[key + ".weight"], weights[key + ".bias"], padding=3)
            flow = v.float().permute(0, 3, 1, 2) + up
            if level >= 2:
                scale, at = 2**(5 - level), flow
                if (height, width) != (h, w):
                    at = F.interpolate(flow, size=(h // scale, w // scale), mode="bilinear", align_corners=False)
                    at = torch.stack([at[:, 0] * (w // scale / (width // scale)), at[:, 1] * (h // scale / (height // scale))], 1)
                out.insert(0, at.permute(0, 2, 3, 1))
        return out

    def forward(self, clips, keeps=None):
        if not hasattr(self, "mean"):
            self.mean, self.deviation = (torch.tensor(v, device=clips.device).view(1, 3, 1, 1) for v in ((.485, .456, .406), (.229, .224, .225)))
        parameters = dict(self.net.named_parameters())
        weights = dict(zip(self.names, Cast.apply(self.dtype, *(parameters[n] for n in self.names))))
        weights |= {n: p for n, p in parameters.items() if n not in weights}
        b, n = clips.shape[:2]
        flows = self.flows(clips[:, :, :3], weights)
        with torch.no_grad():  # positions are rounded: no gradient
            source = torch.cat([clips[:, 1:].flatten(0, 1), clips[:, :-1].flatten(0, 1)])
            at = grid_of(flows[0])
            low, high = at.floor(), at.ceil()
            corners = [torch.stack([(low, high)[i][..., 0], (low, high)[j][..., 1]], -1) for i in (0, 1) for j in (0, 1)]
            near = torch.cat([sample(source, c, "nearest") for c in corners], 1).unflatten(0, (2, b, n - 1))
            none = torch.zeros_like(near[0, :, :1])
            seen = torch.cat([clips, torch.cat([near[0], none], 1), torch.cat([none, near[1]], 1)], 2)
            seen = seen.flatten(0, 1).permute(0, 2, 3, 1).to(self.dtype)
        x = first = conv(seen, weights["conv_first.weight"].squeeze(2), weights["conv_first.bias"]).unflatten(0, (b, n))
        rest = (weights, keeps)
        x1 = self.stage(x, 0, *rest, flows[0])
        x2 = self.stage(x1, 1, *rest, flows[1])
        x3 = self.stage(x2, 2, *rest, flows[2])
        x = self.stage(x3, 3, *rest, flows[3])
        x = self.stage(x, 4, *rest, flows[2])
        x = self.stage(x + x3, 5, *rest, flows[1])
        x = self.stage(x + x2, 6, *rest, flows[0]) + x1
        entry = self.net.stage8[0]["1"]
        x = self.scaled(x, "none", entry.weight, entry.bias, weights["stage8.0.2.weight"], weights["stage8.0.2.bias"])
        for k, group in enumerate(self.net.stage8[1:], 1):
            name, i = f"stage8.{k}", 6 + k
            y = self.group(x, f"{name}.residual_group", group.residual_group, weights, keeps, self.recomputes("attn", i), self.recomputes("ffn", i))
            x = self.linear(y, x, weights[f"{name}.linear.weight"], weights[f"{name}.linear.bias"])
        x = self.scaled(x, "none", self.net.norm.weight, self.net.norm.bias, weights["conv_after_body.weight"], weights["conv_after_body.bias"]) + first
        y = conv(x.flatten(0, 1), weights["conv_last.weight"].squeeze(2), weights["conv_last.bias"])
        return y.permute(0, 3, 1, 2).unflatten(0, (b, n)).float() + clips[:, :, :3]


def kernels(how, cuda):
    """Refuses a silent fall-back to attention that keeps the whole matrix."""
    if how != "sdpa" or not cuda:
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION])

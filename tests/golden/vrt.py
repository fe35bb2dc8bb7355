"""VRT (JingyunLiang/VRT) written from its description, with upstream's names of parameters. Features are [b, d, h, w, c]."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from draw import normal, uniform


def warp(x, flow, mode="bilinear", padding="zeros"):
    """x [n, c, h, w] read at (column + flow[..., 0], row + flow[..., 1]); flow [n, h, w, 2]."""
    h, w = x.shape[2:]
    rows, columns = torch.meshgrid(torch.arange(h, dtype=x.dtype), torch.arange(w, dtype=x.dtype), indexing="ij")
    at = torch.stack([columns, rows], -1) + flow

    def read(places, how):
        size = torch.tensor([max(w - 1, 1), max(h - 1, 1)], dtype=x.dtype)
        return F.grid_sample(x, 2 * places / size - 1, mode=how, padding_mode=padding, align_corners=True)
    if mode == "bilinear":
        return read(at, mode)
    corners = [torch.stack([fx(at[..., 0]), fy(at[..., 1])], -1) for fx in (torch.floor, torch.ceil) for fy in (torch.floor, torch.ceil)]
    return torch.cat([read(c, "nearest") for c in corners], 1)


def deform(x, offset, mask, weight, bias):
    """Modulated deformable 3x3 convolution by gathering: x [n, c, h, w], offset [n, g * 9 * 2, h, w] (y, x), mask [n, g * 9, h, w]."""
    n, c, h, w = x.shape
    g = mask.shape[1] // 9
    offset = offset.view(n, g, 9, 2, h, w)
    rows, columns = torch.meshgrid(torch.arange(h, dtype=x.dtype), torch.arange(w, dtype=x.dtype), indexing="ij")
    tap = torch.arange(9)
    y = rows + (tap // 3 - 1).view(9, 1, 1) + offset[:, :, :, 0]
    z = columns + (tap % 3 - 1).view(9, 1, 1) + offset[:, :, :, 1]
    y0, z0 = y.detach().floor(), z.detach().floor()
    flat = x.reshape(n, g, c // g, h * w)
    total = 0
    for dy in (0, 1):
        for dz in (0, 1):
            yy, zz = y0 + dy, z0 + dz
            inside = ((yy >= 0) & (yy < h) & (zz >= 0) & (zz < w)).to(x.dtype)
            share = (1 - (y - yy).abs()) * (1 - (z - zz).abs()) * inside
            index = (yy.clamp(0, h - 1) * w + zz.clamp(0, w - 1)).long().view(n, g, 1, -1).expand(-1, -1, c // g, -1)
            total = total + flat.gather(3, index).view(n, g, c // g, 9, h, w) * share.unsqueeze(2)
    sampled = (total * mask.view(n, g, 1, 9, h, w)).reshape(n, c, 9, h, w)
    groups = c // weight.shape[1]
    sampled = sampled.view(n, groups, weight.shape[1], 9, h, w)
    kernels = weight.view(groups, -1, weight.shape[1], 9)
    return torch.einsum("ngckhw,gock->ngohw", sampled, kernels).reshape(n, -1, h, w) + bias.view(1, -1, 1, 1)


class Geglu(nn.Module):
    def __init__(self, i, hidden, o):
        super().__init__()
        self.fc11, self.fc12, self.fc2 = nn.Linear(i, hidden), nn.Linear(i, hidden), nn.Linear(hidden, o)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc11(x)) * self.fc12(x))


def position_index(window):
    places = torch.stack(torch.meshgrid(*(torch.arange(s) for s in window), indexing="ij")).flatten(1)
    apart = places[:, :, None] - places[:, None, :] + (torch.tensor(window) - 1).view(3, 1, 1)
    return (apart[0] * (2 * window[1] - 1) + apart[1]) * (2 * window[2] - 1) + apart[2]


def sine_code(h, w, width):
    """In float32 as upstream: a constant, to the last bit."""
    half = width // 2
    i = torch.arange(half, dtype=torch.float32)
    wave = 10000.0**(2 * (i // 2) / half)

    def along(size):
        place = torch.arange(1, size + 1, dtype=torch.float32)
        angle = (place / (place[-1] + 1e-6) * (2 * math.pi))[:, None] / wave
        return torch.where(i % 2 == 0, angle.sin(), angle.cos())
    return torch.cat([along(h)[:, None].expand(h, w, half), along(w)[None].expand(h, w, half)], 2).reshape(h * w, width)


def attend(q, k, v, scale, extra):
    return ((q * scale) @ k.transpose(-2, -1) + extra).softmax(-1) @ v


class Attention(nn.Module):
    def __init__(self, width, window, heads, bias, mutual):
        super().__init__()
        self.window, self.heads, self.mutual, self.scale = window, heads, mutual, (width // heads)**-0.5
        self.relative_position_bias_table = nn.Parameter(torch.zeros(math.prod(2 * s - 1 for s in window), heads))
        self.qkv_self = nn.Linear(width, 3 * width, bias=bias)
        if mutual:
            self.qkv_mut = nn.Linear(width, 3 * width, bias=bias)
        self.proj = nn.Linear((2 if mutual else 1) * width, width)
        self.index, self.code = position_index(window), sine_code(window[1], window[2], width)

    def forward(self, x, mask):
        windows, n, width = x.shape

        def split(y):
            return y.view(windows, -1, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        bias = self.relative_position_bias_table[self.index[:n, :n]].permute(2, 0, 1)
        if mask is not None:
            mask = mask.to(x.dtype).repeat(windows // mask.shape[0], 1, 1).unsqueeze(1)
        own = attend(*split(self.qkv_self(x)), self.scale, bias if mask is None else bias + mask)
        out = own.transpose(1, 2).reshape(windows, n, width)
        if self.mutual:
            q, k, v = split(self.qkv_mut(x + self.code.to(x.dtype).repeat(2, 1)))
            m, extra = n // 2, 0 if mask is None else mask[:, :, :n // 2, :n // 2]
            pair = [attend(q[:, :, m:], k[:, :, :m], v[:, :, :m], self.scale, extra), attend(q[:, :, :m], k[:, :, m:], v[:, :, m:], self.scale, extra)]
            out = torch.cat([torch.cat(pair, 2).transpose(1, 2).reshape(windows, n, width), out], 2)
        return self.proj(out)


def shift_mask(padded, window, shift):
    label = torch.zeros(padded)
    for axis, (length, w, s) in enumerate(zip(padded, window, shift)):
        if s:
            part = torch.zeros(length)
            part[length - w:] = 1
            part[length - s:] = 2
            label = label * 3 + part.view([-1 if a == axis else 1 for a in range(3)])
    parts = cut(label.view(1, *padded, 1), window).squeeze(-1)
    return (parts[:, None] != parts[:, :, None]).double() * -100


def cut(x, window):
    b, d, h, w, c = x.shape
    x = x.view(b, d // window[0], window[0], h // window[1], window[1], w // window[2], window[2], c)
    return x.permute(0, 1, 3, 5, 2, 4, 6, 7).reshape(-1, math.prod(window), c)


def join(x, window, padded, batch):
    d, h, w = (s // t for s, t in zip(padded, window))
    return x.view(batch, d, h, w, *window, -1).permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(batch, *padded, -1)


class Tmsa(nn.Module):
    def __init__(self, config, width, heads, window, shift, mutual, drop, draws):
        super().__init__()
        self.shift, self.drop, self.draws = shift, drop, draws
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, window, heads, config["qkv_bias"], mutual)
        self.mlp = Geglu(width, int(width * config["mlp_ratio"]), width)
        self.first_draw = draws["count"] if drop else None
        draws["count"] += 2 if drop else 0

    def kept(self, y, i):
        if not self.drop:
            return y
        keep = (self.draws["values"][:, self.first_draw + i] >= self.drop).to(y.dtype) / (1 - self.drop)
        return y * keep.view(-1, 1, 1, 1, 1)

    def attention(self, x):
        batch, size = x.shape[0], x.shape[1:4]
        window = tuple(min(s, t) for s, t in zip(size, self.attn.window))
        shift = tuple(0 if s <= t else u for s, t, u in zip(size, self.attn.window, self.shift))
        padded = tuple(-(-s // t) * t for s, t in zip(size, window))
        x = F.pad(x, [0, 0] + [p for s, q in zip(reversed(size), reversed(padded)) for p in (0, q - s)])
        x = torch.roll(x, [-s for s in shift], (1, 2, 3))
        x = self.attn(cut(x, window), shift_mask(padded, window, shift) if any(shift) else None)
        x = torch.roll(join(x, window, padded, batch), shift, (1, 2, 3))
        return x[:, :size[0], :size[1], :size[2]]

    def forward(self, x):
        x = x + self.kept(self.attention(self.norm1(x)), 0)
        return x + self.kept(self.mlp(self.norm2(x)), 1)


class Group(nn.Module):
    def __init__(self, config, width, depth, heads, window, mutual, drop, draws):
        super().__init__()
        half = tuple(s // 2 for s in window)
        self.blocks = nn.ModuleList(Tmsa(config, width, heads, window, half if i % 2 else (0, 0, 0), mutual, drop[i], draws) for i in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Residual(nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.residual_group, self.linear = Group(*args), nn.Linear(args[1], args[1])

    def forward(self, x):
        return x + self.linear(self.residual_group(x))


def conv(i, o, k=3):
    return nn.Conv2d(i, o, k, padding=k // 2)


def conv3(i, o):
    return nn.Conv3d(i, o, (1, 3, 3), padding=(0, 1, 1))


def numbered(**layers):
    return nn.ModuleDict({n.lstrip("_"): layer for n, layer in layers.items()})


class Aligned(nn.Module):
    def __init__(self, width, hops, groups, reach):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(width, width, 3, 3)), nn.Parameter(torch.zeros(width))
        self.reach, self.hops = reach, hops
        self.conv_offset = numbered(_0=conv((1 + hops) * width + 2 * hops, width), _2=conv(width, width), _4=conv(width, width), _6=conv(width, 27 * groups))

    def forward(self, sources, current, flows):  # [n, c, h, w], flows [n, 2, h, w]
        x = torch.cat([warp(s, f.permute(0, 2, 3, 1)) for s, f in zip(sources, flows)] + [current] + flows, 1)
        for i in "024":
            x = F.leaky_relu(self.conv_offset[i](x), 0.1)
        x = self.conv_offset["6"](x)
        taps = x.shape[1] // 3
        parts = (self.reach * x[:, :2 * taps].tanh()).chunk(self.hops, 1)
        offset = torch.cat([p + f.flip(1).repeat(1, p.shape[1] // 2, 1, 1) for p, f in zip(parts, flows)], 1)
        return deform(torch.cat(sources, 1), offset, x[:, 2 * taps:].sigmoid(), self.weight, self.bias)


class Stage(nn.Module):
    def __init__(self, config, i, width_in, width, drop, draws):
        super().__init__()
        self.kind, scale = ("none", "down", "down", "down", "up", "up", "up")[i], (1, 2, 4, 8, 4, 2, 1)[i]
        seen = {"none": width, "down": 4 * width_in, "up": width_in // 4}[self.kind]
        self.reshape = nn.ModuleDict({"1": nn.LayerNorm(seen)})
        if self.kind != "none":
            self.reshape["2"] = nn.Linear(seen, width)
        depth, heads, window = config["depths"][i], config["num_heads"][i], config["window_size"]
        mutual = int(depth * config["mul_attn_ratio"])
        self.residual_group1 = Group(config, width, mutual, heads, (2, *window[1:]), True, drop, draws)
        self.linear1 = nn.Linear(width, width)
        self.residual_group2 = Group(config, width, depth - mutual, heads, window, False, drop, draws)
        self.linear2 = nn.Linear(width, width)
        self.hops = config["pa_frames"] // 2
        if self.hops:
            self.pa_deform = Aligned(width, self.hops, config["deformable_groups"], 10 / scale)
            self.pa_fuse = Geglu(3 * width, 3 * width, width)

    def scaled(self, x):
        b, d, h, w, c = x.shape
        if self.kind == "down":
            x = torch.cat([x[:, :, i::2, j::2] for j in (0, 1) for i in (0, 1)], 4)
        elif self.kind == "up":
            x = x.view(b, d, h, w, 2, 2, c // 4).permute(0, 1, 2, 5, 3, 4, 6).reshape(b, d, 2 * h, 2 * w, c // 4)
        x = self.reshape["1"](x)
        return self.reshape["2"](x) if self.kind != "none" else x

    def aligned(self, x, flows, ahead):
        """x [b, n, c, h, w]; frame t from t + 1, t + 2, ... (ahead) or from t - 1, t - 2, ..."""
        n, out = x.shape[1], []
        for t in range(n):
            step = 1 if ahead else -1
            if not 0 <= t + step < n:
                out.append(torch.zeros_like(x[:, 0]))
                continue
            sources, along = [], []
            for k in range(1, self.hops + 1):
                there = 0 <= t + k * step < n
                sources.append(x[:, t + k * step] if there else torch.zeros_like(x[:, 0]))
                along.append(flows[k - 1][:, t if ahead else t - k] if there else torch.zeros_like(flows[0][:, 0]))
            out.append(self.pa_deform(sources, x[:, t], along))
        return torch.stack(out, 1)

    def forward(self, x, flows):
        x = self.scaled(x)
        x = self.linear1(self.residual_group1(x)) + x
        x = self.linear2(self.residual_group2(x)) + x
        if self.hops:
            y = x.permute(0, 1, 4, 2, 3)
            y = torch.cat([y, self.aligned(y, flows[0], True), self.aligned(y, flows[1], False)], 2)
            x = self.pa_fuse(y.permute(0, 1, 3, 4, 2))
        return x


class SpyNet(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (8, 32, 64, 32, 16, 2)
        self.basic_module = nn.ModuleList(
            numbered(basic_module=nn.ModuleDict({str(2 * i): conv(widths[i], widths[i + 1], 7) for i in range(5)})) for _ in range(6))

    def forward(self, a, b):
        h, w = a.shape[2:]
        height, width = -(-h // 32) * 32, -(-w // 32) * 32

        def pyramid(x):
            x = F.interpolate(x, size=(height, width), mode="bilinear", align_corners=False)
            mean, deviation = (torch.tensor(v, dtype=torch.float32).to(x.dtype).view(1, 3, 1, 1) for v in ((.485, .456, .406), (.229, .224, .225)))
            levels = [(x - mean) / deviation]
            for _ in range(5):
                levels.insert(0, F.avg_pool2d(levels[0], 2))
            return levels
        flows, flow = [], None
        for level, (x, y) in enumerate(zip(pyramid(a), pyramid(b))):
            up = torch.zeros_like(x[:, :2]) if flow is None else 2 * F.interpolate(flow, scale_factor=2, mode="bilinear", align_corners=True)
            z = torch.cat([x, warp(y, up.permute(0, 2, 3, 1), padding="border"), up], 1)
            layers = self.basic_module[level]["basic_module"]
            for i in "02468":
                z = layers[i](z if i == "0" else F.relu(z))
            flow, scale = z + up, 2**(5 - level)
            if level >= 2:
                out = F.interpolate(flow, size=(h // scale, w // scale), mode="bilinear", align_corners=False)
                factor = torch.tensor([w // scale / (width // scale), h // scale / (height // scale)], dtype=out.dtype)
                flows.insert(0, out * factor.view(1, 2, 1, 1))
        return flows


class Vrt(nn.Module):
    DEFAULTS = dict(upscale=1, in_chans=3, out_chans=3, mlp_ratio=2.0, qkv_bias=True, pa_frames=2, nonblind_denoising=False)

    def __init__(self, **options):
        super().__init__()
        c = self.config = {**self.DEFAULTS, **options}
        dims, frames = c["embed_dims"], c["pa_frames"]
        self.draws = {"count": 0, "values": None}
        self.conv_first = conv3((9 if frames else 1) * c["in_chans"] + c["nonblind_denoising"], dims[0])
        if frames:
            self.spynet = SpyNet()
        rates = torch.linspace(0, c["drop_path_rate"], sum(c["depths"]), dtype=torch.float64).tolist()
        own = [rates[sum(c["depths"][:i]):sum(c["depths"][:i + 1])] for i in range(len(dims))]
        for i in range(7):
            setattr(self, f"stage{i + 1}", Stage(c, i, dims[i - 1], dims[i], own[i], self.draws))
        self.stage8 = nn.ModuleList([numbered(_1=nn.LayerNorm(dims[6]), _2=nn.Linear(dims[6], dims[7]))])
        for i in range(7, len(dims)):
            window = (1, *c["window_size"][1:]) if i in c["indep_reconsts"] else c["window_size"]
            self.stage8.append(Residual(c, dims[i], c["depths"][i], c["num_heads"][i], window, False, own[i], self.draws))
        self.norm, self.conv_after_body = nn.LayerNorm(dims[-1]), nn.Linear(dims[-1], dims[0])
        if not frames:
            self.linear_fuse = nn.Conv2d(dims[0] * c["img_size"][0], 64, 1)
            self.conv_last = nn.Conv2d(64, c["out_chans"], 7)
        elif c["upscale"] == 1:
            self.conv_last = conv3(dims[0], c["out_chans"])
        else:
            self.conv_before_upsample = numbered(_0=conv3(dims[0], 64))
            each = 3 if c["upscale"] == 3 else 2
            times = round(math.log(c["upscale"], each))
            self.upsample = nn.ModuleDict({str(5 * i): conv3(64, 64 * each**2) for i in range(times)} | {str(5 * times): conv3(64, 64)})
            self.each, self.conv_last = each, conv3(64, c["out_chans"])

    @torch.no_grad()
    def draw(self, seed):
        named = dict(self.named_parameters())
        for name, p in named.items():
            weight = named[name[:-4] + "weight"] if name.endswith(".bias") else p
            if name.endswith("relative_position_bias_table"):
                p.copy_(normal(seed, name, p.shape, 0.02))
            elif weight.dim() > 1 and ".conv_offset.6." not in name and not name.endswith(".pa_deform.bias"):
                p.copy_(uniform(seed, name, p.shape, weight[0].numel()**-0.5))

    @torch.no_grad()
    def stir(self, seed):
        """What begins at zero, and flows of more than a fraction of a pixel."""
        for name, p in self.named_parameters():
            if ".conv_offset.6." in name:
                p.copy_(uniform(seed, "stir." + name, p.shape, 0.3 if name.endswith("bias") else 0.05))
            elif name.startswith("spynet.") and name.endswith(".8.bias"):
                p.copy_(uniform(seed, "stir." + name, p.shape, 0.1))

    def flows(self, x):
        """For each scale: backward and forward flows over 1, 2, ... frames."""
        b, n = x.shape[:2]
        a, z = x[:, :-1, :3].flatten(0, 1), x[:, 1:, :3].flatten(0, 1)
        out = []
        for back, ahead in zip(self.spynet(a, z), self.spynet(z, a)):
            back, ahead = back.unflatten(0, (b, n - 1)), ahead.unflatten(0, (b, n - 1))
            backs, aheads = [back], [ahead]
            for k in range(1, self.config["pa_frames"] // 2):
                def follow(first, then):
                    return first + warp(then, first.permute(0, 2, 3, 1))
                backs.append(torch.stack([follow(backs[-1][:, t], back[:, t + k]) for t in range(n - 1 - k)], 1))
                aheads.append(torch.stack([follow(aheads[-1][:, t + 1], ahead[:, t]) for t in range(n - 1 - k)], 1))
            out.append((backs, aheads))
        return out

    def features(self, x, flows):
        first = x
        x1 = self.stage1(x, flows[0])
        x2 = self.stage2(x1, flows[1])
        x3 = self.stage3(x2, flows[2])
        x = self.stage5(self.stage4(x3, flows[3]), flows[2])
        x = self.stage7(self.stage6(x + x3, flows[1]) + x2, flows[0]) + x1
        x = self.stage8[0]["2"](self.stage8[0]["1"](x))
        for group in self.stage8[1:]:
            x = group(x)
        return first + self.conv_after_body(self.norm(x))

    def forward(self, clips):
        def channels_last(x):
            return x.permute(0, 2, 3, 4, 1)

        def first(x):
            return x.permute(0, 4, 1, 2, 3)
        c = self.config
        if not c["pa_frames"]:
            mean = clips.mean((1, 3, 4), keepdim=True)
            x = self.features(channels_last(self.conv_first((clips - mean).transpose(1, 2))), [None] * 4)
            x = x.permute(0, 1, 4, 2, 3).flatten(1, 2)
            x = self.conv_last(F.pad(F.leaky_relu(self.linear_fuse(x), 0.2), [3] * 4, mode="reflect"))
            return x.unflatten(1, (-1, 3)) + mean
        x = clips[:, :, :c["in_chans"]]
        flows = self.flows(x)
        none = torch.zeros_like(x[:, 0]).repeat(1, 4, 1, 1)
        n = x.shape[1]
        backs = [warp(x[:, t + 1], flows[0][0][0][:, t].permute(0, 2, 3, 1), "nearest4") for t in range(n - 1)] + [none]
        aheads = [none] + [warp(x[:, t - 1], flows[0][1][0][:, t - 1].permute(0, 2, 3, 1), "nearest4") for t in range(1, n)]
        seen = torch.cat([x, torch.stack(backs, 1), torch.stack(aheads, 1), clips[:, :, c["in_chans"]:]], 2)
        y = first(self.features(channels_last(self.conv_first(seen.transpose(1, 2))), flows))
        base = x[:, :, :c["out_chans"]]
        if c["upscale"] > 1:
            y = F.leaky_relu(self.conv_before_upsample["0"](y))
            *steps, last = self.upsample.values()
            for step in steps:
                y = F.leaky_relu(F.pixel_shuffle(step(y).transpose(1, 2), self.each).transpose(1, 2), 0.1)
            y = last(y)
            base = F.interpolate(base.flatten(0, 1), size=y.shape[3:], mode="bilinear", align_corners=False).unflatten(0, (-1, n))
        return self.conv_last(y).transpose(1, 2) + base

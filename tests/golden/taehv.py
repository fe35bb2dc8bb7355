"""TAEHV in PyTorch, from its description: the independent side of the parity tests.

Frames and latents are NTCHW. The numbering of the layers is what upstream's weight files have.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F


def conv3(n_in, n_out, **options):
    return nn.Conv2d(n_in, n_out, kernel_size=3, padding=1, **options)


def with_past(x, clips):
    """Every frame beside the one before it in its clip; zeros before the first."""
    frames = len(x) // clips
    past = torch.zeros_like(x)
    for clip in range(clips):  # written as the sentence says it, not as the fast form does
        first = clip * frames
        past[first + 1:first + frames] = x[first:first + frames - 1]
    return torch.cat([x, past], dim=1)


class Memory(nn.Module):
    """Three convolutions over this frame and the previous one, plus a residual."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Sequential(conv3(2 * width, width), nn.ReLU(), conv3(width, width), nn.ReLU(), conv3(width, width))

    def forward(self, x, clips):
        return F.relu(x + self.conv(with_past(x, clips)))


class WideMemory(nn.Module):
    """The _super decoder's: 7x7 depthwise over both frames, four times the width in between, a residual without ReLU."""

    def __init__(self, width):
        super().__init__()
        both = 2 * width
        self.conv = nn.Sequential(nn.Conv2d(both, both, 7, padding=3, groups=both, bias=False), nn.Conv2d(both, 4 * width, 1),
                                  nn.ReLU(), nn.Conv2d(4 * width, width, 1, bias=False))

    def forward(self, x, clips):
        return x + self.conv(with_past(x, clips))


class Pool(nn.Module):
    def __init__(self, width, frames):
        super().__init__()
        self.frames, self.conv = frames, nn.Conv2d(width * frames, width, 1, bias=False)

    def forward(self, x):
        groups = [x[i::self.frames] for i in range(self.frames)]
        return self.conv(torch.cat(groups, dim=1))


class Grow(nn.Module):
    def __init__(self, width, frames):
        super().__init__()
        self.frames, self.conv = frames, nn.Conv2d(width, width * frames, 1, bias=False)

    def forward(self, x):
        parts = self.conv(x).chunk(self.frames, dim=1)
        return torch.stack(parts, dim=1).flatten(0, 1)


class SoftClamp(nn.Module):
    def forward(self, x):
        return 3 * torch.tanh(x / 3)


def run(layers, x):
    clips = len(x)
    x = x.flatten(0, 1)
    for layer in layers:
        x = layer(x, clips) if isinstance(layer, (Memory, WideMemory)) else layer(x)
    return x.unflatten(0, (clips, -1))


class Taehv(nn.Module):
    def __init__(self, patch=1, latent=16, encoder_time=(2, 2, 1), decoder_time=(1, 2, 2), encoder_width=(64,) * 4,
                 decoder_width=(256, 128, 64, 64), decoder_space=(2, 2, 2), cogvideox=False, wide=False, chunk=0, chunk_drop=0):
        super().__init__()
        self.patch, self.cogvideox, self.chunk, self.chunk_drop = patch, cogvideox, chunk, chunk_drop
        self.down, self.up = math.prod(encoder_time), math.prod(decoder_time)
        e, d = encoder_width, decoder_width
        encoder = [conv3(3 * patch**2, e[0]), nn.ReLU()]
        for i, time in enumerate(encoder_time):
            encoder += [Pool(e[i], time), conv3(e[i], e[i + 1], stride=2, bias=False)] + [Memory(e[i + 1]) for _ in range(3)]
        encoder += [conv3(e[3], latent)]
        self.encoder = nn.Sequential(*encoder)
        if wide:
            decoder = [nn.Conv2d(latent, d[0], 1, bias=False)]
            for i, (time, space) in enumerate(zip(decoder_time, decoder_space)):
                decoder += [WideMemory(d[i]) for _ in range(3)]
                decoder += [conv3(d[i], d[i + 1] * space**2), nn.ReLU(), nn.PixelShuffle(space), Grow(d[i + 1], time)]
            decoder += [conv3(d[3], 3 * patch**2)]
        else:
            decoder = [SoftClamp(), conv3(latent, d[0]), nn.ReLU()]
            for i, (time, space) in enumerate(zip(decoder_time, decoder_space)):
                decoder += [Memory(d[i]) for _ in range(3)]
                decoder += [nn.Upsample(scale_factor=space), Grow(d[i], time), conv3(d[i], d[i + 1], bias=False)]
            decoder += [nn.ReLU(), conv3(d[3], 3 * patch**2)]
        self.decoder = nn.Sequential(*decoder)

    @torch.no_grad()
    def start_near_identity(self):
        """Dirac kernels (soft ones where the size changes) plus 0.3 of the drawn weights on the main path; residual branches of unit gain that end small."""
        soft = torch.tensor([0.25, 0.5, 0.25])
        layers = [*self.encoder, *self.decoder]
        for layer, after in zip(layers, layers[2:] + [None, None]):
            if isinstance(layer, (Memory, WideMemory)):
                convs = [c for c in layer.conv if isinstance(c, nn.Conv2d)]
                for conv, factor in zip(convs, (3**0.5, 3**0.5, 0.3)):
                    conv.weight *= factor
                    if conv.bias is not None:
                        conv.bias.zero_()
            elif isinstance(layer, (nn.Conv2d, Pool, Grow)):
                conv = layer if isinstance(layer, nn.Conv2d) else layer.conv
                pooled = layer.frames if isinstance(layer, Pool) else 1
                grown = layer.frames if isinstance(layer, Grow) else 1
                conv.weight *= 0.3
                if conv.bias is not None:
                    conv.bias.zero_()
                n_out, n_in, middle = conv.out_channels // grown, conv.in_channels // pooled, conv.kernel_size[0] // 2
                pixels = after.upscale_factor**2 if isinstance(after, nn.PixelShuffle) else 1  # channels that become one
                copy = torch.zeros(n_out, n_in)
                for c in range(n_out):
                    copy[c, c // pixels % n_in] = 1 / pooled
                copy = copy.repeat(grown, pooled)
                if conv.kernel_size[0] == 3 and conv.bias is None:
                    conv.weight += copy[:, :, None, None] * torch.outer(soft, soft)
                else:
                    conv.weight[:, :, middle, middle] += copy

    def encode(self, frames):
        if self.chunk:
            return self.encode_chunks(frames)
        while frames.shape[1] % self.down:
            frames = torch.cat([frames, frames[:, -1:]], dim=1)
        return run(self.encoder, F.pixel_unshuffle(frames, self.patch))

    def encode_chunks(self, frames):
        """Each chunk alone, behind black frames; the last latents of the clip are dropped."""
        while frames.shape[1] % self.chunk:
            frames = torch.cat([frames, frames[:, -1:]], dim=1)
        black = torch.zeros_like(frames[:, :self.down - 1])
        chunks = [torch.cat([black, part], dim=1) for part in frames.split(self.chunk, dim=1)]
        latents = torch.cat([run(self.encoder, F.pixel_unshuffle(c, self.patch)) for c in chunks], dim=1)
        return latents[:, :latents.shape[1] - self.chunk_drop]

    def decode(self, latents):
        frames = F.pixel_shuffle(run(self.decoder, latents), self.patch).clamp(0, 1)
        if self.chunk:
            whole = (self.chunk + self.down - 1) // self.down * self.up
            while frames.shape[1] % whole:
                frames = torch.cat([frames, torch.zeros_like(frames[:, :1])], dim=1)
            frames = torch.cat([part[:, self.up - 1:] for part in frames.split(whole, dim=1)], dim=1)
            return frames[:, :frames.shape[1] - self.chunk_drop * self.up]
        untrimmed = self.cogvideox and latents.shape[1] % 2 == 0
        return frames if untrimmed else frames[:, self.up - 1:]


SMALL = dict(encoder_width=(16,) * 4, decoder_width=(64, 32, 16, 16))
WIDE = dict(wide=True, decoder_width=(512, 256, 128, 64))
LONG = dict(patch=4, latent=128, encoder_time=(2, 2, 2), decoder_time=(2, 2, 2))
VARIANTS = {
    "taehv": {}, "taew2_1": {}, "taeos1_3": {}, "taecvx": dict(cogvideox=True),
    "taehv1_5": dict(patch=2, latent=32), "taew2_2": dict(patch=2, latent=48),
    "taeh3": dict(patch=2, latent=24, chunk=17, chunk_drop=3), "taeltx_2": LONG, "taeltx2_3": LONG,
    "taehv1_5_super": dict(patch=2, latent=32, **WIDE), "taew2_2_super": dict(patch=2, latent=48, **WIDE),
    "taehv-small": SMALL,
}

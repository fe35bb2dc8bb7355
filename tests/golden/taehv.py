"""TAEHV in PyTorch, from its description: the independent side of the parity tests.

Frames and latents are NTCHW. The numbering of the layers is what upstream's weight files have.
"""
import torch
from torch import nn
from torch.nn import functional as F


def conv3(n_in, n_out, **options):
    return nn.Conv2d(n_in, n_out, kernel_size=3, padding=1, **options)


class Memory(nn.Module):
    """Three convolutions over this frame and the previous one, plus a residual."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Sequential(conv3(2 * width, width), nn.ReLU(), conv3(width, width), nn.ReLU(), conv3(width, width))

    def forward(self, x, clips):
        frames = len(x) // clips
        past = torch.zeros_like(x)
        for clip in range(clips):  # written as the sentence says it, not as the fast form does
            first = clip * frames
            past[first + 1:first + frames] = x[first:first + frames - 1]
        return F.relu(x + self.conv(torch.cat([x, past], dim=1)))


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
        x = layer(x, clips) if isinstance(layer, Memory) else layer(x)
    return x.unflatten(0, (clips, -1))


class Taehv(nn.Module):
    def __init__(self, patch=1, latent=16, encoder_time=(2, 2, 1), decoder_time=(1, 2, 2), encoder_width=(64,) * 4,
                 decoder_width=(256, 128, 64, 64), cogvideox=False):
        super().__init__()
        self.patch, self.cogvideox = patch, cogvideox
        self.down, self.up = 1, 1
        e, d = encoder_width, decoder_width
        encoder = [conv3(3 * patch**2, e[0]), nn.ReLU()]
        for i, time in enumerate(encoder_time):
            encoder += [Pool(e[i], time), conv3(e[i], e[i + 1], stride=2, bias=False)] + [Memory(e[i + 1]) for _ in range(3)]
            self.down *= time
        encoder += [conv3(e[3], latent)]
        self.encoder = nn.Sequential(*encoder)
        decoder = [SoftClamp(), conv3(latent, d[0]), nn.ReLU()]
        for i, time in enumerate(decoder_time):
            decoder += [Memory(d[i]) for _ in range(3)]
            decoder += [nn.Upsample(scale_factor=2), Grow(d[i], time), conv3(d[i], d[i + 1], bias=False)]
            self.up *= time
        decoder += [nn.ReLU(), conv3(d[3], 3 * patch**2)]
        self.decoder = nn.Sequential(*decoder)

    @torch.no_grad()
    def start_near_identity(self):
        """Dirac kernels plus 0.3 of the drawn weights on the main path; residual branches of unit gain that end small."""
        for layer in [*self.encoder, *self.decoder]:
            if isinstance(layer, Memory):
                for i, factor in ((0, 3**0.5), (2, 3**0.5), (4, 0.3)):
                    layer.conv[i].weight *= factor
                    layer.conv[i].bias.zero_()
            elif isinstance(layer, (nn.Conv2d, Pool, Grow)):
                conv = layer if isinstance(layer, nn.Conv2d) else layer.conv
                pooled = layer.frames if isinstance(layer, Pool) else 1
                grown = layer.frames if isinstance(layer, Grow) else 1
                conv.weight *= 0.3
                if conv.bias is not None:
                    conv.bias.zero_()
                n_out, n_in, middle = conv.out_channels // grown, conv.in_channels // pooled, conv.kernel_size[0] // 2
                copy = torch.zeros(n_out, n_in)
                for c in range(n_out):
                    copy[c, c % n_in] = 1 / pooled
                conv.weight[:, :, middle, middle] += copy.repeat(grown, pooled)

    def encode(self, frames):
        while frames.shape[1] % self.down:
            frames = torch.cat([frames, frames[:, -1:]], dim=1)
        return run(self.encoder, F.pixel_unshuffle(frames, self.patch))

    def decode(self, latents):
        frames = F.pixel_shuffle(run(self.decoder, latents), self.patch).clamp(0, 1)
        untrimmed = self.cogvideox and latents.shape[1] % 2 == 0
        return frames if untrimmed else frames[:, self.up - 1:]


SMALL = dict(encoder_width=(16,) * 4, decoder_width=(64, 32, 16, 16))

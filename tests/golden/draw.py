"""Weights by the formula of src/models/normal.h, written a second time: element i of a parameter is a function of (seed, name, i)."""
import numpy as np
import torch

GOLDEN = np.uint64(0x9e3779b97f4a7c15)


def mix(x):
    x = x ^ (x >> np.uint64(30))
    x = x * np.uint64(0xbf58476d1ce4e5b9)
    x = x ^ (x >> np.uint64(27))
    x = x * np.uint64(0x94d049bb133111eb)
    return x ^ (x >> np.uint64(31))


def probability(seed, name, count):
    """In (0, 1)."""
    with np.errstate(over="ignore"):
        hashed = np.uint64(0xcbf29ce484222325)
        for c in name.encode():
            hashed = (hashed ^ np.uint64(c)) * np.uint64(0x100000001b3)
        key = mix(mix(np.uint64(seed) + GOLDEN) ^ mix(hashed + np.uint64(2) * GOLDEN))
        bits = mix(key + GOLDEN * np.arange(1, count + 1, dtype=np.uint64))
    return torch.from_numpy(((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)


def normal(seed, name, shape, deviation):
    return (deviation * torch.special.ndtri(probability(seed, name, int(np.prod(shape))))).float().view(shape)


def uniform(seed, name, shape, bound):
    return (2 * bound * (probability(seed, name, int(np.prod(shape))) - 0.5)).float().view(shape)

"""Random bits from an explicit key: Threefry counters, and the one place where initial weights are drawn.

A key is a ``uint32`` array of two words. The same key gives the same bits on every device, inside and outside loops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.core.errors import ShapeError, ValueIssue

# Threefry-2x32, 20 rounds: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, table 2.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def key(seed: int, *, device: str | None = None) -> Array:
    """The key of a non-negative seed below 2**64.

    >>> from rlx import nn
    >>> nn.key(7).tolist()
    [0, 7]
    """
    if not 0 <= seed < 1 << 64:
        raise ValueIssue(f"the seed {seed} of a key", why="seeds are 0 to 2**64 - 1", do="take seed % 2**64")
    return rlx.asarray(np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32), device=device)


def fold_in(key: Array, number: Any) -> Array:
    """A key made of a key and a number (a layer, a step): other numbers give unrelated keys."""
    _check(key)
    low = rlx.astype(rlx.asarray(number, device=key.device), rlx.uint32)
    return rlx.stack(_threefry(key, rlx.zeros_like(low), low))


def uniform(key: Array, shape: Sequence[int]) -> Array:
    """float32 numbers in [0, 1), multiples of 2**-24."""
    _check(key)
    count = math.prod(shape)
    counter = rlx.astype(rlx.arange(count, device=key.device), rlx.uint32)
    word = _threefry(key, rlx.zeros_like(counter), counter)[0]
    return rlx.reshape(rlx.astype(word >> 8, rlx.float32) * 2.0**-24, tuple(shape))


def _check(key: Array) -> None:
    if key.shape != (2,) or key.dtype != rlx.uint32:
        raise ShapeError(f"a key of type {key.dtype.name}{list(key.shape)}", why="a key is two uint32 words",
                         do="make one with rlx.nn.key(seed)")


def _threefry(key: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Twenty rounds on the counters ``(x0, x1)``, elementwise."""
    words = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    x0, x1 = x0 + words[0], x1 + words[1]
    for block in range(5):
        for r in _ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = ((x1 << r) | (x1 >> (32 - r))) ^ x0
        x0 = x0 + words[(block + 1) % 3]
        x1 = x1 + words[(block + 2) % 3] + (block + 1)
    return x0, x1


def initial(rng: np.random.Generator | int, shape: Sequence[int], bound: float, *, normal: bool = False,
            dtype: Any = None, device: str | None = None) -> Array:
    """Initial weights: uniform in ``[-bound, bound)``, or normal with that deviation; float32 without ``dtype``.

    A generator gives new numbers at each call; a seed gives the same again.
    """
    source = rng if isinstance(rng, np.random.Generator) else np.random.default_rng(rng)
    drawn = source.standard_normal(tuple(shape)) * bound if normal else source.uniform(-bound, bound, tuple(shape))
    return rlx.asarray(drawn, dtype=dtype if dtype is not None else rlx.float32, device=device)

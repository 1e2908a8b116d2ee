"""Threefry-2x32 with 20 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3")."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import broadcast, literal
from rlx.array.define import op_named
from rlx.core import dtype as dt
from rlx.ir.op import NotDifferentiable, Sample
from rlx.ops.movement import reshape, slice_of

#: Rotations of the rounds, in two groups of four that alternate (table 2 of the paper).
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
#: The word that the key is extended by: it keeps a zero key from giving a zero schedule (Skein 1.3).
PARITY = 0x1BD11BDA
_WIDTH = 32


@op_named("random.threefry")
def threefry(key: Array, high: Array, low: Array, /) -> tuple[Array, Array]:
    """Two words of 32 random bits for each counter ``(high, low)``, under a key of two words; all are uint32.

    ``key`` has shape (2,), the counters one shape. A bijection of the counters for every key.
    """
    device = key._value.node.device

    def word(value: int) -> Array:
        return broadcast(literal(value, dt.uint32, device), low.shape)

    k0, k1 = (broadcast(reshape(slice_of(key, (i,), (1,)), ()), low.shape) for i in range(2))
    schedule = (k0, k1, k0 ^ k1 ^ word(PARITY))
    a, b = high + k0, low + k1
    for group in range(5):
        for r in ROTATIONS[group % 2]:
            a = a + b
            b = ((b << word(r)) | (b >> word(_WIDTH - r))) ^ a
        a = a + schedule[(group + 1) % 3]
        b = b + schedule[(group + 2) % 3] + word(group + 1)
    return a, b


@threefry.ref
def _(key: Any, high: Any, low: Any) -> Any:
    """The same on Python's integers."""
    mask = (1 << _WIDTH) - 1
    k = [int(key[0]), int(key[1])]
    k.append(k[0] ^ k[1] ^ PARITY)
    out = np.empty((2, high.size), np.uint32)
    for i, (x, y) in enumerate(zip(high.ravel(), low.ravel(), strict=True)):
        a, b = (int(x) + k[0]) & mask, (int(y) + k[1]) & mask
        for n in range(20):
            r = ROTATIONS[n // 4 % 2][n % 4]
            a = (a + b) & mask
            b = ((b << r | b >> (_WIDTH - r)) & mask) ^ a
            if n % 4 == 3:
                a = (a + k[(n // 4 + 1) % 3]) & mask
                b = (b + k[(n // 4 + 2) % 3] + n // 4 + 1) & mask
        out[:, i] = a, b
    return out[0].reshape(high.shape), out[1].reshape(high.shape)


threefry.grad(NotDifferentiable("it is defined on integers"))


@threefry.samples
def _() -> list[Sample]:
    rng = np.random.default_rng(0)

    def words(*shape: int) -> Any:
        return rng.integers(0, 1 << _WIDTH, shape, dtype=np.uint32)

    full = np.full((2,), 0xFFFFFFFF, np.uint32)
    return [Sample((words(2), words(3, 5), words(3, 5)), name="words"),
            Sample((np.zeros(2, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint32)), name="zeros", edge=True),
            Sample((full, full[:1], full[:1]), name="ones", edge=True)]

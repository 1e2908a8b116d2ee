"""Numbers stored in blocks of few bits with shared scales, and the programs that give them back.

Layouts are those of ggml's block types: a block is a run of bytes that stands for 32 or 256 numbers of the last axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError


@dataclass(frozen=True)
class Kind:
    """A block type: how many numbers a block has, in how many bytes, and the program that computes them."""

    numbers: int
    size: int
    values: Callable[[Array], Array]


@dataclass(frozen=True)
class Quantized:
    """An array in blocks, a pytree with one leaf. Shapes: blocks (..., B, bytes of a block), uint8."""

    blocks: Array
    kind: str = field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the numbers."""
        *lead, count, _ = self.blocks.shape
        return (*lead, count * KINDS[self.kind].numbers)

    def dequantize(self, dtype: Any = None) -> Array:
        """The numbers, float32 unless told otherwise. In a program they are computed where they are used."""
        kind = dt.float32 if dtype is None else dt.as_dtype(dtype)
        if not kind.is_float:
            raise DTypeError(f"numbers in blocks as {kind.name}", why="they are real", do="pass a floating-point dtype")
        out = FUNCTIONS["reshape"](KINDS[self.kind].values(self.blocks), self.shape)
        return FUNCTIONS["astype"](out, kind)


def _float(x: Array) -> Array:
    return FUNCTIONS["astype"](x, dt.float32)


def _half(b: Array, at: int) -> Array:
    """The float16 at a byte of each block, as float32 with an axis of one."""
    pair = FUNCTIONS["astype"](b[..., at:at + 2], dt.uint16)
    bits = pair[..., :1] | (pair[..., 1:] << 8)
    return _float(FUNCTIONS["bitcast"](bits, dt.float16))


def _signed(b: Array) -> Array:
    return _float(FUNCTIONS["bitcast"](b, dt.int8))


def _nibbles(b: Array) -> Array:
    """The low halves of all bytes, then the high halves."""
    return FUNCTIONS["concat"]([b & 15, b >> 4], axis=-1)


def _bits(b: Array, width: int) -> Array:
    """Fields of ``width`` bits, lowest first, on a new axis before the last: (..., N) to (..., 8 / width, N)."""
    parts = [(b >> s) & ((1 << width) - 1) for s in range(0, 8, width)]
    return FUNCTIONS["stack"](parts, axis=-2)


def _shaped(x: Array, *tail: int) -> Array:
    """The last axis as several."""
    return FUNCTIONS["reshape"](x, (*x.shape[:-1], *tail))


def _joined(x: Array, lead: int) -> Array:
    """All but the first ``lead`` axes as one."""
    return FUNCTIONS["reshape"](x, (*x.shape[:lead], -1))


def _fifth(b: Array, at: int) -> Array:
    """The fifth bits of 32 numbers, each a bit of 4 bytes, as 0 or 16."""
    one = _bits(b[..., at:at + 4], 1)  # (..., 8, 4): bit, byte
    return _joined(FUNCTIONS["matrix_transpose"](one), b.ndim - 1) << 4


def _q4_0(b: Array) -> Array:
    return _half(b, 0) * (_float(_nibbles(b[..., 2:])) - 8)


def _q4_1(b: Array) -> Array:
    return _half(b, 0) * _float(_nibbles(b[..., 4:])) + _half(b, 2)


def _q5_0(b: Array) -> Array:
    return _half(b, 0) * (_float(_nibbles(b[..., 6:]) | _fifth(b, 2)) - 16)


def _q5_1(b: Array) -> Array:
    return _half(b, 0) * _float(_nibbles(b[..., 8:]) | _fifth(b, 4)) + _half(b, 2)


def _q8_0(b: Array) -> Array:
    return _half(b, 0) * _signed(b[..., 2:])


def _scales(b: Array) -> tuple[Array, Array]:
    """Scales and minima (..., 8, 1) of the 8 parts of a block: 6 bits each, in 12 bytes.

    The first four of each are the low 6 bits of bytes 0-3 and 4-7; the others have their low 4 bits in the halves of
    bytes 8-11, and their high 2 bits on top of the first four.
    """
    low, mid, rest = b[..., 0:4], b[..., 4:8], b[..., 8:12]
    scale = FUNCTIONS["concat"]([low & 63, (rest & 15) | ((low >> 6) << 4)], axis=-1)
    least = FUNCTIONS["concat"]([mid & 63, (rest >> 4) | ((mid >> 6) << 4)], axis=-1)
    return _float(scale)[..., None], _float(least)[..., None]


def _q2_k(b: Array) -> Array:
    """16 parts with a scale and a minimum of 4 bits each; 2 bits a number."""
    q = _shaped(_joined(_bits(_shaped(b[..., 16:80], 2, 32), 2), b.ndim - 1), 16, 16)
    scale, least = _float(b[..., :16] & 15)[..., None], _float(b[..., :16] >> 4)[..., None]
    return _half(b, 80)[..., None] * scale * _float(q) - _half(b, 82)[..., None] * least


def _k_affine(b: Array, q: Array) -> Array:
    """8 parts of 32 numbers with a scale and a minimum each."""
    scale, least = _scales(b[..., 4:16])
    return _half(b, 0)[..., None] * scale * _float(q) - _half(b, 2)[..., None] * least


def _q4_k(b: Array) -> Array:
    """Each 32 bytes hold two parts: the low halves, and the high halves."""
    q = _bits(_shaped(b[..., 16:], 4, 32), 4)
    return _k_affine(b, _shaped(_joined(q, b.ndim - 1), 8, 32))


def _q5_k(b: Array) -> Array:
    """As Q4_K, with the fifth bit of part p in bit p of 32 bytes."""
    q = _shaped(_joined(_bits(_shaped(b[..., 48:], 4, 32), 4), b.ndim - 1), 8, 32)
    return _k_affine(b, q | (_bits(b[..., 16:48], 1) << 4))


def _q6_k(b: Array) -> Array:
    """16 parts of 16 numbers with a signed scale each; 4 low bits in 128 bytes, 2 high bits in 64, by halves."""
    low = _shaped(_joined(_bits(_shaped(b[..., :128], 2, 64), 4), b.ndim - 1), 8, 32)
    high = _shaped(_joined(_bits(_shaped(b[..., 128:192], 2, 32), 2), b.ndim - 1), 8, 32)
    q = _float(low | (high << 4)) - 32
    scale = _half(b, 208) * _signed(b[..., 192:208])
    return scale[..., None] * _shaped(_joined(q, b.ndim - 1), 16, 16)


#: Block types by name.
KINDS = {
    "Q4_0": Kind(32, 18, _q4_0), "Q4_1": Kind(32, 20, _q4_1), "Q5_0": Kind(32, 22, _q5_0), "Q5_1": Kind(32, 24, _q5_1),
    "Q8_0": Kind(32, 34, _q8_0), "Q2_K": Kind(256, 84, _q2_k), "Q4_K": Kind(256, 144, _q4_k),
    "Q5_K": Kind(256, 176, _q5_k), "Q6_K": Kind(256, 210, _q6_k),
}

"""Which contractions register tiles can schedule, and with which tile."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod

from rlx.compile.index import Sizes, sizes
from rlx.core.dtype import DType
from rlx.core.shape import strides
from rlx.ir.graph import Node, Value

#: Rows at multiples of this many bytes fall into one set of the first-level cache (x86: 64 sets of 64 bytes).
ALIAS = 4096
#: Depth and width from which tiles beat a plain reduction.
SMALLEST = 8
Axes = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Form:
    """A contraction as ``out[b, i, j] = sum_k x[b, i, k] * y[b, k, j]`` with constant strides of x (in elements)."""

    batch: Sizes
    m: int
    n: int
    depth: int
    x_batch: tuple[int, ...]
    x_row: int
    x_depth: int


def form(n: Node) -> Form | None:
    """The form of a node's contraction, or None where tiles do not fit it."""
    return form_of(n.types[0].dtype, sizes(n.args[0]), sizes(n.args[1]), n.attr("contract"),
                   n.attr("batch")) if n.op == "dot" else None


def form_of(dtype: DType, x: Sizes, y: Sizes, contract: Axes, batch: Axes) -> Form | None:
    """The form of a contraction of row-major operands of these shapes, or None where tiles do not fit it."""
    if dtype.kind not in "fiu" or dtype.bits not in (32, 64) or len(contract[0]) != 1:
        return None
    step = strides(x)
    rows = [a for a in range(len(x)) if a not in contract[0] and a not in batch[0] and x[a] != 1]
    if any(step[a] != step[b] * x[b] for a, b in pairwise(rows)):
        return None
    free = [a for a in range(len(y)) if a not in contract[1] and a not in batch[1]]
    m, width = prod(x[a] for a in rows), prod(y[a] for a in free)
    depth = x[contract[0][0]]
    if depth < SMALLEST or width < SMALLEST or m < 2:
        return None
    return Form(tuple(x[a] for a in batch[0]), m, width, depth, tuple(step[a] for a in batch[0]),
                step[rows[-1]] if rows else 0, step[contract[0][0]])


def geometry(dtype: DType, vector_bytes: int) -> tuple[int, int]:
    """Rows and columns of the register tile: as many accumulators as there are registers for, beside the operands.

    12 x 2 vectors of 32 registers (AVX-512), 4 x 3 of 16 (AVX2), 8 x 2 of 32 (NEON).
    """
    lanes = vector_bytes // dtype.itemsize
    if vector_bytes >= 64:
        return 12, 2 * lanes
    return (4, 3 * lanes) if vector_bytes == 32 else (8, 2 * lanes)


def spreads(f: Form, dtype: DType, rows: int) -> bool:
    """Whether the rows of a tile would evict each other from the first-level cache, and are read often enough to copy.

    A set holds eight lines; a tile reads a line of each of its rows at once.
    """
    return (f.x_depth == 1 and f.x_row * dtype.itemsize % ALIAS == 0 and f.x_row > 0 and rows > 8 and f.m >= 4 * rows
            and f.n * dtype.itemsize >= 512)


def turned(n: Node, vector_bytes: int) -> bool:
    """Whether to compute the transpose, ``y' @ x'``: few rows, which fill vectors when packed, times a large matrix.

    Then the large matrix is read once, as it lies. It has to be in storage: an input.
    """
    f = form(n)
    if f is None or f.batch or n.args[1].node.op != "input" or vector_bytes < 64:
        return False
    dtype = n.types[0].dtype
    lanes = vector_bytes // dtype.itemsize
    other = _turned_form(n)
    return (other is not None and 3 * lanes < 4 * f.m <= 4 * lanes and f.n >= 8 * lanes and f.depth >= 4 * lanes
            and (other.x_depth != 1 or other.x_row * dtype.itemsize % ALIAS != 0))


def _turned_form(n: Node) -> Form | None:
    (a, b), (c, d) = n.attr("contract"), n.attr("batch")
    return form_of(n.types[0].dtype, sizes(n.args[1]), sizes(n.args[0]), (b, a), (d, c))


def operands(n: Node) -> tuple[Value, ...]:
    """Operands of a contraction that tiles read from storage: the unpacked one."""
    return n.args[:1] if form(n) is not None else ()

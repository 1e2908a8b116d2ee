"""Which contractions are matrix products in memory: collapsing axes of row-major operands to GEMM form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlx.core.dtype import DType


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand of GEMM: strides in elements, and how BLAS sees it: ``transposed``, with leading dimension
    ``ld``.
    """

    row_stride: int
    col_stride: int
    transposed: bool
    ld: int
    batch: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """``out[b] = lhs[b] @ rhs[b]``: extents of the batch axes, rows, columns, and the summed extent."""

    dtype: DType
    extents: tuple[int, ...]
    m: int
    n: int
    k: int
    lhs: Matrix
    rhs: Matrix

    @property
    def batches(self) -> int:
        return math.prod(self.extents)

    @property
    def flops(self) -> int:
        """Real operations of one product."""
        return (8 if self.dtype.is_complex else 2) * self.m * self.n * self.k


Axes = tuple[tuple[int, ...], tuple[int, ...]]


def form(dtype: DType, lhs: Sequence[int], rhs: Sequence[int], contract: Axes, batch: Axes) -> Form | str:
    """The GEMM form of a contraction of two row-major operands, or why it has none.

    Result axes are the batch axes, the free axes of lhs, the free axes of rhs.
    """
    if 0 in (*lhs, *rhs):
        return "an operand is empty"
    pairs = sorted(zip(*contract, strict=True))
    free_l = [i for i in range(len(lhs)) if i not in (*contract[0], *batch[0])]
    free_r = [i for i in range(len(rhs)) if i not in (*contract[1], *batch[1])]
    ls, rs = strides(lhs), strides(rhs)
    groups = (collapse(lhs, ls, free_l), collapse(lhs, ls, [p[0] for p in pairs]),
              collapse(rhs, rs, [p[1] for p in pairs]), collapse(rhs, rs, free_r))
    if None in groups:
        which = ("the free axes of lhs", "the contracted axes of lhs", "the contracted axes of rhs",
                 "the free axes of rhs")[groups.index(None)]
        return f"{which} are not one axis in memory (shapes {list(lhs)} and {list(rhs)})"
    (m, m_stride), (k, k_left), (_, k_right), (n, n_stride) = groups  # type: ignore[misc]
    left = _matrix(m, m_stride, k, k_left, tuple(ls[i] for i in batch[0]))
    right = _matrix(k, k_right, n, n_stride, tuple(rs[i] for i in batch[1]))
    for operand, name in ((left, "lhs"), (right, "rhs")):
        if operand is None:
            return f"neither axis of {name} as a matrix is contiguous"
    assert left is not None and right is not None
    return Form(dtype, tuple(lhs[i] for i in batch[0]), m, n, k, left, right)


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    return tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))


def collapse(shape: Sequence[int], steps: Sequence[int], axes: Sequence[int]) -> tuple[int, int] | None:
    """(extent, stride) of the axes taken in this order as one axis; None when memory is not laid out so."""
    extent, stride = 1, 1
    for axis in reversed(axes):
        if shape[axis] == 1:
            continue
        if extent == 1:
            stride = steps[axis]
        elif steps[axis] != extent * stride:
            return None
        extent *= shape[axis]
    return extent, stride


def _matrix(rows: int, row_stride: int, cols: int, col_stride: int,
            batch: tuple[int, ...]) -> Matrix | None:
    """A matrix with these strides in BLAS's terms: one axis must be contiguous, or have one element."""
    if col_stride == 1 or cols == 1:
        ld = row_stride if rows > 1 else cols
        if ld >= cols:
            return Matrix(row_stride, col_stride, False, ld, batch)
    if row_stride == 1 or rows == 1:
        ld = col_stride if cols > 1 else rows
        if ld >= rows:
            return Matrix(row_stride, col_stride, True, ld, batch)
    return None

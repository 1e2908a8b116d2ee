"""Claim: a contraction whose operands are matrices in memory is cuBLAS's GEMM. float32 is IEEE: no TF32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from rlx.core.dtype import bfloat16, complex64, complex128, float16, float32, float64
from rlx.device.cuda import blas
from rlx.device.cuda.blas import Product
from rlx.device.cuda.program import Library
from rlx.ir.claim import Call, Claim
from rlx.ir.loop import Native

_DTYPES = (float16, bfloat16, float32, float64, complex64, complex128)
#: Multiplications up to which a generated kernel, which may be fused with others, beats a call.
SMALL = 1 << 12


def accepts(call: Call) -> str | None:
    """None for a product of two matrices (or batches of them) of one float dtype; else the reason."""
    if (reason := blas.absent()) is not None:
        return reason
    dtypes = {d for d, _ in (*call.inputs, *call.outputs)}
    if len(dtypes) != 1 or next(iter(dtypes)) not in _DTYPES:
        return f"needs one of {', '.join(d.name for d in _DTYPES)} throughout"
    shapes = call.inputs[0][1], call.inputs[1][1]
    if 0 in (*shapes[0], *shapes[1]):
        return "an operand is empty"
    form = _form(*shapes, call.attrs)
    if form is None:
        return "an operand is no matrix in memory"
    m, k, n = form.lhs.rows, form.lhs.columns, form.rhs.columns
    if m == 1 or n == 1:
        return "is a product with a vector, which a generated kernel streams as fast"
    return f"is slower than a generated kernel at {m}x{n}x{k}" if m * n * k <= SMALL else None


def lower(native: Native) -> Library:
    """One batched product."""
    (dtype, a), (_, b), _ = native.types
    form = _form(a, b, dict(native.attrs))
    if form is None:
        raise ValueError("not a contraction that was accepted")
    m, k, n = form.lhs.rows, form.lhs.columns, form.rhs.columns
    product = Product(dtype, form.batch, m, n, k, form.lhs.place(), form.rhs.place())

    def run(stream: int, addresses: Sequence[int]) -> None:
        product(stream, *addresses)

    return Library(run, records=True)


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand: its extents, and the strides in elements of batch, row and column."""

    rows: int
    columns: int
    strides: tuple[int, int, int]

    def place(self) -> tuple[bool, int, int]:
        """(lies transposed, leading dimension, stride of the batch)."""
        step, row, column = self.strides
        # An extent of one says nothing by its stride.
        plain = column == 1 or self.columns == 1
        if plain and (row >= self.columns or self.rows == 1):
            return False, max(row, self.columns), step
        return True, max(column, self.rows), step


@dataclass(frozen=True, slots=True)
class Form:
    batch: int
    lhs: Matrix
    rhs: Matrix


def _form(a: Sequence[int], b: Sequence[int], attrs: dict[str, Any]) -> Form | None:
    """The operands as batches of matrices, (rows, summed) and (summed, columns); None where that needs a copy."""
    (ca, cb), (ba, bb) = attrs["contract"], attrs["batch"]
    free_a = [i for i in range(len(a)) if i not in (*ca, *ba)]
    free_b = [i for i in range(len(b)) if i not in (*cb, *bb)]
    batch, k = prod(a[i] for i in ba), prod(a[i] for i in ca)
    lhs = _matrix(a, (*ba, *free_a, *ca), (batch, prod(a[i] for i in free_a), k))
    rhs = _matrix(b, (*bb, *cb, *free_b), (batch, k, prod(b[i] for i in free_b)))
    return None if lhs is None or rhs is None else Form(batch, lhs, rhs)


def _matrix(x: Sequence[int], order: Sequence[int], shape: tuple[int, int, int]) -> Matrix | None:
    """The reordered axes merged in place, where rows or columns then lie together."""
    plain = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), tuple(x), _strides(x))
    try:
        strides = plain.transpose(order).reshape(shape, copy=False).strides
    except ValueError:
        return None
    if not (strides[2] == 1 or strides[1] == 1 or 1 in shape[1:]):
        return None
    return Matrix(shape[1], shape[2], (strides[0], strides[1], strides[2]))


def _strides(x: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(x[i + 1:]) for i in range(len(x)))


CLAIMS = (Claim("cublas_gemm", "dot", "cublasGemmEx", accepts, lower,
                "cuBLAS GEMM on matrices as they lie, in batches"),)

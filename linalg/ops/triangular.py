"""Triangular systems: ``op(A) X = B`` by blocked forward substitution."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.array.define import op_named
from rlx.ir.op import Sample
from rlx.linalg.ops.common import (
    PANEL,
    UNROLL,
    adjoint,
    batch_first,
    cols_of,
    counter,
    eye_like,
    filled,
    flat,
    padded,
    panels,
    put_rows,
    random,
    rows_of,
    take_row,
    take_rows,
)
from rlx.ops.index import gather

#: Spellings of ``op``: as it is, transposed, conjugate transposed.
PLAIN, TRANSPOSED, ADJOINT = 0, 1, 2


@op_named("linalg.solve_triangular")
def triangular(a: Array, b: Array, /, *, lower: bool, trans: int = 0, unit: bool = False) -> Array:
    """``X`` with ``op(A) X = B`` for triangular A: ``(..., n, n)`` and ``(..., n, k)`` of equal leading axes.

    ``trans`` 0, 1, 2 is A, A^T, A^H; the other triangle is not read, nor the diagonal when ``unit``. A zero on the
    diagonal gives infinities, as division does.
    """
    if 0 in (*a.shape, *b.shape):
        return b
    x, _ = flat(a)
    y, _ = flat(b)
    if trans:
        x = adjoint(x) if trans == ADJOINT else rlx.matrix_transpose(x)
        lower = not lower
    if not lower:  # turned by half a circle, an upper triangle is a lower one
        x, y = rlx.flip(x, axis=(1, 2)), rlx.flip(y, axis=1)
    out = forward(x, y, unit)
    return (out if lower else rlx.flip(out, axis=1)).reshape(b.shape)


def forward(l: Array, b: Array, unit: bool = False) -> Array:
    """``L^-1 B`` for lower triangles (b, n, n) and right sides (b, n, k)."""
    n = l.shape[1]
    b = rlx.broadcast_to(b, (l.shape[0], *b.shape[1:]))
    if n <= UNROLL:
        return _small(l, b, unit)
    if n <= PANEL:
        return _rows(l, b, unit)
    size = panels(n) * PANEL
    count = size // PANEL
    l, x = padded(l, size, size, diagonal=True), padded(b, size, b.shape[2])
    inverse = _rows(_diagonal_blocks(l, count), eye_like(l, PANEL), unit)
    inverse = inverse.reshape((-1, count, PANEL, PANEL))
    before = cols_of(size, l)

    def step(p: Array, y: Array) -> Array:
        at = p * PANEL + counter(PANEL, l)
        known = rlx.where(before < p * PANEL, take_rows(l, at), 0)
        right = take_rows(x, at) - rlx.matmul(known, y)
        block = gather(inverse.transpose(1, 0, 2, 3), p, mode="promise")
        return put_rows(y, rlx.matmul(block, right), p * PANEL)

    solved: Array = rlx.fori_loop(0, count, step, filled(x, x.shape))
    return solved[:, :n]


def _diagonal_blocks(l: Array, count: int) -> Array:
    """The ``count`` diagonal blocks of every matrix as one batch."""
    b = l.shape[0]
    blocks = l.reshape((b, count, PANEL, count, PANEL)).transpose(1, 3, 0, 2, 4)
    i = counter(count, l)
    return gather(blocks, i, i, mode="promise").transpose(1, 0, 2, 3).reshape((b * count, PANEL, PANEL))


def _small(l: Array, b: Array, unit: bool) -> Array:
    """Written out over batch and columns."""
    x: list[Array] = []
    for i in range(l.shape[1]):
        s = b[:, i, :]
        for k in range(i):
            s = s - l[:, i, k:k + 1] * x[k]
        x.append(s if unit else s / l[:, i, i:i + 1])
    return rlx.stack(x, axis=1)


def _rows(l: Array, b: Array, unit: bool) -> Array:
    """One row of the result after another."""
    n = l.shape[1]
    shape = (l.shape[0], n, b.shape[2])
    rows, before = rows_of(n, l), counter(n, l, 1, -1)

    def step(i: Array, x: Array) -> Array:
        line = take_row(l, i)
        known = rlx.where(before < i, line, 0).reshape((-1, 1, n))
        right = take_row(b, i) - rlx.matmul(known, x)[:, 0, :]
        if not unit:
            right = right / take_row(line.reshape((*line.shape, 1)), i)
        return rlx.where(rlx.equal(rows, i), right.reshape((-1, 1, shape[2])), x)

    inverse: Array = rlx.fori_loop(0, n, step, filled(l, shape))
    return inverse


def solve_lower(l: Array, b: Array, *, trans: int = 0, unit: bool = False) -> Array:
    """``op(L)^-1 B`` for a lower triangle."""
    return triangular(l, b, lower=True, trans=trans, unit=unit)


def solve_upper(u: Array, b: Array, *, trans: int = 0) -> Array:
    """``op(U)^-1 B`` for an upper triangle."""
    return triangular(u, b, lower=False, trans=trans)


@triangular.ref
def _(a: Any, b: Any, *, lower: bool, trans: int = 0, unit: bool = False) -> Any:
    from scipy.linalg import solve_triangular
    out = np.empty(b.shape, b.dtype)
    for i in np.ndindex(*a.shape[:-2]):
        out[i] = solve_triangular(a[i], b[i], lower=lower, trans=trans, unit_diagonal=unit)
    return out


@triangular.grad
def _(ct: Array, out: Array, a: Array, b: Array, *, lower: bool, trans: int = 0,
      unit: bool = False) -> tuple[Array, Array]:
    """``Bbar = op(A)^-H Xbar``, ``op(A)bar = -Bbar X^H``, kept to the triangle that was read."""
    if trans == TRANSPOSED:  # op(A)^H is conj(A)
        gb = rlx.conj(triangular(a, rlx.conj(ct), lower=lower, trans=PLAIN, unit=unit))
    else:
        gb = triangular(a, ct, lower=lower, trans=ADJOINT if trans == PLAIN else PLAIN, unit=unit)
    g = -rlx.matmul(gb, adjoint(out))
    if trans:
        g = adjoint(g) if trans == ADJOINT else rlx.matrix_transpose(g)
    k = 1 if unit else 0
    return (rlx.tril(g, k=-k) if lower else rlx.triu(g, k=k)), gb


triangular.batch(batch_first(triangular, 1))


@triangular.samples
def _() -> list[Sample]:
    out = []
    for n, k, dtype in ((3, 2, "float64"), (7, 1, "complex128"), (20, 3, "float32"), (75, 4, "float64")):
        a = random((2, n, n), dtype) / n + np.eye(n, dtype=dtype) * 2
        for lower, trans in ((True, 0), (False, 0), (True, 1), (False, 2)):
            out.append(Sample((a, random((2, n, k), dtype, 5)), {"lower": lower, "trans": trans},
                              name=f"{n}-{dtype}-{'lower' if lower else 'upper'}-{trans}", grad=n < 10, tolerance=20.0))
    a = random((4, 4)) + 4 * np.eye(4)
    out.append(Sample((a, random((4, 2))), {"lower": True, "unit": True}, name="unit", tolerance=20.0))
    return out

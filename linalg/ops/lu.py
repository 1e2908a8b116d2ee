"""LU with partial pivoting: ``P A = L U``, and the linear solver that stands on it."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.array.build import cast
from rlx.array.define import op_named
from rlx.core import dtype as dt
from rlx.ir.op import Sample
from rlx.linalg.ops.common import (
    PANEL,
    adjoint,
    batch_first,
    batch_rows,
    cols_of,
    counter,
    filled,
    flat,
    graded,
    nan_where,
    padded,
    permute_rows,
    put_cols,
    put_rows,
    random,
    rows_of,
    take_col,
    take_cols,
    take_row,
    take_rows,
)
from rlx.linalg.ops.triangular import ADJOINT, forward, solve_lower, solve_upper, triangular


@op_named("linalg.lu")
def lu(a: Array, /) -> tuple[Array, Array, Array, Array]:
    """``(LU, pivots, permutation, info)`` of ``(..., m, n)``: ``A[permutation] = L U``, unit lower L under U.

    Row ``i`` was exchanged with row ``pivots[i]`` (0-based, k = min(m, n) of them, int32); ``permutation`` (m, int32)
    is their product. ``info`` is 0, or the 1-based number of the first pivot that is exactly zero; the factors are
    then still right.
    """
    x, lead = flat(a)
    packed, pivots, perm, info = _factor(x)
    return (packed.reshape(a.shape), pivots.reshape((*lead, pivots.shape[1])), perm.reshape((*lead, perm.shape[1])),
            info.reshape(lead))


def _factor(a: Array) -> tuple[Array, Array, Array, Array]:
    b, m, n = a.shape
    k = min(m, n)
    perm = cast(rlx.broadcast_to(counter(m, a, 1, -1), (b, m)), dt.int32)
    pivots, info = filled(a, (b, k), 0, dt.int32), filled(a, (b,), 0, dt.int32)
    if 0 in (b, k):
        return a, pivots, perm, info
    if k <= 2 * PANEL:
        w, pivots, perm, info = _panel(a[:, :, :k], filled(a, (), 0, dt.int64), pivots, perm, info)
        if n > k:
            right = permute_rows(a[:, :, k:], perm)
            w = rlx.concat([w, forward(w[:, :, :k], right, unit=True)], axis=2)
        return w, pivots, perm, info
    return _blocked(a, pivots, perm, info)


def _blocked(a: Array, pivots: Array, perm: Array, info: Array) -> tuple[Array, Array, Array, Array]:
    """Panels of columns; the last may be narrower, so the matrix is padded with the identity's continuation."""
    b, m, n = a.shape
    k = min(m, n)
    size = -(-k // PANEL) * PANEL
    height, width = max(m, size), max(n, size)
    x = padded(a, height, width, diagonal=True) if m <= n else padded(a, height, width)
    pivots = filled(a, (b, size), 0, dt.int32)
    perm = cast(rlx.broadcast_to(counter(height, a, 1, -1), (b, height)), dt.int32)
    rows, cols = rows_of(height, a), cols_of(width, a)

    def step(p: Array, state: Any) -> Any:
        x, pivots, perm, info = state
        at = p * PANEL
        inside = at + counter(PANEL, a)
        same = cast(rlx.broadcast_to(counter(height, a, 1, -1), (b, height)), dt.int32)
        w, pivots, moves, info = _panel(take_cols(x, inside), at, pivots, same, info)
        x, perm = permute_rows(x, moves), permute_rows(perm, moves)
        top = forward(take_rows(w, inside), take_rows(x, inside), unit=True)
        top = rlx.where(cols >= at + PANEL, top, take_rows(x, inside))
        low = rlx.where(rows >= at + PANEL, w, 0)
        x = x - rlx.matmul(low, rlx.where(cols >= at + PANEL, top, 0))
        return put_cols(put_rows(x, top, at), w, at), pivots, perm, info

    x, pivots, perm, info = rlx.fori_loop(0, size // PANEL, step, (x, pivots, perm, info))
    info = cast(rlx.where(info > k, 0, info), dt.int32)
    return x[:, :m, :n], pivots[:, :k], perm[:, :m], info


def _panel(w: Array, at: Array, pivots: Array, perm: Array, info: Array) -> tuple[Array, Array, Array, Array]:
    """Factor columns ``at ..`` held in ``w`` (b, m, k) below row ``at``, exchanging rows of w and perm."""
    b, m, k = w.shape
    rows, places = rows_of(m, w), cols_of(k, w)
    line, slots = counter(m, w, 1, -1), counter(pivots.shape[1], w, 1, -1)

    def column(j: Array, state: Any) -> Any:
        w, pivots, perm, info = state
        g = at + j
        size = rlx.where(line >= g, _modulus(take_col(w, j)), -1)
        best = rlx.argmax(size, axis=1)
        pivots = cast(rlx.where(rlx.equal(slots, g), best.reshape((-1, 1)), pivots), dt.int32)
        w, perm = _exchange(w, rows, g, best), _exchange(perm.reshape((b, m, 1)), rows, g, best).reshape((b, m))
        top = take_row(w, g).reshape((b, 1, k))
        pivot = take_col(top, j).reshape((b, 1, 1))
        zero = rlx.equal(pivot, 0)
        first = rlx.logical_and(rlx.equal(info, 0), zero.reshape((b,)))
        info = cast(rlx.where(first, g + 1, info), dt.int32)
        col = take_col(w, j).reshape((b, m, 1))
        l = rlx.where(rows > g, col / rlx.where(zero, 1, pivot), 0)
        w = w - l * rlx.where(places > j, top, 0)
        return rlx.where(rlx.logical_and(rows > g, rlx.equal(places, j)), l, w), pivots, perm, info

    out: tuple[Array, Array, Array, Array] = rlx.fori_loop(0, k, column, (w, pivots, perm, info))
    return out


def _modulus(x: Array) -> Array:
    """What pivots are compared by: ``|re| + |im|``, as LAPACK does."""
    return rlx.abs(rlx.real(x)) + rlx.abs(rlx.imag(x)) if x.dtype.is_complex else rlx.abs(x)


def _exchange(w: Array, rows: Array, g: Array, best: Array) -> Array:
    """Rows g and best[b] of every matrix exchanged."""
    there = batch_rows(w, best).reshape((w.shape[0], 1, w.shape[2]))
    here = take_row(w, g).reshape((w.shape[0], 1, w.shape[2]))
    return rlx.where(rlx.equal(rows, g), there, rlx.where(rlx.equal(rows, best.reshape((-1, 1, 1))), here, w))


@lu.ref
def _(a: Any) -> Any:
    from scipy.linalg.lapack import get_lapack_funcs
    m, n = a.shape[-2:]
    k, lead = min(m, n), a.shape[:-2]
    packed, pivots = np.empty_like(a), np.zeros((*lead, k), np.int32)
    perm, info = np.empty((*lead, m), np.int32), np.zeros(lead, np.int32)
    getrf, = get_lapack_funcs(("getrf",), (a,))
    for i in np.ndindex(*lead):
        packed[i], pivots[i], info[i] = getrf(a[i])
        order = list(range(m))
        for j, p in enumerate(pivots[i]):
            order[j], order[p] = order[p], order[j]
        perm[i] = order
    return packed, pivots, perm, info


@lu.grad
def _(ct: Any, out: Any, a: Array) -> tuple[Array | None]:
    """``Abar = P^T L^-H (tril(L^H Lbar, -1) + triu(Ubar U^H)) U^-H`` for square A; by blocks otherwise."""
    bar = ct[0]
    if bar is None:
        return (None,)
    packed, perm = out[0], out[2]
    m, n = a.shape[-2:]
    k = min(m, n)
    square = packed[..., :k, :k]
    g = _square_grad(square, bar[..., :k, :k])
    if m > n:  # the rows below are L2 = A2 U^-1
        low, lbar = packed[..., k:, :], bar[..., k:, :]
        below = adjoint(solve_upper(square, adjoint(lbar)))
        # dL2 = (dA2 - L2 dU) U^-1: what L2 says about U enters through the square part.
        extra = -rlx.matmul(adjoint(low), below)
        g = rlx.concat([_square_grad(square, bar[..., :k, :k], extra), below], axis=-2)
    elif n > m:  # the columns to the right are U2 = L^-1 A2
        right, ubar = packed[..., k:], bar[..., k:]
        beside = solve_lower(square, ubar, trans=2, unit=True)
        extra = -rlx.matmul(beside, adjoint(right))
        g = rlx.concat([_square_grad(square, bar[..., :k, :k], None, extra), beside], axis=-1)
    back = rlx.argsort(cast(perm, dt.int64), axis=-1)
    flat_g, lead = flat(g)
    return (permute_rows(flat_g, back.reshape((flat_g.shape[0], m))).reshape((*lead, m, n)),)


def _square_grad(packed: Array, bar: Array, ubar: Array | None = None, lbar: Array | None = None) -> Array:
    """The cotangent of ``P A`` from that of the packed factors, and extra cotangents of U and of L."""
    l, u = unit_lower(packed), rlx.triu(packed)
    gl, gu = rlx.tril(bar, k=-1), rlx.triu(bar)
    gl = gl if lbar is None else gl + rlx.tril(lbar, k=-1)
    gu = gu if ubar is None else gu + rlx.triu(ubar)
    inner = rlx.tril(rlx.matmul(adjoint(l), gl), k=-1) + rlx.triu(rlx.matmul(gu, adjoint(u)))
    left = solve_lower(packed, inner, trans=2, unit=True)
    return adjoint(solve_upper(packed, adjoint(left)))


def unit_lower(packed: Array) -> Array:
    """L of packed factors (m, n): (m, k) with ones on its diagonal."""
    m, n = packed.shape[-2:]
    k = min(m, n)
    low = rlx.tril(packed[..., :k], k=-1)
    return low + rlx.eye(m, k, dtype=low.dtype, device=low._value.node.device)


lu.batch(batch_first(lu, 4))


@lu.samples
def _() -> list[Sample]:
    out = []
    for m, n, dtype in ((3, 3, "float64"), (6, 6, "complex128"), (9, 5, "float64"), (5, 9, "float32"),
                        (70, 70, "float64"), (100, 70, "float64"), (70, 101, "complex128")):
        out.append(Sample((random((2, m, n), dtype),), name=f"{m}x{n}-{dtype}", tolerance=200.0, grad=m < 10))
    out.append(Sample((graded(8),), name="graded", tolerance=1e3, edge=True, grad=False))
    singular = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 1.0, 1.0]])
    out.append(Sample((np.stack([singular, np.eye(3)]),), name="singular", edge=True, grad=False))
    out.append(Sample((np.zeros((3, 3)),), name="zero", edge=True, grad=False))
    return out


# The solver

@op_named("linalg.solve")
def solve(a: Array, b: Array, /) -> tuple[Array, Array, Array, Array]:
    """``(X, W, permutation, info)`` with ``A X = B``: ``(..., n, n)`` and ``(..., n, k)`` of equal leading axes.

    W and permutation factor A for whoever solves with it again: ``A[:, permutation] = L U``, with L the lower triangle
    of W and U its upper one with ones on the diagonal (the packed LU of A^T, transposed). ``info`` is 0, or the number
    of the first pivot that is exactly zero (1-based): X is then NaN.
    """
    if 0 in (*a.shape, *b.shape):
        return b, a, filled(a, a.shape[:-1], 0, dt.int32), filled(a, a.shape[:-2], 0, dt.int32)
    x, lead = flat(a)
    y, _ = flat(b)
    packed, _, perm, info = _factor(rlx.matrix_transpose(x))
    w = rlx.matrix_transpose(packed)
    out = nan_where(rlx.not_equal(info, 0), through(w, perm, y))
    return (out.reshape(b.shape), w.reshape(a.shape), perm.reshape(a.shape[:-1]), info.reshape(lead))


def through(w: Array, perm: Array, b: Array) -> Array:
    """``A^-1 B`` from the factors, for one batch axis."""
    y = triangular(w, b, lower=True)
    y = triangular(w, y, lower=False, unit=True)
    return permute_rows(y, rlx.argsort(cast(perm, dt.int64), axis=-1))


@solve.ref
def _(a: Any, b: Any) -> Any:
    packed, _, perm, info = lu.rules["ref"](np.ascontiguousarray(np.swapaxes(a, -1, -2)))
    out = np.full(b.shape, np.nan, b.dtype)
    for i in np.ndindex(*a.shape[:-2]):
        if info[i] == 0:
            out[i] = np.linalg.solve(a[i], b[i])
    return out, np.swapaxes(packed, -1, -2), perm, info


@solve.grad
def _(ct: Any, out: Any, a: Array, b: Array) -> tuple[Array | None, Array | None]:
    """``Bbar = A^-H Xbar`` with the stored factors, ``Abar = -Bbar X^H``."""
    bar = ct[0]
    if bar is None:
        return None, None
    w, perm = out[1], out[2]
    y, _ = flat(bar)
    y = permute_rows(y, perm.reshape((y.shape[0], perm.shape[-1]))).reshape(bar.shape)
    y = triangular(w, y, lower=False, trans=ADJOINT, unit=True)
    gb = triangular(w, y, lower=True, trans=ADJOINT)
    return -rlx.matmul(gb, adjoint(out[0])), gb


solve.batch(batch_first(solve, 4))


@solve.samples
def _() -> list[Sample]:
    out = []
    for n, k, dtype in ((3, 1, "float64"), (6, 2, "complex128"), (5, 3, "float32"), (80, 2, "float64")):
        a = random((2, n, n), dtype) + np.eye(n, dtype=dtype)
        out.append(Sample((a, random((2, n, k), dtype, 9)), name=f"{n}-{dtype}", tolerance=1e3, grad=n < 10))
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    out.append(Sample((np.stack([np.eye(2), singular]), random((2, 2, 1))), name="second-singular", edge=True,
                      grad=False))
    return out

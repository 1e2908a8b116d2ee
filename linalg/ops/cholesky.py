"""Cholesky: ``A = L L^H`` of Hermitian positive definite matrices."""

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
    UNROLL,
    adjoint,
    batch_first,
    cols_of,
    counter,
    filled,
    flat,
    graded,
    nan_where,
    padded,
    panels,
    put_cols,
    random,
    rows_of,
    take_col,
    take_cols,
    take_row,
    take_rows,
)


@op_named("linalg.cholesky")
def cholesky(a: Array, /, *, upper: bool = False) -> tuple[Array, Array]:
    """``(L, info)`` with ``A = L L^H`` (``upper``: ``(U, info)`` with ``A = U^H U``); only that triangle is read.

    Shapes ``(..., n, n)`` and ``(...,)``. ``info`` is 0, or k > 0 when the leading minor of order k is not positive
    definite: the factor is then NaN.
    """
    if 0 in a.shape:
        return a, filled(a, a.shape[:-2], 0, dt.int32)
    x, lead = flat(adjoint(a) if upper else a)
    factor, info = _small(x) if x.shape[-1] <= UNROLL else _blocked(x)
    factor = nan_where(rlx.not_equal(info, 0), factor).reshape(a.shape)
    return (adjoint(factor) if upper else factor), info.reshape(lead)


def _small(a: Array) -> tuple[Array, Array]:
    """Written out: every element is an expression over the batch."""
    n = a.shape[-1]
    zero = a[:, 0, 0] * 0
    info = filled(a, (a.shape[0],), 0, dt.int32)
    l: list[list[Array]] = [[zero] * n for _ in range(n)]
    for j in range(n):
        d = rlx.real(a[:, j, j])
        for k in range(j):
            d = d - rlx.real(l[j][k] * rlx.conj(l[j][k]))
        info = rlx.where(rlx.logical_or(rlx.not_equal(info, 0), d > 0), info, j + 1)
        root = rlx.sqrt(d)
        l[j][j] = cast(root, a.dtype)
        for i in range(j + 1, n):
            s = a[:, i, j]
            for k in range(j):
                s = s - l[i][k] * rlx.conj(l[j][k])
            l[i][j] = s / l[j][j]
    return rlx.stack([x for row in l for x in row], axis=-1).reshape(a.shape), cast(info, dt.int32)


def _blocked(a: Array) -> tuple[Array, Array]:
    """Panels of columns: each is updated by one product with the columns before it, then factored."""
    b, n = a.shape[:2]
    info = filled(a, (b,), 0, dt.int32)
    if n <= 2 * PANEL:
        l, info = _panel(a, counter(n, a), info)
        return l, info
    size = panels(n) * PANEL
    x = padded(a, size, size, diagonal=True)

    def step(p: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        l, info = state
        cols = p * PANEL + counter(PANEL, a)
        left = take_cols(x, cols) - rlx.matmul(l, adjoint(take_rows(l, cols)))
        new, info = _panel(left, cols, info)
        return put_cols(l, new, p * PANEL), info

    l, info = rlx.fori_loop(0, size // PANEL, step, (filled(a, (b, size, size)), info))
    return l[:, :n, :n], info


def _panel(w: Array, cols: Array, info: Array) -> tuple[Array, Array]:
    """Factor the columns ``cols`` held in ``w`` (b, n, k), which earlier columns no longer touch."""
    rows, place = rows_of(w.shape[1], w), cols_of(w.shape[2], w)
    start = cols[0]

    def column(j: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        w, info = state
        at = start + j
        col = take_col(w, j)
        d = rlx.real(take_row(col.reshape((*col.shape, 1)), at))
        good = d > 0
        info = cast(rlx.where(rlx.logical_or(rlx.not_equal(info, 0), good[:, 0]), info, at + 1), dt.int32)
        root = cast(rlx.sqrt(rlx.where(good, d, 1)), w.dtype).reshape((-1, 1, 1))
        below = rlx.where(rows > at, col.reshape((*col.shape, 1)) / root, 0)
        v = rlx.where(rlx.equal(rows, at), root, below)
        across = rlx.conj(take_rows(v, cols)).transpose(0, 2, 1)
        return rlx.where(rlx.equal(place, j), v, w - v * across), info

    w, info = rlx.fori_loop(0, w.shape[2], column, (w, info))
    return rlx.where(rows >= cols.reshape((1, 1, -1)), w, 0), info


@cholesky.ref
def _(a: Any, *, upper: bool = False) -> Any:
    info = np.zeros(a.shape[:-2], np.int32)
    out = np.full(a.shape, np.nan, a.dtype)
    for i in np.ndindex(*a.shape[:-2]):
        m = a[i].conj().T if upper else a[i]
        m = np.tril(m) + np.tril(m, -1).conj().T
        for k in range(1, m.shape[-1] + 1):
            try:
                np.linalg.cholesky(m[:k, :k])
            except np.linalg.LinAlgError:
                info[i] = k
                break
        if info[i] == 0:
            out[i] = np.linalg.cholesky(m).conj().T if upper else np.linalg.cholesky(m)
    return out, info


@cholesky.grad
def _(ct: Any, out: Any, a: Array, *, upper: bool = False) -> tuple[Array | None]:
    """With ``P = tril(L^H Lbar)``, its diagonal halved: ``Abar = L^-H (P + P^H) / 2 L^-1``."""
    from rlx.linalg.ops.triangular import solve_lower
    bar = ct[0]
    if bar is None:
        return (None,)
    l = adjoint(out[0]) if upper else out[0]
    bar = adjoint(bar) if upper else bar
    p = half_diagonal(rlx.tril(rlx.matmul(adjoint(l), rlx.tril(bar))))
    s = (p + adjoint(p)) / 2
    left = solve_lower(l, s, trans=2)
    both = adjoint(solve_lower(l, adjoint(left), trans=2))
    # Only one triangle was read: what the other would get belongs to it.
    g = half_diagonal(rlx.tril(both + adjoint(both)))
    return (adjoint(g) if upper else g,)


def half_diagonal(x: Array) -> Array:
    """``x`` with its diagonal halved."""
    n = x.shape[-1]
    on = rlx.equal(rows_of(n, x), cols_of(n, x)).reshape((n, n))
    return rlx.where(on, x / 2, x)


cholesky.batch(batch_first(cholesky, 2))


@cholesky.samples
def _() -> list[Sample]:
    out = []
    for n, dtype in ((3, "float64"), (6, "float32"), (40, "complex128"), (5, "complex64"), (70, "float64")):
        x = random((2, n, n), dtype)
        out.append(Sample((x @ x.conj().swapaxes(-1, -2) + n * np.eye(n, dtype=dtype),), name=f"{n}-{dtype}",
                          tolerance=50.0, grad=n < 10))
    g = graded(6)
    out.append(Sample((g @ g.T,), name="graded", tolerance=1e4, edge=True, grad=False))
    bad = np.array([[[2.0, 1.0], [1.0, 3.0]], [[1.0, 2.0], [2.0, 1.0]]])
    out.append(Sample((bad,), name="second-indefinite", edge=True, grad=False))
    out.append(Sample((np.diag(np.arange(6.0, 0, -1) - 2),), {"upper": True}, name="zero-pivot", edge=True, grad=False))
    return out

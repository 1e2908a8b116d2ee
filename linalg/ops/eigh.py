"""Eigenvalues and eigenvectors of Hermitian matrices, by cyclic Jacobi rotations of disjoint pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.array.build import cast, constant
from rlx.array.define import op_named
from rlx.core import dtype as dt
from rlx.ir.op import Sample
from rlx.linalg.ops.common import (
    adjoint,
    all_finite,
    batch_first,
    cols_of,
    counter,
    eps,
    filled,
    flat,
    info_of,
    nan_where,
    padded,
    random,
    rows_of,
    scaled,
)
from rlx.linalg.ops.jacobi import SWEEPS, identity, rotate_columns, rotate_rows, rotation
from rlx.ops.index import gather
from rlx.ops.sort import sort_with


@op_named("linalg.eigh")
def eigh(a: Array, /, *, upper: bool = False) -> tuple[Array, Array, Array]:
    """``(w, V, info)`` with ``A V = V diag(w)`` for Hermitian ``(..., n, n)``; w real, ascending. One triangle is read.

    ``info`` is nonzero where the iteration did not converge, or the matrix is not finite; the results are then NaN.
    """
    x, lead = flat(a)
    b, n = x.shape[:2]
    if 0 in (b, n):
        return filled(x, (*lead, n), 0, x.dtype.real), a, filled(x, lead, 0, dt.int32)
    x, size = scaled(symmetric(adjoint(x) if upper else x))
    w, v, good = _jacobi(rlx.where(all_finite(x).reshape((-1, 1, 1)), x, 0))
    bad = rlx.logical_not(rlx.logical_and(good, all_finite(x)))
    w, v = nan_where(bad, w * size.reshape((b, 1))), nan_where(bad, v)
    return w.reshape((*lead, n)), v.reshape(a.shape), info_of(bad).reshape(lead)


def symmetric(a: Array) -> Array:
    """The Hermitian matrix whose lower triangle is that of ``a``."""
    low = rlx.tril(a, k=-1)
    n = a.shape[-1]
    on = rlx.equal(rows_of(n, a), cols_of(n, a))
    return low + adjoint(low) + rlx.where(on, cast(rlx.real(a), a.dtype), 0)


def _jacobi(a: Array) -> tuple[Array, Array, Array]:
    n = a.shape[1]
    h = (n + 1) // 2
    x, v = padded(a, 2 * h, 2 * h), identity(a, 2 * h)
    i = counter(h, a)
    off_diagonal = rlx.not_equal(rows_of(2 * h, a), cols_of(2 * h, a))
    norm = rlx.sum(_square(x), axis=(1, 2))
    # An element that a rotation makes zero keeps the rounding of the elements it was made of: n^2 of them, eps each.
    goal = norm * (n * eps(a.dtype)) ** 2

    def off(x: Array) -> Array:
        return rlx.sum(rlx.where(off_diagonal, _square(x), 0), axis=(1, 2))

    def turn(_: Array, state: Any) -> Any:
        x, v = state
        d = rlx.real(_diagonal(x))
        pairs = gather(x.transpose(1, 2, 0), i, i + h, mode="promise").transpose(1, 0)
        c, s, phase = rotation(d[:, :h], d[:, h:], pairs)
        return rotate_rows(rotate_columns(x, c, s, phase), c, s, phase), rotate_columns(v, c, s, phase)

    def sweep(state: Any) -> Any:
        x, v, count, _ = state
        x, v = rlx.fori_loop(0, 2 * h - 1, turn, (x, v))
        return x, v, count + 1, off(x)

    def going(state: Any) -> Array:
        return rlx.logical_and(state[2] < SWEEPS, rlx.any(state[3] > goal))

    x, v, _, left = rlx.while_loop(going, sweep, (x, v, constant(0, dt.int64, a._value.node.device), off(x)))
    # A padded row stays where it was: every sweep ends in the order it began with.
    w, v = ascending(rlx.real(_diagonal(x))[:, :n], v[:, :n, :n])
    return w, v, left <= goal


def _square(x: Array) -> Array:
    return rlx.real(x * rlx.conj(x))


def _diagonal(x: Array) -> Array:
    i = counter(x.shape[1], x)
    return gather(x.transpose(1, 2, 0), i, i, mode="promise").transpose(1, 0)


def ascending(w: Array, v: Array) -> tuple[Array, Array]:
    """Eigenvalues in order (b, n), and the columns of (b, m, n) with them."""
    b, n = w.shape
    index = rlx.broadcast_to(counter(n, w, 1, -1), (b, n))
    w, order = sort_with(w, (index,), 1)
    return w, columns(v, order)


def columns(v: Array, order: Array) -> Array:
    """``out[b, :, j] = v[b, :, order[b, j]]``."""
    which = rlx.broadcast_to(counter(v.shape[0], v, -1, 1), order.shape)
    return gather(v.transpose(0, 2, 1), which, order, mode="promise").transpose(0, 2, 1)


@eigh.ref
def _(a: Any, *, upper: bool = False) -> Any:
    lead, n = a.shape[:-2], a.shape[-1]
    w, v = np.full((*lead, n), np.nan, a.real.dtype), np.full(a.shape, np.nan, a.dtype)
    info = np.zeros(lead, np.int32)
    for i in np.ndindex(*lead):
        if np.isfinite(a[i]).all():
            w[i], v[i] = np.linalg.eigh(a[i], "U" if upper else "L")
        else:
            info[i] = 1
    return w, v, info


@eigh.grad
def _(ct: Any, out: Any, a: Array, *, upper: bool = False) -> tuple[Array | None]:
    """``Abar = V (diag(wbar) + F * (V^H Vbar)) V^H`` with ``F_ij = 1 / (w_j - w_i)``, zero where they are equal.

    Between equal eigenvalues F is zero. That is right for all that depends on them through their sum and their common
    subspace (projectors, energies). A matrix function that weighs their vectors by ``f(w)`` has ``f'(w)`` there as
    well, of which nothing is left in the cotangents of w and V.
    """
    w, v = out[0], out[1]
    wb, vb = ct[0], ct[1]
    if wb is None and vb is None:
        return (None,)
    n = a.shape[-1]
    inner = None
    if vb is not None:
        inner = cast(safe_inverse(w[..., None, :] - w[..., :, None], w), v.dtype) * rlx.matmul(adjoint(v), vb)
    if wb is not None:
        on = rlx.equal(rows_of(n, a), cols_of(n, a)).reshape((n, n))
        d = rlx.where(on, cast(wb, v.dtype)[..., None, :], 0)
        inner = d if inner is None else inner + d
    assert inner is not None
    g = rlx.matmul(rlx.matmul(v, inner), adjoint(v))
    return (to_triangle((g + adjoint(g)) / 2, upper),)


def safe_inverse(gap: Array, scale: Array) -> Array:
    """``1 / gap``, and 0 where the gap is below the rounding of the values it is between."""
    n = scale.shape[-1]
    level = rlx.max(rlx.abs(scale), axis=-1, keepdims=True)[..., None] * (eps(gap.dtype) * n)
    small = rlx.abs(gap) <= level
    return rlx.where(small, 0, 1 / rlx.where(small, 1, gap))


def to_triangle(g: Array, upper: bool) -> Array:
    """A Hermitian cotangent as one of the triangle that was read: what lies outside is folded in."""
    n = g.shape[-1]
    on = rlx.equal(rows_of(n, g), cols_of(n, g)).reshape((n, n))
    kept = rlx.triu(g) if upper else rlx.tril(g)
    return rlx.where(on, cast(rlx.real(kept), g.dtype), 2 * kept)


def _canonical(outs: Any, a: Any, **attrs: Any) -> list[Any]:
    """What does not depend on the choice of vectors: w, the matrix they make, their products, info."""
    w, v, info = outs
    vh = np.swapaxes(v, -1, -2).conj()
    return [w, (v * w[..., None, :].astype(v.dtype)) @ vh, vh @ v, info]


eigh.rules["canonical"] = _canonical

eigh.batch(batch_first(eigh, 3))


@op_named("linalg.eigvalsh")
def eigvalsh(a: Array, /, *, upper: bool = False) -> tuple[Array, Array]:
    """``(w, info)`` of :func:`eigh`, without the vectors."""
    w, _, info = eigh(a, upper=upper)
    return w, info


@eigvalsh.ref
def _(a: Any, *, upper: bool = False) -> Any:
    w, _, info = eigh.rules["ref"](a, upper=upper)
    return w, info


eigvalsh.batch(batch_first(eigvalsh, 2))


eigvalsh.samples(eigh.all_samples)


@eigh.samples
def _() -> list[Sample]:
    out = []
    for n, dtype in ((1, "float64"), (2, "float64"), (3, "complex128"), (5, "float32"), (6, "float64"),
                     (33, "float64"), (40, "complex128")):
        x = random((2, n, n), dtype)
        out.append(Sample((x + x.conj().swapaxes(-1, -2),), name=f"{n}-{dtype}", tolerance=1e3, grad=1 < n < 10))
    out.append(Sample((np.diag([3.0, 1.0, 2.0]),), {"upper": True}, name="diagonal", edge=True, grad=False))
    out.append(Sample((np.ones((4, 4)) * 1e-170,), name="rank-one-tiny", edge=True, grad=False))
    out.append(Sample((np.array([np.eye(2), [[np.nan, 0], [0, 1]]]),), name="nan", edge=True, grad=False))
    return out

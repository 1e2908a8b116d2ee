"""Singular values and vectors, by one-sided Jacobi rotations."""

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
    eye_like,
    filled,
    flat,
    info_of,
    nan_where,
    padded,
    random,
    rows_of,
    scaled,
)
from rlx.linalg.ops.eigh import columns
from rlx.linalg.ops.jacobi import SWEEPS, identity, rotate_columns, rotation
from rlx.linalg.ops.qr import COMPLETE, REDUCED, qr
from rlx.ops.index import gather
from rlx.ops.sort import sort_with


@op_named("linalg.svd")
def svd(a: Array, /, *, full: bool = False) -> tuple[Array, Array, Array, Array]:
    """``(U, s, Vh, info)`` with ``A = U diag(s) Vh`` for ``(..., m, n)``; s real, descending, k = min(m, n) of them.

    U is (m, k) and Vh (k, n), or square when ``full``. ``info`` is nonzero where the iteration did not converge, or
    the matrix is not finite; the results are then NaN.
    """
    x, lead = flat(a)
    b, m, n = x.shape
    k = min(m, n)
    if 0 in (b, k):
        u, vh = (eye_like(x, m, m if full else k), eye_like(x, n if full else k, n))
        u, vh = (rlx.broadcast_to(e, (b, *e.shape[1:])).reshape((*lead, *e.shape[1:])) for e in (u, vh))
        return u, filled(x, (*lead, k), 0, x.dtype.real), vh, filled(x, lead, 0, dt.int32)
    x, size = scaled(x)
    finite = all_finite(x)
    x = rlx.where(finite.reshape((-1, 1, 1)), x, 0)
    if m >= n:
        u, s, v, good = _tall(x, full)
        vh = adjoint(v)
    else:
        v, s, u, good = _tall(adjoint(x), full)
        vh = adjoint(v)
    bad = rlx.logical_not(rlx.logical_and(good, finite))
    u, s, vh = nan_where(bad, u), nan_where(bad, s * size.reshape((b, 1))), nan_where(bad, vh)
    return (u.reshape((*lead, *u.shape[1:])), s.reshape((*lead, k)), vh.reshape((*lead, *vh.shape[1:])),
            info_of(bad).reshape(lead))


def _tall(a: Array, full: bool) -> tuple[Array, Array, Array, Array]:
    """``(U, s, V, converged)`` for m >= n: ``A = Q R``, and the columns of ``R^H`` rotated until they are orthogonal.

    ``R^H V = W`` gives ``A = (Q V) |W| (W / |W|)^H``. The triangle's rows are graded, so that few sweeps do where the
    columns of A itself, all of one size, need four times as many (Drmac and Veselic, SIAM J. Matrix Anal. 29, 2008).
    """
    b, m, n = a.shape
    q, r = qr(a, mode=COMPLETE if full else REDUCED)
    w, v, good = _orthogonal(adjoint(r[:, :n, :]))
    s = rlx.sqrt(rlx.sum(_square(w), axis=1))
    index = rlx.broadcast_to(counter(n, a, 1, -1), (b, n))
    s, order = sort_with(s, (index,), 1, True)
    w, v = columns(w, order), columns(v, order)
    left = rlx.matmul(q[:, :, :n], v)
    left = rlx.concat([left, q[:, :, n:]], axis=2) if full and m > n else left
    return left, s, _completed(w, s), good


def _completed(w: Array, s: Array) -> Array:
    """Orthogonal columns to orthonormal ones; where a column vanished, any that fits the others."""
    n = w.shape[2]
    kept = s > rlx.max(s, axis=1, keepdims=True) * (eps(w.dtype) * n)
    unit = rlx.where(kept[:, None, :], w / cast(rlx.where(kept, s, 1), w.dtype)[:, None, :], 0)
    q, r = qr(unit, mode=REDUCED)
    i = counter(n, w)
    d = gather(r.transpose(1, 2, 0), i, i, mode="promise").transpose(1, 0)
    size = rlx.abs(d)
    sign = rlx.where(size > 0.5, d / cast(rlx.where(size > 0.5, size, 1), d.dtype), 1)
    return q * sign[:, None, :]


def _orthogonal(a: Array) -> tuple[Array, Array, Array]:
    """``(W, V, converged)``: W = A V with orthogonal columns, V unitary."""
    b, m, n = a.shape
    h = (n + 1) // 2
    w, v = padded(a, m, 2 * h), identity(a, 2 * h)
    goal = eps(a.dtype) * max(m, 4) ** 0.5

    def turn(_: Array, state: Any) -> Any:
        w, v, worst = state
        p, q = w[:, :, :h], w[:, :, h:]
        size = rlx.sum(_square(w), axis=1)
        meet = rlx.sum(rlx.conj(p) * q, axis=1)
        both = rlx.sqrt(size[:, :h]) * rlx.sqrt(size[:, h:])
        ratio = rlx.where(both > 0, rlx.abs(meet) / rlx.where(both > 0, both, 1), 0)
        meet = rlx.where(ratio > goal / 8, meet, 0)
        c, s, phase = rotation(size[:, :h], size[:, h:], meet)
        worst = rlx.maximum(worst, rlx.max(ratio, axis=1))
        return rotate_columns(w, c, s, phase), rotate_columns(v, c, s, phase), worst

    def sweep(state: Any) -> Any:
        w, v, count, _ = state
        w, v, worst = rlx.fori_loop(0, 2 * h - 1, turn, (w, v, filled(a, (b,), 0, a.dtype.real)))
        return w, v, count + 1, worst

    def going(state: Any) -> Array:
        return rlx.logical_and(state[2] < SWEEPS, rlx.any(state[3] > goal))

    start = (w, v, constant(0, dt.int64, a._value.node.device), filled(a, (b,), 1, a.dtype.real))
    w, v, _, worst = rlx.while_loop(going, sweep, start)
    return w[:, :, :n], v[:, :n, :n], worst <= goal


def _square(x: Array) -> Array:
    return rlx.real(x * rlx.conj(x))


@svd.ref
def _(a: Any, *, full: bool = False) -> Any:
    lead, (m, n) = a.shape[:-2], a.shape[-2:]
    k = min(m, n)
    u = np.full((*lead, m, m if full else k), np.nan, a.dtype)
    s, vh = np.full((*lead, k), np.nan, a.real.dtype), np.full((*lead, n if full else k, n), np.nan, a.dtype)
    info = np.zeros(lead, np.int32)
    for i in np.ndindex(*lead):
        if np.isfinite(a[i]).all():
            u[i], s[i], vh[i] = np.linalg.svd(a[i], full_matrices=full)
        else:
            info[i] = 1
    return u, s, vh, info


@svd.grad
def _(ct: Any, out: Any, a: Array, *, full: bool = False) -> tuple[Array | None]:
    """``Abar = U (diag(sbar) + (X + Y) / 2(s_j - s_i) + (X - Y) / 2(s_j + s_i)) Vh``, and what lies outside the spans.

    X and Y are ``U^H Ubar`` and ``V^H Vbar`` less their adjoints. Between equal singular values the first quotient is
    left out, which is right for all that depends on their vectors through their common subspaces, as for equal
    eigenvalues (:mod:`rlx.linalg.ops.eigh`): X + Y is zero there. The second stays: ``U Vh`` has a gradient at a
    rotation. Terms over a singular value of zero are dropped.
    """
    u, s, vh = out[:3]
    ub, sb, vhb = ct[:3]
    if ub is None and sb is None and vhb is None:
        return (None,)
    m, n = a.shape[-2:]
    k = min(m, n)
    u, vh = u[..., :k], vh[..., :k, :]
    ub, vhb = None if ub is None else ub[..., :k], None if vhb is None else vhb[..., :k, :]
    wide = cast(s, u.dtype)
    positive = s > rlx.max(s, axis=-1, keepdims=True) * eps(s.dtype)
    inverse = cast(rlx.where(positive, 1 / rlx.where(positive, s, 1), 0), u.dtype)
    on = rlx.equal(rows_of(k, a), cols_of(k, a)).reshape((k, k))
    inner = rlx.where(on, (wide * 0 if sb is None else cast(sb, u.dtype))[..., None, :], 0)
    x = y = outside = None
    if ub is not None:
        gu = rlx.matmul(adjoint(u), ub)
        x = gu - adjoint(gu)
        if m > k:
            outside = rlx.matmul((ub - rlx.matmul(u, gu)) * inverse[..., None, :], vh)
    if vhb is not None:
        gv = rlx.matmul(vhb, adjoint(vh))
        y = adjoint(gv) - gv
        if n > k:
            term = rlx.matmul(u, inverse[..., :, None] * (vhb - rlx.matmul(gv, vh)))
            outside = term if outside is None else outside + term
    if x is not None or y is not None:
        x, y = inner * 0 if x is None else x, inner * 0 if y is None else y
        apart, together = _over(s[..., None, :] - s[..., :, None], s), _over(s[..., None, :] + s[..., :, None], s)
        inner = inner + ((x + y) * cast(apart, u.dtype) + (x - y) * cast(together, u.dtype)) / 2
    g = rlx.matmul(rlx.matmul(u, inner), vh)
    return (g if outside is None else g + outside,)


def _over(gap: Array, s: Array) -> Array:
    from rlx.linalg.ops.eigh import safe_inverse
    return safe_inverse(gap, s)


def _canonical(outs: Any, a: Any, **attrs: Any) -> list[Any]:
    """What does not depend on the choice of vectors: the matrix they make, s, their products, info."""
    u, s, vh, info = outs
    k = s.shape[-1]
    made = (u[..., :k] * s[..., None, :].astype(u.dtype)) @ vh[..., :k, :]
    return [made, s, np.swapaxes(u, -1, -2).conj() @ u, vh @ np.swapaxes(vh, -1, -2).conj(), info]


svd.rules["canonical"] = _canonical

svd.batch(batch_first(svd, 4))


@op_named("linalg.svdvals")
def svdvals(a: Array, /) -> tuple[Array, Array]:
    """``(s, info)`` of :func:`svd`, without the vectors."""
    _, s, _, info = svd(a)
    return s, info


@svdvals.ref
def _(a: Any) -> Any:
    _, s, _, info = svd.rules["ref"](a)
    return s, info


svdvals.batch(batch_first(svdvals, 2))


@svdvals.samples
def _() -> list[Sample]:
    return [Sample(s.args, {}, s.name, s.edge, s.grad, s.tolerance) for s in svd.all_samples()
            if not s.attrs.get("full")]


@svd.samples
def _() -> list[Sample]:
    out = []
    for m, n, dtype in ((1, 1, "float64"), (3, 3, "float64"), (5, 3, "complex128"), (3, 6, "float64"),
                        (8, 7, "float32"), (40, 33, "float64"), (20, 40, "complex64")):
        for full in (False, True):
            out.append(Sample((random((2, m, n), dtype),), {"full": full}, name=f"{m}x{n}-{dtype}-{full}",
                              tolerance=1e3, grad=m < 10 and not full and dtype == "float64"))
    out.append(Sample((np.ones((4, 3)),), name="rank-one", edge=True, grad=False))
    out.append(Sample((np.zeros((3, 4)),), name="zero", edge=True, grad=False))
    out.append(Sample((np.array([np.eye(2), [[np.inf, 0], [0, 1]]]),), name="inf", edge=True, grad=False))
    return out

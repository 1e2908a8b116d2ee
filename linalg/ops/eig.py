"""Eigenvalues and vectors of general matrices: Hessenberg form, shifted complex QR steps, back substitution."""

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
    random,
    rows_of,
    scaled,
    take_col,
    take_row,
    tiny,
)
from rlx.linalg.ops.eigh import safe_inverse
from rlx.linalg.ops.jacobi import identity
from rlx.linalg.ops.lu import solve
from rlx.linalg.ops.qr import reflector
from rlx.ops.index import gather

#: QR steps allowed for each eigenvalue; two to four are usual, LAPACK allows thirty.
STEPS = 30


@op_named("linalg.eig")
def eig(a: Array, /) -> tuple[Array, Array, Array]:
    """``(w, V, info)`` with ``A V = V diag(w)`` for ``(..., n, n)``: complex, in no order, columns of norm 1.

    ``info`` is nonzero where the iteration did not converge, or the matrix is not finite; the results are then NaN.
    """
    x, lead = flat(cast(a, a.dtype.complex))
    b, n = x.shape[:2]
    if 0 in (b, n):
        return filled(x, (*lead, n)), x.reshape((*lead, n, n)), filled(x, lead, 0, dt.int32)
    x, size = scaled(x)
    finite = all_finite(x)
    h, z = hessenberg(rlx.where(finite.reshape((-1, 1, 1)), x, 0))
    t, z, good = triangularise(h, z)
    v = rlx.matmul(z, triangular_vectors(t))
    v = v / cast(rlx.sqrt(rlx.sum(_square(v), axis=1, keepdims=True)), v.dtype)
    bad = rlx.logical_not(rlx.logical_and(good, finite))
    i = counter(n, x)
    w = gather(t.transpose(1, 2, 0), i, i, mode="promise").transpose(1, 0) * cast(size.reshape((b, 1)), x.dtype)
    return (nan_where(bad, w).reshape((*lead, n)), nan_where(bad, v).reshape((*lead, n, n)),
            info_of(bad).reshape(lead))


def hessenberg(a: Array) -> tuple[Array, Array]:
    """``(H, Z)`` with ``A = Z H Z^H``, H zero below its first subdiagonal."""
    b, n = a.shape[:2]
    rows = rows_of(n, a)

    def step(j: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        h, z = state
        v, tau, _ = reflector(take_col(h, j).reshape((b, n, 1)), rows, j + 1)
        h = h - rlx.conj(tau) * v * rlx.matmul(adjoint(v), h)
        h = rlx.where(rlx.logical_and(rows > j + 1, rlx.equal(cols_of(n, a), j)), 0, h)
        h = h - rlx.matmul(h, v) * tau * adjoint(v)
        return h, z - rlx.matmul(z, v) * tau * adjoint(v)

    out: tuple[Array, Array] = rlx.fori_loop(0, max(n - 2, 0), step, (a, identity(a, n)))
    return out


def triangularise(h: Array, z: Array) -> tuple[Array, Array, Array]:
    """``(T, Z, converged)``: QR steps with Wilkinson's shift at each matrix's lowest unfinished corner."""
    b, n = h.shape[:2]
    if n == 1:
        return h, z, rlx.equal(rlx.real(h[:, 0, 0]) * 0, 0)
    below = counter(n - 1, h)
    ulp = eps(h.dtype)

    def active(h: Array) -> Array:
        """One more than the row of the last subdiagonal element that counts; 0 when none does."""
        d = rlx.abs(gather(h.transpose(1, 2, 0), below, below, mode="promise"))
        e = rlx.abs(gather(h.transpose(1, 2, 0), below + 1, below + 1, mode="promise"))
        s = rlx.abs(gather(h.transpose(1, 2, 0), below + 1, below, mode="promise"))
        counts = s > ulp * (d + e) + tiny(h.dtype) / ulp
        return rlx.max(rlx.where(counts, below.reshape((-1, 1)) + 2, 0), axis=0)

    def chop(h: Array) -> Array:
        """Subdiagonal elements that no longer count become zero, so that steps do not mix what is separate."""
        size = rlx.abs(h)
        d = gather(size.transpose(1, 2, 0), counter(n, h), counter(n, h), mode="promise").transpose(1, 0)
        above = rlx.concat([d[:, :1], d[:, :-1]], axis=1)
        small = size <= ulp * (d + above)[:, :, None] + tiny(h.dtype) / ulp
        sub = rlx.equal(rows_of(n, h), cols_of(n, h) + 1)
        return rlx.where(rows_of(n, h) > cols_of(n, h) + 1, 0, rlx.where(rlx.logical_and(sub, small), 0, h))

    def step(state: Any) -> Any:
        h, z, count, end = state
        last = rlx.maximum(end - 1, 1)
        mu = _shift(h, last, count).reshape((b, 1, 1))
        mu = rlx.where((end > 0).reshape((b, 1, 1)), mu, 0)
        on = rlx.equal(rows_of(n, h), cols_of(n, h))
        live = (cols_of(n, h) < end.reshape((b, 1, 1)))
        h, z = _qr_step(rlx.where(on, h - mu, h), z, live)
        h = chop(rlx.where(on, h + mu, h))
        return h, z, count + 1, active(h)

    def going(state: Any) -> Array:
        return rlx.logical_and(state[2] < STEPS * n, rlx.any(state[3] > 0))

    h = chop(h)
    t, z, _, end = rlx.while_loop(going, step, (h, z, constant(0, dt.int64, h._value.node.device), active(h)))
    return rlx.triu(t), z, rlx.equal(end, 0)


def _shift(h: Array, last: Array, count: Array) -> Array:
    """The eigenvalue of the corner's 2 by 2 block nearest to its last element; every tenth step something else."""
    which = counter(h.shape[0], h)
    p = last - 1
    at = lambda i, j: gather(h, which, i, j, mode="promise")
    a, b, c, d = at(p, p), at(p, last), at(last, p), at(last, last)
    half = (a - d) / 2
    root = rlx.sqrt(half * half + b * c)
    root = rlx.where(rlx.real(half * rlx.conj(root)) < 0, -root, root)
    bottom = half + root
    zero = rlx.equal(bottom, 0)
    mu = d - rlx.where(zero, 0, b * c / rlx.where(zero, 1, bottom))
    exceptional = d + cast(rlx.abs(c) * 0.75, d.dtype)
    return rlx.where(rlx.equal(rlx.remainder(count, 10), 9), exceptional, mu)


def _qr_step(h: Array, z: Array, live: Array) -> tuple[Array, Array]:
    """``R Q`` of the Hessenberg ``H = Q R``, and ``Z Q``; columns that are not ``live`` are left alone."""
    b, n = h.shape[:2]
    rows, cols = rows_of(n, h), cols_of(n, h)
    slots = counter(n, h, 1, -1)

    def down(k: Array, state: Any) -> Any:
        h, c, s = state
        up, low = take_row(h, k), take_row(h, k + 1)
        x = take_row(up.reshape((b, n, 1)), k)
        y = take_row(low.reshape((b, n, 1)), k)
        y = rlx.where(take_col(live, k + 1), y, 0)
        size = rlx.sqrt(_square(x) + _square(y))
        zero = rlx.equal(size, 0)
        wide = cast(rlx.where(zero, 1, size), h.dtype)
        cx, sy = rlx.where(zero, 1, x / wide), rlx.where(zero, 0, y / wide)
        first = rlx.conj(cx) * up + rlx.conj(sy) * low
        second = cx * low - sy * up
        second = rlx.where(rlx.equal(counter(n, h, 1, -1), k), rlx.where(take_col(live, k + 1), 0, second), second)
        h = rlx.where(rlx.equal(rows, k), first[:, None, :], rlx.where(rlx.equal(rows, k + 1), second[:, None, :], h))
        return h, rlx.where(rlx.equal(slots, k), cx, c), rlx.where(rlx.equal(slots, k), sy, s)

    def right(k: Array, state: Any) -> Any:
        h, z = state
        cx, sy = take_row(c[:, :, None], k), take_row(s[:, :, None], k)
        return _mix(h, cols, k, cx, sy), _mix(z, cols, k, cx, sy)

    h, c, s = rlx.fori_loop(0, n - 1, down, (h, filled(h, (b, n)), filled(h, (b, n))))
    out: tuple[Array, Array] = rlx.fori_loop(0, n - 1, right, (h, z))
    return out


def _mix(a: Array, cols: Array, k: Array, cx: Array, sy: Array) -> Array:
    """Columns k and k + 1 of every matrix times the adjoint of the rotation that was applied to the rows."""
    p, q = take_col(a, k), take_col(a, k + 1)
    first = (cx * p + sy * q)[:, :, None]
    second = (rlx.conj(cx) * q - rlx.conj(sy) * p)[:, :, None]
    return rlx.where(rlx.equal(cols, k), first, rlx.where(rlx.equal(cols, k + 1), second, a))


def triangular_vectors(t: Array) -> Array:
    """Eigenvectors of upper triangular matrices as columns, unit upper triangular, by back substitution for all."""
    b, n = t.shape[:2]
    rows, line = rows_of(n, t), counter(n, t, 1, -1)
    i = counter(n, t)
    d = gather(t.transpose(1, 2, 0), i, i, mode="promise").transpose(1, 0)
    floor = eps(t.dtype) * rlx.max(rlx.abs(t), axis=(1, 2)).reshape((b, 1)) + tiny(t.dtype)

    def step(j: Array, x: Array) -> Array:
        r = n - 1 - j
        known = rlx.where(line > r, take_row(t, r), 0).reshape((b, 1, n))
        total = rlx.matmul(known, x)[:, 0, :]
        gap = d - take_row(d[:, :, None], r)
        gap = rlx.where(rlx.abs(gap) < floor, cast(floor, t.dtype), gap)
        new = rlx.where(line > r, total / gap, cast(rlx.equal(line, r), t.dtype))
        return rlx.where(rlx.equal(rows, r), new[:, None, :], x)

    vectors: Array = rlx.fori_loop(0, n, step, filled(t, (b, n, n)))
    return vectors


def _square(x: Array) -> Array:
    return rlx.real(x * rlx.conj(x))


@eig.ref
def _(a: Any) -> Any:
    lead, n = a.shape[:-2], a.shape[-1]
    kind = np.result_type(a.dtype, np.complex64)
    w, v = np.full((*lead, n), np.nan, kind), np.full(a.shape, np.nan, kind)
    info = np.zeros(lead, np.int32)
    for i in np.ndindex(*lead):
        if np.isfinite(a[i]).all():
            w[i], v[i] = np.linalg.eig(a[i])
        else:
            info[i] = 1
    return w, v, info


@eig.grad
def _(ct: Any, out: Any, a: Array) -> tuple[Array | None]:
    """``Abar = V^-H (diag(wbar) + conj(E) * (G - V^H V real(diag(G)))) V^H``.

    ``G = V^H Vbar`` and ``E_ij = 1 / (w_j - w_i)``.
    """
    w, v = out[0], out[1]
    wb, vb = ct[0], ct[1]
    if wb is None and vb is None:
        return (None,)
    n = a.shape[-1]
    on = rlx.equal(rows_of(n, a), cols_of(n, a)).reshape((n, n))
    inner = None
    if vb is not None:
        vh = adjoint(v)
        g = rlx.matmul(vh, vb)
        # Columns keep norm 1: the part of a change along the column itself is taken out.
        d = rlx.where(on, cast(rlx.real(g), g.dtype), 0)
        g = g - rlx.matmul(rlx.matmul(vh, v), d)
        inner = rlx.conj(safe_inverse(w[..., None, :] - w[..., :, None], w)) * g
    if wb is not None:
        d = rlx.where(on, wb[..., None, :], 0)
        inner = d if inner is None else inner + d
    assert inner is not None
    g = solve(adjoint(v), rlx.matmul(inner, adjoint(v)))[0]
    return (g if a.dtype.is_complex else rlx.real(g),)


def _sorted(w: Any) -> Any:
    """Eigenvalues by real part, then imaginary part; rounded, so that conjugate pairs keep their order."""
    scale = np.nanmax(np.abs(w), initial=1e-300)
    order = np.lexsort((w.imag, np.round(w.real / scale, 4)), axis=-1)
    return np.take_along_axis(w, order, axis=-1)


def _canonical(outs: Any, a: Any) -> list[Any]:
    """What does not depend on order and phases: sorted w, the matrix they make, lengths of vectors, info."""
    w, v, info = outs
    safe = np.where(np.isnan(v), np.eye(v.shape[-1], dtype=v.dtype), v)
    return [_sorted(w), (v * w[..., None, :]) @ np.linalg.inv(safe), np.linalg.norm(v, axis=-2), info]


eig.rules["canonical"] = _canonical

eig.batch(batch_first(eig, 3))


@op_named("linalg.eigvals")
def eigvals(a: Array, /) -> tuple[Array, Array]:
    """``(w, info)`` of :func:`eig`, without the vectors."""
    w, _, info = eig(a)
    return w, info


@eigvals.ref
def _(a: Any) -> Any:
    w, _, info = eig.rules["ref"](a)
    return w, info


eigvals.rules["canonical"] = lambda outs, a: [_sorted(outs[0]), outs[1]]

eigvals.batch(batch_first(eigvals, 2))


eigvals.samples(eig.all_samples)


@eig.samples
def _() -> list[Sample]:
    out = []
    for n, dtype in ((1, "float64"), (2, "float64"), (3, "complex128"), (5, "float32"), (6, "float64"),
                     (24, "complex128")):
        out.append(Sample((random((2, n, n), dtype),), name=f"{n}-{dtype}", tolerance=1e4, grad=1 < n < 10))
    out.append(Sample((np.array([[0.0, 1.0], [-1.0, 0.0]]),), name="rotation", edge=True, grad=False))
    out.append(Sample((np.roll(np.eye(5), 1, axis=0),), name="cyclic", edge=True, grad=False))
    out.append(Sample((np.array([np.eye(2), [[np.nan, 0], [0, 1]]]),), name="nan", edge=True, grad=False))
    return out

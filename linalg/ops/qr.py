"""QR by Householder reflections, blocked in compact WY form."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.array.build import cast
from rlx.array.define import op_named
from rlx.ir.op import Sample
from rlx.linalg.ops.common import (
    PANEL,
    adjoint,
    batch_first,
    cols_of,
    counter,
    eye_like,
    filled,
    flat,
    graded,
    padded,
    panels,
    put_cols,
    random,
    rows_of,
    scaled,
    take_col,
    take_cols,
    take_row,
)
from rlx.linalg.ops.triangular import forward, solve_upper

REDUCED, COMPLETE = "reduced", "complete"


@op_named("linalg.qr")
def qr(a: Array, /, *, mode: str = REDUCED) -> tuple[Array, Array]:
    """``(Q, R)`` with ``A = Q R`` for ``(..., m, n)``: Q (m, k) and R (k, n), k = min(m, n), or m if ``complete``.

    Q has orthonormal columns; R is upper triangular with a real diagonal, of either sign, as LAPACK leaves it.
    """
    x, lead = flat(a)
    b, m, n = x.shape
    k = m if mode == COMPLETE else min(m, n)
    if 0 in (b, m, n):
        q = rlx.broadcast_to(eye_like(x, m, k), (b, m, k))
        return q.reshape((*lead, m, k)), filled(x, (*lead, k, n))
    x, size = scaled(x)
    r, v, tau = reflections(x)
    q = form_q(v, tau, k)
    r = rlx.triu(r[:, :k, :]) * cast(size, x.dtype)
    return q.reshape((*lead, m, k)), r.reshape((*lead, k, n))


def reflections(a: Array) -> tuple[Array, Array, Array]:
    """R in the upper triangle of (b, m, n), reflectors as columns of V (b, m, p) and their factors (b, p).

    ``H_j = I - tau_j v_j v_j^H`` and ``Q = H_0 H_1 ...``; p is min(m, n), filled up to whole panels by identities.
    """
    b, m, n = a.shape
    k = min(m, n)
    width = k if k <= 2 * PANEL else PANEL
    count = -(-k // width)
    x = padded(a, m, max(n, count * width))
    v, tau = filled(a, (b, m, count * width)), filled(a, (b, count * width))
    cols = cols_of(x.shape[2], a)

    def step(p: Array, state: Any) -> Any:
        x, v, tau = state
        at = p * width
        inside = at + counter(width, a)
        w, wv, wt = _panel(take_cols(x, inside), at)
        # (I - V T V^H)^H C = C - V T^H V^H C
        t = block_factor(wv, wt)
        later = x - rlx.matmul(wv, rlx.matmul(adjoint(t), rlx.matmul(adjoint(wv), x)))
        x = put_cols(rlx.where(cols >= at + width, later, x), w, at)
        return x, put_cols(v, wv, at), put_cols(tau.reshape((b, 1, -1)), wt.reshape((b, 1, -1)), at).reshape(tau.shape)

    if count == 1:
        w, v, tau = _panel(x[:, :, :width], filled(a, (), 0, counter(1, a).dtype))
        if n > width:
            t = block_factor(v, tau)
            right = x[:, :, width:]
            right = right - rlx.matmul(v, rlx.matmul(adjoint(t), rlx.matmul(adjoint(v), right)))
            w = rlx.concat([w, right], axis=2)
        return w, v, tau
    x, v, tau = rlx.fori_loop(0, count, step, (x, v, tau))
    return x[:, :, :n], v, tau


def _panel(w: Array, at: Array) -> tuple[Array, Array, Array]:
    """Reflect columns ``at ..`` held in ``w`` (b, m, k) to triangular form below row ``at``."""
    b, m, k = w.shape
    rows, places = rows_of(m, w), cols_of(k, w)

    def column(j: Array, state: Any) -> Any:
        w, v, tau = state
        g = at + j
        col = take_col(w, j).reshape((b, m, 1))
        h, t, beta = reflector(col, rows, g)
        line = rlx.matmul(adjoint(h), w)
        w = w - rlx.conj(t) * h * line
        done = rlx.where(rlx.equal(rows, g), beta, rlx.where(rows > g, 0, col))
        on = rlx.equal(places, j)
        return rlx.where(on, done, w), rlx.where(on, h, v), rlx.where(on[:, 0, :], t[:, 0, :], tau)

    start = (w, filled(w, (b, m, k)), filled(w, (b, k)))
    out: tuple[Array, Array, Array] = rlx.fori_loop(0, k, column, start)
    return out


def reflector(col: Array, rows: Array, g: Array) -> tuple[Array, Array, Array]:
    """``(v, tau, beta)``: ``(I - tau v v^H)^H`` takes the part of a column from row g to ``beta e_g``, beta real.

    v is 1 at row g and 0 above. Past the last row, and for a column that is already right, tau is 0.
    """
    b, m = col.shape[:2]
    alpha = rlx.where(g < m, take_row(col, rlx.clip(g, 0, m - 1)).reshape((b, 1, 1)), 0)
    below = rlx.where(rows > g, col, 0)
    rest = rlx.sum(rlx.real(below * rlx.conj(below)), axis=1, keepdims=True)
    real = rlx.real(alpha)
    length = rlx.sqrt(rlx.real(alpha * rlx.conj(alpha)) + rest)
    beta = rlx.where(real > 0, -length, length)
    idle = rlx.equal(rest, 0)
    if col.dtype.is_complex:
        idle = rlx.logical_and(idle, rlx.equal(rlx.imag(alpha), 0))
    wide = cast(rlx.where(idle, 1, beta), col.dtype)
    tau = rlx.where(idle, 0, (wide - alpha) / wide)
    v = below / rlx.where(idle, 1, alpha - wide)
    return rlx.where(rlx.equal(rows, g), 1, v), tau, rlx.where(idle, alpha, wide)


def block_factor(v: Array, tau: Array) -> Array:
    """T (b, k, k), upper triangular: ``H_0 ... H_k-1 = I - V T V^H``. Its inverse is ``striu(V^H V) + diag(1/tau)``."""
    k = v.shape[2]
    idle = rlx.equal(tau, 0).reshape((-1, 1, k))
    live = rlx.where(idle, 0, v)
    inverse = rlx.triu(rlx.matmul(adjoint(live), live), k=1)
    on = rlx.equal(rows_of(k, v), cols_of(k, v))
    inverse = rlx.where(on, 1 / rlx.where(idle, 1, tau.reshape((-1, 1, k))), inverse)
    t = adjoint(forward(adjoint(inverse), eye_like(v, k)))
    return rlx.where(rlx.logical_or(idle, idle.transpose(0, 2, 1)), 0, t)


def form_q(v: Array, tau: Array, k: int) -> Array:
    """The first k columns of ``H_0 H_1 ...``: (b, m, k)."""
    b, m, p = v.shape
    q = rlx.broadcast_to(eye_like(v, m, k), (b, m, k))
    if p <= 2 * PANEL:
        return q - rlx.matmul(v, rlx.matmul(block_factor(v, tau), rlx.matmul(adjoint(v), q)))
    count = panels(p)

    def step(i: Array, q: Array) -> Array:
        at = (count - 1 - i) * PANEL + counter(PANEL, v)
        w = take_cols(v, at)
        t = block_factor(w, take_cols(tau.reshape((b, 1, p)), at).reshape((b, PANEL)))
        return q - rlx.matmul(w, rlx.matmul(t, rlx.matmul(adjoint(w), q)))

    out: Array = rlx.fori_loop(0, count, step, q)
    return out


@qr.ref
def _(a: Any, *, mode: str = REDUCED) -> Any:
    factor: Any = np.linalg.qr  # its stub names modes one by one
    return tuple(factor(a, mode))


@qr.grad
def _(ct: Any, out: Any, a: Array, *, mode: str = REDUCED) -> tuple[Array | None]:
    """``M = R Rbar^H - Qbar^H Q``; ``Abar = (Qbar + Q copyltu(M)) R^-H``, for k = m <= n by the square part."""
    q, r = out
    qb, rb = ct
    m, n = a.shape[-2:]
    if qb is None and rb is None:
        return (None,)
    qb = q * 0 if qb is None else qb
    rb = r * 0 if rb is None else rb
    if mode == COMPLETE and m > n:
        # The added columns of Q only span a complement; their own choice carries no derivative.
        q, qb, r, rb = q[..., :n], qb[..., :n], r[..., :n, :], rb[..., :n, :]
    if m >= n:
        return (_tall_grad(q, r, qb, rb),)
    # A = [X, Y] = Q [U, V]: V = Q^H Y, so V's cotangent goes to Y through Q and to Q through Y.
    y, u, vb = a[..., m:], r[..., :m], rb[..., m:]
    x_bar = _tall_grad(q, u, qb + rlx.matmul(y, adjoint(vb)), rb[..., :m])
    return (rlx.concat([x_bar, rlx.matmul(q, vb)], axis=-1),)


def _tall_grad(q: Array, r: Array, qb: Array, rb: Array) -> Array:
    """The rule for a square R: the diagonal of R is real, so only the real diagonal of M counts."""
    m = rlx.matmul(r, adjoint(rb)) - rlx.matmul(adjoint(qb), q)
    n = m.shape[-1]
    low = rlx.tril(m, k=-1)
    on = rlx.equal(rows_of(n, m), cols_of(n, m)).reshape((n, n))
    sym = low + adjoint(low) + rlx.where(on, cast(rlx.real(m), m.dtype), 0)
    return adjoint(solve_upper(r, adjoint(qb + rlx.matmul(q, sym))))


qr.batch(batch_first(qr, 2))


@qr.samples
def _() -> list[Sample]:
    out = []
    for m, n, dtype in ((3, 3, "float64"), (6, 4, "complex128"), (4, 7, "float64"), (9, 5, "float32"),
                        (70, 70, "float64"), (90, 70, "complex128"), (70, 90, "float64")):
        for mode in (REDUCED, COMPLETE):
            out.append(Sample((random((2, m, n), dtype),), {"mode": mode}, name=f"{m}x{n}-{dtype}-{mode}",
                              tolerance=2e3, grad=m < 10 and mode == REDUCED))
    out.append(Sample((graded(8),), name="graded", tolerance=1e4, edge=True, grad=False))
    out.append(Sample((np.zeros((4, 3)),), name="zero", edge=True, grad=False))
    out.append(Sample((1e200 * random((4, 3)),), name="huge", edge=True, grad=False, tolerance=100.0))
    return out

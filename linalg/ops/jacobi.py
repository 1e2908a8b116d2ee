"""What the two Jacobi methods share: rotations of pairs, and the round of pairings that meets every pair once."""

from __future__ import annotations

import rlx
from rlx.array.array import Array
from rlx.array.build import cast, constant

#: Sweeps after which a matrix counts as not converged; ten are rare, with thirty LAPACK's own loops give up too.
SWEEPS = 30


def rotation(app: Array, aqq: Array, apq: Array) -> tuple[Array, Array, Array]:
    """``(c, s, phase)`` that diagonalise ``[[app, apq], [conj(apq), aqq]]``, smaller angle, all of one shape.

    New columns are ``phase c p - s q`` and ``phase s p + c q``. A zero ``apq`` gives the identity.
    """
    size = rlx.abs(apq)
    idle = rlx.equal(size, 0)
    safe = rlx.where(idle, 1, size)
    tau = (aqq - app) / (2 * safe)
    root = rlx.abs(tau) + rlx.sqrt(1 + tau * tau)
    t = rlx.where(idle, 0, rlx.where(tau < 0, -1 / root, 1 / root))
    c = 1 / rlx.sqrt(1 + t * t)
    phase = rlx.where(idle, 1, apq / cast(safe, apq.dtype))
    return cast(c, apq.dtype), cast(t * c, apq.dtype), phase


def rotate_columns(a: Array, c: Array, s: Array, phase: Array) -> Array:
    """Columns i and h + i of (b, n, 2h) replaced by their rotation; c, s, phase are (b, h)."""
    h = c.shape[1]
    c, s, phase = (x.reshape((-1, 1, h)) for x in (c, s, phase))
    p, q = a[:, :, :h], a[:, :, h:]
    return _next_columns(phase * c * p - s * q, phase * s * p + c * q)


def rotate_rows(a: Array, c: Array, s: Array, phase: Array) -> Array:
    """The conjugate transpose's way: rows i and h + i of (b, 2h, n)."""
    return rlx.matrix_transpose(rotate_columns(rlx.matrix_transpose(a), c, s, rlx.conj(phase)))


def _next_columns(p: Array, q: Array) -> Array:
    """The columns in the order of the next round: all but the first move one place around the table."""
    h = p.shape[2]
    if h == 1:
        return rlx.concat([p, q], axis=2)
    top = [p[:, :, :1], q[:, :, :1], p[:, :, 1:h - 1]]
    return rlx.concat([*top, q[:, :, 1:], p[:, :, h - 1:]], axis=2)


def identity(a: Array, n: int) -> Array:
    """(b, n, n) identities."""
    eye = rlx.eye(n, dtype=a.dtype, device=a._value.node.device)
    return rlx.broadcast_to(eye, (a.shape[0], n, n)) + constant(0, a.dtype, a._value.node.device)

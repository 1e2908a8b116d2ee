"""Minimal residuals, for symmetric (Hermitian) matrices that need not be definite; one program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rlx.array.array import Array
from rlx.core import dtype as dt
from rlx.ops.elementwise import astype, isfinite, maximum, sqrt, where
from rlx.sparse.arguments import apply
from rlx.sparse.driver import Method, State, System, dot, precondition, remember, solve_square
from rlx.sparse.report import BREAKDOWN, NONFINITE, RUNNING, STAGNATED


class Carried(NamedTuple):
    """Two Lanczos vectors before preconditioning, ``y = M r2``, two directions, the residual, and the rotation."""

    r1: Array
    r2: Array
    y: Array
    w1: Array
    w2: Array
    r: Array | None
    beta_old: Array
    beta: Array
    dbar: Array
    epsilon: Array
    phibar: Array
    cs: Array
    sn: Array
    size: Array


@dataclass(frozen=True)
class MinRes(Method):
    """C. C. Paige and M. A. Saunders, SIAM J. Numer. Anal. 12 (1975) 617, in its notation.

    With a preconditioner the recurrence minimizes ``||r||_M``; the residual itself follows by
    ``r = sn^2 r - phibar cs v``, so that the stopping test is the same with and without one.
    """

    name = "minres"
    hermitian = True
    restarts = True

    def begin(self, s: System, r: Array, norm: Array) -> Carried:
        """The first Lanczos vector is the residual."""
        y = precondition(s, r)
        square = dot(r, y)
        beta = sqrt(maximum(square, 0))
        beta = where(square < 0, -1, beta)  # M is not positive: the first step says so
        zero, none = r * 0, beta * 0
        return Carried(zero, r, y, zero, zero, None if s.M is None else r, none, beta, none, none, beta, none - 1, none,
                       none)

    def step(self, s: System, v: State, limit: Array) -> State:
        """One Lanczos vector, one rotation, one direction."""
        o: Carried = v.own
        unit = o.y / where(o.beta == 0, 1, o.beta)
        y = apply(s.A, unit)
        y = y - where(o.beta_old == 0, 0, o.beta / where(o.beta_old == 0, 1, o.beta_old)) * o.r1
        alpha = dot(unit, y)
        r2 = y - alpha / where(o.beta == 0, 1, o.beta) * o.r2
        y = precondition(s, r2)
        square = dot(r2, y)
        beta = sqrt(maximum(square, 0))
        delta, gbar = o.cs * o.dbar + o.sn * alpha, o.sn * o.dbar - o.cs * alpha
        epsilon, dbar = o.sn * beta, -o.cs * beta
        gamma = sqrt(gbar * gbar + beta * beta)
        flat = gamma == 0
        cs, sn = where(flat, 1, gbar) / where(flat, 1, gamma), beta / where(flat, 1, gamma)
        phi, phibar = where(flat, 0, cs * o.phibar), where(flat, o.phibar, sn * o.phibar)
        w = (unit - o.epsilon * o.w1 - delta * o.w2) / where(flat, 1, gamma)
        r = None if o.r is None else sn * sn * o.r - phibar * cs / where(beta == 0, 1, beta) * r2
        norm = phibar if r is None else sqrt(dot(r, r))
        size = o.size + alpha * alpha + beta * beta + o.beta * o.beta * where(o.beta_old == 0, 0, 1)
        k = v.k + 1
        # ||A r|| / (||A|| ||r||) of the residual before this step, at rounding: b has a part outside of a singular A's
        # range, x is as good as any, and this step would go along the null space.
        level = float(np.finfo(norm.dtype.numpy).eps) ** (2 / 3)  # what the recurrences reach for such a matrix
        least = flat | (gbar * gbar + dbar * dbar <= level ** 2 * size)
        bad = (square < 0) | (o.beta < 0)
        status = where(least & (norm > s.target), STAGNATED, RUNNING)
        status = where(bad, BREAKDOWN, where(isfinite(norm) & isfinite(square), status, NONFINITE))
        bad = bad | (least & (norm > s.target))
        return State(where(bad, v.x, v.x + phi * w), where(bad, v.norm, norm), v.last, k, v.matvecs + 1,
                     astype(status, dt.int32), remember(v, k, norm),
                     Carried(o.r2, r2, y, o.w2, w, r, o.beta, beta, dbar, epsilon, phibar, cs, sn, size))


def minres(A: Any, b: Any, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
           M: Any = None,
           callback: Callable[[Array], Any] | None = None, device: str | None = None) -> tuple[Array, Any]:
    """Solve ``A x = b`` for a symmetric (Hermitian) A, definite or not, by minimal residuals.

    Arguments and result are those of :func:`cg`; M must be positive definite. For a singular A and a b outside of its
    range the iteration ends as ``stagnated``, at an x of least residual.

    >>> import rlx.sparse
    >>> A = rlx.sparse.CSR.from_arrays([0, 0, 1], [0, 1, 0], [1.0, 2.0, 2.0], (2, 2))
    >>> x, info = rlx.sparse.minres(A, rlx.asarray([5.0, 2.0]))
    >>> int(info), [round(v, 4) for v in x.tolist()]
    (0, [1.0, 2.0])
    """
    return solve_square(MinRes(), A, b, x0, rtol, atol, maxiter, M, callback, device)


__all__ = ["minres"]

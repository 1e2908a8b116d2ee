"""Stabilized bi-conjugate gradients, for general square matrices; short recurrences, one program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rlx.array.array import Array
from rlx.ops.elementwise import abs as magnitude
from rlx.ops.elementwise import isfinite, sqrt, where
from rlx.sparse.arguments import apply
from rlx.sparse.driver import (
    Method,
    State,
    System,
    dot,
    inner,
    precondition,
    remember,
    solve_square,
    status_of,
)


class Carried(NamedTuple):
    """The residual, the shadow of the first one, the direction, and ``rho = shadow . r``."""

    r: Array
    shadow: Array
    p: Array
    rho: Array


@dataclass(frozen=True)
class BiCGStab(Method):
    """H. A. van der Vorst, SIAM J. Sci. Stat. Comput. 13 (1992) 631, preconditioned from the right."""

    name = "bicgstab"
    restarts = True

    def begin(self, s: System, r: Array, norm: Array) -> Carried:
        """The residual is its own shadow."""
        return Carried(r, r, r, inner(r, r))

    def step(self, s: System, v: State, limit: Array) -> State:
        """One iteration: two products."""
        own: Carried = v.own
        p = precondition(s, own.p)
        q = apply(s.A, p)
        first = inner(own.shadow, q)
        alpha = own.rho / where(first == 0, 1, first)
        half = own.r - alpha * q
        z = precondition(s, half)
        t = apply(s.A, z)
        tt = dot(t, t)
        omega = inner(t, half) / where(tt == 0, 1, tt)
        r = half - omega * t
        norm = sqrt(dot(r, r))
        rho = inner(own.shadow, r)
        # The shadow's norm is that of the residual at the last restart.
        level = float(np.finfo(norm.dtype.numpy).eps) ** 2 * v.last * norm
        good = (first != 0) & (omega != 0) & (magnitude(rho) > level) | (norm == 0) & (first != 0)
        finite = isfinite(norm) & isfinite(magnitude(first)) & isfinite(magnitude(rho))
        turn = where(good, rho / where(own.rho == 0, 1, own.rho) * (alpha / where(omega == 0, 1, omega)), 0)
        k = v.k + 1
        keep = first != 0
        x = where(keep, v.x + alpha * p + omega * z, v.x)
        return State(x, where(keep, norm, v.norm), v.last, k, v.matvecs + 2, status_of(good & finite, finite),
                     remember(v, k, norm), Carried(r, own.shadow, r + turn * (own.p - omega * q), rho))


def bicgstab(A: Any, b: Any, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
             M: Any = None,
             callback: Callable[[Array], Any] | None = None, device: str | None = None) -> tuple[Array, Any]:
    """Solve ``A x = b`` for a general square A by stabilized bi-conjugate gradients.

    Arguments and result are those of :func:`cg`; A need not be symmetric and M only approximates its inverse. An
    iteration takes two products. A breakdown of the recurrence restarts it from the true residual as long as that
    halves between restarts; else it is reported. The residual need not fall monotonically.

    >>> import rlx.sparse
    >>> A = rlx.sparse.CSR.from_arrays([0, 0, 1], [0, 1, 1], [4.0, 1.0, 2.0], (2, 2))
    >>> x, info = rlx.sparse.bicgstab(A, rlx.asarray([5.0, 2.0]))
    >>> int(info), [round(v, 4) for v in x.tolist()]
    (0, [1.0, 1.0])
    """
    return solve_square(BiCGStab(), A, b, x0, rtol, atol, maxiter, M, callback, device)


__all__ = ["bicgstab"]

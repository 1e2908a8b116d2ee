"""Generalized minimal residuals with restarts, for general square matrices; one program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rlx.array.array import Array
from rlx.core import dtype as dt
from rlx.ops.control import fori_loop, while_loop
from rlx.ops.creation import asarray, eye, zeros
from rlx.ops.elementwise import abs as magnitude
from rlx.ops.elementwise import astype, conj, isfinite, real, sqrt, where
from rlx.ops.index import gather, scatter
from rlx.ops.movement import iota, slice_of
from rlx.ops.reduce import sum as total
from rlx.sparse.arguments import apply, count_of
from rlx.sparse.driver import Method, State, System, dot, precondition, remember, solve_square
from rlx.sparse.report import BREAKDOWN, NONFINITE, RUNNING, STAGNATED


class Cycle(NamedTuple):
    """The Arnoldi process: rows of ``basis`` are orthonormal; row j of ``upper`` is column j of R; ``turns`` holds the
    product of the rotations, and ``|turns[j, 0]| beta`` is the residual."""

    j: Array
    basis: Array
    upper: Array
    turns: Array
    norm: Array
    stop: Array
    history: Array


@dataclass(frozen=True)
class GMRES(Method):
    """Y. Saad and M. H. Schultz, SIAM J. Sci. Stat. Comput. 7 (1986) 856, preconditioned from the right.

    The basis is made orthogonal by two passes of classical Gram-Schmidt (L. Giraud et al., Numer. Math. 101 (2005) 87),
    which are products with the whole basis.
    """

    restart: int = 20
    name = "gmres"
    restarts = True

    @property
    def stride(self) -> int:  # type: ignore[override]
        """A step is a cycle."""
        return self.restart

    def begin(self, s: System, r: Array, norm: Array) -> Array:
        """A cycle starts from the residual alone."""
        return r

    def step(self, s: System, v: State, limit: Array) -> State:
        """One cycle, at most to the limit; its x has the true residual."""
        cycle: Cycle = while_loop(
            lambda c: (c.j < self.restart) & ~c.stop & (c.norm > s.target) & (v.k + c.j < limit),
            lambda c: self._grow(s, v, c), self._open(v))
        x = v.x + precondition(s, self._combine(cycle, v.norm))
        r = s.b - apply(s.A, x)
        norm = sqrt(dot(r, r))
        sound = isfinite(norm)
        # A cycle that gains nothing will gain nothing again.
        stuck = norm >= v.norm * (1 - 4 * float(np.finfo(norm.dtype.numpy).eps))
        status = where(sound, where(stuck & (norm > s.target), where(cycle.stop, BREAKDOWN, STAGNATED), RUNNING),
                       NONFINITE)
        better = sound & ~stuck
        return State(where(better, x, v.x), where(better | ~sound, norm, v.norm), v.last, v.k + cycle.j,
                     v.matvecs + cycle.j + 1, astype(status, dt.int32), cycle.history, where(better, r, v.own))

    def _open(self, v: State) -> Cycle:
        r, m = v.own, self.restart
        device = r._value.node.device
        unit = r / where(v.norm == 0, 1, v.norm)
        at = asarray(0, dtype=dt.int64, device=device)
        basis = scatter(zeros((m + 1, r.shape[0]), dtype=r.dtype, device=device), unit, (at,), "set")
        return Cycle(at, basis, zeros((m, m), dtype=r.dtype, device=device),
                     eye(m + 1, dtype=r.dtype, device=device), v.norm, v.norm == 0, v.history)

    def _grow(self, s: System, v: State, c: Cycle) -> Cycle:
        """One more vector of the basis, one more column of R."""
        w = apply(s.A, precondition(s, gather(c.basis, c.j)))
        size = sqrt(dot(w, w))
        h = conj(c.basis @ conj(w))
        w = w - h @ c.basis
        more = conj(c.basis @ conj(w))
        w = w - more @ c.basis
        rest = sqrt(dot(w, w))
        end = rest <= size * float(np.finfo(rest.dtype.numpy).eps) * 4
        rest = where(end, 0, rest)
        column = c.turns @ scatter(h + more, astype(rest, w.dtype), (c.j + 1,), "set")
        a, b = gather(column, c.j), gather(column, c.j + 1)
        rho = sqrt(real(a * conj(a)) + real(b * conj(b)))
        flat = rho == 0
        cs, sn = where(flat, 1, a) / where(flat, 1, rho), b / where(flat, 1, rho)
        top, low = gather(c.turns, c.j), gather(c.turns, c.j + 1)
        turns = scatter(c.turns, conj(cs) * top + conj(sn) * low, (c.j,), "set")
        turns = scatter(turns, cs * low - sn * top, (c.j + 1,), "set")
        column = slice_of(scatter(column, astype(rho, w.dtype), (c.j,), "set"), (0,), (self.restart,))
        norm = magnitude(gather(turns, c.j + 1, asarray(0, dtype=dt.int64, device=w._value.node.device))) * v.norm
        # Where the space is exhausted and R is singular, this column says nothing: the residual stays as it was.
        norm = where(flat, c.norm, norm)
        basis = scatter(c.basis, w / where(end, 1, rest), (c.j + 1,), "set")
        return Cycle(c.j + 1, basis, scatter(c.upper, column, (c.j,), "set"), turns, norm, end | ~isfinite(size),
                     remember(v._replace(history=c.history), v.k + c.j + 1, norm))

    def _combine(self, c: Cycle, beta: Array) -> Array:
        """``V y`` for the y that solves ``R y = beta Q e1`` on the columns that are there."""
        m = self.restart
        at = iota(m, dt.int64, c.j._value.node.device)
        right = slice_of(c.turns, (0, 0), (m, 1)).reshape((m,)) * beta

        def back(i: Array, y: Array) -> Array:
            row = m - 1 - i
            diagonal = gather(c.upper, row, row)
            later = total(where(at > row, gather(c.upper.T, row) * y, 0))
            use = (row < c.j) & (diagonal != 0)
            return scatter(y, where(use, (gather(right, row) - later) / where(use, diagonal, 1), 0), (row,), "set")
        y = fori_loop(0, m, back, right * 0)
        out: Array = y @ slice_of(c.basis, (0, 0), (m, c.basis.shape[1]))
        return out


def gmres(A: Any, b: Any, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, restart: int | None = None,
          maxiter: int | None = None, M: Any = None,
          callback: Callable[[Array], Any] | None = None, device: str | None = None) -> tuple[Array, Any]:
    """Solve ``A x = b`` for a general square A by generalized minimal residuals.

    Arguments and result are those of :func:`cg`, and ``restart``: the vectors kept before the method starts anew from
    what it has (20 by default, at most n). A need not be symmetric. The preconditioner stands on the right, so that the
    residual that is minimized is the true one. ``maxiter`` counts iterations (products with A), not cycles;
    ``callback`` is called after each cycle. A cycle that gains nothing ends the solve as ``stagnated``: a larger
    ``restart`` may help.

    >>> import rlx.sparse
    >>> A = rlx.sparse.CSR.from_arrays([0, 0, 1], [0, 1, 1], [4.0, 1.0, 2.0], (2, 2))
    >>> x, info = rlx.sparse.gmres(A, rlx.asarray([5.0, 2.0]))
    >>> int(info), [round(v, 4) for v in x.tolist()]
    (0, [1.0, 1.0])
    """
    size = 20 if restart is None else count_of("gmres", "restart", restart, 1)
    n = b.shape[0] if hasattr(b, "shape") and len(b.shape) else size
    return solve_square(GMRES(max(min(size, int(n)), 1)), A, b, x0, rtol, atol, maxiter, M, callback, device)


__all__ = ["gmres"]

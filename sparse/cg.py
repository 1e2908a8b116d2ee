"""Conjugate gradients. The iteration is a while loop of the IR: one program, no Python between iterations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlx.array.array import Array
from rlx.core import dtype as dt
from rlx.ops.elementwise import astype, isfinite, sqrt, where
from rlx.sparse.arguments import apply
from rlx.sparse.driver import Method, State, System, dot, precondition, remember, solve_square
from rlx.sparse.report import BREAKDOWN, NONFINITE, RUNNING


class Carried(NamedTuple):
    """The residual, the direction, and ``rz = r . M r``."""

    r: Array
    p: Array
    rz: Array


@dataclass(frozen=True)
class CG(Method):
    """Conjugate gradients after M. R. Hestenes and E. Stiefel, J. Res. Nat. Bur. Stand. 49 (1952) 409."""

    name = "cg"
    hermitian = True

    def begin(self, s: System, r: Array, norm: Array) -> Carried:
        """The first direction is the preconditioned residual."""
        z = precondition(s, r)
        return Carried(r, z, dot(r, z))

    def step(self, s: System, v: State, limit: Array) -> State:
        """One iteration."""
        own: Carried = v.own
        q = apply(s.A, own.p)
        pq = dot(own.p, q)
        good = (pq > 0) & isfinite(pq)
        alpha = where(good, own.rz / where(good, pq, 1), 0)
        r = own.r - alpha * q
        rr = dot(r, r)
        z = precondition(s, r)
        rz = rr if s.M is None else dot(r, z)
        beta = rz / own.rz
        k = v.k + 1
        norm = sqrt(rr)
        sound = isfinite(rz) & (rz >= 0)
        status = where(good, where(sound, RUNNING, where(isfinite(rz), BREAKDOWN, NONFINITE)),
                       where(isfinite(pq), BREAKDOWN, NONFINITE))
        status = where(norm == 0, RUNNING, status)
        return State(v.x + alpha * own.p, where(good, norm, v.norm), v.last, k, v.matvecs + 1,
                     astype(status, dt.int32), remember(v, k, norm), Carried(r, z + beta * own.p, rz))


def cg(A: Any, b: Any, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
       M: Any = None,
       callback: Callable[[Array], Any] | None = None, device: str | None = None) -> tuple[Array, Any]:
    """Solve ``A x = b`` for a symmetric (Hermitian) positive definite A by conjugate gradients.

    Parameters
    ----------
    A : a sparse matrix of rlx or SciPy, a dense array (n, n), or a function of an array that returns ``A @ x``.
    b : array (n,), f32, f64, c64 or c128.
    x0 : starting guess; zeros by default.
    rtol, atol : stop when the *true* residual ``||b - A x||`` is at most ``max(rtol * ||b||, atol)``.
    maxiter : most iterations; ``10 n`` by default, as in SciPy.
    M : preconditioner: a function or matrix that approximates the inverse of A and is positive definite like it:
        ``jacobi(A)``, ``block_jacobi(A)``, ``ic0(A)``, ``smoothed_aggregation(A)``.
    callback : called as ``callback(x)`` after each iteration (which then returns to Python each time).
    device : where to solve; the device of A or b by default.

    Returns
    -------
    (x, info) : ``info`` is 0 on success; see :class:`SolverInfo` for the reason, residual and history. Inside a traced
    function it is a :class:`TracedInfo`, the same as arrays, and x has derivatives with respect to b and the values of
    A by one more solve.

    A matrix whose entries fill a few diagonals (a stencil) is multiplied in banded storage, which the CSR remembers:
    the same products, no indices. A right-hand side of extreme size is solved in units of a power of two.

    When the recurrence reports convergence the residual is computed anew; if it is not small enough the iteration
    restarts from it. After M. R. Hestenes and E. Stiefel, J. Res. Nat. Bur. Stand. 49 (1952) 409.

    >>> import rlx.sparse
    >>> A = rlx.sparse.CSR.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [4.0, 1.0, 1.0, 3.0], (2, 2))
    >>> x, info = rlx.sparse.cg(A, rlx.asarray([1.0, 2.0]))
    >>> int(info), [round(v, 4) for v in x.tolist()]
    (0, [0.0909, 0.6364])
    """
    return solve_square(CG(), A, b, x0, rtol, atol, maxiter, M, callback, device)


__all__ = ["cg"]

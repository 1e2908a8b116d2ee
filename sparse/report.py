"""What a solver says about itself: why it stopped, what it cost, and how good the answer truly is."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from rlx.array.array import Array

#: Why a solver stopped. Each reason ends in what to do.
REASONS: dict[str, str] = {
    "converged": "the true residual is within the tolerance",
    "maxiter": "the iteration limit was reached; raise maxiter, loosen rtol, or use a preconditioner",
    "breakdown": "a direction of non-positive curvature was met: A (or M) is not positive definite; check its symmetry "
                 "and sign, or use a solver for general matrices",
    "nonfinite": "a value became NaN or infinite; check A, b and the preconditioner for such values",
    "stagnated": "the true residual no longer falls: rounding in this precision ends here; use a wider dtype or a "
                 "better conditioned system (for gmres also a larger restart; a singular A may hold no solution)",
    "nothing": "the device ran no work (null compiles only); choose a device that computes",
}
#: What a breakdown means for the solvers that are not conjugate gradients.
BREAKDOWNS: dict[str, str] = {
    "bicgstab": "the recurrence broke down and a restart did not help; use a preconditioner, another x0, or gmres",
    "gmres": "the Krylov space is exhausted and holds no solution: A is singular, or nearly so; use lsqr",
    "minres": "M is not positive definite; minres takes any symmetric A, but a positive preconditioner",
}
RUNNING, CONVERGED, MAXITER, BREAKDOWN, NONFINITE, STAGNATED = range(6)
#: The status a solver's program ends with, in words.
REASON_OF = {CONVERGED: "converged", MAXITER: "maxiter", BREAKDOWN: "breakdown", NONFINITE: "nonfinite",
             STAGNATED: "stagnated"}


class TracedInfo(NamedTuple):
    """A solver's report inside a traced function, as arrays.

    ``status`` is 1 converged, 2 maxiter, 3 breakdown, 4 nonfinite, 5 stagnated; entries of ``history`` after the last
    iteration are NaN.
    """

    status: Array
    iterations: Array
    matvecs: Array
    residual: Array
    target: Array
    history: Array


class SolverInfo(int):
    """The ``info`` of a solver: an int as SciPy's, and more.

    As an int it is 0 when the solve converged, the number of iterations when it ran out of them or stagnated, and
    negative after a breakdown or non-finite values. ``residual`` is the *true* final residual ``||b - A x||`` (of lsqr
    and lsmr that of the normal equations), computed anew from x; ``history[k]`` the solver's residual before iteration
    k; ``solver`` its name.
    """

    reason: str
    iterations: int
    matvecs: int
    residual: float
    target: float
    history: np.ndarray[Any, Any]
    solver: str

    def __new__(cls, reason: str, iterations: int, matvecs: int, residual: float, target: float, history: Any,
                solver: str = "cg") -> Self:
        failed = reason in ("breakdown", "nonfinite", "nothing")
        code = 0 if reason == "converged" else -1 if failed else max(iterations, 1)
        new = super().__new__(cls, code)
        new.reason, new.iterations, new.matvecs = reason, iterations, matvecs
        new.residual, new.target, new.history, new.solver = residual, target, history, solver
        return new

    @classmethod
    def from_traced(cls, info: TracedInfo, solver: str = "cg") -> SolverInfo:
        """The report of a solve that ran inside a traced function."""
        k = int(info.iterations)
        history = np.asarray(info.history)[:k + 1]
        reason = REASON_OF.get(int(info.status), "nothing")
        return cls(reason, k, int(info.matvecs), float(info.residual), float(info.target), history, solver)

    @property
    def converged(self) -> bool:
        """Whether the true residual is within the tolerance."""
        return self.reason == "converged"

    @property
    def message(self) -> str:
        """The reason in words, ending in what to do."""
        return BREAKDOWNS.get(self.solver, REASONS["breakdown"]) if self.reason == "breakdown" else REASONS[self.reason]

    def __repr__(self) -> str:
        return (f"SolverInfo({int(self)}: {self.reason}, {self.iterations} iterations, {self.matvecs} matvecs, "
                f"residual {self.residual:.3g}, target {self.target:.3g})")

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return (SolverInfo, (self.reason, self.iterations, self.matvecs, self.residual, self.target, self.history,
                             self.solver))

"""Direct solvers: ``lu`` and ``cholesky`` of sparse matrices, whose analysis serves all matrices of one pattern."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
import rlx.sparse.direct_oracle
from rlx.array.array import Array
from rlx.array.build import as_array, cast
from rlx.array.jit import jit
from rlx.array.tree import register_pytree
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.linalg.errors import INFO, NAN, RAISE, LinAlgError, bad_mode
from rlx.sparse.csr import CSR, DTYPES, as_csr
from rlx.sparse.direct_apply import ADJOINT, PLAIN, TARGET, TRANSPOSED, direct_solve
from rlx.sparse.direct_ops import CHOLESKY, LU, front_factor
from rlx.sparse.direct_plan import Plan, analyze, check_finite
from rlx.sparse.report import CONVERGED, NONFINITE, STAGNATED, SolverInfo, TracedInfo

#: Most steps of iterative refinement. Each gains the digits that the factors have; five is what LAPACK allows.
REFINE = 5
#: Steps allowed where pivots were replaced: the factors then have half of the digits, or less.
REFINE_REPLACED = 20
#: A solution with a backward error above the larger of these (units of rounding, share of its root) is refused.
#: Replaced pivots of a singular matrix leave errors from about a hundredth of that root.
LIMITS = (64.0, 1e-3)
_TRANS = {0: PLAIN, 1: TRANSPOSED, 2: ADJOINT, "N": PLAIN, "T": TRANSPOSED, "H": ADJOINT, "C": ADJOINT}


class Factor:
    """A factored sparse matrix: ``solve`` with it, ``refactor`` it for new values. A pytree.

    ``plan`` is the analysis, ``A`` the matrix. Made by :func:`lu` and :func:`cholesky`.
    """

    __slots__ = ("A", "_found", "_info", "_panels", "plan")

    def __init__(self, plan: Plan, A: CSR, panels: Array, info: Array) -> None:
        self.plan, self.A, self._panels, self._info = plan, A, panels, info
        self._found: tuple[int, int] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix."""
        return self.plan.shape

    @property
    def dtype(self) -> dt.DType:
        """Element type of matrix and factors."""
        return self.A.dtype

    @property
    def device(self) -> str:
        """Where the factors are."""
        return self.A.device

    @property
    def nnz(self) -> int:
        """Elements of the factors."""
        return self.plan.nnz

    @property
    def info(self) -> Array:
        """int32: 0, or for ``cholesky`` 1 + the row whose pivot was not positive; for ``lu`` how many were replaced."""
        if self.plan.kind == LU:
            return self._info[..., 0]
        place = rlx.clip(self._info[..., 1] - 1, 0, max(self.shape[0] - 1, 0))
        row = rlx.take(as_array(self.plan.cols, device=self.device), cast(place, dt.int64), axis=0)
        return cast(rlx.where(self._info[..., 0] > 0, row + 1, 0), dt.int32)

    @property
    def replaced(self) -> int:
        """How many pivots of ``lu`` were too small, and were replaced; 0 as a rule."""
        return self._counts()[0]

    @property
    def growth(self) -> float:
        """Largest element of the factors over the largest of the (scaled) matrix: rounding errors grow by as much."""
        if not self.A.nnz:
            return 1.0
        scale = self.plan.table("scale", self.device)
        largest = rlx.max(rlx.abs(self.A.data) * cast(scale, self.dtype.real))
        top = float(rlx.max(rlx.abs(self._panels)))
        return top / float(largest) if self.plan.kind == LU else top ** 2 / float(largest)

    def _counts(self) -> tuple[int, int]:
        if self._found is None:
            host = np.asarray(self._info)
            self._found = int(host[..., 0].max(initial=0)), int(host[..., 1].max(initial=0))
        return self._found

    def __repr__(self) -> str:
        kind = "LU" if self.plan.kind == LU else "Cholesky"
        return f"Factor({kind} of {self.dtype.name}[{self.shape[0]}, {self.shape[1]}], {self.nnz} elements, " \
               f"on {self.device})"

    def solve(self, b: Any, trans: int | str = 0, *, refine: int | None = None, errors: str = RAISE) -> Any:
        """``x`` with ``A x = b``, or ``A^T x = b`` (``trans`` 1 or 'T'), or ``A^H x = b`` (2 or 'H').

        b (n,) or (n, k). The solution is refined with A itself until its backward error (the largest
        ``|b - A x|_i / (|A| |x| + |b|)_i``) is at rounding, in at most ``refine`` steps (5; more where pivots were
        replaced). ``errors`` is the contract of :mod:`rlx.linalg`: ``"raise"`` LinAlgError if the backward error stays
        above 1.5e-11 (7.6e-6 in single precision); ``"nan"`` for NaN in that column; ``"info"`` for ``(x, info)`` with
        the report of the iterative solvers, its residual being the backward error. Inside a traced function
        ``"raise"`` is ``"nan"`` (and info a :class:`TracedInfo`).
        """
        if trans not in _TRANS:
            raise ValueIssue(f"solve() with trans={trans!r}", why="it is 0, 1, 2, 'N', 'T' or 'H'",
                             do="pass one of them")
        if errors not in (RAISE, NAN, INFO):
            bad_mode(errors)
        steps = self._steps() if refine is None else int(refine)
        y = self._right_side(b)
        if 0 in y.shape:
            return (y, _info(np.zeros(0, self.dtype.real.numpy), 0)) if errors == INFO else y
        traced = y.is_traced or self.A.data.is_traced or self._panels.is_traced
        nan = errors == NAN or (traced and errors == RAISE)
        program = self.plan.program(("solve", self.device, _TRANS[trans], steps, nan),
                                    lambda: _solver(self.plan, self.device, _TRANS[trans], steps, nan))
        call = program._f if traced else program
        x, error, taken = call(self.A.data, self._panels, self.A.indices, self.A.indptr, y)
        if errors == INFO:
            return x, (_traced_info if traced else _info)(error, taken)
        if errors == RAISE and not traced:
            self._refuse(np.asarray(error))
        return x

    def refactor(self, values: Any, *, errors: str = RAISE) -> Factor:
        """The factors of another matrix of the same pattern: a CSR (or scipy.sparse matrix), or its values (nnz,)."""
        if isinstance(values, CSR) or hasattr(values, "tocsr"):
            new = as_csr(values, self.device)
            self.plan.check(new)
        else:
            new = self.A.with_data(cast(as_array(values, device=self.device), self.dtype))
        return _factor(new, self.plan, errors)

    def _steps(self) -> int:
        if self._panels.is_traced:
            return REFINE
        return REFINE_REPLACED if self.plan.kind == LU and self.replaced else REFINE

    def _right_side(self, b: Any) -> Array:
        """b on this device, of a type that the factors can answer in."""
        y = as_array(b, device=self.device)
        n = self.shape[0]
        if y.ndim not in (1, 2) or y.shape[0] != n:
            raise ShapeError(f"solve() with a matrix of shape {self.shape} and b of shape {y.shape}",
                             why=f"there are {n} equations",
                             do="pass a vector or columns with one element for each row")
        if y.dtype.kind in "biu":
            y = cast(y, self.dtype)
        if y.dtype not in DTYPES or (y.dtype.real.bits > self.dtype.real.bits and isinstance(b, Array) and not b._weak):
            raise DTypeError(f"solve() with factors of {self.dtype.name} and b of {y.dtype.name}",
                             why="the solution would have fewer digits than b",
                             do="factor A.astype(...) of b's type, or cast b")
        return y

    def _refuse(self, error: np.ndarray[Any, Any]) -> None:
        """Raise if a right-hand side has no solution of small backward error."""
        limit = _limit(self.dtype)
        bad = np.nonzero(~(error <= limit))[0]
        if not len(bad):
            return
        worst = float(error[bad[0]])
        column = f" for right-hand side {bad[0]}" if len(error) > 1 else ""
        check_finite(np.abs(np.asarray(self.A.data)), *_entries(self.A))
        if not np.isfinite(worst):
            raise LinAlgError(f"no finite solution{column}", why="b is not finite, or the matrix is singular",
                              do="check b with rlx.isfinite, and the matrix by its smallest singular value")
        raise LinAlgError(f"no accurate solution{column}: the backward error is {worst:.2g}",
                          why=f"the matrix is singular or nearly so, or the analysis was for very different values "
                          f"({self.replaced} pivots were replaced)",
                          do="analyze the matrix with its present values, or use rlx.linalg.lstsq or errors='info'")


def _flatten(f: Factor) -> Any:
    return (f.A, f._panels, f._info), f.plan


register_pytree(Factor, _flatten, lambda plan, parts: Factor(plan, *parts))


def lu(A: Any, *, plan: Plan | None = None, errors: str = RAISE, device: str | None = None) -> Factor:
    """``P_r R A C P_c = L U`` of a general sparse matrix, with pivots chosen by the analysis.

    Parameters
    ----------
    A : CSR, scipy.sparse matrix or dense array (n, n); f32, f64, c64 or c128. May be traced, with a plan.
    plan : the result of :func:`analyze` for a matrix of this pattern; made here by default.
    errors : ``"raise"`` LinAlgError for a singular matrix (noticed here if a pivot vanished, else by ``solve``), or
        ``"nan"`` or ``"info"``: look at ``info``, or at what ``solve`` reports.
    device : where to factor; the device of A by default.

    Pivots below ``sqrt(eps)`` times the largest element are replaced by that number, and ``solve`` makes up for it by
    iterative refinement, as X. S. Li and J. W. Demmel, ACM Trans. Math. Softw. 29 (2003) 110. If that does not succeed
    the matrix counts as singular.

    >>> import rlx.sparse
    >>> A = rlx.sparse.CSR.from_dense([[4.0, 1.0], [2.0, 3.0]])
    >>> F = rlx.sparse.lu(A)
    >>> [round(v, 12) for v in F.solve([6.0, 8.0]).tolist()]
    [1.0, 2.0]
    >>> [round(v, 12) for v in F.refactor([1.0, 0.0, 0.0, 2.0]).solve([6.0, 8.0]).tolist()]
    [6.0, 4.0]
    """
    m = as_csr(A, device)
    return _factor(m, _planned(m, plan, LU), errors)


def cholesky(A: Any, *, plan: Plan | None = None, errors: str = RAISE, device: str | None = None) -> Factor:
    """``P A P^T = U^H U`` of a sparse symmetric (Hermitian) positive definite matrix.

    The factors are of one triangle of A; ``solve`` refines with all of it. Derivatives are those of ``A^-1 b`` by every
    entry. Parameters as in :func:`lu`. Raises LinAlgError, with the row of the pivot, for a matrix that is not positive
    definite, and ValueIssue for one that is not symmetric (where its values are known).

    >>> import rlx.sparse
    >>> A = rlx.sparse.CSR.from_dense([[4.0, 2.0], [2.0, 5.0]])
    >>> [round(v, 12) for v in rlx.sparse.cholesky(A).solve([8.0, 12.0]).tolist()]
    [1.0, 2.0]
    """
    m = as_csr(A, device)
    plan = _planned(m, plan, CHOLESKY)
    if not m.data.is_traced and errors == RAISE:
        check_finite(np.abs(np.asarray(m.data)), *_entries(m))
        _check_symmetric(m)
    return _factor(m, plan, errors)


def spsolve(A: Any, b: Any, *, errors: str = RAISE) -> Any:
    """``x`` with ``A x = b`` for a general sparse matrix, by :func:`lu`; b (n,) or (n, k).

    >>> import rlx.sparse
    >>> rlx.sparse.spsolve([[0.0, 2.0], [4.0, 0.0]], [2.0, 4.0]).tolist()
    [1.0, 1.0]
    """
    m = as_csr(A, b.device if isinstance(b, Array) and not isinstance(A, CSR) else None)
    return lu(m, errors=errors).solve(b, errors=errors)


def _planned(m: CSR, plan: Plan | None, kind: str) -> Plan:
    if plan is None:
        if m.data.is_traced:
            raise ValueIssue(f"{kind}() of a traced matrix without a plan",
                             why="the analysis needs its pattern and values",
                             do=f"pass plan=rlx.sparse.analyze(A, kind={kind!r}), made before the traced function")
        return analyze(m, kind=kind)
    if plan.kind != kind:
        raise ValueIssue(f"{kind}() with a plan for {plan.kind}", why="they order the matrix differently",
                         do=f"pass rlx.sparse.analyze(A, kind={kind!r})")
    plan.check(m)
    return plan


def _factor(m: CSR, plan: Plan, errors: str) -> Factor:
    """Run the factorization, and look at what became of its pivots."""
    if errors not in (RAISE, NAN, INFO):
        bad_mode(errors)
    if not m.shape[0]:
        return Factor(plan, m, m.data, rlx.zeros((2,), dtype=dt.int32, device=m.device))
    program = plan.program(("factor", m.device), lambda: _factorizer(plan, m.device))
    traced = m.data.is_traced
    panels, info = (program._f if traced else program)(m.data)
    f = Factor(plan, m, panels, info)
    if not traced and errors == RAISE:
        _accept(f)
    return f


def _accept(f: Factor) -> None:
    """Raise for a matrix that is not positive definite, or is singular."""
    count, first = f._counts()
    if not count:
        return
    row = int(f.plan.cols[first - 1])
    check_finite(np.abs(np.asarray(f.A.data)), *_entries(f.A))
    if f.plan.kind == CHOLESKY:
        raise LinAlgError("the matrix is not positive definite", why=f"the pivot of row {row} is not positive (it was "
                          f"number {first} in the order of elimination)",
                          do="check its sign and symmetry, add a multiple of the identity, or use rlx.sparse.lu")
    # A singular matrix has no solution for a right-hand side of no structure, whatever refinement tries.
    probe = np.random.default_rng(0).standard_normal(f.shape[0])
    _, info = f.solve(probe, errors=INFO)
    if not info.residual <= _limit(f.dtype):
        raise LinAlgError("the matrix is singular to working precision", why=f"the pivot of column {row} vanishes, and "
                          f"refinement leaves a backward error of {info.residual:.2g}",
                          do="use rlx.linalg.lstsq, or errors='info'; if the values changed much since the analysis, "
                          "analyze again")


def _check_symmetric(m: CSR) -> None:
    order, indices, indptr = m._transpose_pattern()
    same = np.array_equal(np.asarray(indptr), np.asarray(m.indptr)) and np.array_equal(np.asarray(indices),
                                                                                      np.asarray(m.indices))
    data = np.asarray(m.data)
    other = np.conj(data[np.asarray(order)]) if same else data
    size = float(np.abs(data).max(initial=0.0))
    gap = float(np.abs(data - other).max(initial=0.0))
    if not same or gap > 1e3 * _eps(m.dtype) * size:
        what = f"entries differ from their mirror images by up to {gap:.3g}" if same else "its pattern is not symmetric"
        raise ValueIssue("Cholesky of a matrix that is not symmetric (Hermitian)", why=what,
                         do="use rlx.sparse.lu, or factor (A + A.T) / 2 if it was meant to be")


def _entries(m: CSR) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Row and column of each entry."""
    return np.repeat(np.arange(m.shape[0]), np.diff(np.asarray(m.indptr))), np.asarray(m.indices)


def _eps(dtype: dt.DType) -> float:
    return float(np.finfo(dtype.real.numpy).eps)


def _limit(dtype: dt.DType) -> float:
    """The largest backward error of a solution that is given."""
    eps = _eps(dtype)
    return max(LIMITS[0] * eps, LIMITS[1] * float(np.sqrt(eps)))


# Programs: one for a plan, device and choice, kept with the plan

def _factorizer(plan: Plan, device: str) -> Any:
    def run(values: Array) -> Any:
        t = {k: plan.table(k, device) for k in ("nodes", "into", "source", "place", "batches", "bounds")}
        # direct_solve differentiates by the values themselves: what the factors say of them is not needed.
        values = rlx.stop_gradient(values)
        scale = cast(plan.table("scale", device), values.dtype.real)
        if plan.kind == LU and values.shape[0]:
            tiny = rlx.max(rlx.abs(values) * scale) * float(np.sqrt(_eps(values.dtype)))
        else:
            tiny = rlx.zeros((), dtype=values.dtype.real, device=device)
        return front_factor(values, scale, tiny, t["nodes"], t["into"], t["source"], t["place"], t["batches"],
                            t["bounds"], **plan.attrs)
    return jit(run)


def _solver(plan: Plan, device: str, trans: int, refine: int, nan: bool) -> Any:
    attrs = {"kind": plan.kind, "classes": plan.attrs["classes"], "longest": plan.longest, "trans": trans,
             "refine": refine}

    def run(values: Array, panels: Array, indices: Array, indptr: Array, b: Array) -> Any:
        t = {k: plan.table(k, device) for k in ("orders", "scales", "nodes", "members", "batches", "bounds")}
        rows = b.reshape((1, -1)) if b.ndim == 1 else b.transpose(1, 0)
        # Real factors solve for the parts of a complex right-hand side.
        parts = b.dtype.is_complex and not values.dtype.is_complex
        rows = cast(rlx.concat([rlx.real(rows), rlx.imag(rows)], axis=0) if parts else rows, values.dtype)
        x, error, steps = direct_solve(values, panels, rows, indices, indptr, t["orders"], cast(t["scales"],
                                       values.dtype.real), t["nodes"], t["members"], t["batches"], t["bounds"], **attrs)
        if nan:
            fine = error <= _limit(values.dtype)
            x = rlx.where(fine.reshape((-1, 1)), x, float("nan"))
        if parts:
            k = x.shape[0] // 2
            x, error = x[:k] + 1j * x[k:], rlx.maximum(error[:k], error[k:])
        return x.reshape((-1,)) if b.ndim == 1 else x.transpose(1, 0), error, steps
    return jit(run)


def _info(error: Any, steps: Any) -> SolverInfo:
    errors, k = np.asarray(error), int(steps)
    worst, target = float(errors.max(initial=0.0)), TARGET * float(np.finfo(errors.dtype).eps)
    reason = "nonfinite" if not np.isfinite(worst) else "converged" if worst <= target else "stagnated"
    return SolverInfo(reason, k, k + 1, worst, target, np.array([worst]))


def _traced_info(error: Array, steps: Array) -> TracedInfo:
    worst = rlx.max(error)
    target = TARGET * _eps(error.dtype)
    status = rlx.where(worst <= target, CONVERGED, rlx.where(rlx.isfinite(worst), STAGNATED, NONFINITE))
    return TracedInfo(cast(status, dt.int32), steps, steps + 1, worst, worst * 0 + target, worst.reshape((1,)))

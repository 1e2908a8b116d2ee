"""Conjugate gradients. The iteration is a while loop of the IR: one program, no Python between iterations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.array.jit import jit
from rlx.array.tree import flatten, register_pytree
from rlx.core import dtype as dt
from rlx.core.errors import DeviceError, DTypeError, ShapeError, TraceError, ValueIssue
from rlx.ops.control import while_loop
from rlx.ops.creation import asarray, full
from rlx.ops.elementwise import astype, conj, isfinite, real, sqrt, where
from rlx.ops.index import scatter
from rlx.ops.reduce import all as every
from rlx.ops.reduce import sum as total
from rlx.sparse.bands import bands_of
from rlx.sparse.csr import CSR, DTYPES, as_csr
from rlx.sparse.report import (
    BREAKDOWN,
    CONVERGED,
    MAXITER,
    NONFINITE,
    RUNNING,
    STAGNATED,
    SolverInfo,
    TracedInfo,
)

Apply = Callable[[Array], Array]
#: Units of rounding, relative to ``||b||``, below which a residual cannot be told from none.
ROUNDING = 1024.0
#: Iterations whose residual is kept in the history.
HISTORY = 1 << 14


class State(NamedTuple):
    """What an iteration carries. ``rz`` is ``r . M r``, ``norm`` the recurrence's ``||r||``, ``last`` the true residual
    at the last restart."""

    x: Array
    r: Array
    p: Array
    rz: Array
    norm: Array
    last: Array
    k: Array
    matvecs: Array
    status: Array
    history: Array


@dataclass(frozen=True)
class System:
    """A linear system in the form the iteration uses: the operator, the preconditioner (or None), b, its target, and
    the residual at which rounding ends all progress."""

    A: Any
    M: Any
    b: Array
    target: Array
    rounding: Array


def cg(A: Any, b: Any, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
       M: Any = None,
       callback: Callable[[Array], Any] | None = None, device: str | None = None) -> tuple[Array, Any]:
    """Solve ``A x = b`` for a symmetric (Hermitian) positive definite A by conjugate gradients.

    Parameters
    ----------
    A : CSR, scipy.sparse matrix, dense array (n, n), or a function of an array that returns ``A @ x``.
    b : array (n,), f32, f64, c64 or c128.
    x0 : starting guess; zeros by default.
    rtol, atol : stop when the *true* residual ``||b - A x||`` is at most ``max(rtol * ||b||, atol)``.
    maxiter : most iterations; ``10 n`` by default, as in SciPy.
    M : preconditioner: a function, CSR or matrix that approximates the inverse of A, such as ``jacobi(A)``.
    callback : called as ``callback(x)`` after each iteration (which then returns to Python each time).
    device : where to solve; the device of A or b by default.

    Returns
    -------
    (x, info) : ``info`` is 0 on success; see :class:`SolverInfo` for the reason, residual and history. Inside a traced
    function it is a :class:`TracedInfo`, the same as arrays.

    A matrix whose entries fill a few diagonals (a stencil) is multiplied in banded storage, which the CSR remembers:
    the same products, no indices.

    When the recurrence reports convergence the residual is computed anew; if it is not small enough the iteration
    restarts from it. After M. R. Hestenes and E. Stiefel, J. Res. Nat. Bur. Stand. 49 (1952) 409.

    >>> import rlx.sparse
    >>> A = rlx.sparse.CSR.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [4.0, 1.0, 1.0, 3.0], (2, 2))
    >>> x, info = rlx.sparse.cg(A, rlx.asarray([1.0, 2.0]))
    >>> int(info), [round(v, 4) for v in x.tolist()]
    (0, [0.0909, 0.6364])
    """
    operator, vector, guess = _prepare(A, b, x0, device)
    precond = _as_operator(M, vector.device, "M", vector.shape[0])
    n = int(vector.shape[0])
    limit = 10 * n if maxiter is None else _count(maxiter)
    _check_tolerance(rtol, atol)
    # What a function captures may change between calls, so it is traced anew; its program is found by structure.
    program = _Program() if isinstance(operator, Function) or isinstance(precond, Function) else _program
    args = (operator, precond, vector, guess, _number(rtol), _number(atol))
    size = min(max(limit, 1), HISTORY)
    if callback is not None and not callable(callback):
        raise DTypeError(f"cg with callback of type {type(callback).__name__}", why="it is called after each iteration",
                         do="pass a function of x")
    if callback is not None and vector.is_traced:
        raise TraceError("cg with a callback inside a traced function", why="a callback is Python between iterations",
                         do="drop the callback; the residual history is in info")
    if callback is None:
        x, traced = program.solve(*args, limit, size=size)
    else:
        x, traced = _step_by_step(program, args, limit, size, callback)
    info = traced if x.is_traced else SolverInfo.from_traced(traced)
    if isinstance(info, SolverInfo) and info.reason == "nonfinite":
        # Only now is it worth a pass over the arguments: were they finite?
        for name, given in (("A", operator), ("b", vector), ("x0", guess), ("M", precond)):
            for leaf in flatten(given)[0]:
                _finite(leaf, name)
    return x, info


class Function:
    """A plain function as a pytree without leaves."""

    def __init__(self, f: Apply) -> None:
        self.f = f

    def __call__(self, x: Array) -> Array:
        y = self.f(x)
        if not isinstance(y, Array) or y.shape != x.shape or y.dtype != x.dtype:
            got = f"{y.dtype.name}{list(y.shape)}" if isinstance(y, Array) else type(y).__name__
            raise ShapeError(f"an operator returned {got} for {x.dtype.name}{list(x.shape)}",
                             why="A and M give an array of the type and shape that they take",
                             do="return the product with its argument, in the argument's dtype")
        return y


register_pytree(Function, lambda op: ((), op.f), lambda f, _: Function(f))


# The iteration

def _dot(u: Array, v: Array) -> Array:
    return real(total(conj(u) * v))


def _start(s: System, x: Array, size: int) -> State:
    """The first residual, direction, and an empty history."""
    r = s.b - _apply(s.A, x)
    z = r if s.M is None else _apply(s.M, r)
    norm = sqrt(_dot(r, r))
    counter = asarray(0, dtype=dt.int64, device=s.b.device)
    status = where(isfinite(norm), RUNNING, NONFINITE)
    history = full((size + 1,), float("nan"), dtype=norm.dtype, device=s.b.device)
    history = scatter(history, norm, (counter,), "set")
    return State(x, r, z, _dot(r, z), norm, norm, counter, counter + 1, astype(status, dt.int32), history)


def _apply(op: Any, x: Array) -> Array:
    return op @ x if isinstance(op, CSR) else op(x)


def _iterate(s: System, v: State) -> State:
    """One iteration of the recurrence."""
    q = _apply(s.A, v.p)
    pq = _dot(v.p, q)
    good = (pq > 0) & isfinite(pq)
    alpha = where(good, v.rz / where(good, pq, 1), 0)
    r = v.r - alpha * q
    rr = _dot(r, r)
    z = r if s.M is None else _apply(s.M, r)
    rz = rr if s.M is None else _dot(r, z)
    beta = rz / v.rz
    k = v.k + 1
    norm = sqrt(rr)
    sound = isfinite(rz) & (rz >= 0)
    status = where(good, where(sound, RUNNING, where(isfinite(rz), BREAKDOWN, NONFINITE)),
                   where(isfinite(pq), BREAKDOWN, NONFINITE))
    status = where(norm == 0, RUNNING, status)
    return State(v.x + alpha * v.p, r, z + beta * v.p, rz, where(good, norm, v.norm), v.last, k, v.matvecs + 1,
                 astype(status, dt.int32), scatter(v.history, norm, (k,), "set"))


def _advance(s: System, v: State, limit: Array) -> State:
    """Iterate until the recurrence's residual is within the target, the limit is reached, or it breaks down."""
    going = lambda u: (u.status == RUNNING) & (u.norm > s.target) & (u.k < limit)
    found: State = while_loop(going, lambda u: _iterate(s, u), v)
    return found


def _verify(s: System, v: State, limit: Array) -> State:
    """Compute the residual from x; restart from it when the recurrence had drifted away, else say how it ended."""
    r = s.b - _apply(s.A, v.x)
    norm = sqrt(_dot(r, r))
    z = r if s.M is None else _apply(s.M, r)
    ended = where(v.k >= limit, MAXITER, where(norm > 0.5 * v.last, STAGNATED, RUNNING))
    # A curvature that is not positive at the level of rounding says nothing about A.
    lost = (v.status == BREAKDOWN) & (norm <= s.rounding)
    ended = where(v.status == RUNNING, ended, where(lost, STAGNATED, v.status))
    status = where(norm <= s.target, CONVERGED, where(isfinite(norm), ended, NONFINITE))
    return State(v.x, r, z, _dot(r, z), norm, norm, v.k, v.matvecs + 1, astype(status, dt.int32), v.history)


def _solve(s: System, v: State, limit: Array) -> State:
    """Advance and verify until it is decided."""
    found: State = while_loop(lambda u: u.status == RUNNING, lambda u: _verify(s, _advance(s, u, limit), limit), v)
    return found


def _target(b: Array, rtol: Array, atol: Array) -> Array:
    norm = sqrt(_dot(b, b))
    rel = astype(rtol, norm.dtype) * norm
    return where(rel > atol, rel, astype(atol, norm.dtype))


class _Program:
    """The compiled pieces: one program for a whole solve, or a start, steps and an end for a callback."""

    def __init__(self) -> None:
        self.solve = jit(self._whole, static_argnames=("size",))
        self.start = jit(self._begin, static_argnames=("size",))
        self.advance = jit(lambda s, v, limit: _advance(s, v, limit))
        self.verify = jit(lambda s, v, limit: _verify(s, v, limit))

    @staticmethod
    def _begin(A: Any, M: Any, b: Array, x: Any, rtol: Any, atol: Any, size: int) -> tuple[System, State]:
        size_of_b = sqrt(_dot(b, b))
        # The answer for b = 0 is 0, whatever the guess.
        guess = b * 0 if x is None else where(size_of_b == 0, 0, x)
        s = System(A, M, b, _target(b, rtol, atol), size_of_b * (ROUNDING * float(np.finfo(b.dtype.numpy).eps)))
        return s, _start(s, guess, size)

    @classmethod
    def _whole(cls, A: Any, M: Any, b: Array, x: Any, rtol: Any, atol: Any, limit: Any, *,
               size: int) -> tuple[Array, TracedInfo]:
        s, v = cls._begin(A, M, b, x, rtol, atol, size)
        return _answer(_solve(s, v, limit), s.target)


_program = _Program()


def _step_by_step(program: _Program, args: tuple[Any, ...], limit: int, size: int,
                  callback: Callable[[Array], Any]) -> tuple[Array, TracedInfo]:
    A, M, b, x, rtol, atol = args
    system, v = program.start(A, M, b, x, rtol, atol, size=size)
    while int(v.status) == RUNNING:
        k = int(v.k)
        if float(v.norm) > float(system.target) and k < limit:
            v = program.advance(system, v, k + 1)
            if int(v.k) > k and int(v.status) == RUNNING:
                callback(v.x)
                continue
        v = program.verify(system, v, limit)
    return _answer(v, system.target)


# Arguments and results

def _prepare(A: Any, b: Any, x0: Any, device: str | None) -> tuple[Any, Array, Any]:
    operator = _as_operator(A, device, "A", None)
    where_ = device or _common_device(A=A, b=b, x0=x0) or (operator.device if isinstance(operator, CSR) else None)
    if isinstance(operator, CSR) and where_ is not None:
        operator = operator.to_device(where_) if operator.device != where_ else operator
    vector = _vector(b, where_, "b")
    n = vector.shape[0]
    if isinstance(operator, CSR):
        if operator.shape[0] != operator.shape[1]:
            raise ShapeError(f"cg with a matrix of shape {operator.shape}",
                             why="conjugate gradients needs a square matrix",
                             do="for least squares solve A.T @ A, or use a solver for rectangular systems")
        if operator.shape[0] != n:
            raise ShapeError(f"cg with a matrix of shape {operator.shape} and b of length {n}", why="the sizes differ",
                             do="pass a right-hand side with one element for each row")
        common = dt.common_type(operator.dtype, vector.dtype)
        operator = operator if operator.dtype == common else operator.astype(common)
        vector = astype(vector, common)
        operator = bands_of(operator) or operator
    guess = None if x0 is None else astype(_vector(x0, vector.device, "x0"), vector.dtype)
    if guess is not None and guess.shape != vector.shape:
        raise ShapeError(f"cg with x0 of length {guess.shape[0]} and b of length {n}", why="the sizes differ",
                         do="pass a guess with one element for each unknown")
    return operator, vector, guess


def _common_device(**given: Any) -> str | None:
    """The device of the rlx arrays among the arguments; arrays of NumPy and SciPy follow them."""
    places = {name: v.device for name, v in given.items() if isinstance(v, (Array, CSR))}
    if len(set(places.values())) > 1:
        raise DeviceError(f"cg with {', '.join(f'{n} on {d}' for n, d in places.items())}",
                          why="a program runs on one device", do="move them to one device, or pass device=")
    return next(iter(places.values()), None)


def _as_operator(a: Any, device: str | None, name: str, size: int | None) -> Any:
    if a is None and name == "M":
        return None
    if isinstance(a, (list, tuple)):
        a = np.asarray(a)
    if isinstance(a, CSR) or hasattr(a, "tocsr") or (hasattr(a, "ndim") and not callable(a)):
        m = as_csr(a, device)
        if size is not None and m.shape != (size, size):
            raise ShapeError(f"cg with {name} of shape {m.shape}", why=f"the system has {size} unknowns",
                             do="pass a matrix of the system's shape")
        return m
    if type(a).__name__.endswith("LinearOperator") and hasattr(a, "matvec"):
        raise DTypeError(f"cg with {name} a scipy LinearOperator", why="its product runs in NumPy on the host",
                         do="pass a function of an rlx array, a CSR, or a scipy.sparse matrix")
    if not callable(a):
        raise DTypeError(f"cg with {name} of type {type(a).__name__}", why="it is neither a matrix nor a function",
                         do="pass a CSR, a scipy.sparse matrix, an array, or a function of an array")
    return Function(a) if flatten(a)[0] == [a] else a


def _vector(x: Any, device: str | None, name: str) -> Array:
    v = as_array(x, device=device) if not isinstance(x, Array) else asarray(x, device=device)
    if v.ndim == 2 and v.shape[1] == 1:
        v = v.reshape((-1,))
    if v.ndim != 1:
        raise ShapeError(f"cg with {name} of shape {v.shape}", why="it must be a vector",
                         do="pass one right-hand side at a time")
    if v.dtype.kind in "biu":
        return astype(v, dt.float64)
    if v.dtype not in DTYPES:
        raise DTypeError(f"cg with {name} of {v.dtype.name}", why="the solver takes f32, f64, c64 and c128",
                         do="cast it with .astype(rlx.float32)")
    return v


_all_finite = jit(lambda x: every(isfinite(x)))


def _finite(x: Array, name: str) -> None:
    if x.is_traced or not x.dtype.is_inexact:
        return
    if not bool(_all_finite(x)):
        raise ValueIssue(f"cg with a NaN or infinity in {name}", why="no residual would ever be small",
                         do=f"clean {name} first")


def _count(maxiter: Any) -> int:
    if isinstance(maxiter, bool) or not hasattr(maxiter, "__index__") or int(maxiter) < 0:
        raise ValueIssue(f"cg with maxiter={maxiter!r}", why="it counts iterations", do="pass an integer of at least 0")
    return int(maxiter)


def _check_tolerance(rtol: Any, atol: Any) -> None:
    for name, v in (("rtol", rtol), ("atol", atol)):
        if isinstance(v, Array) and v.is_traced:
            continue
        try:
            good = float(v) >= 0
        except (TypeError, ValueError):
            good = False
        if not good:
            raise ValueIssue(f"cg with {name}={v!r}", why="a tolerance is one number of at least 0",
                             do="pass a small positive number")


def _number(v: Any) -> Any:
    return v if isinstance(v, Array) else float(v)


def _answer(v: State, target: Array) -> tuple[Array, TracedInfo]:
    """What leaves the program: the solution, and what the report is made of."""
    return v.x, TracedInfo(v.status, v.k, v.matvecs, v.norm, target, v.history)


__all__ = ["cg"]

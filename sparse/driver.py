"""What the iterative solvers share: one program that advances a method, verifies its claim and restarts it.

A method iterates by its recurrence. When that reports convergence the driver computes the residual anew from x; a
residual that is not small enough restarts the method from it. Right-hand sides far from 1 are scaled by a power of two,
so that no square overflows. The whole is a while loop of the IR, with derivatives by one more solve.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rlx.array.array import Array
from rlx.array.build import level
from rlx.array.jit import jit
from rlx.array.tree import flatten
from rlx.core import dtype as dt
from rlx.core.errors import ValueIssue
from rlx.ops.control import while_loop
from rlx.ops.creation import asarray, full
from rlx.ops.elementwise import abs as magnitude
from rlx.ops.elementwise import astype, clip, conj, exp2, isfinite, log2, maximum, real, sqrt, where
from rlx.ops.elementwise import round as nearest
from rlx.ops.index import scatter
from rlx.ops.reduce import all as every
from rlx.ops.reduce import max as largest
from rlx.ops.reduce import sum as total
from rlx.sparse.arguments import (
    Function,
    adjoint,
    apply,
    as_operator,
    check_callback,
    check_limits,
    number,
    square_system,
)
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
from rlx.transform.implicit import custom_linear_solve

#: Units of rounding, relative to ``||b||``, below which a residual cannot be told from none.
ROUNDING = 1024.0
#: Iterations whose residual is kept in the history.
HISTORY = 1 << 14
#: Binary exponents of ``max |b|`` beyond which b is scaled (squares and their sums stay finite within), and the most
#: that a scale may have (its inverse is a normal number). By bits of a real number.
SCALED, STEEPEST = {32: 30, 64: 300}, {32: 120, 64: 1000}


class State(NamedTuple):
    """What an iteration carries. ``norm`` is the method's own ``||r||``, ``last`` the true one at the last restart,
    ``own`` what the method adds."""

    x: Array
    norm: Array
    last: Array
    k: Array
    matvecs: Array
    status: Array
    history: Array
    own: Any


@dataclass(frozen=True)
class System:
    """A linear system in the form an iteration uses: the operator, the preconditioner (or None), b in units of
    ``scale``, its target, and the residual at which rounding ends all progress. ``H`` is the conjugate transpose of A
    where the method asks for it."""

    A: Any
    M: Any
    H: Any
    b: Array
    scale: Array
    target: Array
    rounding: Array


class Method(ABC):
    """An iterative method; hashable: a program is compiled for each."""

    name: str
    #: Iterations that one step may take.
    stride = 1
    #: Whether A is promised to be Hermitian.
    hermitian = False
    #: Whether a breakdown after progress is worth a restart from the true residual.
    restarts = False

    def residual(self, s: System, x: Array) -> tuple[Any, Array, int]:
        """The true residual, its norm, and how many products it took."""
        r = s.b - apply(s.A, x)
        return r, sqrt(dot(r, r)), 1

    def measure(self, s: System) -> Array:
        """The norm that the relative tolerance is relative to."""
        return sqrt(dot(s.b, s.b))

    @abstractmethod
    def begin(self, s: System, r: Any, norm: Array) -> Any:
        """What the method carries, at the start from a residual."""

    @abstractmethod
    def step(self, s: System, v: State, limit: Array) -> State:
        """One step of the recurrence."""


def dot(u: Array, v: Array) -> Array:
    """``Re(u^H v)``."""
    return real(total(conj(u) * v))


def inner(u: Array, v: Array) -> Array:
    """``u^H v``."""
    return total(conj(u) * v)


def precondition(s: System, r: Array) -> Array:
    """``M r``."""
    return r if s.M is None else apply(s.M, r)


def status_of(good: Array, finite: Array) -> Array:
    """Running where ``good``, else a breakdown, or non-finite."""
    return astype(where(good, RUNNING, where(finite, BREAKDOWN, NONFINITE)), dt.int32)


def remember(v: State, k: Array, norm: Array) -> Array:
    """The history with one more entry."""
    return scatter(v.history, norm, (k,), "set")


def _start(m: Method, s: System, x: Array, size: int) -> State:
    """The first residual, the method's own start, and an empty history."""
    r, norm, products = m.residual(s, x)
    counter = asarray(0, dtype=dt.int64, device=s.b.device)
    history = scatter(full((size + 1,), float("nan"), dtype=norm.dtype, device=s.b.device), norm, (counter,), "set")
    status = astype(where(isfinite(norm), RUNNING, NONFINITE), dt.int32)
    return State(x, norm, norm, counter, counter + products, status, history, m.begin(s, r, norm))


def _advance(m: Method, s: System, v: State, limit: Array) -> State:
    """Iterate until the recurrence's residual is within the target, the limit is reached, or it breaks down."""
    found: State = while_loop(lambda u: (u.status == RUNNING) & (u.norm > s.target) & (u.k < limit),
                              lambda u: m.step(s, u, limit), v)
    return found


def _verify(m: Method, s: System, v: State, limit: Array) -> State:
    """Compute the residual from x; restart from it when the recurrence had drifted away, else say how it ended."""
    r, norm, products = m.residual(s, v.x)
    stuck = norm > 0.5 * v.last
    ended = where(v.k >= limit, MAXITER, where(stuck, STAGNATED, RUNNING))
    # A breakdown at the level of rounding says nothing about A.
    broken = where(norm <= s.rounding, STAGNATED, BREAKDOWN)
    if m.restarts:
        broken = where(stuck, broken, RUNNING)
    ended = where(v.status == RUNNING, ended, where(v.status == BREAKDOWN, broken, v.status))
    status = where(norm <= s.target, CONVERGED, where(isfinite(norm), ended, NONFINITE))
    return State(v.x, norm, norm, v.k, v.matvecs + products, astype(status, dt.int32), v.history, m.begin(s, r, norm))


def _solve(m: Method, s: System, v: State, limit: Array) -> State:
    """Advance and verify until it is decided."""
    found: State = while_loop(lambda u: u.status == RUNNING,
                              lambda u: _verify(m, s, _advance(m, s, u, limit), limit), v)
    return found


def _scale(m: Array) -> Array:
    """1, or a power of two near a size ``m`` that is so far from 1 that its square may leave the numbers."""
    bits = m.dtype.bits
    exponent = log2(where((m > 0) & isfinite(m), m, 1))
    far = (exponent > SCALED[bits]) | (exponent < -SCALED[bits])
    return exp2(where(far, clip(nearest(exponent), -STEEPEST[bits], STEEPEST[bits]), 0))


def _scaled(A: Any, b: Array, x: Array | None) -> tuple[Array, Array, Array]:
    """b and the guess in units of a scale, and the scale. The answer for b = 0 is 0, whatever the guess."""
    if b.shape[0] == 0:
        return b, b if x is None else x, full((), 1, dtype=real(b).dtype, device=b._value.node.device)
    size = largest(magnitude(b))
    if x is None:
        scale = _scale(size)
        return b / scale, None, scale  # type: ignore[return-value]
    scale = _scale(maximum(size, largest(magnitude(b - apply(A, x)))))
    return b / scale, where(size == 0, 0, x / scale), scale


class Program:
    """The compiled pieces of a method: one program for a whole solve, or a start, steps and an end for a callback."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.solve = jit(self._whole, static_argnames=("size", "unknowns"))
        self.start = jit(self._begin, static_argnames=("size", "unknowns"))
        self.advance = jit(lambda s, v, limit: _advance(method, s, v, limit))
        self.verify = jit(lambda s, v, limit: _verify(method, s, v, limit))

    def _begin(self, A: Any, M: Any, H: Any, b: Array, x: Any, rtol: Any, atol: Any, *, size: int,
               unknowns: int) -> tuple[System, State]:
        b, x, scale = _scaled(A, b, x)
        if x is None:
            x = full((unknowns,), 0, dtype=b.dtype, device=b._value.node.device)
        norm = self.method.measure(System(A, M, H, b, scale, scale, scale))
        rel, least = astype(rtol, norm.dtype) * norm, astype(atol, norm.dtype) / scale
        s = System(A, M, H, b, scale, where(rel > least, rel, least), norm * (ROUNDING * _epsilon(b)))
        return s, _start(self.method, s, x, size)

    def _whole(self, A: Any, M: Any, H: Any, b: Array, x: Any, rtol: Any, atol: Any, limit: Any, *, size: int,
               unknowns: int) -> tuple[Array, TracedInfo]:
        s, v = self._begin(A, M, H, b, x, rtol, atol, size=size, unknowns=unknowns)
        return _answer(_solve(self.method, s, v, limit), s)


program_of = lru_cache(maxsize=64)(Program)


def _epsilon(b: Array) -> float:
    return float(np.finfo(b.dtype.numpy).eps)


def _answer(v: State, s: System) -> tuple[Array, TracedInfo]:
    """What leaves the program: the solution, and what the report is made of."""
    x = v.x * s.scale
    status = where(every(isfinite(x)), v.status, NONFINITE)
    return x, TracedInfo(astype(status, dt.int32), v.k, v.matvecs, v.norm * s.scale, s.target * s.scale,
                                     v.history * s.scale)


@dataclass(frozen=True)
class Task:
    """One solve with all that it needs."""

    method: Method
    A: Any
    M: Any
    H: Any
    b: Array
    x0: Array | None
    rtol: Any
    atol: Any
    limit: int
    unknowns: int

    @property
    def program(self) -> Program:
        """The compiled pieces; what a function captures may change between calls, so that it is traced anew."""
        plain = any(isinstance(f, Function) for f in (self.A, self.M))
        return Program(self.method) if plain else program_of(self.method)

    @property
    def size(self) -> int:
        """Entries of the history."""
        return builtins.min(builtins.max(self.limit, 1), HISTORY)

    def run(self, A: Any, M: Any, H: Any, b: Array) -> tuple[Array, TracedInfo]:
        """The whole solve, for this operator or another."""
        out: tuple[Array, TracedInfo] = self.program.solve(
            A, M, H, b, self.x0, self.rtol, self.atol, self.limit, size=self.size, unknowns=self.unknowns)
        return out

    def stepped(self, callback: Callable[[Array], Any]) -> tuple[Array, TracedInfo]:
        """The same, returning to Python after each step."""
        program = self.program
        s, v = program.start(self.A, self.M, self.H, self.b, self.x0, self.rtol, self.atol, size=self.size,
                             unknowns=self.unknowns)
        while int(v.status) == RUNNING:
            k = int(v.k)
            if float(v.norm) > float(s.target) and k < self.limit:
                v = program.advance(s, v, builtins.min(k + self.method.stride, self.limit))
                if int(v.k) > k and int(v.status) == RUNNING:
                    callback(v.x * s.scale)
                    continue
            v = program.verify(s, v, self.limit)
        return _answer(v, s)

    def report(self, x: Array, traced: TracedInfo) -> tuple[Array, Any]:
        """The answer with its report; a failure by values that are not finite is traced to the argument."""
        info = SolverInfo.from_traced(traced, self.method.name)
        if info.reason == "nonfinite":
            # Only now is it worth a pass over the arguments: were they finite?
            for name, given in (("A", self.A), ("b", self.b), ("x0", self.x0), ("M", self.M)):
                for leaf in flatten(given)[0]:
                    _finite(self.method.name, leaf, name)
        return x, info


def solve_square(method: Method, A: Any, b: Any, x0: Any, rtol: Any, atol: Any, maxiter: Any, M: Any,
                 callback: Any, device: str | None) -> tuple[Array, Any]:
    """Solve a square system by a method: eagerly, step by step, or inside a traced function with derivatives."""
    operator, vector, guess = square_system(method.name, A, b, x0, device)
    n = int(vector.shape[0])
    precond = as_operator(method.name, M, vector.device, "M", n)
    limit = check_limits(method.name, maxiter, rtol, atol, 10 * n)
    task = Task(method, operator, precond, None, vector, guess, number(rtol), number(atol), limit, n)
    traced = is_traced(operator, precond, vector, guess, task.rtol, task.atol)
    check_callback(method.name, callback, traced)
    if callback is not None:
        return task.report(*task.stepped(callback))
    if not traced:
        x, info = task.run(operator, precond, None, vector)
        return (x, info) if x.is_traced else task.report(x, info)

    def turned(_: Any, c: Array) -> tuple[Array, TracedInfo]:
        return task.run(adjoint(operator, n), adjoint(precond, n), None, c)
    out: tuple[Array, TracedInfo] = custom_linear_solve(
        lambda v: apply(operator, v), vector, lambda _, c: task.run(operator, precond, None, c),
        None if method.hermitian else turned, symmetric=method.hermitian, has_aux=True)
    return out


def is_traced(*given: Any) -> bool:
    """Whether any array among these is traced, or a function may use one."""
    leaves = flatten(given)[0]
    functions = level() > 0 and any(isinstance(g, Function) for g in given)
    return functions or any(isinstance(x, Array) and x.is_traced for x in leaves)


_all_finite = jit(lambda x: every(isfinite(x)))


def _finite(who: str, x: Any, name: str) -> None:
    if not isinstance(x, Array) or x.is_traced or not x.dtype.is_inexact:
        return
    if not bool(_all_finite(x)):
        raise ValueIssue(f"{who} with a NaN or infinity in {name}", why="no residual would ever be small",
                         do=f"clean {name} first")

"""Least squares by Golub-Kahan bidiagonalization: LSQR and LSMR, for matrices of any shape; one program."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rlx.array.array import Array
from rlx.array.tree import register_pytree
from rlx.core import dtype as dt
from rlx.core.errors import ValueIssue
from rlx.ops.creation import zeros
from rlx.ops.elementwise import abs as magnitude
from rlx.ops.elementwise import astype, isfinite, sqrt, where
from rlx.ops.movement import concat, slice_of
from rlx.sparse.arguments import apply, check_callback, check_limits, number, rectangular_system
from rlx.sparse.driver import Method, State, System, Task, dot, is_traced, remember
from rlx.sparse.report import NONFINITE, RUNNING
from rlx.transform.implicit import custom_linear_solve


class Tall(NamedTuple):
    """A vector in the range of ``[A; damp I]``: one part for A's rows, one for x's (None without damping)."""

    top: Array
    low: Array | None


class Steps(NamedTuple):
    """The bidiagonalization: ``u``, ``v`` and ``alpha``, the norm that v had."""

    u: Tall
    v: Array
    alpha: Array


class Plane(NamedTuple):
    """What LSQR adds: a direction and a rotation."""

    steps: Steps
    w: Array
    rhobar: Array
    phibar: Array


class Planes(NamedTuple):
    """What LSMR adds: two directions and two rotations."""

    steps: Steps
    h: Array
    hbar: Array
    alphabar: Array
    zetabar: Array
    rho: Array
    rhobar: Array
    cbar: Array
    sbar: Array


def _norm(u: Tall) -> Array:
    return sqrt(dot(u.top, u.top) if u.low is None else dot(u.top, u.top) + dot(u.low, u.low))


def _unit(norm: Array) -> Array:
    out: Array = where(norm == 0, 0, 1 / where(norm == 0, 1, norm))
    return out


@dataclass(frozen=True)
class LeastSquares(Method):
    """What LSQR and LSMR share. The norms are those of the normal equations, ``||A^H (b - A x) - damp^2 x||``."""

    damp: float = 0.0

    def forward(self, s: System, v: Array) -> Tall:
        """``[A; damp I] v``."""
        return Tall(apply(s.A, v), v * self.damp if self.damp else None)

    def backward(self, s: System, u: Tall) -> Array:
        """``[A; damp I]^H u``."""
        out = apply(s.H, u.top)
        return out if u.low is None else out + u.low * self.damp

    def residual(self, s: System, x: Array) -> tuple[Tall, Array, int]:
        """``b - A x`` (and ``-damp x``), and the norm of its product with the transpose."""
        r = Tall(s.b - apply(s.A, x), -(x * self.damp) if self.damp else None)
        g = self.backward(s, r)
        return r, sqrt(dot(g, g)), 2

    def measure(self, s: System) -> Array:
        """``||A^H b||``."""
        g = apply(s.H, s.b)
        return sqrt(dot(g, g))

    def open(self, s: System, r: Tall) -> tuple[Steps, Array]:
        """The first pair of vectors, and ``||r||``."""
        beta = _norm(r)
        u = self._scaled(r, _unit(beta))
        v = self.backward(s, u)
        alpha = sqrt(dot(v, v))
        return Steps(u, v * _unit(alpha), alpha), beta

    def grow(self, s: System, o: Steps) -> tuple[Steps, Array]:
        """The next pair of vectors, and beta: ``beta u = A v - alpha u``, ``alpha v = A^H u - beta v``."""
        t = self.forward(s, o.v)
        u = Tall(t.top - o.alpha * o.u.top, None if t.low is None or o.u.low is None else t.low - o.alpha * o.u.low)
        beta = _norm(u)
        u = self._scaled(u, _unit(beta))
        v = self.backward(s, u) - beta * o.v
        alpha = sqrt(dot(v, v))
        return Steps(u, v * _unit(alpha), alpha), beta

    @staticmethod
    def _scaled(u: Tall, by: Array) -> Tall:
        return Tall(u.top * by, None if u.low is None else u.low * by)

    def moved(self, v: State, x: Array, norm: Array, own: Any) -> State:
        """The state after an iteration."""
        k = v.k + 1
        status = astype(where(isfinite(norm), RUNNING, NONFINITE), dt.int32)
        return State(x, norm, v.last, k, v.matvecs + 2, status, remember(v, k, norm), own)

    @abstractmethod
    def begin(self, s: System, r: Any, norm: Array) -> Any:
        """The bidiagonalization and the rotations at their start."""

    @abstractmethod
    def step(self, s: System, v: State, limit: Array) -> State:
        """One iteration: a product with A and one with its transpose."""


@dataclass(frozen=True)
class LSQR(LeastSquares):
    """C. C. Paige and M. A. Saunders, ACM Trans. Math. Softw. 8 (1982) 43, in its notation."""

    name = "lsqr"

    def begin(self, s: System, r: Tall, norm: Array) -> Plane:
        """The first direction is v."""
        steps, beta = self.open(s, r)
        return Plane(steps, steps.v, steps.alpha, beta)

    def step(self, s: System, v: State, limit: Array) -> State:
        """One iteration."""
        o: Plane = v.own
        steps, beta = self.grow(s, o.steps)
        rho = sqrt(o.rhobar * o.rhobar + beta * beta)
        over = _unit(rho)
        c, sn = o.rhobar * over, beta * over
        phi, phibar = c * o.phibar, sn * o.phibar
        own = Plane(steps, steps.v - (sn * steps.alpha * over) * o.w, -c * steps.alpha, phibar)
        return self.moved(v, v.x + (phi * over) * o.w, phibar * steps.alpha * magnitude(c), own)


@dataclass(frozen=True)
class LSMR(LeastSquares):
    """D. C.-L. Fong and M. A. Saunders, SIAM J. Sci. Comput. 33 (2011) 2950, in its notation."""

    name = "lsmr"

    def begin(self, s: System, r: Tall, norm: Array) -> Planes:
        """The first direction is v."""
        steps, beta = self.open(s, r)
        one = beta * 0 + 1
        return Planes(steps, steps.v, steps.v * 0, steps.alpha, steps.alpha * beta, one, one, one, one * 0)

    def step(self, s: System, v: State, limit: Array) -> State:
        """One iteration."""
        o: Planes = v.own
        steps, beta = self.grow(s, o.steps)
        rho = sqrt(o.alphabar * o.alphabar + beta * beta)
        c, sn = o.alphabar * _unit(rho), beta * _unit(rho)
        theta, alphabar = sn * steps.alpha, c * steps.alpha
        thetabar, temporary = o.sbar * rho, o.cbar * rho
        rhobar = sqrt(temporary * temporary + theta * theta)
        cbar, sbar = temporary * _unit(rhobar), theta * _unit(rhobar)
        zeta, zetabar = cbar * o.zetabar, -sbar * o.zetabar
        hbar = o.h - (thetabar * rho * _unit(o.rho * o.rhobar)) * o.hbar
        own = Planes(steps, steps.v - (theta * _unit(rho)) * o.h, hbar, alphabar, zetabar, rho, rhobar, cbar, sbar)
        return self.moved(v, v.x + (zeta * _unit(rho * rhobar)) * hbar, magnitude(zetabar), own)


def lsqr(A: Any, b: Any, x0: Any = None, *, damp: float = 0.0, rtol: float = 1e-5, atol: float = 0.0,
         maxiter: int | None = None,
         callback: Callable[[Array], Any] | None = None, device: str | None = None) -> tuple[Array, Any]:
    """Minimize ``||A x - b||^2 + damp^2 ||x||^2`` for a matrix of any shape, by LSQR.

    Parameters
    ----------
    A : a sparse matrix of rlx or SciPy, a dense array (m, n), or a linear function of an array (n,) that gives (m,);
        a function's transpose is found by differentiating it, and its n is that of ``x0``.
    b : array (m,), f32, f64, c64 or c128.
    x0 : starting guess; zeros by default. Without damping and from zeros, x is the solution of least norm.
    damp : weight of the norm of x.
    rtol, atol : stop when ``||A^H (b - A x) - damp^2 x||`` is at most ``max(rtol * ||A^H b||, atol)``: this is the
        ``residual`` of the report, that of the normal equations, whether or not the system has a solution.
    maxiter : most iterations; ``10 n`` by default.
    callback, device : as for :func:`cg`.

    Returns
    -------
    (x, info) : as :func:`cg`; in a traced function x has derivatives with respect to b and the values of A (of full
    rank, or damped) by two more solves.

    >>> import rlx.sparse
    >>> A = rlx.sparse.CSR.from_arrays([0, 1, 2, 2], [0, 1, 0, 1], [1.0, 1.0, 1.0, 1.0], (3, 2))
    >>> x, info = rlx.sparse.lsqr(A, rlx.asarray([1.0, 2.0, 6.0]), rtol=1e-12)
    >>> int(info), [round(v, 4) for v in x.tolist()]
    (0, [2.0, 3.0])
    """
    return _solve(LSQR(_damping("lsqr", damp)), A, b, x0, rtol, atol, maxiter, callback, device)


def lsmr(A: Any, b: Any, x0: Any = None, *, damp: float = 0.0, rtol: float = 1e-5, atol: float = 0.0,
         maxiter: int | None = None,
         callback: Callable[[Array], Any] | None = None, device: str | None = None) -> tuple[Array, Any]:
    """Minimize ``||A x - b||^2 + damp^2 ||x||^2`` by LSMR, whose residual of the normal equations never grows.

    Arguments and result are those of :func:`lsqr`.

    >>> import rlx.sparse
    >>> A = rlx.sparse.CSR.from_arrays([0, 1, 2, 2], [0, 1, 0, 1], [1.0, 1.0, 1.0, 1.0], (3, 2))
    >>> x, info = rlx.sparse.lsmr(A, rlx.asarray([1.0, 2.0, 6.0]), rtol=1e-12)
    >>> int(info), [round(v, 4) for v in x.tolist()]
    (0, [2.0, 3.0])
    """
    return _solve(LSMR(_damping("lsmr", damp)), A, b, x0, rtol, atol, maxiter, callback, device)


def _damping(who: str, damp: Any) -> float:
    try:
        value = float(damp)
    except (TypeError, ValueError):
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise ValueIssue(f"{who} with damp={damp!r}", why="it is the weight of the norm of x, one number of at least 0",
                         do="pass a number such as 0.1")
    return value


def _solve(method: LeastSquares, A: Any, b: Any, x0: Any, rtol: Any, atol: Any, maxiter: Any, callback: Any,
           device: str | None) -> tuple[Array, Any]:
    operator, turned, vector, guess, n = rectangular_system(method.name, A, b, x0, device)
    limit = check_limits(method.name, maxiter, rtol, atol, 10 * n)
    task = Task(method, operator, None, turned, vector, guess, number(rtol), number(atol), limit, n)
    traced = is_traced(operator, vector, guess, task.rtol, task.atol)
    check_callback(method.name, callback, traced)
    if callback is not None:
        return task.report(*task.stepped(callback))
    if not traced:
        x, info = task.run(operator, None, turned, vector)
        return (x, info) if x.is_traced else task.report(x, info)
    return _with_derivatives(task)


def _with_derivatives(task: Task) -> tuple[Array, Any]:
    """The solve as one of a Hermitian linear system that has derivatives.

    ``r + A x = f``, ``A^H r - damp^2 x = g`` with ``g = 0`` is the least squares problem. In general x is that of f,
    less the z of ``(A^H A + damp^2) z = g``, which two more solves find without squaring A: the u of least norm with
    ``[A; damp I]^H u = g``, and the z with ``[A; damp I] z = u``. They take no iteration for ``g = 0``.
    """
    method, A, H, n = task.method, task.A, task.H, task.unknowns
    assert isinstance(method, LeastSquares)
    damp, m = method.damp, int(task.b.shape[0])

    def matvec(t: tuple[Array, Array]) -> tuple[Array, Array]:
        r, x = t
        back = apply(H, r)
        return r + apply(A, x), back - x * damp ** 2 if damp else back

    def solve(_: Any, t: tuple[Array, Array]) -> tuple[tuple[Array, Array], Any]:
        f, g = t
        x, info = task.run(A, None, H, f)
        x = x - _normal(task, m, g)
        return (f - apply(A, x), x), info

    (_, x), info = custom_linear_solve(matvec, (task.b, _zeros(task.b, n)), solve, symmetric=True, has_aux=True)
    return x, info


class Stacked:
    """``[A; damp I]`` as an operator on vectors, or its conjugate transpose."""

    def __init__(self, A: Any, H: Any, damp: float, m: int, turned: bool) -> None:
        self.parts, self.damp, self.m, self.turned = (A, H), damp, m, turned

    def __call__(self, x: Array) -> Array:
        if not self.turned:
            top = apply(self.parts[0], x)
            return concat((top, x * self.damp)) if self.damp else top
        top = slice_of(x, (0,), (self.m,))
        out = apply(self.parts[1], top)
        return out + slice_of(x, (self.m,), (x.shape[0] - self.m,)) * self.damp if self.damp else out


def _normal(task: Task, m: int, g: Array) -> Array:
    """The z of ``(A^H A + damp^2) z = g``."""
    assert isinstance(task.method, LeastSquares)
    damp, n = task.method.damp, task.unknowns
    plain = type(task.method)(0.0)
    down, up = (Stacked(task.A, task.H, damp, m, turned) for turned in (False, True))
    rows = m + n if damp else m
    first = replace(task, method=plain, A=up, H=down, x0=None, unknowns=rows)
    u, _ = first.run(up, None, down, g)
    second = replace(task, method=plain, A=down, H=up, x0=None, unknowns=n)
    return second.run(down, None, up, u)[0]


def _zeros(like: Array, n: int) -> Array:
    return zeros((n,), dtype=like.dtype, device=like._value.node.device)


register_pytree(Stacked, lambda s: (s.parts, (s.damp, s.m, s.turned)),
                lambda data, parts: Stacked(parts[0], parts[1], *data))


__all__ = ["lsmr", "lsqr"]

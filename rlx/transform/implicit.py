"""Implicit differentiation: derivatives of what a solver finds, without differentiating the solver.

``A x = b``: the tangent of x solves ``A dx = db - dA x``, its cotangent ``A^T l = ct``, then ``ct_b = l`` and
``ct_A`` is the cotangent of ``-A x`` along l. ``f(x, p) = 0``: the same with ``A = df/dx``. Every rule is made of one
more solve, which has these rules again, so that higher derivatives work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.array.array import Array
from rlx.array.build import as_array, level, tracing
from rlx.array.tree import Tree, flatten, tree_map, unflatten
from rlx.core.errors import NotDifferentiableError, ShapeError
from rlx.ir.graph import Graph, Value, close
from rlx.ops.control import while_loop
from rlx.ops.derivative import filled, zeros_as
from rlx.ops.elementwise import abs as abs_of
from rlx.ops.elementwise import conj, real, sqrt
from rlx.ops.reduce import sum as sum_of
from rlx.transform.batch import batch_graph
from rlx.transform.call import Body, call, close_over
from rlx.transform.control import pull_graph, run
from rlx.transform.custom import _closed, _full, _reordered
from rlx.transform.derive import jvp, vjp
from rlx.transform.forward import Dual, Pusher
from rlx.transform.reverse import Cotangents
from rlx.transform.sweep import fresh

Arrays = Sequence[Array]
MatVec = Callable[[Any], Any]
Solve = Callable[[MatVec, Any], Any]


class Solved(Body):
    """``solve(A, b)`` for a linear map that depends on parameters.

    ``graph`` is (b, parameters) -> (x, reports), ``transpose`` the same for the transposed map (None: it is not known),
    ``map`` (x, parameters) -> A x. Reports have no derivative.
    """

    def __init__(self, graph: Graph, transpose: Graph | None, map_: Graph, size: int) -> None:
        super().__init__(graph, "linear_solve")
        self.transpose, self.map, self.size = transpose, map_, size

    def pull(self, cts: Cotangents, outs: Arrays, args: Arrays, live: Sequence[bool]) -> Cotangents:
        """One transposed solve."""
        params = args[self.size:]
        if self.transpose is None:
            raise NotDifferentiableError("the reverse derivative of a linear solve without a transposed solve",
                                         why="the transpose of the map must be solved with",
                                         do="pass transpose_solve=, or symmetric=True, or use forward mode")
        turned = Solved(self.transpose, self.graph, self._transposed_map(args), self.size)
        xs = outs[:self.size]
        seeds = [filled(c, o) for c, o in zip(cts, xs, strict=False)]
        duals = call(turned, [*seeds, *params])[:self.size]
        on = [False] * self.size + [bool(x) for x in live[self.size:]]
        rest = pull_graph(self.map, [*xs, *params], on, [-d for d in duals])
        return [*duals, *rest[self.size:]]

    def push(self, args: Sequence[Dual]) -> list[Dual]:
        """One solve with ``db - dA x``."""
        arrays = [a.array for a in args]
        outs = call(self, arrays)
        xs, reports = outs[:self.size], outs[self.size:]
        moved = Pusher().graph(self.map, [*[Dual(x) for x in xs], *args[self.size:]])
        right = []
        for b, m in zip(args, moved, strict=False):
            t = filled(b.tangent, b.array)
            right.append(t if m.tangent is None else t - m.tangent)
        tangents = call(self, [*right, *arrays[self.size:]])[:self.size]
        return [*[Dual(x, t) for x, t in zip(xs, tangents, strict=True)], *[Dual(r) for r in reports]]

    def batched(self, axes: Sequence[bool], size: int, args: Arrays) -> tuple[list[Array], list[bool]]:
        """The three functions over the batch."""
        every = [True] * self.size + list(axes[self.size:])
        rhs = _full((list(args[:self.size]), list(axes[:self.size])), size)
        operands = [*rhs, *args[self.size:]]

        def over(g: Graph | None) -> Graph | None:
            return None if g is None else _closed(lambda *xs: _full(batch_graph(g, xs, every, size), size), operands)
        graph, map_ = over(self.graph), over(self.map)
        assert graph is not None and map_ is not None
        outs = call(Solved(graph, over(self.transpose), map_, self.size), operands)
        return outs, [True] * len(outs)

    def _transposed_map(self, args: Arrays) -> Graph:
        """(y, parameters) -> A^T y."""
        def f(*xs: Array) -> list[Array]:
            ys, params = xs[:self.size], xs[self.size:]
            on = [True] * self.size + [False] * len(params)
            zeros = [zeros_as(y) for y in ys]
            return [filled(c, y) for c, y in zip(pull_graph(self.map, [*zeros, *params], on, list(ys)), ys,
                                                 strict=False)]
        graph, captured, _ = close_over(f, args)
        assert not captured
        return graph


def custom_linear_solve(matvec: MatVec, b: Any, solve: Solve, transpose_solve: Solve | None = None,
                        symmetric: bool = False, has_aux: bool = False) -> Any:
    """The solution ``x`` of ``matvec(x) = b`` by ``solve(matvec, b)``, differentiable by one more solve.

    ``matvec`` is linear and may use arrays from around it: x is differentiated with respect to them and ``b``.
    ``transpose_solve(matvec_T, b)`` serves the reverse mode; ``symmetric=True`` says that ``solve`` does (for complex
    values: that the map is Hermitian). b and x are trees of one structure. With ``has_aux`` the solvers return
    ``(x, report)`` and so does this function; a report has no derivative.

    >>> import rlx
    >>> def x(a):
    ...     one = rlx.asarray(1.0)
    ...     return rlx.custom_linear_solve(lambda v: a * v, 6.0 * one, lambda mv, b: b / mv(one), symmetric=True)
    >>> x(rlx.asarray(2.0)).item(), rlx.grad(x)(2.0).item()
    (3.0, -1.5)
    """
    leaves, structure = flatten(b)
    rhs = [as_array(x) for x in leaves]
    if not any(a.is_traced for a in rhs) and level() == 0:
        return solve(matvec, b)
    map_, params = _matrix(matvec, rhs, structure)
    forward = _solver(solve, map_, rhs, structure, False)
    backward = _solver(solve, map_, rhs, structure, False) if symmetric else \
        None if transpose_solve is None else _solver(transpose_solve, map_, rhs, structure, True)
    found = [g for g in (forward, backward) if g is not None]
    graphs, operands = _merge([map_, *[(g, captured) for g, captured, _ in found]], len(rhs), params)
    body = Solved(graphs[1], graphs[2] if backward is not None else None, graphs[0], len(rhs))
    outs = call(body, [*rhs, *operands])
    x = unflatten(structure, outs[:len(rhs)])
    return (x, unflatten(forward[2].children[1], outs[len(rhs):])) if has_aux else x


Closed = tuple[Graph, list[Value]]


def _matrix(matvec: MatVec, rhs: Arrays, structure: Tree) -> tuple[Closed, list[Value]]:
    def f(*xs: Array) -> Any:
        out = matvec(unflatten(structure, list(xs)))
        if flatten(out)[1] != structure:
            raise ShapeError("a linear map that changes the structure of its argument",
                             why="x and b have one structure",
                             do="return a tree like the argument")
        return out
    closed = _close(f, rhs)
    return closed, closed[1]


def _close(f: Callable[..., Any], like: Arrays) -> Closed:
    with tracing() as depth:
        stand = [fresh(a, depth) for a in like]
        outs = [as_array(x)._value for x in flatten(f(*stand))[0]]
        graph, captured = close(outs, [s._value for s in stand], depth, "solve")
    return graph, captured


def _solver(solve: Solve, map_: Closed, rhs: Arrays, structure: Tree,
            turned: bool) -> tuple[Graph, list[Value], Tree]:
    """``solve`` traced with the map's captured values as they are, and the structure of what it returns."""
    graph, params = map_
    extra = [Array(v) for v in params]

    def matvec(tree: Any) -> Any:
        xs = [as_array(x) for x in flatten(tree)[0]]
        if not turned:
            return unflatten(structure, run(graph, [*xs, *extra]))
        on = [True] * len(xs) + [False] * len(extra)
        got = pull_graph(graph, [*[zeros_as(x) for x in xs], *extra], on, list(xs))
        return unflatten(structure, [filled(c, x) for c, x in zip(got, xs, strict=False)])
    shape: list[Tree] = []

    def f(*b: Array) -> Any:
        out = solve(matvec, unflatten(structure, list(b)))
        shape[:] = [flatten(out)[1]]
        return out
    graph, captured = _close(f, rhs)
    return graph, captured, shape[0]


def _merge(closed: Sequence[Closed], fixed: int, first: Sequence[Value]) -> tuple[list[Graph], list[Array]]:
    """The graphs with the same captured inputs after their own."""
    operands = list(dict.fromkeys([*first, *[v for _, captured in closed for v in captured]]))
    return [_reordered(g, fixed, captured, operands) for g, captured in closed], [Array(v) for v in operands]


class Root(Body):
    """``f(x, parameters) = 0``: x by a solver, its derivatives by linear solves with ``df/dx``.

    ``graph`` is (x0, parameters) -> x, ``function`` (x, parameters) -> f; ``tangent`` and ``cotangent`` are (right-hand
    side, x, parameters) -> solution with ``df/dx`` and its transpose.
    """

    def __init__(self, graph: Graph, function: Graph, tangent: Graph, cotangent: Graph, size: int) -> None:
        super().__init__(graph, "root")
        self.function, self.tangent, self.cotangent, self.size = function, tangent, cotangent, size

    def _linear(self, xs: Arrays, params: Arrays, turned: bool) -> tuple[Solved, list[Array]]:
        k = self.size

        def slope(*args: Array) -> list[Array]:
            v, at = args[:k], args[k:]
            duals = Pusher().graph(self.function, [*[Dual(x, t) for x, t in zip(at[:k], v, strict=True)],
                                                   *[Dual(p) for p in at[k:]]])
            return [filled(d.tangent, d.array) for d in duals]

        def slope_t(*args: Array) -> list[Array]:
            v, at = args[:k], args[k:]
            got = pull_graph(self.function, at, [True] * k + [False] * (len(at) - k), list(v))
            return [filled(c, x) for c, x in zip(got, v, strict=False)]

        operands = [*xs, *xs, *params]
        m, _, _ = close_over(slope_t if turned else slope, operands)
        pair = (self.cotangent, self.tangent) if turned else (self.tangent, self.cotangent)
        return Solved(*pair, m, k), [*xs, *params]

    def pull(self, cts: Cotangents, outs: Arrays, args: Arrays, live: Sequence[bool]) -> Cotangents:
        """One transposed solve with the derivative of f at the root."""
        params = args[self.size:]
        body, operands = self._linear(outs, params, True)
        duals = call(body, [*[filled(c, o) for c, o in zip(cts, outs, strict=True)], *operands])
        on = [False] * self.size + [bool(x) for x in live[self.size:]]
        rest = pull_graph(self.function, [*outs, *params], on, [-d for d in duals])
        return [*[None] * self.size, *rest[self.size:]]

    def push(self, args: Sequence[Dual]) -> list[Dual]:
        """One solve with the derivative of f at the root."""
        arrays = [a.array for a in args]
        xs = call(self, arrays)
        moved = Pusher().graph(self.function, [*[Dual(x) for x in xs], *args[self.size:]])
        body, operands = self._linear(xs, arrays[self.size:], False)
        right = [-filled(m.tangent, m.array) for m in moved]
        return [Dual(x, t) for x, t in zip(xs, call(body, [*right, *operands]), strict=True)]

    def batched(self, axes: Sequence[bool], size: int, args: Arrays) -> tuple[list[Array], list[bool]]:
        """The four functions over the batch."""
        k = self.size
        start = _full((list(args[:k]), list(axes[:k])), size)
        operands = [*start, *args[k:]]
        short = [True] * k + list(axes[k:])

        def over(g: Graph, places: list[bool], like: Arrays) -> Graph:
            return _closed(lambda *xs: _full(batch_graph(g, xs, places, size), size), like)
        long, wide = [True] * k + short, [*start, *operands]
        body = Root(over(self.graph, short, operands), over(self.function, short, operands),
                    over(self.tangent, long, wide), over(self.cotangent, long, wide), k)
        return call(body, operands), [True] * k


def custom_root(f: Callable[[Any], Any], initial: Any, solve: Callable[[Callable[[Any], Any], Any], Any],
                tangent_solve: Solve | None = None) -> Any:
    """The root ``x`` of ``f(x) = 0`` that ``solve(f, initial)`` finds, differentiated without its solver.

    ``f`` may use arrays from around it; the root is differentiated with respect to them. ``tangent_solve(g, y)`` solves
    ``g(x) = y`` for a linear ``g`` (the derivative of f, or its transpose); by default conjugate gradients on the
    normal equations, which is meant for few unknowns.

    >>> import rlx
    >>> def newton(f, x):
    ...     return rlx.fori_loop(0, 8, lambda i, x: x - f(x) / rlx.grad(f)(x), x)
    >>> root = lambda a: rlx.custom_root(lambda x: x * x - a, rlx.asarray(1.0), newton)
    >>> round(rlx.grad(root)(4.0).item(), 12)
    0.25
    """
    leaves, structure = flatten(initial)
    start = [as_array(x) for x in leaves]
    if not any(a.is_traced for a in start) and level() == 0:
        return solve(f, initial)
    function = _close(lambda *xs: f(unflatten(structure, list(xs))), start)
    k, solver = len(start), tangent_solve or normal_cg
    params = [Array(v) for v in function[1]]

    def call_f(tree: Any) -> Any:
        return unflatten(structure, run(function[0], [*[as_array(x) for x in flatten(tree)[0]], *params]))

    def linear(turned: bool) -> Closed:
        def g(*args: Array) -> Any:
            right, at = unflatten(structure, list(args[:k])), unflatten(structure, list(args[k:]))
            if turned:
                back = vjp(call_f, at)[1]
                return solver(lambda v: back(v)[0], right)
            return solver(lambda v: jvp(call_f, (at,), (v,))[1], right)
        return _close(g, [*start, *start])

    found = _close(lambda *xs: solve(call_f, unflatten(structure, list(xs))), start)
    tangent, cotangent = linear(False), linear(True)
    operands = list(dict.fromkeys(v for c in (function, found, tangent, cotangent) for v in c[1]))
    body = Root(_reordered(found[0], k, found[1], operands), _reordered(function[0], k, function[1], operands),
                _reordered(tangent[0], 2 * k, tangent[1], operands), _reordered(cotangent[0], 2 * k, cotangent[1],
                                                                                operands), k)
    return unflatten(structure, call(body, [*start, *[Array(v) for v in operands]]))


def _dot(a: Arrays, b: Arrays) -> Array:
    total: Array | None = None
    for x, y in zip(a, b, strict=True):
        part = real(sum_of(conj(x) * y))
        total = part if total is None else total + part
    assert total is not None
    return total


def normal_cg(g: MatVec, y: Any, rtol: float | None = None) -> Any:
    """Solve ``g(x) = y`` for a linear ``g`` by conjugate gradients on ``g^T g x = g^T y`` (CGNR)."""
    leaves, structure = flatten(y)
    ys = [as_array(x) for x in leaves]
    limit = 10 * sum(int(a.size) for a in ys) + 10
    # About the square root of the squared rounding error of the coarsest dtype: the residual is a square.
    tiny = min(a.dtype.bits // (2 if a.dtype.is_complex else 1) for a in ys)
    tol = rtol if rtol is not None else (1e-14 if tiny == 64 else 1e-6)

    def apply(xs: Arrays) -> list[Array]:
        return [as_array(x) for x in flatten(g(unflatten(structure, list(xs))))[0]]

    zeros = [zeros_as(a) for a in ys]
    back = vjp(lambda *xs: apply(list(xs)), *zeros)[1]

    def turn(rs: Arrays) -> list[Array]:
        return list(back(list(rs)))

    z = turn(ys)
    first = _dot(z, z)

    def more(s: Any) -> Array:
        going: Array = (s[4] > tol * tol * first) & (s[5] < limit)
        return going

    def step(s: Any) -> Any:
        x, r, _, p, rho, i = s
        w = apply(p)
        alpha = rho / _dot(w, w)
        x = [a + alpha.astype(a.dtype) * b for a, b in zip(x, p, strict=True)]
        r = [a - alpha.astype(a.dtype) * b for a, b in zip(r, w, strict=True)]
        z = turn(r)
        new = _dot(z, z)
        p = [a + (new / rho).astype(a.dtype) * b for a, b in zip(z, p, strict=True)]
        return x, r, z, p, new, i + 1

    return unflatten(structure, list(while_loop(more, step, (zeros, ys, z, z, first, as_array(0)))[0]))


def fixed_point(f: Callable[[Any], Any], initial: Any, *, rtol: float = 1e-10, max_steps: int = 1000) -> Any:
    """The limit of ``x = f(x)`` from ``initial``, differentiable with respect to what ``f`` uses.

    Iterates until the change is at most ``rtol`` times the norm of x (2-norms over the whole tree), or ``max_steps``.
    Derivatives solve ``(1 - f'(x)) v = y`` by the same iteration, which converges where that of x does.

    >>> import rlx
    >>> heron = lambda a: rlx.fixed_point(lambda x: 0.5 * (x + a / x), rlx.asarray(1.0))
    >>> round(heron(rlx.asarray(9.0)).item(), 9), round(rlx.grad(heron)(9.0).item(), 9)
    (3.0, 0.166666667)
    """
    def iterate(step: Callable[[Any], Any], start: Any) -> Any:
        leaves, structure = flatten(start)
        xs = [as_array(x) for x in leaves]

        def apply(values: Any) -> list[Array]:
            return [as_array(x).astype(v.dtype) for x, v in zip(flatten(step(unflatten(structure, list(values))))[0],
                                                                values, strict=True)]

        def more(s: Any) -> Array:
            old, new = s
            diff = [abs_of(a - b) for a, b in zip(new, old, strict=True)]
            moving: Array = sqrt(_dot(diff, diff)) > rtol * sqrt(_dot(new, new))
            return moving
        return unflatten(structure, while_loop(more, lambda s: (s[1], apply(s[1])), (xs, apply(xs)),
                                               max_steps=max_steps)[1])

    def solve(residual: Callable[[Any], Any], start: Any) -> Any:
        return iterate(lambda x: _minus(x, residual(x)), start)

    def tangent_solve(g: MatVec, y: Any) -> Any:
        return iterate(lambda v: _plus(y, _minus(v, g(v))), y)

    return custom_root(lambda x: _minus(x, f(x)), initial, solve, tangent_solve)


def _minus(a: Any, b: Any) -> Any:
    return tree_map(lambda x, y: as_array(x) - y, a, b)


def _plus(a: Any, b: Any) -> Any:
    return tree_map(lambda x, y: as_array(x) + y, a, b)

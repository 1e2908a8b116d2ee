"""``grad`` and its relatives: derivatives of functions on pytrees, composable with each other and with ``jit``.

Complex values: the gradient of a real function of ``z = x + iy`` is ``dL/dx + i dL/dy``, the direction of steepest
ascent, so that ``z - rate * grad`` descends; tangents are ``dx + i dy``. For a holomorphic ``f`` the tangent is
``f'(z) t`` and the cotangent ``conj(f'(z)) ct``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rlx.array.array import Array
from rlx.array.build import as_array, cast, level, literal, tracing
from rlx.array.hooks import hooks
from rlx.array.tree import Tree, flatten, unflatten
from rlx.core.errors import DTypeError, ShapeError
from rlx.ir.graph import Value
from rlx.ops.derivative import filled
from rlx.transform.call import finish, release, strip
from rlx.transform.forward import push
from rlx.transform.reverse import record
from rlx.transform.sweep import fresh, need_inexact, select_args, substitute, with_args

Argnums = int | Sequence[int]


def value_and_grad(f: Callable[..., Any], /, argnums: Argnums = 0, *, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives ``f``'s value and its gradient with respect to arguments (pytrees of inexact arrays).

    ``f`` returns one real number, with ``has_aux`` a pair of it and any other values.

    >>> import rlx
    >>> value, g = rlx.value_and_grad(lambda x: (x**2).sum())(rlx.asarray([1.0, 2.0]))
    >>> value.item(), g.tolist()
    (5.0, [2.0, 4.0])
    """
    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        chosen, places = select_args(args, argnums)
        leaves, structure = flatten(chosen)
        need_inexact(leaves, "gradient")
        arrays = [as_array(x) for x in leaves]
        with tracing() as depth:
            stand = [fresh(x, depth) for x in leaves]
            result = f(*with_args(args, places, unflatten(structure, stand), isinstance(argnums, int)), **kwargs)
            value, aux = result if has_aux else (result, None)
            out = _scalar(value)
            aux_leaves, aux_structure = flatten(aux)
            others = [as_array(x)._value for x in aux_leaves]
            params = [a._value for a in stand]
            recorder, inputs, ends = record([out._value, *others], params, depth)
            seed = literal(1, out.dtype, out._value.node.device)
            cts = recorder.tape.pull([(ends[0], seed)], inputs)
            grads = [filled(c, Array(p)) for c, p in zip(cts, params, strict=True)]
            values = [*[e.array._value for e in ends], *[g._value for g in grads]]
        done = finish(values, dict(zip(params, [a._value for a in arrays], strict=True)), depth)
        gradient = unflatten(structure, done[1 + len(others):])
        if has_aux:
            return (done[0], unflatten(aux_structure, done[1:1 + len(others)])), gradient
        return done[0], gradient
    return wrapped


def grad(f: Callable[..., Any], /, argnums: Argnums = 0, *, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of ``f`` (which returns one real number), shaped like the argument.

    >>> import rlx
    >>> rlx.grad(lambda p: (p["w"] * 3.0 + p["b"]).sum())({"w": rlx.ones(2), "b": rlx.ones(2)})["w"].tolist()
    [3.0, 3.0]
    >>> rlx.grad(rlx.grad(rlx.sin))(1.0) + rlx.sin(1.0)
    Array(0., float64[] on cpu)
    """
    both = value_and_grad(f, argnums, has_aux=has_aux)

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient
    return wrapped


def _scalar(value: Any) -> Array:
    out = value if isinstance(value, Array) else as_array(value)
    if out.shape != ():
        raise ShapeError(f"the gradient of a function that returns shape {out.shape}",
                         why="only one number has a gradient",
                         do="reduce it, for example with .sum(), or use rlx.jacobian or rlx.vjp")
    if not out.dtype.is_float:
        raise DTypeError(f"the gradient of a function that returns {out.dtype.name}", why="a loss is a real number",
                         do="take rlx.real(...) or rlx.abs(...), or cast it")
    return out


class Linear:
    """A linear map that was traced once: what does not depend on its argument is computed once, at the first call."""

    def __init__(self, outputs: list[Value], params: list[Value], depth: int, in_tree: Tree, out_tree: Tree,
                 beside: Sequence[Array]) -> None:
        self._outputs, self._params, self._depth = outputs, params, depth
        self._in, self._out = in_tree, out_tree
        self._beside = [a._value for a in beside]
        self._ready = False

    def __call__(self, tree: Any) -> Any:
        leaves, structure = flatten(tree)
        if structure != self._in:
            raise ShapeError("a tangent or cotangent of another structure", why=f"{structure} against {self._in}",
                             do="pass the same containers, keys and lengths")
        arrays = [_like(x, p) for x, p in zip(leaves, self._params, strict=True)]
        if level() == 0 and not self._ready:
            self._evaluate()
        replace = dict(zip(self._params, [a._value for a in arrays], strict=True))
        values = substitute(self._outputs, replace, self._depth)
        return unflatten(self._out, [Array(v) for v in (release(strip(values)) if level() == 0 else values)])

    def _evaluate(self) -> None:
        """Compute what the map captured, together with the function's value."""
        self._ready = True
        found: dict[Value, None] = dict.fromkeys(self._beside)
        seen = set(self._params)
        stack = list(self._outputs)
        while stack:
            v = stack.pop()
            if v in seen:
                continue
            seen.add(v)
            if v.node.level < self._depth:
                if v.node.args and not v.node.kept:
                    found[v] = None
            else:
                stack.extend(v.node.args)
        if any(v.node.level for v in found):
            return
        pending = [v for v in strip(list(found)) if v.node.op not in ("buffer", "scalar", "const")]
        if pending:
            hooks.evaluate(pending)


def _like(x: Any, p: Value) -> Array:
    a = as_array(x, None if isinstance(x, Array) else p.dtype, p.node.device)
    if a.shape != p.shape:
        raise ShapeError(f"a tangent or cotangent of shape {a.shape}", why=f"the value has shape {p.shape}",
                         do="pass one of the value's shape")
    return cast(a, p.dtype)


def vjp(f: Callable[..., Any], /, *primals: Any, has_aux: bool = False) -> Any:
    """``f(*primals)``, and the function from cotangents of the result to cotangents of the primals.

    >>> import rlx
    >>> y, back = rlx.vjp(rlx.sin, rlx.asarray(0.0))
    >>> back(rlx.asarray(2.0))[0].item()
    2.0
    """
    leaves, structure = flatten(primals)
    need_inexact(leaves, "vjp")
    arrays = [as_array(x) for x in leaves]
    with tracing() as depth:
        stand = [fresh(x, depth) for x in leaves]
        result = f(*unflatten(structure, stand))
        value, aux = result if has_aux else (result, None)
        outs, out_tree = flatten(value)
        aux_leaves, aux_tree = flatten(aux)
        params = [a._value for a in stand]
        results = [as_array(x)._value for x in (*outs, *aux_leaves)]
        recorder, inputs, ends = record(results, params, depth)
        with tracing() as inner:
            cts = [fresh(e.array, inner) for e in ends[:len(outs)]]
            pulled = recorder.tape.pull(list(zip(ends, cts, strict=False)), inputs)
            back = [filled(c, Array(p))._value for c, p in zip(pulled, params, strict=True)]
    replace = dict(zip(params, [a._value for a in arrays], strict=True))
    done = finish([*[e.array._value for e in ends], *back], replace, depth)
    k = len(ends)
    linear = Linear([a._value for a in done[k:]], [c._value for c in cts], depth + 1, out_tree, structure, done[:k])
    value = unflatten(out_tree, done[:len(outs)])
    return (value, linear, unflatten(aux_tree, done[len(outs):k])) if has_aux else (value, linear)


def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False) -> Any:
    """``f(*primals)``, and its derivative along the tangents.

    >>> import rlx
    >>> rlx.jvp(lambda x: x**3, (rlx.asarray(2.0),), (rlx.asarray(1.0),))[1].item()
    12.0
    """
    leaves, structure = flatten(tuple(primals))
    moves, other = flatten(tuple(tangents))
    if other != structure:
        raise ShapeError("jvp of primals and tangents of different structure", why=f"{structure} against {other}",
                         do="pass one tangent for each primal")
    need_inexact(leaves, "jvp")
    with tracing() as depth:
        stand = [fresh(x, depth) for x in leaves]
        params = [a._value for a in stand]
        directions = [_like(t, p) for t, p in zip(moves, params, strict=True)]
        result = f(*unflatten(structure, stand))
        value, aux = result if has_aux else (result, None)
        outs, out_tree = flatten(value)
        aux_leaves, aux_tree = flatten(aux)
        duals = push([as_array(x)._value for x in (*outs, *aux_leaves)], params, directions, depth)
        ts = [filled(d.tangent, d.array) for d in duals[:len(outs)]]
        arrays = [as_array(x, None if isinstance(x, Array) else p.dtype) for x, p in zip(leaves, params, strict=True)]
    done = finish([*[d.array._value for d in duals], *[t._value for t in ts]],
                  dict(zip(params, [a._value for a in arrays], strict=True)), depth)
    k = len(duals)
    pair = unflatten(out_tree, done[:len(outs)]), unflatten(out_tree, done[k:])
    return (*pair, unflatten(aux_tree, done[len(outs):k])) if has_aux else pair


def linearize(f: Callable[..., Any], /, *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """``f(*primals)``, and its derivative as a function of tangents; what does not depend on them is computed once.

    >>> import rlx
    >>> y, push = rlx.linearize(lambda x: x * x, rlx.asarray(3.0))
    >>> push(rlx.asarray(1.0)).item(), push(rlx.asarray(2.0)).item()
    (6.0, 12.0)
    """
    leaves, structure = flatten(primals)
    need_inexact(leaves, "linearize")
    arrays = [as_array(x) for x in leaves]
    with tracing() as depth:
        stand = [fresh(x, depth) for x in leaves]
        params = [a._value for a in stand]
        outs, out_tree = flatten(f(*unflatten(structure, stand)))
        values = [as_array(x)._value for x in outs]
        with tracing() as inner:
            ts = [fresh(Array(p), inner) for p in params]
            duals = push(values, params, ts, depth)
            moved = [filled(d.tangent, d.array)._value for d in duals]
    done = finish([*[d.array._value for d in duals], *moved],
                  dict(zip(params, [a._value for a in arrays], strict=True)), depth)
    k = len(outs)
    linear = Linear([a._value for a in done[k:]], [t._value for t in ts], depth + 1, structure, out_tree, done[:k])
    return unflatten(out_tree, done[:k]), lambda *tangents: linear(tuple(tangents))

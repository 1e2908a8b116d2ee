"""Control flow as ops with sub-graphs: while, cond, loop, scan; nothing returns to Python between iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast, cast, constant, emit, tracing
from rlx.array.define import op, primitive, public
from rlx.array.tree import Tree, flatten, unflatten
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ShapeError
from rlx.core.where import here
from rlx.ir.graph import Graph, Type, Value, captures, parameter, rebuild_from
from rlx.ir.op import Sample
from rlx.ops.index import gather, scatter
from rlx.ops.movement import iota, reshape

_while = primitive("while")
_cond = primitive("cond")
_loop = primitive("loop")


@_while.infer
def _(*types: Type, carry: int, bound: int = -1, each: bool = False) -> tuple[Type, ...]:
    return types[:carry]


@_loop.infer
def _(count: Type, *types: Type, carry: int, bound: int = -1) -> tuple[Type, ...]:
    return types[:carry]


def _attrs(carry: int, bound: int | None, each: bool = False) -> dict[str, int]:
    """Attributes of a loop.

    A bound on its iterations is what reverse differentiation stores them by. ``each`` promises that the condition is
    any() of a condition on each element, and that elements for which it is false keep their values.
    """
    attrs = {"carry": carry} if bound is None else {"bound": int(bound), "carry": carry}
    return attrs | {"each": True} if each else attrs


def _arrays(tree: Any, device: str | None = None) -> tuple[list[Array], Tree]:
    leaves, structure = flatten(tree)
    return [as_array(x, device=device) for x in leaves], structure


def _device(arrays: list[Array]) -> str | None:
    return next((a._value.node.device for a in arrays if a._value.node.device), None)


class _Traced:
    """A function traced on fresh parameters, before what it captures is known."""

    def __init__(self, f: Callable[..., Any], types: list[Type], structure: Tree, device: str | None,
                 lead: int = 0) -> None:
        with tracing() as self.level:
            self.params = [parameter(t, self.level, here(), device) for t in types]
            arrays = [Array(p) for p in self.params]
            result = f(*arrays[:lead], unflatten(structure, arrays[lead:]))
            self.outputs, self.structure = _arrays(result, device)
        self.values = [a._value for a in self.outputs]

    def close(self, captured: list[Value], name: str) -> Graph:
        """The graph with the captured values as extra parameters."""
        fresh = [parameter(v.type, self.level, v.node.where, v.node.device) for v in captured]
        outputs = rebuild_from(self.values, dict(zip(captured, fresh, strict=True)))
        return Graph((*self.params, *fresh), outputs, name)


def _captured(*traced: _Traced) -> list[Value]:
    found: dict[Value, None] = {}
    for t in traced:
        for v in captures(t.values, t.params, t.level):
            found.setdefault(v)
    return list(found)


def _match(what: str, got: list[Array], want: list[Array], structure: Tree, expected: Tree) -> None:
    if structure != expected:
        raise ShapeError(f"{what} returns another structure than it was given",
                         why=f"{structure} against {expected}, where * is an array or a number",
                         do="return the same tuples, lists and keys")
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if g._value.type != w._value.type:
            raise ShapeError(f"{what} changes the type of its value {i} from {w._value.type} to {g._value.type}",
                             why="a loop carries values of fixed types", do="cast or reshape inside the body")


def _fit(init: list[Array], outputs: list[Array]) -> list[Array]:
    """Initial values cast to the type that the body gives, where only a weak Python scalar stands in the way."""
    if len(init) != len(outputs):
        return init                                     # another structure: the comparison of structures says so
    return [cast(a, o.dtype) if a.shape == () and o.shape == () and a.dtype != o.dtype and
            dt.common_type(a.dtype, o.dtype) == o.dtype else a for a, o in zip(init, outputs, strict=True)]


def _settle(trace: Callable[[list[Array]], _Traced], init: list[Array]) -> tuple[list[Array], _Traced]:
    """Initial values of the types that the body returns, and the body traced on them.

    Types only rise, so this ends; one value's new type may raise another's, so once is not enough.
    """
    while True:
        body = trace(init)
        fitted = _fit(init, body.outputs[:len(init)])
        if all(f is a for f, a in zip(fitted, init, strict=True)):
            return init, body
        init = fitted


@public
def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init: Any, *,
               max_steps: int | None = None) -> Any:
    """``while cond_fun(val): val = body_fun(val)`` on the device; values keep their types.

    With ``max_steps`` the loop ends after that many iterations, and can be differentiated in reverse: the values of
    each iteration are kept, so it costs memory for ``max_steps`` of them.

    >>> import rlx
    >>> rlx.while_loop(lambda v: v[0] < 100, lambda v: (v[0] * 2, v[1] + 1), (rlx.asarray(1), rlx.asarray(0)))[1].item()
    7
    """
    if max_steps is not None:
        return _bounded(cond_fun, body_fun, init, max_steps)
    return _while_loop(cond_fun, body_fun, init, None)


def _bounded(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init: Any, steps: int) -> Any:
    """A while loop with a counter beside its value."""
    def head(state: Any) -> Any:
        more = as_array(cond_fun(state[1]))
        more = FUNCTIONS["not_equal"](more, 0) if more.dtype != dt.bool_ else more
        return FUNCTIONS["bitwise_and"](state[0] < steps, more)

    start = constant(0, dt.int64, _device(_arrays(init)[0]))
    return _while_loop(head, lambda s: (s[0] + 1, body_fun(s[1])), (start, init), steps)[1]


def _while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init: Any, bound: int | None,
                each: bool = False) -> Any:
    arrays, structure = _arrays(init)
    device = _device(arrays)
    arrays, body = _settle(lambda init: _Traced(body_fun, [a._value.type for a in init], structure, device), arrays)
    _match("the body of while_loop", body.outputs, arrays, body.structure, structure)
    head = _Traced(cond_fun, [a._value.type for a in arrays], structure, device)
    if len(head.outputs) != 1 or head.outputs[0].shape != ():
        raise ShapeError("the condition of while_loop must be one boolean",
                         why=f"it returns {len(head.outputs)} values of shape "
                         f"{', '.join(str(o.shape) for o in head.outputs)}", do="reduce it, for example with .any()")
    if head.outputs[0].dtype != dt.bool_:
        head.values = [FUNCTIONS["not_equal"](head.outputs[0], 0)._value]
    captured = _captured(head, body)
    operands = [*arrays, *[Array(v) for v in captured]]
    outs = emit("while", operands, _attrs(len(arrays), bound, each),
                (head.close(captured, "cond"), body.close(captured, "body")))
    return unflatten(structure, outs)


def _one(what: str, x: Array) -> None:
    if x.shape != ():
        raise ShapeError(f"{what} has shape {x.shape}", why="one branch is taken for all of the operands",
                         do="reduce it, for example with .any(), or choose element by element with rlx.where")


@public
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """``true_fun(*operands) if pred else false_fun(*operands)``; only the branch taken runs."""
    p = as_array(pred)
    _one("the condition of cond", p)
    return switch(cast(FUNCTIONS["not_equal"](p, 0) if p.dtype != dt.bool_ else p, dt.int32), (false_fun, true_fun),
                  *operands)


@public
def switch(index: Any, branches: Any, *operands: Any) -> Any:
    """``branches[index](*operands)``, with the index clamped to the branches; only the one taken runs."""
    arrays, structure = _arrays(operands)
    i = as_array(index)
    _one("the index of switch", i)
    if i.dtype.is_inexact:
        raise DTypeError(f"the index of switch is {i.dtype.name}", why="branches are counted", do="cast it to int32")
    device = _device([*arrays, i])
    traced = [_Traced(lambda ops, f=f: f(*ops), [a._value.type for a in arrays], structure, device) for f in branches]
    first = traced[0]
    for t in traced[1:]:
        _match("a branch of cond", t.outputs, first.outputs, t.structure, first.structure)
    captured = _captured(*traced)
    graphs = tuple(t.close(captured, f"branch{k}") for k, t in enumerate(traced))
    clamped = FUNCTIONS["clip"](cast(i, dt.int32), 0, len(graphs) - 1)
    outs = emit("cond", [clamped, *arrays, *[Array(v) for v in captured]], {}, graphs,
                types=tuple(v.type for v in first.values))
    return unflatten(first.structure, outs)


@public
def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Array, Any], Any], init: Any, *,
              max_steps: int | None = None) -> Any:
    """``for i in range(lower, upper): val = body_fun(i, val)`` on the device.

    Reverse differentiation needs a number of iterations known while tracing, or a bound on it in ``max_steps``.
    """
    arrays, structure = _arrays(init)
    device = _device(arrays)
    low, high = _bound("lower", lower), _bound("upper", upper)

    def shifted(i: Array, val: Any) -> Any:
        return body_fun(i if isinstance(low, int) and low == 0 else i + low, val)

    def trace(init: list[Array]) -> _Traced:
        return _Traced(shifted, [Type(dt.int64, ()), *[a._value.type for a in init]], structure, device, 1)

    arrays, body = _settle(trace, arrays)
    _match("the body of fori_loop", body.outputs, arrays, body.structure, structure)
    captured = _captured(body)
    n = as_array(max(high - low, 0)) if isinstance(high, int) and isinstance(low, int) else \
        cast(as_array(high) - low, dt.int64)
    outs = emit("loop", [n, *arrays, *[Array(v) for v in captured]], _attrs(len(arrays), max_steps),
                (body.close(captured, "body"),))
    return unflatten(structure, outs)


def _bound(what: str, x: Any) -> int | Array:
    """A bound of a counted loop."""
    if isinstance(x, int):
        return x
    a = as_array(x)
    if a.shape != () or a.dtype.is_inexact:
        raise DTypeError(f"fori_loop with {what} a {a.dtype.name} array of shape {a.shape}",
                         why="iterations are counted by integers", do="pass one integer")
    return a


@public
def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any = None, length: int | None = None,
         reverse: bool = False) -> tuple[Any, Any]:
    """Carry a value over the leading axis of ``xs``: ``carry, ys[i] = f(carry, xs[i])``.

    Returns the last carry and the stacked ``ys``. ``length`` is needed when ``xs`` has no arrays.
    """
    inputs, x_structure = _arrays(xs)
    n = inputs[0].shape[0] if inputs else length
    if n is None or any(x.shape[0] != n for x in inputs):
        raise ShapeError("scan needs one length",
                         why=f"leading sizes are {[x.shape[0] for x in inputs]}, length={length}",
                         do="pass arrays with equal leading sizes, or length=")
    arrays, structure = _arrays(init)
    device = _device([*arrays, *inputs])

    def step(operands: Any) -> tuple[Any, Any]:
        result = f(*operands)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise ShapeError(f"the body of scan returns {type(result).__name__}", why="it gives a pair (carry, y)",
                             do="return carry, y; where nothing is stacked, carry, None")
        return result[0], result[1]

    def trace(init: list[Array]) -> _Traced:
        return _Traced(step, [*[a._value.type for a in init], *[Type(x.dtype, x.shape[1:]) for x in inputs]],
                       Tree(tuple, None, (structure, x_structure)), device)

    carries = len(arrays)
    arrays, probe = _settle(trace, arrays)
    new_carry, y_tree = unflatten(probe.structure, probe.outputs)
    got, got_structure = flatten(new_carry)
    _match("the body of scan", got, arrays, got_structure, structure)
    _, y_structure = flatten(y_tree)
    ys = [FUNCTIONS["zeros"]((n, *o.shape), dtype=o.dtype, device=device) for o in probe.outputs[carries:]]

    def body(i: Array, state: Any) -> Any:
        carry, stacked = state
        at = n - 1 - i if reverse else i
        new, y = f(carry, unflatten(x_structure, [gather(x, at) for x in inputs]))
        parts, _ = _arrays(y, device)
        return new, [scatter(s, p, (at,), "set") for s, p in zip(stacked, parts, strict=True)]

    carry, stacked = fori_loop(0, n, body, (unflatten(structure, arrays), ys))
    return carry, unflatten(y_structure, stacked)


@public
def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """``f`` on each slice along the leading axis, one after another."""
    return scan(lambda c, x: (c, f(x)), None, xs)[1]


@op
def stop_gradient(x: Array, /) -> Array:
    """``x``, treated as a constant by differentiation."""
    return x


@stop_gradient.ref
def _(x: Any) -> Any:
    return x


@stop_gradient.grad
def _(ct: Array, out: Array, x: Array) -> tuple[None]:
    return (None,)


@stop_gradient.batch
def _(axes: tuple[int | None], size: int, x: Array) -> tuple[Array, int | None]:
    """A batch of constants: the decomposition would forget that they are."""
    return stop_gradient(x), axes[0]


@stop_gradient.samples
def _() -> list[Sample]:
    import numpy as np
    return [Sample((np.array([1.0, 2.0]),), grad=False)]


def repeat_axis(x: Array, n: int) -> Array:
    """``x`` repeated ``n`` times along a new leading axis."""
    return broadcast(reshape(x, (1, *x.shape)), (n, *x.shape))


__all__ = ["cond", "fori_loop", "iota", "map", "repeat_axis", "scan", "stop_gradient", "switch", "while_loop"]

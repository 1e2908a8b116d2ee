"""Batching: run a function written for one example on many at once, along axis 0 of the values that have one.

A pointwise primitive takes a batch as it is; movement shifts its axes; a contraction gains a batch axis. A loop whose
condition differs between examples runs until all are done, and the finished ones keep their values; a branch on a batch
computes all its branches and selects. An op without a ``batch`` rule is batched through its decomposition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlx.array.array import Array
from rlx.array.build import as_array, broadcast, cast, constant, emit, emit1, tracing
from rlx.array.tree import Tree, flatten, unflatten
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError, ValueIssue
from rlx.core.shape import axis_index
from rlx.ir.graph import Graph, Node, Type, Value, parameter
from rlx.ir.op import REGISTRY
from rlx.ir.prim import COLLECTIVE, POINTWISE
from rlx.ops.collective import named_axis
from rlx.ops.movement import concat, iota, permute_dims, reshape, slice_of
from rlx.transform.call import finish
from rlx.transform.sweep import Sweep, call_rule, decomposition, fresh, reclone


@dataclass(frozen=True, slots=True)
class Many:
    """A value, and whether its axis 0 is the batch."""

    array: Array
    on: bool = False


Rule = Callable[["Batcher", Node, list[Many]], list[Many]]
RULES: dict[str, Rule] = {}


class Batcher:
    """Walks graphs with values that may have a batch axis of one size."""

    def __init__(self, size: int, name: str | None = None) -> None:
        self.size, self.name = size, name
        self.sweep: Sweep[Many] = Sweep(self.visit, lambda v: Many(Array(v)))

    def graph(self, g: Graph, args: Sequence[Many]) -> list[Many]:
        """The outputs of a closed graph."""
        return self.sweep.graph(g, args)

    def full(self, m: Many) -> Array:
        """The value with the batch axis, repeated where it had none."""
        return m.array if m.on else broadcast(m.array, (self.size, *m.array.shape))

    def visit(self, n: Node, args: list[Many]) -> list[Many]:
        """One node."""
        arrays = [a.array for a in args]
        if self.name is not None and n.op in COLLECTIVE and n.attr("axis") == self.name:
            return _collective(self, n, args)
        if not any(a.on for a in args):
            return [Many(o) for o in reclone(n, arrays)]
        if n.op in POINTWISE:
            return _pointwise(self, n, args)
        found = RULES.get(n.op)
        if found is not None:
            return found(self, n, args)
        rule = REGISTRY[n.op].rules.get("batch")
        if rule is not None:
            return self._by_rule(n, rule, args)
        body = decomposition(n, [_single(a) for a in args])
        if body is None:
            raise ValueIssue(f"{n.op} cannot be batched ({', '.join(str(a.type) for a in n.args)})",
                             where=n.where.short,
                             why="it has no batch rule and no decomposition",
                             do="call it once for each example with rlx.map")
        return self.graph(body, args)

    def _by_rule(self, n: Node, rule: Callable[..., Any], args: list[Many]) -> list[Many]:
        axes = [0 if a.on else None for a in args]
        outs, out_axes = call_rule(rule, n, (axes, self.size), [a.array for a in args])
        many = isinstance(outs, (tuple, list))
        pairs = zip(outs, out_axes, strict=True) if many else [(outs, out_axes)]
        return [Many(o) if a is None else Many(to_front(o, a), True) for o, a in pairs]


def _single(m: Many) -> Array:
    """An array of the type that one example has."""
    if not m.on:
        return m.array
    v = m.array._value
    return Array(parameter(Type(v.dtype, v.shape[1:]), v.node.level, v.node.where, v.node.device))


def to_front(x: Array, axis: int) -> Array:
    """``x`` with an axis moved to the front."""
    out: Array = permute_dims(x, (axis, *[i for i in range(x.ndim) if i != axis]))
    return out


def from_front(x: Array, axis: int) -> Array:
    """``x`` with its axis 0 moved to ``axis`` of the result."""
    order = list(range(1, x.ndim))
    order.insert(axis, 0)
    out: Array = permute_dims(x, order)
    return out


def _pointwise(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    return [Many(emit(n.op, [b.full(a) for a in args], dict(n.attrs))[0], True)]


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the batching of primitives."""
    def wrap(f: Rule) -> Rule:
        for name in names:
            RULES[name] = f
        return f
    return wrap


# Collectives

def _collective(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    """A collective over the axis that is mapped here, on the whole batch."""
    x = b.full(args[0])
    if n.op == "all_reduce":
        return [Many(emit1("reduce", x, kind=n.attr("kind"), axes=(0,)))]
    if n.op == "all_gather":
        return [Many(x)]
    k = b.size - n.attr("offset")  # member i gets what member i - offset holds
    parts = [slice_of(x, (start, *[0] * (x.ndim - 1)), (size, *x.shape[1:]))
             for start, size in ((k, b.size - k), (0, k)) if size]
    return [Many(concat(parts, axis=0), True)]


@rule("all_reduce", "shift")
def _of_another_axis(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    return [Many(emit(n.op, [b.full(args[0]), args[1].array], dict(n.attrs))[0], True)]


@rule("all_gather")
def _gather_of_another_axis(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    return [Many(to_front(emit("all_gather", [b.full(args[0]), args[1].array], dict(n.attrs))[0], 1), True)]


# Movement

@rule("reshape")
def _reshape(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    return [Many(reshape(args[0].array, (b.size, *n.attr("shape"))), True)]


@rule("permute")
def _permute(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    return [Many(permute_dims(args[0].array, (0, *[a + 1 for a in n.attr("axes")])), True)]


@rule("broadcast")
def _broadcast(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    x, shape = args[0].array, n.attr("shape")
    lead = (1,) * (len(shape) - (x.ndim - 1))
    return [Many(broadcast(reshape(x, (b.size, *lead, *x.shape[1:])), (b.size, *shape)), True)]


@rule("slice")
def _slice(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    start, size, step = n.attr("start"), n.attr("size"), n.attr("step")
    return [Many(slice_of(args[0].array, (0, *start), (b.size, *size), (1, *step)), True)]


@rule("flip")
def _flip(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    return [Many(emit1("flip", args[0].array, axes=tuple(a + 1 for a in n.attr("axes"))), True)]


@rule("concat")
def _concat(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    return [Many(emit1("concat", *[b.full(a) for a in args], axis=n.attr("axis") + 1), True)]


@rule("pad")
def _pad(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    x, fill = b.full(args[0]), args[1]
    attrs = {"low": (0, *n.attr("low")), "high": (0, *n.attr("high"))}
    if not fill.on:
        return [Many(emit("pad", (x, fill.array), attrs)[0], True)]
    device = x._value.node.device
    padded = emit("pad", (x, constant(0, x.dtype, device)), attrs)[0]
    inside = emit("pad", (broadcast(constant(True, dt.bool_, device), x.shape), constant(False, dt.bool_, device)),
                  attrs)[0]
    values = broadcast(reshape(fill.array, (b.size, *(1,) * (x.ndim - 1))), padded.shape)
    return [Many(emit1("select", inside, padded, values), True)]


@rule("window")
def _window(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    attrs = dict(n.attrs) | {"axes": tuple(a + 1 for a in n.attr("axes"))}
    return [Many(emit("window", (args[0].array,), attrs)[0], True)]


# Indexing

def _lane(b: Batcher, like: Array) -> Array:
    """The number of the example, in the shape of a batched index."""
    device = like._value.node.device
    return broadcast(reshape(iota(b.size, like.dtype, device), (b.size, *(1,) * (like.ndim - 1))), like.shape)


@rule("gather")
def _gather(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    x, index = args[0], args[1:]
    mode = n.attr("mode", "clip")
    k = len(index)
    if not x.on:
        return [Many(emit1("gather", x.array, *[b.full(i) for i in index], mode=mode), True)]
    if not any(i.on for i in index):
        picked = emit1("gather", from_front(x.array, k), *[i.array for i in index], mode=mode)
        return [Many(to_front(picked, index[0].array.ndim), True)]
    whole = [b.full(i) for i in index]
    return [Many(emit1("gather", x.array, _lane(b, whole[0]), *whole, mode=mode), True)]


@rule("scatter")
def _scatter(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    x, update, index = b.full(args[0]), b.full(args[1]), args[2:]
    if not any(i.on for i in index):
        k, rank = len(index), index[0].array.ndim
        moved = emit1("scatter", from_front(x, k), from_front(update, rank), *[i.array for i in index],
                      kind=n.attr("kind"))
        return [Many(to_front(moved, k), True)]
    whole = [b.full(i) for i in index]
    return [Many(emit1("scatter", x, update, _lane(b, whole[0]), *whole, kind=n.attr("kind")), True)]


# Contraction

@rule("dot")
def _dot(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    x, y = args
    contract, batch = n.attr("contract"), n.attr("batch")
    cx = tuple(a + x.on for a in contract[0])
    cy = tuple(a + y.on for a in contract[1])
    bx = tuple(a + x.on for a in batch[0])
    by = tuple(a + y.on for a in batch[1])
    if x.on and y.on:
        return [Many(emit1("dot", x.array, y.array, contract=(cx, cy), batch=((0, *bx), (0, *by))), True)]
    out = emit1("dot", x.array, y.array, contract=(cx, cy), batch=(bx, by))
    # The batch is the first free axis of its side: after the batch axes, or after those and the free axes of x.
    place = len(bx) if x.on else len(bx) + x.array.ndim - len(bx) - len(cx)
    return [Many(to_front(out, place), True)]


@rule("reduce")
def _reduce(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    return [Many(emit1("reduce", args[0].array, kind=n.attr("kind"), axes=tuple(a + 1 for a in n.attr("axes"))), True)]


@rule("scan")
def _scan(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    attrs = dict(n.attrs) | {"axis": n.attr("axis") + 1}
    return [Many(emit("scan", (args[0].array,), attrs)[0], True)]


@rule("sort")
def _sort(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    attrs = dict(n.attrs) | {"axis": n.attr("axis") + 1}
    return [Many(o, True) for o in emit("sort", [b.full(a) for a in args], attrs)]


@rule("segment_reduce")
def _segment_reduce(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    values, offsets = args
    kind = n.attr("kind")
    if not offsets.on:
        out = emit1("segment_reduce", from_front(values.array, 1), offsets.array, kind=kind)
        return [Many(to_front(out, 1), True)]
    # All examples in one row of segments; between two examples lies one segment of what their offsets leave out.
    v, o = b.full(values), cast(offsets.array, dt.int64)
    length, m = v.shape[1], o.shape[1]
    device = v._value.node.device
    shifted = reshape(o + reshape(iota(b.size, dt.int64, device) * length, (b.size, 1)), (b.size * m,))
    end = broadcast(constant(b.size * length, dt.int64, device), (1,))
    flat = emit1("concat", shifted, end, axis=0)
    out = emit1("segment_reduce", reshape(v, (b.size * length, *v.shape[2:])), flat, kind=kind)
    out = reshape(out, (b.size, m, *v.shape[2:]))
    return [Many(slice_of(out, (0,) * out.ndim, (b.size, m - 1, *v.shape[2:])), True)]


@rule("call")
def _call(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    outs, on = n.attr("body").batched([a.on for a in args], b.size, [a.array for a in args])
    return [Many(o, x) for o, x in zip(outs, on, strict=True)]


def batch_graph(g: Graph, args: Sequence[Array], axes: Sequence[bool], size: int) -> tuple[list[Array], list[bool]]:
    """Outputs of a closed graph on arguments some of which have a batch axis 0, and which outputs have one."""
    outs = Batcher(size).graph(g, [Many(a, on) for a, on in zip(args, axes, strict=True)])
    return [o.array for o in outs], [o.on for o in outs]


# The transform

Axes = Any


def vmap(f: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0, *,
         axis_name: str | None = None) -> Callable[..., Any]:
    """A function that maps ``f`` over an axis of its arguments, as one program.

    ``in_axes`` says along which axis: an integer, None for an argument that all examples share, or a tuple with one
    entry for each positional argument (an entry may be a tree of axes). Results are stacked along ``out_axes``.
    With ``axis_name``, the collectives of :mod:`rlx.distributed` combine the examples under that name.

    >>> import rlx
    >>> rlx.vmap(lambda x, y: x @ y, (0, None))(rlx.eye(2), rlx.asarray([3.0, 4.0])).tolist()
    [3.0, 4.0]
    >>> rlx.vmap(rlx.grad(rlx.sin))(rlx.zeros(2)).tolist()
    [1.0, 1.0]
    """
    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten(args)
        axes = _spread(in_axes, args)
        arrays = [as_array(x) for x in leaves]
        where_ = [None if a is None else axis_index(a, x.ndim) for a, x in zip(axes, arrays, strict=True)]
        size = _size(arrays, where_)
        moved = [x if a is None else to_front(x, a) for x, a in zip(arrays, where_, strict=True)]
        if axis_name is not None:  # the place on the axis is one more argument
            moved, where_ = [*moved, iota(size, dt.int32, _device(moved))], [*where_, 0]
        with tracing() as depth:
            stand = [fresh(x, depth, Type(x.dtype, x.shape if a is None else x.shape[1:]))
                     for x, a in zip(moved, where_, strict=True)]
            with named_axis(axis_name, size, stand[-1]):
                outs, out_tree = flatten(f(*unflatten(structure, stand[:len(leaves)]), **kwargs))
            values = [as_array(x)._value for x in outs]
            mapped = _map(values, [a._value for a in stand], moved, where_, Batcher(size, axis_name), depth, out_tree,
                          out_axes)
        return unflatten(out_tree, finish([o._value for o in mapped], {}, depth))
    return wrapped


def _map(values: list[Value], params: list[Value], moved: list[Array], axes: list[int | None], b: Batcher, depth: int,
         out_tree: Tree, out_axes: Axes) -> list[Array]:
    env = {p: Many(x, a is not None) for p, x, a in zip(params, moved, axes, strict=True)}
    found = b.sweep.walk(values, env, depth)
    places = _spread(out_axes, unflatten(out_tree, [m.array for m in found]))
    outs: list[Array] = []
    for m, place in zip(found, places, strict=True):
        if place is None:
            if m.on:
                raise ShapeError("vmap with out_axes=None for a result that differs between examples",
                                 why="a result without an axis must be the same for all", do="give it an axis")
            outs.append(m.array)
        else:
            x = b.full(m)
            outs.append(from_front(x, axis_index(place, x.ndim)))
    return outs


def _device(arrays: Sequence[Array]) -> str | None:
    return next((a._value.node.device for a in arrays if a._value.node.device), None)


def _size(arrays: Sequence[Array], axes: Sequence[int | None]) -> int:
    sizes = [x.shape[a] for x, a in zip(arrays, axes, strict=True) if a is not None]
    if not sizes:
        raise ShapeError("vmap without a mapped argument", why="every entry of in_axes is None",
                         do="give the axis of at least one argument")
    if any(n != sizes[0] for n in sizes):
        raise ShapeError("vmap over axes of different sizes", why=f"the sizes are {', '.join(map(str, sizes))}",
                         do="pass arrays with one size along the mapped axes")
    return int(sizes[0])


def _spread(axes: Axes, tree: Any) -> list[int | None]:
    """One axis for each leaf of the tree, from a prefix of it."""
    if axes is None or isinstance(axes, int):
        return [axes] * len(flatten(tree)[0])
    if isinstance(axes, (tuple, list)) and isinstance(tree, (tuple, list)):
        if len(axes) != len(tree):
            raise ShapeError(f"{len(axes)} axes for {len(tree)} values", why="each value needs one entry",
                             do="pass one axis for each, or one integer for all")
        return [a for part, x in zip(axes, tree, strict=True) for a in _spread(part, x)]
    if isinstance(axes, dict) and isinstance(tree, dict):
        keys = sorted(tree, key=lambda k: (str(type(k)), k))
        return [a for k in keys for a in _spread(axes[k], tree[k])]
    raise ShapeError(f"axes {axes!r} do not fit a {type(tree).__name__}", why="axes are a prefix of the tree they map",
                     do="pass an integer, None, or the same containers with integers as leaves")


__all__ = ["Batcher", "Many", "batch_graph", "vmap"]

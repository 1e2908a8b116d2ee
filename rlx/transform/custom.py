"""``custom_gradient`` and ``checkpoint``: a function with a derivative of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rlx.array.array import Array
from rlx.array.build import as_array, broadcast, level, tracing
from rlx.array.tree import Tree, flatten, unflatten
from rlx.core.errors import NotDifferentiableError, ShapeError, ValueIssue
from rlx.ir.graph import Graph, Value, captures, close, parameter, rebuild_from
from rlx.ops.control import switch
from rlx.ops.derivative import filled, zeros_as
from rlx.ops.reduce import sum as sum_of
from rlx.transform.batch import batch_graph
from rlx.transform.call import Body, call, close_over
from rlx.transform.control import pull_graph, run
from rlx.transform.forward import Dual, Pusher, transposed_function
from rlx.transform.reverse import Cotangents
from rlx.transform.sweep import fresh


class Remade(Body):
    """A body that is run again on the way back instead of keeping its values."""

    def pull(self, cts: Cotangents, outs: Sequence[Array], args: Sequence[Array], live: Sequence[bool]) -> Cotangents:
        """The vector-Jacobian product as a region of its own: nothing in it is shared with the way forward."""
        given = [c for c in cts if c is not None]

        def again(*xs: Array) -> list[Array]:
            seeds = iter(xs[len(args):])
            got = pull_graph(self.graph, xs[:len(args)], live, [None if c is None else next(seeds) for c in cts])
            return [filled(c, x) for c, x, on in zip(got, args, live, strict=True) if on]
        # A branch with one case, which all it uses is handed to: the compiler shares no work between it and what is
        # around it.
        found = iter(switch(0, [again], *args, *given))
        return [next(found) if on else None for on in live]

    def batched(self, axes: Sequence[bool], size: int, args: Sequence[Array]) -> tuple[list[Array], list[bool]]:
        """A batch of it is remade too."""
        flags: list[bool] = []

        def many(*xs: Array) -> list[Array]:
            outs, on = batch_graph(self.graph, xs, axes, size)
            flags[:] = on
            return outs
        graph, captured, _ = close_over(many, args)
        return call(Remade(graph, self.name), [*args, *captured]), flags


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, keeping only its arguments for reverse differentiation: it is computed again on the way back.

    Saves the memory of what ``f`` computes in between, for one more evaluation of it.

    >>> import rlx
    >>> rlx.grad(rlx.checkpoint(lambda x: rlx.exp(rlx.sin(x))))(0.0).item()
    1.0
    """
    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if level() == 0:
            return f(*args, **kwargs)
        leaves, structure = flatten((args, kwargs))
        arrays = [as_array(x) for x in leaves]

        def flat(*xs: Array) -> Any:
            a, k = unflatten(structure, list(xs))
            return f(*a, **k)
        graph, captured, out_tree = close_over(flat, arrays)
        return unflatten(out_tree, call(Remade(graph, getattr(f, "__name__", "checkpoint")), [*arrays, *captured]))
    return wrapped


class Own(Body):
    """A body whose gradient is a user's function.

    ``graph`` is (arguments, captured) -> (results, residuals), ``back`` (residuals, cotangents, captured) ->
    cotangents of the arguments.
    """

    def __init__(self, graph: Graph, name: str, back: Graph, arguments: int, residuals: int) -> None:
        super().__init__(graph, name)
        self.back, self.arguments, self.residuals = back, arguments, residuals

    def pull(self, cts: Cotangents, outs: Sequence[Array], args: Sequence[Array], live: Sequence[bool]) -> Cotangents:
        """The user's backward function on what the forward one kept, which is differentiated as it was computed."""
        k = len(outs) - self.residuals
        got: Cotangents = [None] * len(args)
        if any(c is not None for c in cts[:k]):
            seeds = [filled(c, o) for c, o in zip(cts[:k], outs[:k], strict=True)]
            got[:self.arguments] = run(self.back, [*outs[k:], *seeds, *args[self.arguments:]])
        if any(c is not None for c in cts[k:]):
            more = pull_graph(self.graph, args, live, [*[None] * k, *cts[k:]])
            got = [m if g is None else g if m is None else g + m for g, m in zip(got, more, strict=True)]
        return got

    def push(self, args: Sequence[Dual]) -> list[Dual]:
        """A backward function is linear in the cotangents: its transpose carries tangents."""
        arrays = [a.array for a in args]
        outs = call(self, arrays)
        k = len(outs) - self.residuals

        def pulled(cts: Cotangents) -> Cotangents:
            return self.pull([*cts, *[None] * self.residuals], outs, arrays, [True] * len(arrays))
        moved = transposed_function(pulled, [a.tangent for a in args], outs[:k])
        kept = [d.tangent for d in Pusher().graph(self.graph, args)[k:]]
        return [Dual(o, t) for o, t in zip(outs, [*moved, *kept], strict=True)]

    def batched(self, axes: Sequence[bool], size: int, args: Sequence[Array]) -> tuple[list[Array], list[bool]]:
        """Forward and backward functions, each over the batch; cotangents of what the examples share are summed."""
        def forth(*xs: Array) -> list[Array]:
            return _full(batch_graph(self.graph, xs, axes, size), size)

        def back(*xs: Array) -> list[Array]:
            lead = len(xs) - (len(args) - self.arguments)
            outs = _full(batch_graph(self.back, xs, [*[True] * lead, *axes[self.arguments:]], size), size)
            return [o if on else sum_of(o, axis=0) for o, on in zip(outs, axes, strict=False)]

        graph = _closed(forth, args)
        outs = [Array(v) for v in graph.outputs]
        k = len(outs) - self.residuals
        back_graph = _closed(back, [*outs[k:], *outs[:k], *args[self.arguments:]])
        body = Own(graph, self.name, back_graph, self.arguments, self.residuals)
        return call(body, args), [True] * len(outs)


def _full(batch: tuple[list[Array], list[bool]], size: int) -> list[Array]:
    return [o if on else broadcast(o, (size, *o.shape)) for o, on in zip(*batch, strict=True)]


def _closed(f: Callable[..., Any], args: Sequence[Array]) -> Graph:
    """``f`` as a graph; it uses nothing but its arguments."""
    graph, captured, _ = close_over(f, args)
    assert not captured, "a batched graph captures nothing that the graph did not"
    return graph


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose gradient you write: ``f(*args)`` returns its value and a function from cotangents to cotangents.

    The backward function takes the cotangent of the value (a tree like it) and returns one cotangent for each
    positional argument (None: zero). It may use anything that ``f`` computed. Keyword arguments are not
    differentiated.

    >>> import rlx
    >>> @rlx.custom_gradient
    ... def clipped(x):
    ...     return x, lambda ct: rlx.clip(ct, -1.0, 1.0)
    >>> rlx.grad(lambda x: 5.0 * clipped(x))(2.0).item()
    1.0
    """
    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if level() == 0:
            return _pair(f, f(*args, **kwargs))[0]
        leaves, structure = flatten(args)
        arrays = [as_array(x) for x in leaves]
        return _own(f, arrays, structure, kwargs)
    return wrapped


def _pair(f: Callable[..., Any], result: Any) -> tuple[Any, Callable[..., Any]]:
    if not isinstance(result, (tuple, list)) or len(result) != 2 or not callable(result[1]):
        raise ValueIssue(f"{getattr(f, '__name__', 'the function')}() of custom_gradient returns "
                         f"{type(result).__name__}",
                         why="it gives its value and a function from cotangents to cotangents",
                         do="return value, backward")
    return result[0], result[1]


def _own(f: Callable[..., Any], arrays: list[Array], structure: Tree, kwargs: dict[str, Any]) -> Any:
    with tracing() as depth:
        stand = [fresh(a, depth) for a in arrays]
        value, back = _pair(f, f(*unflatten(structure, stand), **kwargs))
        outs, out_tree = flatten(value)
        results = [as_array(o) for o in outs]
        with tracing() as inner:
            cts = [fresh(o, inner) for o in results]
            pulled = _one_each(back(unflatten(out_tree, cts)), structure, stand)
            kept = [v for v in captures([p._value for p in pulled], [c._value for c in cts],
                                        inner) if v.node.level == depth]
            inside = [parameter(v.type, inner, v.node.where, v.node.device) for v in kept]
            new = rebuild_from([p._value for p in pulled], dict(zip(kept, inside, strict=True)))
            back_graph, back_captured = close(new, [*inside, *[c._value for c in cts]], inner, "backward")
        graph, captured = close([*[r._value for r in results], *kept], [s._value for s in stand], depth, "custom")
    merged: dict[Value, None] = dict.fromkeys((*captured, *back_captured))
    operands = list(merged)
    graph = _reordered(graph, len(arrays), captured, operands)
    back_graph = _reordered(back_graph, len(inside) + len(cts), back_captured, operands)
    body = Own(graph, getattr(f, "__name__", "custom"), back_graph, len(arrays), len(kept))
    got = call(body, [*arrays, *[Array(v) for v in operands]])
    return unflatten(out_tree, got[:len(results)])


def _reordered(g: Graph, fixed: int, captured: Sequence[Any], operands: Sequence[Any]) -> Graph:
    """The graph with one input for each of the operands after its fixed ones."""
    level_ = max((v.node.level for v in g.inputs), default=1)
    have = dict(zip(captured, g.inputs[fixed:], strict=True))
    rest = [have.get(v) or parameter(v.type, level_, v.node.where, v.node.device) for v in operands]
    return Graph((*g.inputs[:fixed], *rest), g.outputs, g.name)


def _one_each(pulled: Any, structure: Tree, stand: Sequence[Array]) -> list[Array]:
    """The user's cotangents as one array for each leaf of the arguments."""
    parts = pulled if isinstance(pulled, (tuple, list)) and len(structure.children) != 1 else (
        pulled if isinstance(pulled, tuple) and len(pulled) == 1 else (pulled,))
    if len(parts) != len(structure.children):
        raise NotDifferentiableError(f"a backward function gave {len(parts)} cotangents for "
                                     f"{len(structure.children)} arguments", why="each argument needs one",
                                     do="return a tuple, with None for zero")
    out: list[Array] = []
    at = 0
    for part, child in zip(parts, structure.children, strict=True):
        own = stand[at:at + child.leaves]
        at += child.leaves
        if part is None:
            out.extend(zeros_as(s) for s in own)
            continue
        leaves, tree = flatten(part)
        if tree != child:
            raise ShapeError("a cotangent of another structure than its argument", why=f"{tree} against {child}",
                             do="return the same containers, keys and lengths")
        for x, s in zip(leaves, own, strict=True):
            a = as_array(x, None if isinstance(x, Array) else s.dtype, s._value.node.device)
            if a.shape != s.shape:
                raise ShapeError(f"a cotangent of shape {a.shape} for an argument of shape {s.shape}",
                                 why="they must be equal", do="sum over broadcast axes in the backward function")
            out.append(a.astype(s.dtype) if a.dtype != s.dtype else a)
    return out

"""``call``: a traced function as one node, with rules of its own for differentiation and batching.

It stands in graphs that are still to be transformed. What is left of it when a program is compiled is its graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from rlx.array.array import Array
from rlx.array.build import emit, level, trace
from rlx.ir.graph import UNIQUE, Graph, Node, Type, Value, clone, graph_scope, inline, postorder, rebuild
from rlx.ir.op import REGISTRY, Op
from rlx.transform import forward, reverse
from rlx.transform.forward import Dual, Pusher
from rlx.transform.reverse import Cotangents, Noted, Recorder
from rlx.transform.sweep import dependent, reclone, substitute


class Body(ABC):
    """A closed graph and how it is differentiated; equal only to itself."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    @abstractmethod
    def pull(self, cts: Cotangents, outs: Sequence[Array], args: Sequence[Array], live: Sequence[bool]) -> Cotangents:
        """Cotangents of the arguments."""

    def push(self, args: Sequence[Dual]) -> list[Dual]:
        """Results and their tangents."""
        return Pusher().graph(self.graph, args)

    @abstractmethod
    def batched(self, axes: Sequence[bool], size: int, args: Sequence[Array]) -> tuple[list[Array], list[bool]]:
        """Results for a batch of arguments."""

    def __repr__(self) -> str:
        return self.name


class CallOp(Op):
    """The op of every call; its decomposition is the body's graph."""

    def graph(self, types: tuple[Type, ...], attrs: dict[str, Any], arrays: Any = None) -> Graph:
        """The body."""
        g: Graph = attrs["body"].graph
        return Graph(g.inputs, g.outputs, "many")


CALL = CallOp("call", doc="A traced function with rules of its own.")
REGISTRY.add(CALL)


def close_over(f: Callable[..., Any], arrays: Sequence[Array]) -> tuple[Graph, list[Array], Any]:
    """``f`` traced on arrays of these types as a closed graph, what it captured, and the structure of its result."""
    device = next((a._value.node.device for a in arrays if a._value.node.device), None)
    graph, structure, captured = trace(f, [a._value.type for a in arrays], device)
    return graph, [Array(v) for v in captured], structure


def call(body: Body, args: Sequence[Array]) -> list[Array]:
    """A node that computes the body's graph."""
    return list(emit("call", args, {"body": body}, types=tuple([v.type for v in body.graph.outputs])))


def finish(outputs: Sequence[Value], replace: dict[Value, Value], depth: int) -> list[Array]:
    """Traced results with the parameters replaced by the arguments they stand for; call it after the tracing."""
    values = substitute(outputs, replace, depth)
    return [Array(v) for v in (release(strip(values)) if level() == 0 else values)]


def release(values: Sequence[Value]) -> list[Value]:
    """The same computation in nodes that may become buffers, shared between the values as it was."""
    def make(n: Node, args: tuple[Value, ...]) -> Sequence[Value]:
        return n.outs if n.op in UNIQUE or (args == n.args and not n.kept) else clone(n, args).outs
    return list(rebuild(values, {}, make))


def strip(values: Sequence[Value]) -> list[Value]:
    """``call(body)(x)`` -> the body's graph on x, also in loops and branches: nothing transforms them any more."""
    if not any(_has_call(n) for n in postorder(values)):
        return list(values)
    done: dict[Value, Value] = {}
    for n in postorder(values):
        args = tuple([done[a] for a in n.args])
        if n.op == "call":
            g: Graph = strip_graph(n.attr("body").graph)
            new: Sequence[Value] = inline(g, args)
        elif _has_call(n):
            new = clone(n, args, graphs=tuple([strip_graph(g) for g in n.graphs])).outs
        else:
            new = n.outs if args == n.args else clone(n, args).outs
        done.update(zip(n.outs, new, strict=True))
    return [done[v] for v in values]


def strip_graph(g: Graph) -> Graph:
    """A graph without calls."""
    with graph_scope():
        outputs = strip(g.outputs)
    return g if outputs == list(g.outputs) else Graph(g.inputs, tuple(outputs), g.name)


def _has_call(n: Node) -> bool:
    return n.op == "call" or any(_has_call(m) for g in n.graphs for m in postorder(g.outputs))


def _record(recorder: Recorder, n: Node, args: list[Noted]) -> list[Noted]:
    arrays = [a.array for a in args]
    live = [a.slot is not None for a in args]
    body: Body = n.attr("body")
    outs = reclone(n, arrays)

    def pull(cts: Cotangents) -> Cotangents:
        return body.pull(cts, outs, arrays, live)
    return recorder.tape.note(args, outs, pull, dependent(body.graph, live))


def _push(pusher: Pusher, n: Node, args: list[Dual]) -> list[Dual]:
    body: Body = n.attr("body")
    return body.push(args)


reverse.SPECIAL["call"] = _record
forward.SPECIAL["call"] = _push

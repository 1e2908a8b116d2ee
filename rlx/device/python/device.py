"""Interprets graphs of primitives with NumPy. Slow, simple, and the reference for every other device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.core import dtype as dt
from rlx.core.caps import Caps
from rlx.core.errors import CompileError
from rlx.device.base import Device, Executable, refuse_form
from rlx.device.python import prims
from rlx.ir.graph import Graph, Node, Value, postorder
from rlx.ir.loop import Program
from rlx.ir.prim import POINTWISE

Arr = np.ndarray[Any, Any]


def absent() -> str | None:
    """It is always there."""
    return None


def open() -> Device:
    """The interpreter."""
    return PythonDevice()


class PythonDevice(Device):
    """Every primitive, every dtype, no claims."""

    def __init__(self) -> None:
        self.name = "python"
        self.dlpack = (1, 0)
        everything = frozenset(dt.ALL)
        self.caps = Caps(name="python", dtypes=everything, schedule="graph",
                         spells={p: frozenset(d for d in dt.ALL if d.kind in row.kinds)
                                 for p, row in POINTWISE.items()},
                         features=frozenset(("spells-all",)))
        self.claims = {}

    def empty(self, dtype: dt.DType, shape: Sequence[int]) -> Arr:
        return np.empty(tuple(shape), dtype.numpy)

    def upload(self, array: Arr) -> Arr:
        return np.array(array)

    def download(self, storage: Arr, dtype: dt.DType, shape: Sequence[int]) -> Arr:
        return storage.reshape(tuple(shape))

    def load(self, program: Program) -> Executable:
        refuse_form(self, "program")

    def load_graph(self, graph: Graph) -> Executable:
        return Interpreted(graph)

    def synchronize(self) -> None:
        return None


class Interpreted(Executable):
    """A graph, evaluated node by node."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, inputs: Sequence[Arr], outputs: Sequence[Arr]) -> None:
        given = [_unpack(x.reshape(v.shape), v.dtype) for x, v in zip(inputs, self.graph.inputs, strict=True)]
        with np.errstate(all="ignore"):
            results = evaluate(self.graph, given)
        for out, r, v in zip(outputs, results, self.graph.outputs, strict=True):
            shape: Any = v.shape
            out.reshape(shape)[...] = _pack(np.asarray(r), v.dtype)


def _unpack(x: Arr, dtype: dt.DType) -> Arr:
    """bfloat16 bits as float32 values."""
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32) if dtype is dt.bfloat16 else x


def _pack(x: Arr, dtype: dt.DType) -> Arr:
    if dtype is not dt.bfloat16:
        return x.astype(dtype.numpy, copy=False)
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded.astype(np.uint16)).reshape(x.shape)


def evaluate(graph: Graph, inputs: Sequence[Arr]) -> list[Arr]:
    """The outputs of a graph of primitives."""
    env: dict[Value, Arr] = dict(zip(graph.inputs, inputs, strict=True))
    for n in postorder(graph.outputs):
        if all(o in env for o in n.outs):
            continue
        results = _apply(n, [env[a] for a in n.args])
        for o, r in zip(n.outs, results, strict=True):
            r = np.asarray(r)
            env[o] = _unpack(_pack(r, o.dtype), o.dtype) if o.dtype is dt.bfloat16 else r.astype(o.dtype.numpy,
                                                                                                 copy=False)
    return [env[v] for v in graph.outputs]


def _apply(n: Node, args: list[Any]) -> Sequence[Any]:
    a = dict(n.attrs)
    match n.op:
        case "const":
            return (np.array(a["value"], _host(n.types[0].dtype)),)
        case "iota":
            return (np.arange(a["size"]).astype(a["dtype"].numpy),)
        case "reshape":
            return (args[0].reshape(a["shape"]),)
        case "permute":
            return (args[0].transpose(a["axes"]),)
        case "broadcast":
            return (np.broadcast_to(args[0], a["shape"]),)
        case "slice":
            cut = tuple(slice(b, b + (m - 1) * s + 1 if m else b, s)
                        for b, m, s in zip(a["start"], a["size"], a["step"], strict=True))
            return (args[0][cut],)
        case "pad":
            return (_pad(args[0], args[1], a["low"], a["high"]),)
        case "flip":
            return (np.flip(args[0], a["axes"]),)
        case "concat":
            return (np.concatenate(args, axis=a["axis"]),)
        case "window":
            return (prims.window(args[0], a["axes"], a["size"], a["step"], a["dilation"]),)
        case "gather":
            return (prims.gather(*args),)
        case "scatter":
            return (prims.scatter(*args, kind=a["kind"]),)
        case "dot":
            return (prims.dot(args[0], args[1], a["contract"], a["batch"]),)
        case "reduce":
            return (_reduce(args[0], a["kind"], a["axes"]),)
        case "segment_reduce":
            return (prims.segment_reduce(args[0], args[1], a["kind"]),)
        case "scan":
            x = np.flip(args[0], a["axis"]) if a["reverse"] else args[0]
            y = prims.ACCUMULATE[a["kind"]].accumulate(x, axis=a["axis"], dtype=x.dtype)
            return (np.flip(y, a["axis"]) if a["reverse"] else y,)
        case "sort":
            return prims.sort(*args, axis=a["axis"], descending=a["descending"])
        case "while":
            return _while(n, args, a["carry"])
        case "loop":
            return _loop(n, args, a["carry"])
        case "cond":
            return evaluate(n.graphs[int(args[0])], args[1:])
        case "cast":
            return (prims.cast(args[0], a["dtype"]),)
        case "bitcast":
            return (np.ascontiguousarray(args[0]).view(a["dtype"].numpy),)
    if n.op in prims.POINTWISE:
        return (prims.POINTWISE[n.op](*args),)
    raise CompileError(f"the interpreter has no primitive {n.op}", where=n.where, why="it is not in its table",
                       do="add it to rlx/device/python/prims.py")


def _host(dtype: dt.DType) -> np.dtype[Any]:
    return np.dtype(np.float32) if dtype is dt.bfloat16 else dtype.numpy


def _pad(x: Arr, value: Arr, low: Sequence[int], high: Sequence[int]) -> Arr:
    out = np.full([d + b + e for d, b, e in zip(x.shape, low, high, strict=True)], value, x.dtype)
    source = tuple(slice(max(-b, 0), d + min(e, 0)) for d, b, e in zip(x.shape, low, high, strict=True))
    piece = x[source]
    out[tuple(slice(max(b, 0), max(b, 0) + m) for b, m in zip(low, piece.shape, strict=True))] = piece
    return out


def _reduce(x: Arr, kind: str, axes: tuple[int, ...]) -> Any:
    if kind in ("and", "or", "xor"):
        for a in sorted(axes, reverse=True):
            x = prims.REDUCE[kind](x, axis=a)
        return x
    return prims.REDUCE[kind](x, axis=axes, **({"dtype": x.dtype} if kind in ("sum", "prod") else {}))


def _while(n: Node, args: list[Any], carry: int) -> list[Any]:
    head, body = n.graphs
    state, rest = list(args[:carry]), list(args[carry:])
    while bool(evaluate(head, state + rest)[0]):
        state = evaluate(body, state + rest)
    return state


def _loop(n: Node, args: list[Any], carry: int) -> list[Any]:
    (body,) = n.graphs
    state, rest = list(args[1:1 + carry]), list(args[1 + carry:])
    for i in range(int(args[0])):
        state = evaluate(body, [np.array(i, np.int64), *state, *rest])
    return state

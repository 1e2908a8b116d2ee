"""Sequences of arrays and optional values; a sequence is a Python list while a graph is evaluated."""

from __future__ import annotations

import numpy as np

from rlx.array.array import Array
from rlx.formats.onnx.graph import Graph
from rlx.formats.onnx.table import Call, Value, X, operator


@operator("SequenceConstruct")
def construct(c: Call, *xs: Value) -> Value:
    return list(xs)


@operator("SequenceEmpty")
def empty(c: Call) -> Value:
    return []


def _place(c: Call, at: Value, count: int, most: int) -> int:
    i = c.ints(at, "the position")[0]
    if not -count <= i < most:
        raise c.refuse(f"position {i} of a sequence of {count}", "there is no such position")
    return i + count if i < 0 else i


@operator("SequenceInsert", static=(2,))
def insert(c: Call, xs: list[Value], x: Value, at: Value | None = None) -> Value:
    i = len(xs) if at is None else _place(c, at, len(xs), len(xs) + 1)
    return [*xs[:i], x, *xs[i:]]


@operator("SequenceErase", static=(1,))
def erase(c: Call, xs: list[Value], at: Value | None = None) -> Value:
    i = len(xs) - 1 if at is None else _place(c, at, len(xs), len(xs))
    return [*xs[:i], *xs[i + 1:]]


@operator("SequenceAt", static=(1,))
def at(c: Call, xs: list[Value], i: Value) -> Value:
    return xs[_place(c, i, len(xs), len(xs))]


@operator("SequenceLength")
def length(c: Call, xs: list[Value]) -> Value:
    return np.array(len(xs), np.int64)


@operator("SplitToSequence", static=(1,))
def split(c: Call, x: Array, sizes: Value | None = None) -> Value:
    axis = c.axis(c.attr("axis", 0), x.ndim)
    n, each = x.shape[axis], 1
    if sizes is None:
        parts = [1] * n
    elif np.ndim(sizes) == 0:
        each = c.ints(sizes, "the size of the parts")[0]
        parts = [min(each, n - i) for i in range(0, n, each)]
    else:
        parts = list(c.ints(sizes, "the sizes of the parts"))
    out, start = [], 0
    for p in parts:
        out.append(x[tuple([slice(start, start + p) if i == axis else slice(None) for i in range(x.ndim)])])
        start += p
    if sizes is None and not c.attr("keepdims", 1):
        out = [X.squeeze(v, axis=axis) for v in out]
    return out


@operator("ConcatFromSequence")
def concat(c: Call, xs: list[Value]) -> Value:
    arrays = [c.array(x) for x in xs]
    axis = c.attr("axis")
    return X.stack(arrays, axis=axis) if c.attr("new_axis", 0) else X.concat(arrays, axis=axis)


@operator("SequenceMap")
def map_(c: Call, xs: list[Value], *others: Value) -> Value:
    body: Graph = c.attr("body")
    names = [p.name for p in body.inputs]
    rows = []
    for i, x in enumerate(xs):
        rest = [o[i] if isinstance(o, list) else o for o in others]
        rows.append(c.run.graph(body, dict(zip(names, [x, *rest], strict=True)), c.env))
    return tuple([list(column) for column in zip(*rows, strict=True)])


@operator("Optional")
def optional(c: Call, x: Value = None) -> Value:
    return x


@operator("OptionalGetElement", host=True)
def get_element(c: Call, x: Value) -> Value:
    if x is None:
        raise c.refuse("the value of an empty optional", "there is none")
    return x


@operator("OptionalHasElement", host=True)
def has_element(c: Call, x: Value = None) -> Value:
    return np.array(x is not None)

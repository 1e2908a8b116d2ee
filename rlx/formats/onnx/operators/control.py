"""Operators with graphs: If, Loop and Scan.

What is decided while tracing is decided then: a branch is chosen, a short loop unrolled. What depends on data becomes a
branch or loop of the program where the types allow it, and runs node by node otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.core.errors import ShapeError
from rlx.formats.onnx.graph import Graph
from rlx.formats.onnx.table import Call, Value, ValuesNeeded, X, operator, upload

#: Iterations that are unrolled rather than made a loop of the program.
_UNROLLED = 16


def _known(value: Value) -> bool:
    """Whether a value can be looked at now."""
    return not (isinstance(value, Array) and value.is_traced)


def _as_arrays(c: Call, values: Sequence[Value]) -> list[Any]:
    """Host data as arrays; a sequence cannot be carried by a program."""
    if any(v is None or isinstance(v, list) for v in values):
        raise ValuesNeeded(f"{c.node.title} gives a sequence", why="a program carries arrays of fixed shapes",
                           do="call the model outside of jit, grad and vmap")
    return [upload(v, c.run.device) for v in values]


@operator("If", static=(0,))
def if_(c: Call, condition: Value) -> Value:
    branches: tuple[Graph, Graph] = c.attr("then_branch"), c.attr("else_branch")
    if _known(condition):
        return tuple(c.run.graph(branches[not c.static(condition).reshape(()).item()], {}, c.env))

    def taken(g: Graph) -> Any:
        return lambda: tuple(_as_arrays(c, c.run.graph(g, {}, c.env)))
    try:
        return tuple(X.cond(X.reshape(condition, ()), taken(branches[0]), taken(branches[1])))
    except ShapeError as e:
        raise ValuesNeeded(f"{c.node.title} has branches of different types", why=e.what,
                           do="bind the input that decides it (Model.bind)") from None


@operator("Loop", static=(0, 1))
def loop(c: Call, most: Value | None = None, condition: Value | None = None, *state: Value) -> Value:
    body: Graph = c.attr("body")
    limit = None if most is None else int(c.static(most, "the number of iterations").reshape(()))
    go: Value = np.asarray(True) if condition is None else condition
    carry, i = list(state), 0
    rows: list[list[Value]] = []
    while limit is None or i < limit:
        if not _known(go) or (i == _UNROLLED and limit is not None and not isinstance(go, Array)
                              and not _changes(carry, state)):
            return _in_program(c, body, i, limit, go, carry, rows)
        if not c.static(go).reshape(()).item():
            break
        go, carry, more = _once(c, body, np.asarray(i, np.int64), go, carry)
        rows.append(more)
        i += 1
    return (*carry, *[_stacked(c, body, rows, k) for k in range(len(body.outputs) - 1 - len(state))])


def _changes(now: Sequence[Value], before: Sequence[Value]) -> bool:
    """Whether sequences are carried, or arrays whose shapes change."""
    return any(isinstance(a, list) or a is None or a.shape != b.shape for a, b in zip(now, before, strict=True))


def _once(c: Call, body: Graph, i: Value, go: Value, carry: Sequence[Value]) -> tuple[Value, list[Value], list[Value]]:
    given = dict(zip([p.name for p in body.inputs], [i, go, *carry], strict=True))
    outs = c.run.graph(body, given, c.env)
    return outs[0], outs[1:1 + len(carry)], outs[1 + len(carry):]


def _stacked(c: Call, body: Graph, rows: list[list[Value]], k: int) -> Value:
    port = body.outputs[k - (len(rows[0]) if rows else 0)] if rows else body.outputs[len(body.outputs) - 1]
    if rows:
        return X.stack([upload(r[k], c.run.device) for r in rows], axis=0)
    sizes = [n if isinstance(n, int) else 0 for n in port.shape or ()]
    return np.zeros((0, *sizes), port.dtype.numpy if port.dtype is not None else np.float32)


def _in_program(c: Call, body: Graph, start: int, limit: int | None, go: Value, carry: list[Value],
                rows: list[list[Value]]) -> Value:
    """The rest of the iterations as a loop of the program."""
    outputs = len(body.outputs) - 1 - len(carry)
    state = tuple(_as_arrays(c, carry))
    try:
        if not isinstance(go, Array) and limit is not None:
            def step(held: Any, i: Array) -> Any:
                going, new, more = _once(c, body, i, go, list(held))
                if isinstance(going, Array) or not going.reshape(()).item():
                    raise ShapeError("the loop may end early")
                return tuple(_as_arrays(c, new)), tuple(_as_arrays(c, more))
            last, seen = X.scan(step, state, X.arange(start, limit, device=c.run.device))
            return (*last, *[X.concat([X.stack([upload(r[k], c.run.device) for r in rows]), s])
                             for k, s in enumerate(seen)])
        if outputs:
            raise ShapeError("how many rows there are depends on data")
        more = upload(go, c.run.device)
        top = np.iinfo(np.int64).max if limit is None else limit

        def again(held: Any) -> Any:
            going, new, _ = _once(c, body, held[0], held[1], list(held[2]))
            return held[0] + 1, X.reshape(upload(going, c.run.device), ()), tuple(_as_arrays(c, new))
        begin = X.asarray(np.asarray(start, np.int64), device=c.run.device)
        first = (begin, X.reshape(more, ()), state)
        return tuple(X.while_loop(lambda held: held[1] & (held[0] < top), again, first)[2])
    except ShapeError as e:
        raise ValuesNeeded(f"{c.node.title} is no loop of fixed types", why=e.what,
                           do="call the model outside of jit, grad and vmap") from None


@operator("Scan", static=())
def scan(c: Call, *inputs: Value) -> Value:
    body: Graph = c.attr("body")
    count = c.attr("num_scan_inputs")
    if c.version < 9:
        return _batched(c, body, count, inputs[1:])
    states = len(inputs) - count
    back = c.attr("scan_input_directions", (0,) * count)
    axes = c.attr("scan_input_axes", (0,) * count)
    xs = [X.moveaxis(x, a, 0) for x, a in zip(inputs[states:], axes, strict=True)]
    xs = [X.flip(x, axis=0) if b else x for x, b in zip(xs, back, strict=True)]
    last, ys = _scan(c, body, inputs[:states], xs)
    outs = len(ys)
    ys = [X.flip(y, axis=0) if b else y for y, b in zip(ys, c.attr("scan_output_directions", (0,) * outs), strict=True)]
    ys = [X.moveaxis(y, 0, a) for y, a in zip(ys, c.attr("scan_output_axes", (0,) * outs), strict=True)]
    return (*last, *ys)


def _scan(c: Call, body: Graph, state: Sequence[Value], xs: Sequence[Array]) -> tuple[Any, Any]:
    names = [p.name for p in body.inputs]

    def step(carry: Any, rows: Any) -> Any:
        given: Mapping[str, Value] = dict(zip(names, [*carry, *rows], strict=True))
        outs = _as_arrays(c, c.run.graph(body, given, c.env))
        return tuple(outs[:len(carry)]), tuple(outs[len(carry):])
    found: tuple[Any, Any] = X.scan(step, tuple(state), tuple(xs))
    return found


def _batched(c: Call, body: Graph, count: int, inputs: Sequence[Value]) -> Value:
    """Version 8: a leading axis of batches, each scanned alone."""
    states = len(inputs) - count
    parts = []
    for b in range(inputs[0].shape[0]):
        last, ys = _scan(c, body, [x[b] for x in inputs[:states]], [x[b] for x in inputs[states:]])
        parts.append([*last, *ys])
    return tuple([X.stack(p, axis=0) for p in zip(*parts, strict=True)])



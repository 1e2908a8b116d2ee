"""Derivatives of loops and branches.

Forward: a loop carries values and tangents together. Reverse: a loop keeps the carried values of every iteration that
its backward body needs, and a second loop runs back over them; when that is much memory, the loop is cut into sqrt(n)
parts of sqrt(n) iterations, and each part is run again on the way back. A branch runs again on the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt
from typing import Any

from rlx.array.array import Array
from rlx.array.build import literal, trace
from rlx.core.dtype import int64
from rlx.core.shape import count
from rlx.ir.graph import Graph, Node, Type, inline
from rlx.ops.control import _while_loop, fori_loop, switch
from rlx.ops.creation import zeros
from rlx.ops.derivative import filled, zeros_as
from rlx.ops.index import gather, scatter
from rlx.transform import forward, reverse
from rlx.transform.forward import Dual, Pusher
from rlx.transform.reverse import Cotangents, Noted, Recorder, accumulate, refuse
from rlx.transform.sweep import dependent, reclone

#: Bytes of kept iterations from which a loop is cut into parts that are run again (half a gigabyte).
KEEP_LIMIT = 1 << 29
Arrays = list[Array]


def run(g: Graph, args: Sequence[Array]) -> Arrays:
    """A closed graph's results on these arrays."""
    return [Array(v) for v in inline(g, [a._value for a in args])]


def split_loop(n: Node) -> tuple[int, int]:
    """(operands before the carried values, how many are carried)."""
    return (1 if n.op == "loop" else 0), n.attr("carry")


def bound_of(n: Node) -> int | None:
    """The most iterations a loop can run, if that is known."""
    if n.op == "loop" and n.args[0].node.op == "const":
        return int(n.args[0].node.attr("value"))
    found = n.attr("bound", -1)
    return None if found < 0 else int(found)


def loop_again(n: Node, count: Array | None, head: Graph | None, rest: Arrays, body: Callable[[Array | None, Any], Any],
               init: Any, base: Callable[[Any], Arrays], each: bool = False) -> Any:
    """A loop like ``n`` over another state; ``base(state)`` are the values that the condition looks at.

    ``each`` says that the new state, too, stays as it is for elements that are done.
    """
    bound = n.attr("bound", -1)
    if n.op == "loop":
        assert count is not None
        return fori_loop(0, times(count), body, init, max_steps=None if bound < 0 else bound)
    assert head is not None
    return _while_loop(lambda s: run(head, [*base(s), *rest])[0], lambda s: body(None, s), init,
                       None if bound < 0 else bound, each)


def times(count: Array) -> Any:
    """A loop count as a number where it is known."""
    n = count._value.node
    return int(n.attr("value")) if n.op == "const" else count


# Forward

def push_loop(pusher: Pusher, n: Node, args: list[Dual]) -> list[Dual]:
    """A loop whose state is (values, tangents of those that have one)."""
    lead, carry = split_loop(n)
    inits, rest = args[lead:lead + carry], args[lead + carry:]
    body, head = n.graphs[-1], (n.graphs[0] if n.op == "while" else None)
    live = _live_carries(body, [d.tangent is not None for d in inits], [d.tangent is not None for d in rest], lead)
    values = [d.array for d in inits]
    tangents = [filled(d.tangent, d.array) for d, on in zip(inits, live, strict=True) if on]

    def step(i: Array | None, state: Any) -> Any:
        xs, ts = state
        it = iter(ts)
        duals = [Dual(x, next(it) if on else None) for x, on in zip(xs, live, strict=True)]
        outs = Pusher().graph(body, [*([Dual(i)] if i is not None else []), *duals, *rest])
        return [o.array for o in outs], [filled(o.tangent, o.array) for o, on in zip(outs, live, strict=True) if on]

    count = args[0].array if lead else None
    # A select of finished elements keeps their tangents too.
    out_values, out_tangents = loop_again(n, count, head, [d.array for d in rest], step, (values, tangents),
                                          lambda s: s[0], bool(n.attr("each", False)))
    it = iter(out_tangents)
    return [Dual(o, next(it) if on else None) for o, on in zip(out_values, live, strict=True)]


def _live_carries(body: Graph, live: list[bool], rest: list[bool], lead: int) -> list[bool]:
    """Which carried values depend on the live ones, after any number of iterations."""
    live = list(live)
    while True:
        outs = dependent(body, [*[False] * lead, *live, *rest])
        new = [a or b for a, b in zip(live, outs, strict=True)]
        if new == live:
            return live
        live = new


def push_cond(pusher: Pusher, n: Node, args: list[Dual]) -> list[Dual]:
    """A branch that gives values and tangents."""
    index, operands = args[0], args[1:]
    live = [d.tangent is not None for d in operands]
    outs_live = [any(c) for c in zip(*[dependent(g, live) for g in n.graphs], strict=True)]

    def branch(g: Graph) -> Callable[..., Any]:
        def f(*_: Any) -> Any:
            outs = Pusher().graph(g, operands)
            return [o.array for o in outs], [filled(o.tangent, o.array) for o, on in zip(outs, outs_live,
                                                                                         strict=True) if on]
        return f

    values, tangents = switch(index.array, [branch(g) for g in n.graphs])
    it = iter(tangents)
    return [Dual(v, next(it) if on else None) for v, on in zip(values, outs_live, strict=True)]


# Reverse

def record_cond(recorder: Recorder, n: Node, args: list[Noted]) -> list[Noted]:
    """A branch; the way back runs the branch taken again."""
    arrays = [a.array for a in args]
    index, operands = arrays[0], arrays[1:]
    live = [a.slot is not None for a in args[1:]]
    outs_live = [any(c) for c in zip(*[dependent(g, live) for g in n.graphs], strict=True)]
    outs = reclone(n, arrays)

    def pull(cts: Cotangents) -> Cotangents:
        def branch(g: Graph) -> Callable[..., Any]:
            def f(*_: Any) -> Arrays:
                got = pull_graph(g, operands, live, cts)
                return [filled(c, x) for c, x, on in zip(got, operands, live, strict=True) if on]
            return f
        found = iter(switch(index, [branch(g) for g in n.graphs]))
        return [None, *[next(found) if on else None for on in live]]
    return recorder.tape.note(args, outs, pull, outs_live)


def pull_graph(g: Graph, arrays: Sequence[Array], live: Sequence[bool], cts: Cotangents) -> Cotangents:
    """Run a closed graph and pull cotangents of its outputs back to its live inputs."""
    recorder = Recorder()
    inputs = [recorder.input(a) if on else Noted(a) for a, on in zip(arrays, live, strict=True)]
    ends = recorder.graph(g, inputs)
    return recorder.tape.pull(list(zip(ends, cts, strict=True)), inputs)


class _Loop:
    """The parts of a loop on the way to its reverse."""

    def __init__(self, n: Node, args: list[Noted]) -> None:
        self.n = n
        self.lead, self.carry = split_loop(n)
        self.count = args[0].array if self.lead else None
        self.inits = [a.array for a in args[self.lead:self.lead + self.carry]]
        self.rest = [a.array for a in args[self.lead + self.carry:]]
        self.body = n.graphs[-1]
        on = [a.slot is not None for a in args]
        self.rest_live = on[self.lead + self.carry:]
        self.live = _live_carries(self.body, on[self.lead:self.lead + self.carry], self.rest_live, self.lead)

    def back(self, i: Array, values: Sequence[Array], rest: Sequence[Array], cts: Sequence[Array],
             sums: Sequence[Array]) -> tuple[Arrays, Arrays]:
        """One iteration backwards: cotangents of the live carried values, and the sums over the live captured ones."""
        it = iter(cts)
        seeds: Cotangents = [next(it) if on else None for on in self.live]
        index = [i] if self.lead else []
        got = pull_graph(self.body, [*index, *values, *rest], [*[False] * self.lead, *self.live, *self.rest_live],
                         seeds)
        got = got[self.lead:]
        new = [filled(c, v) for c, v, on in zip(got, values, self.live, strict=False) if on]
        fresh = [c for c, on in zip(got[self.carry:], self.rest_live, strict=True) if on]
        return new, [s if c is None else accumulate(s, c) for s, c in zip(sums, fresh, strict=True)]

    def needed(self) -> list[bool]:
        """Which carried values the backward body reads."""
        state = [a._value.type for a in self.inits]
        rest = [a._value.type for a in self.rest]
        cts = [t for t, on in zip(state, self.live, strict=True) if on]
        sums = [t for t, on in zip(rest, self.rest_live, strict=True) if on]
        cuts = (1, len(state), len(rest), len(cts), len(sums))

        def whole(*xs: Array) -> Any:
            parts, at = [], 0
            for c in cuts:
                parts.append(xs[at:at + c])
                at += c
            return self.back(parts[0][0], *parts[1:])

        device = next((a._value.node.device for a in (*self.inits, *self.rest) if a._value.node.device), None)
        g, _, _ = trace(whole, [Type(int64, ()), *state, *rest, *cts, *sums], device)
        used = {v for m in g.nodes() for v in m.args} | set(g.outputs)
        return [v in used for v in g.inputs[1:1 + len(state)]]


def record_loop(recorder: Recorder, n: Node, args: list[Noted]) -> list[Noted]:
    """A loop that keeps what its way back reads."""
    return _record_loop(recorder, n, args, True)


def _record_loop(recorder: Recorder, n: Node, args: list[Noted], may_cut: bool) -> list[Noted]:
    loop, bound = _Loop(n, args), bound_of(n)
    if bound is None:
        return _unbounded(recorder, n, args, loop)
    fixed = [o is i for o, i in zip(loop.body.outputs, loop.body.inputs[loop.lead:], strict=False)]
    keep = [need and not same for need, same in zip(loop.needed(), fixed, strict=True)]
    size = sum(count(a.shape) * a.dtype.itemsize for a, on in zip(loop.inits, keep, strict=True) if on)
    if may_cut and n.op == "loop" and n.args[0].node.op == "const" and bound >= 16 and size * bound > KEEP_LIMIT:
        return _record_parts(recorder, loop, args, bound)
    outs, stacks, steps = _keep(loop, keep, bound)

    def pull(cts: Cotangents) -> Cotangents:
        seeds = [filled(c, o) for c, o, on in zip(cts, outs, loop.live, strict=True) if on]
        sums = [zeros_as(r) for r, on in zip(loop.rest, loop.rest_live, strict=True) if on]

        def step(j: Array, state: Any) -> Any:
            i = (steps - 1) - j
            it = iter(stacks)
            values = [gather(next(it), i, mode="promise") if on else a for a, on in zip(loop.inits, keep, strict=True)]
            return loop.back(i, values, loop.rest, *state)

        dynamic = isinstance(steps, Array)
        first, summed = fori_loop(0, steps, step, (seeds, sums), max_steps=bound if dynamic else None)
        a, b = iter(first), iter(summed)
        return [*[None] * loop.lead, *[next(a) if on else None for on in loop.live],
                *[next(b) if on else None for on in loop.rest_live]]
    return recorder.tape.note(args, outs, pull, loop.live)


def _keep(loop: _Loop, keep: list[bool], bound: int) -> tuple[Arrays, Arrays, Any]:
    """Run the loop, stacking the carried values to keep; returns results, stacks, and how many iterations ran."""
    n = loop.n
    stacks = [zeros((bound, *a.shape), dtype=a.dtype, device=a._value.node.device)
              for a, on in zip(loop.inits, keep, strict=True) if on]

    def step(i: Array | None, state: Any) -> Any:
        values, kept, done = state
        at = done if i is None else i
        kept = [scatter(s, v, (at,), "set") for s, v in zip(kept, [v for v, on in zip(values, keep, strict=True) if on],
                                                            strict=True)]
        new = run(loop.body, [*([i] if i is not None else []), *values, *loop.rest])
        return new, kept, (done if i is not None else done + 1)

    start: Any = literal(0, int64, loop.inits[0]._value.node.device if loop.inits else None) if n.op == "while" else ()
    head = n.graphs[0] if n.op == "while" else None
    outs, stacks, done = loop_again(n, loop.count, head, loop.rest, step, (loop.inits, stacks, start), lambda s: s[0])
    return outs, stacks, (done if loop.count is None else times(loop.count))


def _unbounded(recorder: Recorder, n: Node, args: list[Noted], loop: _Loop) -> list[Noted]:
    def pull(cts: Cotangents) -> Cotangents:
        raise refuse(n, "how many iterations must be kept is not known while tracing",
                     "state a bound with max_steps=, or use forward mode (rlx.jvp)")
    return recorder.tape.note(args, reclone(n, [a.array for a in args]), pull, loop.live)


def _record_parts(recorder: Recorder, loop: _Loop, args: list[Noted], count: int) -> list[Noted]:
    """``loop(n)`` -> ``loop(n // m)`` of ``loop(m)``, m = sqrt(n), and the rest; only the outer one keeps values."""
    m = isqrt(count)
    whole = count // m * m
    carry = loop.carry

    def part(offset: Any, state: Any, length: int, rest: Arrays) -> Any:
        return fori_loop(0, length, lambda j, s: run(loop.body, [offset + j, *s, *rest]), state)

    def outer(*xs: Array) -> Any:
        return fori_loop(0, count // m, lambda k, s: part(k * m, s, m, list(xs[carry:])), list(xs[:carry]))

    def tail(*xs: Array) -> Any:
        return part(whole, list(xs[:carry]), count - whole, list(xs[carry:]))

    state, rest = args[1:1 + carry], args[1 + carry:]
    for f, go in ((outer, True), (tail, count > whole)):
        if not go:
            continue
        types = [a.array._value.type for a in (*state, *rest)]
        g, _, _ = trace(f, types, next((a.array._value.node.device for a in args if a.array._value.node.device), None))
        inner = next(v.node for v in g.outputs if v.node.op == "loop")
        env = dict(zip(g.inputs, [*state, *rest], strict=True))
        operands = [env[a] if a in env else Noted(Array(a)) for a in inner.args]
        outs = _record_loop(recorder, inner, operands, False)
        found = dict(zip(inner.outs, outs, strict=True))
        state = [found[v] if v in found else env[v] for v in g.outputs]
    return list(state)


for _name in ("while", "loop"):
    reverse.SPECIAL[_name] = record_loop
    forward.SPECIAL[_name] = push_loop
reverse.SPECIAL["cond"] = record_cond
forward.SPECIAL["cond"] = push_cond

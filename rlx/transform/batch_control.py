"""Batching of loops and branches.

``while`` with one condition for all -> the same loop over batches. With a condition for each example -> a loop that
runs while any example goes on; an example that is done keeps its values. ``cond`` on a batch -> all branches, then a
select.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.array.array import Array
from rlx.array.build import broadcast
from rlx.ir.graph import Graph, Node, postorder
from rlx.ops.control import _while_loop, fori_loop, switch
from rlx.ops.elementwise import equal, where
from rlx.ops.index import gather, scatter
from rlx.ops.movement import reshape
from rlx.ops.reduce import any as any_of
from rlx.ops.reduce import max as max_of
from rlx.transform.batch import Batcher, Many, rule
from rlx.transform.control import loop_again, split_loop


def _carried(body: Graph, on: list[bool], rest: list[bool], lead: int) -> list[bool]:
    """Which carried values differ between examples, after any number of iterations."""
    on = list(on)
    while True:
        new = [a or b for a, b in zip(on, _depends(body, [*[False] * lead, *on, *rest]), strict=True)]
        if new == on:
            return on
        on = new


def _depends(g: Graph, on: list[bool]) -> list[bool]:
    found = {v for v, x in zip(g.inputs, on, strict=True) if x}
    for n in postorder(g.outputs):
        if any(a in found for a in n.args):
            found.update(n.outs)
    return [v in found for v in g.outputs]


def kept_or(mask: Array, new: Array, old: Array) -> Array:
    """``new`` for the examples of the mask, else ``old``; of a written slice only the slice is chosen."""
    n = new._value.node
    if n.op == "scatter" and n.attr("kind") == "set" and n.args[0] is old._value and n.args[2].shape[:1] == mask.shape:
        update, index = Array(n.args[1]), tuple([Array(i) for i in n.args[2:]])
        return scatter(old, where(over(mask, update), update, gather(old, *index)), index, "set")
    out: Array = where(over(mask, old), new, old)
    return out


def over(mask: Array, x: Array) -> Array:
    """A mask of examples in the shape of a batch."""
    return broadcast(reshape(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim))), x.shape)


@rule("loop", "while")
def _loop(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    lead, carry = split_loop(n)
    inits, rest = args[lead:lead + carry], args[lead + carry:]
    body, head = n.graphs[-1], (n.graphs[0] if n.op == "while" else None)
    on = _carried(body, [m.on for m in inits], [m.on for m in rest], lead)
    each = args[0].on if lead else _depends(n.graphs[0], [*on, *[m.on for m in rest]])[0]
    if each:
        return _until_all(b, n, args, lead, carry)
    state = [b.full(m) if x else m.array for m, x in zip(inits, on, strict=True)]

    def step(i: Array | None, values: list[Array]) -> list[Array]:
        found = b.graph(body, [*([Many(i)] if i is not None else []),
                               *[Many(v, x) for v, x in zip(values, on, strict=True)], *rest])
        return [b.full(m) if x else m.array for m, x in zip(found, on, strict=True)]

    if head is None:
        outs = loop_again(n, args[0].array, None, [], step, state, lambda s: s)
    else:
        outs = _while(b, n, head, step, state, on, rest)
    return [Many(o, x) for o, x in zip(outs, on, strict=True)]


def _while(b: Batcher, n: Node, head: Graph, step: Callable[..., Any], state: list[Array], on: list[bool],
           rest: list[Many]) -> Any:
    bound = n.attr("bound", -1)

    def more(values: list[Array]) -> Array:
        return b.graph(head, [*[Many(v, x) for v, x in zip(values, on, strict=True)], *rest])[0].array
    return _while_loop(more, lambda s: step(None, s), state, None if bound < 0 else bound)


def _until_all(b: Batcher, n: Node, args: list[Many], lead: int, carry: int) -> list[Many]:
    """A loop that runs while any example goes on."""
    inits, rest = args[lead:lead + carry], args[lead + carry:]
    bound = n.attr("bound", -1)
    limit = None if bound < 0 else bound
    state = [b.full(m) for m in inits]
    body = n.graphs[-1]

    def masked(mask: Array, values: list[Array], i: Array | None = None) -> list[Array]:
        found = b.graph(body, [*([Many(i)] if i is not None else []), *[Many(v, True) for v in values], *rest])
        return [kept_or(mask, b.full(m), v) for m, v in zip(found, values, strict=True)]

    if n.op == "loop":
        counts = args[0].array
        outs = fori_loop(0, max_of(counts), lambda i, s: masked(counts > i, s, i), state, max_steps=limit)
    else:
        head = n.graphs[0]

        def active(values: list[Array]) -> Array:
            return b.full(b.graph(head, [*[Many(v, True) for v in values], *rest])[0])
        if n.attr("each", False):
            # It leaves elements that are done as they are: so do examples, all of whose elements are done.
            outs = _while_loop(lambda s: any_of(active(s)), lambda s: [b.full(m) for m in b.graph(
                body, [*[Many(v, True) for v in s], *rest])], state, limit, True)
        else:
            outs = _while_loop(lambda s: any_of(active(s)), lambda s: masked(active(s), s), state, limit, True)
    return [Many(o, True) for o in outs]


@rule("cond")
def _cond(b: Batcher, n: Node, args: list[Many]) -> list[Many]:
    index, operands = args[0], args[1:]
    if index.on:
        results = [[b.full(m) for m in b.graph(g, operands)] for g in n.graphs]
        outs = results[-1]
        for k in range(len(results) - 2, -1, -1):
            mask = equal(index.array, k)
            outs = [where(over(mask, y), x, y) for x, y in zip(results[k], outs, strict=True)]
        return [Many(o, True) for o in outs]
    on = [any(c) for c in zip(*[_depends(g, [m.on for m in operands]) for g in n.graphs], strict=True)]

    def branch(g: Graph) -> Callable[..., list[Array]]:
        return lambda *_: [b.full(m) if x else m.array for m, x in zip(b.graph(g, operands), on, strict=True)]
    outs = switch(index.array, [branch(g) for g in n.graphs])
    return [Many(o, x) for o, x in zip(outs, on, strict=True)]

"""Walk programs in LIR: all steps, all statements, all expressions, each expression object once.

Expressions are graphs: an object that is read in many places is visited in one of them, and no walk recurses into
expressions, which may be thousands of operations deep.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from rlx.ir import loop as L
from rlx.ir.loop import Expr, Step, Stmt


def steps(block: Iterable[Step]) -> Iterator[Step]:
    """Every step, a loop or a branch before what is inside it."""
    for s in block:
        yield s
        match s:
            case L.Repeat(body=b):
                yield from steps(b)
            case L.While(head=h, body=b):
                yield from steps((*h, *b))
            case L.Branch(then=t, orelse=o):
                yield from steps((*t, *o))


def statements(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Every statement, a loop or a choice before what is inside it."""
    for s in body:
        yield s
        match s:
            case L.For(body=b) | L.Loop(body=b):
                yield from statements(b)
            case L.If(then=t, orelse=o):
                yield from statements((*t, *o))


def expressions(s: Stmt) -> tuple[Expr, ...]:
    """The expressions that one statement holds itself: bounds, conditions, indices, values."""
    match s:
        case L.For(start=a, stop=b):
            return a, b
        case L.Let(value=e) | L.Assign(value=e) | L.Exchange(value=e) | L.Register(init=e):
            return (e,)
        case L.Store(index=i, value=e) | L.Atomic(index=i, value=e):
            return i, e
        case L.If(cond=c) | L.Loop(cond=c):
            return (c,)
        case L.Contract(a_index=i, b_index=j) | L.Transpose(dst_index=i, src_index=j):
            return i, j
        case _:
            return ()


def inside(*roots: Expr) -> Iterator[Expr]:
    """The expressions and all that they are computed from, in no particular order."""
    stack, seen = list(roots), set()
    while stack:
        e = stack.pop()
        if id(e) not in seen:
            seen.add(id(e))
            yield e
            stack.extend(e.args)


def mentions(e: Expr, *names: str) -> bool:
    """Whether an expression reads a variable of one of these names."""
    return any(x.op == "var" and x.value in names for x in inside(e))


def bottom_up(roots: Sequence[Expr], done: Container[object], needed: Callable[[Expr], Sequence[Expr]] | None = None,
              key: Callable[[Expr], object] = id) -> Iterator[Expr]:
    """The expressions and all that they need (by default their arguments), each after what it needs.

    Passed over is what is ``done``: the caller puts the ``key`` of each expression there before it asks for the next.
    """
    stack = [(r, False) for r in reversed(roots)]
    while stack:
        e, ready = stack.pop()
        if key(e) in done:
            continue
        if ready:
            yield e
        else:
            stack.append((e, True))
            stack.extend((a, False) for a in reversed(needed(e) if needed else e.args) if key(a) not in done)

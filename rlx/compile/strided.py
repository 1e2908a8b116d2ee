"""Blocks of loops for reads across the rows of memory, so that a cache line is used whole while it is there.

``y[t, o] = x[o, t]`` reads a line of 16 values for each one it needs, and comes back for the next when the line is long
gone. In blocks of ``o`` the lines of all ``x[o, :]`` of the block stay in cache over consecutive ``t``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rlx.compile.index import Indexer
from rlx.ir import loop as L
from rlx.ir.loop import Expr, Stmt
from rlx.ir.walk import expressions, inside, mentions

#: Iterations of the vector loop in one block: with its line each they fill half of a small first-level cache, or one
#: way of every set when the stride is a power of two (32 lines).
BLOCK = 32
#: Lines that half of a first-level cache holds: shorter vector loops find theirs again without blocks.
MANY = 256
#: Elements apart from which two reads of the vector loop are surely not in one cache line.
APART = 16
#: Elements apart up to which two iterations of the outer loop read the same line.
NEAR = 4


def block_strided(stmts: tuple[Stmt, ...], ix: Indexer) -> tuple[Stmt, ...]:
    """The statements with every serial loop around a vector loop blocked, where that vector loop reads across rows."""
    out: list[Stmt] = []
    for s in stmts:
        if isinstance(s, L.For):
            blocked = _blocked(s, ix)
            out.append(blocked if blocked is not None else replace(s, body=block_strided(s.body, ix)))
        else:
            out.append(s)
    return tuple(out)


def _blocked(t: L.For, ix: Indexer) -> L.For | None:
    """``for t: for o: ...`` -> ``for ob in blocks: for t: for o in ob: ...``, or None when that gains nothing."""
    if t.kind != L.SERIAL or not t.body or t.step != 1:
        return None
    *before, o = t.body
    if not isinstance(o, L.For) or o.kind != L.VECTOR or o.step != 1 or o.start.op != "const" or o.stop.op != "const":
        return None
    if not all(isinstance(s, L.Let) for s in before) or not all(isinstance(s, (L.Let, L.Store)) for s in o.body):
        return None
    start, stop = int(o.start.value), int(o.stop.value)
    if stop - start < MANY or not any(_across(i, t.var, o.var, ix) for i in _read_at(o.body)):
        return None
    name = f"{o.var}b"
    first = L.var(name, ix.dtype)
    last = ix.offset(first, BLOCK)
    if (stop - start) % BLOCK:
        last = L.expr("min", (last, o.stop), ix.dtype)
    inner = replace(t, body=(*before, replace(o, start=first, stop=last)))
    return L.For(name, o.start, o.stop, BLOCK, L.SERIAL, (inner,))


def _across(index: Expr, t: str, o: str, ix: Indexer) -> bool:
    """Whether a read jumps with every ``o`` and hardly moves with ``t``."""
    terms, _ = ix.terms(index)
    jump = sum(abs(c) for atom, c in terms.items() if atom.op == "var" and atom.value == o)
    near = [abs(c) for atom, c in terms.items() if mentions(atom, t) and not mentions(atom, o)]
    return jump >= APART and any(c <= NEAR for c in near)


def _read_at(stmts: tuple[Stmt, ...]) -> Iterator[Expr]:
    """The index of every load."""
    for s in stmts:
        yield from (e.args[0] for e in inside(*expressions(s)) if e.op == "load")

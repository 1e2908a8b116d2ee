"""Emit expressions: the value of a MIR node at an index, inlined down to storage, shared work named once.

``(a + b)[o]`` -> ``add(load a[o], load b[o])``; movement and gather become index arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlx.compile.index import Indexer, sizes
from rlx.core.dtype import bool_
from rlx.ir import loop as L
from rlx.ir.graph import Node, Value
from rlx.ir.loop import Expr, Stmt
from rlx.ir.prim import POINTWISE
from rlx.ir.walk import inside

Index = tuple[Expr, ...]


class Block:
    """The statements of one loop body under construction."""

    def __init__(self) -> None:
        self.stmts: list[Stmt] = []
        self.memo: dict[tuple[Value, Index], Expr] = {}
        self.names: dict[Expr, Expr] = {}


class Emitter:
    """Builds the body of one kernel.

    ``stored`` says which values live in buffers and under which parameter name; ``shared`` which nodes have several
    users. ``held`` are values that the nest has computed at the current index (registers). Work that does not depend on
    the inner loops is placed outside them.
    """

    def __init__(self, ix: Indexer, stored: Callable[[Value], str | None], shared: Mapping[int, int]) -> None:
        self.ix = ix
        self.stored = stored
        self.shared = shared
        self.held: dict[Value, tuple[Index, Expr]] = {}
        self.blocks: list[Block] = [Block()]
        self.depth_of: dict[str, int] = {}
        self._depth: dict[Expr, int] = {}
        self.loads: list[tuple[Value, Index]] = []
        #: For a loop variable, between which values all tests on it are decided (see Nest.split).
        self.margins: dict[str, tuple[int, int]] = {}
        #: Registers that loops around the current block assign: nothing that reads them may move out.
        self.mutable: set[str] = set()
        #: Values kept in local memory, and how to load one at an index.
        self.placed: dict[Value, Callable[[Index], Expr]] = {}
        #: Values whose storage this kernel overwrites: each is loaded once, before any store.
        self.overwritten: set[Value] = set()
        self._count = 0

    # Structure

    @property
    def here(self) -> list[Stmt]:
        """Statements of the innermost open block."""
        return self.blocks[-1].stmts

    def name(self, prefix: str) -> str:
        self._count += 1
        # i8, u16, c64 are dtypes in IR text.
        return f"{prefix}{'x' if prefix in 'iufc' else ''}{self._count}"

    def open(self, variable: str | None = None) -> None:
        """Enter a loop body; ``variable`` is its loop variable."""
        self.blocks.append(Block())
        if variable is not None:
            self.define(variable)

    def define(self, variable: str) -> None:
        """Note that a variable exists from the innermost open block on."""
        self.depth_of[variable] = len(self.blocks) - 1

    def close(self) -> tuple[Stmt, ...]:
        """Leave a loop body and return its statements."""
        block = self.blocks.pop()
        level = len(self.blocks)
        self.depth_of = {k: d for k, d in self.depth_of.items() if d < level}
        self._depth = {e: d for e, d in self._depth.items() if d < level}
        self.held = {v: h for v, h in self.held.items() if self._still_known(h[1])}
        return tuple(block.stmts)

    def loop(self, name: str, start: Expr, stop: Expr, kind: str) -> None:
        """Close the innermost block and append it as a loop to the block around it."""
        body = self.close()
        self.here.append(L.For(name, start, stop, 1, kind, body))

    def _still_known(self, e: Expr) -> bool:
        return all(x.value in self.depth_of for x in inside(e) if x.op == "var")

    def depth(self, e: Expr) -> int:
        """The shallowest block in which every variable of ``e`` exists."""
        known = self._depth.get(e)
        if known is None:
            if e.op == "var" and e.value in self.mutable:
                return len(self.blocks) - 1
            if e.op == "var":
                known = self.depth_of.get(e.value, len(self.blocks) - 1)
            else:
                known = max((self.depth(a) for a in e.args), default=0)
            self._depth[e] = known
        return known

    def let(self, e: Expr) -> Expr:
        """A name for ``e`` in the shallowest block that can hold it."""
        if e.op in ("const", "var"):
            return e
        block = self.blocks[self.depth(e)]
        named = block.names.get(e)
        if named is None:
            name = self.name("t")
            block.stmts.append(L.Let(name, e))
            self.depth_of[name] = self.depth(e)
            named = block.names[e] = L.var(name, e.dtype)
        return named

    def register(self, init: Expr, prefix: str = "r") -> Expr:
        """Declare a register in the innermost block."""
        name = self.name(prefix)
        self.here.append(L.Register(name, init))
        self.define(name)
        return L.var(name, init.dtype)

    # Values

    def value(self, v: Value, index: Index) -> Expr:
        """The expression of ``v[index]``."""
        held = self.held.get(v)
        if held is not None and held[0] == index:
            return held[1]
        for block in reversed(self.blocks):
            found = block.memo.get((v, index))
            if found is not None:
                return found
        if v in self.placed:
            return self.placed[v](index)
        name = self.stored(v)
        if name is not None:
            self.loads.append((v, index))
            e = L.load(name, self.ix.linear(index, sizes(v)), v.dtype)
            if self.depth(e) < len(self.blocks) - 1 or self.shared.get(id(v.node), 1) > 1 or v in self.overwritten:
                e = self.let(e)
        else:
            e = self._inline(v.node, v, index)
            many = self.shared.get(id(v.node), 1) > 1
            if e.op not in ("const", "var", "load") and (many or self.depth(e) < len(self.blocks) - 1):
                e = self.let(e)
        self.blocks[self.depth(e)].memo[v, index] = e
        return e

    def _inline(self, n: Node, v: Value, index: Index) -> Expr:
        if n.op in POINTWISE:
            return L.expr(n.op, tuple([self.value(a, index) for a in n.args]), v.dtype)
        rule = _RULES.get(n.op)
        if rule is None:
            raise AssertionError(f"{n.op} must be stored before it is used")
        return rule(self, n, index)

    def cast(self, e: Expr, dtype: Any) -> Expr:
        """``e`` in another dtype."""
        if e.dtype == dtype:
            return e
        if e.op == "const":
            return L.const(e.value, dtype)
        return L.expr("cast", (e,), dtype)

    def as_index(self, e: Expr) -> Expr:
        """An integer value as an index; a value that was an index before is that index again."""
        if e.dtype == self.ix.dtype:
            return e
        if e.op == "cast" and e.args[0].dtype == self.ix.dtype and e.dtype.is_integer and e.dtype.bits >= 32:
            return e.args[0]
        return self.cast(e, self.ix.dtype)

    def inside(self, i: Expr, n: int) -> Expr:
        """Whether ``0 <= i < n``, without the tests that the ranges decide."""
        low, high = self.ix.range(i)
        if low is None or high is None or low < 0 or high >= n:
            self._note_margin(i, n)
        ok = L.const(True, bool_)
        if low is None or low < 0:
            ok = L.both(ok, L.expr("ge", (i, self.ix.const(0)), bool_))
        if high is None or high >= n:
            ok = L.both(ok, L.less(i, self.ix.const(n)))
        return ok

    def _note_margin(self, i: Expr, n: int) -> None:
        """Remember where a test on ``variable + c`` is decided: for ``-c <= variable < n - c``."""
        terms, c = self.ix.terms(i)
        for e, k in terms.items():
            if len(terms) == 1 and k == 1 and e.op == "var":
                low, high = self.margins.get(e.value, (0, self.ix.extent.get(e.value, 0)))
                self.margins[e.value] = (max(low, -c), min(high, n - c))


def _const(em: Emitter, n: Node, index: Index) -> Expr:
    return L.const(n.attr("value"), n.types[0].dtype)


def _iota(em: Emitter, n: Node, index: Index) -> Expr:
    return em.cast(index[0], n.types[0].dtype)


def _reshape(em: Emitter, n: Node, index: Index) -> Expr:
    x = n.args[0]
    position = em.ix.linear(index, sizes(n.outs[0]))
    return em.value(x, em.ix.split(position, sizes(x)))


def _permute(em: Emitter, n: Node, index: Index) -> Expr:
    axes = n.attr("axes")
    return em.value(n.args[0], tuple([index[axes.index(i)] for i in range(len(axes))]))


def _broadcast(em: Emitter, n: Node, index: Index) -> Expr:
    x = n.args[0]
    tail = index[len(index) - len(x.shape):]
    return em.value(x, tuple([em.ix.const(0) if d == 1 else i for i, d in zip(tail, x.shape, strict=True)]))


def _slice(em: Emitter, n: Node, index: Index) -> Expr:
    moved = [em.ix.offset(em.ix.scale(i, s), b)
             for i, b, s in zip(index, n.attr("start"), n.attr("step"), strict=True)]
    return em.value(n.args[0], tuple(moved))


def _flip(em: Emitter, n: Node, index: Index) -> Expr:
    x, axes = n.args[0], n.attr("axes")
    return em.value(x, tuple([em.ix.offset(em.ix.scale(i, -1), d - 1) if a in axes else i
                              for a, (i, d) in enumerate(zip(index, sizes(x), strict=True))]))


def _pad(em: Emitter, n: Node, index: Index) -> Expr:
    x, fill = n.args
    ok = L.const(True, bool_)
    moved: list[Expr] = []
    for i, b, d in zip(index, n.attr("low"), sizes(x), strict=True):
        j = em.ix.offset(i, -b)
        here = em.inside(j, d)
        ok = L.both(ok, here)
        moved.append(j if here.op == "const" and here.value else L.select(here, j, em.ix.const(0)))
    outside = em.value(fill, ())
    if any(d == 0 for d in x.shape) or (ok.op == "const" and not ok.value):
        return outside
    return L.select(ok, em.value(x, tuple(moved)), outside)


def _concat(em: Emitter, n: Node, index: Index) -> Expr:
    axis, at = n.attr("axis"), 0
    pieces: list[tuple[int, Value]] = []
    for x in n.args:
        if x.shape[axis] != 0:
            pieces.append((at, x))
        at += int(x.shape[axis])
    out: Expr | None = None
    for start, x in pieces:
        j = em.ix.offset(index[axis], -start)
        ok = em.inside(j, int(x.shape[axis]))
        clamped = j if ok.op == "const" and ok.value else L.select(ok, j, em.ix.const(0))
        e = em.value(x, (*index[:axis], clamped, *index[axis + 1:]))
        above = L.expr("ge", (index[axis], em.ix.const(start)), bool_)
        out = e if out is None else L.select(above, e, out)
    return out if out is not None else L.const(0, n.types[0].dtype)


def _window(em: Emitter, n: Node, index: Index) -> Expr:
    x = n.args[0]
    moved = list(index[:len(x.shape)])
    for k, (a, s, d) in enumerate(zip(n.attr("axes"), n.attr("step"), n.attr("dilation"), strict=True)):
        moved[a] = em.ix.add(em.ix.scale(moved[a], s), em.ix.scale(index[len(x.shape) + k], d))
    return em.value(x, tuple(moved))


def _gather(em: Emitter, n: Node, index: Index) -> Expr:
    x, picks = n.args[0], n.args[1:]
    if any(d == 0 for d in x.shape):
        return L.const(0, x.dtype)
    rank = len(picks[0].shape)
    at: list[Expr] = []
    for p, d in zip(picks, sizes(x), strict=False):
        i = em.as_index(em.value(p, index[:rank]))
        at.append(i if n.attr("mode") == "promise" else clamp(em, i, d))
    return em.value(x, (*at, *index[rank:]))


def clamp(em: Emitter, i: Expr, size: int) -> Expr:
    """``i`` within ``[0, size)``: no load leaves its buffer."""
    low, high = em.ix.range(i)
    if low is None or low < 0:
        i = L.expr("max", (i, em.ix.const(0)), em.ix.dtype)
    if high is None or high >= size:
        i = L.expr("min", (i, em.ix.const(max(size - 1, 0))), em.ix.dtype)
    return em.let(i)


_RULES: dict[str, Callable[[Emitter, Node, Index], Expr]] = {
    "const": _const, "iota": _iota, "reshape": _reshape, "permute": _permute, "broadcast": _broadcast, "slice": _slice,
    "flip": _flip, "pad": _pad, "concat": _concat, "window": _window, "gather": _gather,
}
INLINE: frozenset[str] = frozenset((*_RULES, *POINTWISE))

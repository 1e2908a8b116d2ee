"""Kernels of workgroups that are no plain group: column reductions, running scans, scatters and sorts.

Each result is the same in every run, except sums of floats scattered by atomics (``scatter add`` of many
updates into a device with float atomics), whose order is open.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt, prod
from typing import Any

from rlx.compile.emit import Index
from rlx.compile.grid_form import MAX_GROUPS, GridForm, accumulator, lanes_of
from rlx.compile.grid_sort import Sorter
from rlx.compile.index import sizes
from rlx.compile.naming import Made
from rlx.compile.reduction import identity, reduce_kind
from rlx.compile.special import Special
from rlx.core.caps import Caps
from rlx.core.dtype import DType, bool_, int32
from rlx.ir import loop as L
from rlx.ir.loop import Expr
from rlx.ir.prim import COMBINE

#: Lanes that keep a large device busy: more parallel pieces than that only add partials to combine.
BUSY_LANES = 65_536
#: Length of a line from which its scan is done in two levels.
LONG_LINE = 1024
#: Updates up to which one lane applies a scatter in order.
FEW_UPDATES = 32


class GridSpecial(Special):
    """Builds the kernels of one opaque node for a device of workgroups."""

    def __init__(self, *args: Any, caps: Caps) -> None:
        super().__init__(*args)
        self.caps = caps
        self._args = args

    def build(self) -> list[Made]:
        """The node's kernels; none for a result without elements."""
        if 0 in sizes(self.node.outs[0]):
            return []
        return {"reduce": self.column, "scan": self.scan, "scatter": self.scatter, "sort": self.sort}[self.node.op]()

    def spread(self, span: int, body: Callable[[Expr], None], notes: str, label: str = "") -> Made:
        """A kernel of one lane for each of ``span`` positions; ``body`` emits what a position does."""
        em, ix = self.em, self.ix
        form = GridForm(em, ix, self.caps)
        lanes = lanes_of(self.caps, max(span, 1))
        groups = max(min(-(-span // lanes), MAX_GROUPS), 1)
        with form.kernel(groups, lanes) as (g, lane):
            em.open()
            em.define("o")
            ix.extent["o"] = max(span, 1)
            body(L.var("o", ix.dtype))
            inner = em.close()
            at = ix.add(ix.scale(g, lanes), lane)
            em.here.append(
                L.For("o", at, ix.const(span), groups * lanes, L.SERIAL, inner)
                if groups * lanes < span
                else L.If(L.less(at, ix.const(span)), (L.Let("o", at), *inner))
            )
        return self.naming.kernel(self.name + label, form.body, notes)

    def again(self) -> GridSpecial:
        """A builder for one more kernel of the same node."""
        return GridSpecial(*self._args, caps=self.caps)

    def over(self, prefix: str, start: Expr, stop: Expr, extent: int, body: Callable[[Expr], None]) -> None:
        """``for v in range(start, stop)`` around what ``body`` emits."""
        name = self.em.name(prefix)
        self.em.open(name)
        self.ix.extent[name] = max(extent, 1)
        body(L.var(name, self.ix.dtype))
        self.em.loop(name, start, stop, L.SERIAL)

    # Column reductions

    def column(self) -> list[Made]:
        """One lane a result walks its column, neighbours side by side; long columns are split over lanes first."""
        n, x, out = self.node, self.node.args[0], self.node.outs[0]
        axes, shape, kind = n.attr("axes"), sizes(x), reduce_kind(n)
        kept = tuple(a for a in range(len(shape)) if a not in axes)
        rows, outs = tuple(shape[a] for a in axes), tuple(shape[a] for a in kept)
        many, width, dtype = prod(rows), prod(outs), accumulator(out)
        chunks = max(min(BUSY_LANES // max(width, 1), isqrt(max(many, 1))), 1)
        size = -(-many // chunks) if many else 1
        chunks = max(-(-many // size), 1)
        em, ix = self.em, self.ix

        def part(o: Expr) -> None:
            place = ix.split(ix.mod(o, width) if chunks > 1 else o, outs)
            chunk = ix.div(o, width)
            acc = em.register(identity(kind, dtype), "a")
            start = em.let(ix.scale(chunk, size)) if chunks > 1 else ix.const(0)
            stop = (
                ix.const(many) if chunks == 1 else L.expr("min", (ix.offset(start, size), ix.const(many)), ix.dtype)
            )

            def step(r: Expr) -> None:
                row = ix.split(r, rows)
                index = tuple(row[axes.index(a)] if a in axes else place[kept.index(a)] for a in range(len(shape)))
                e = em.cast(self.summed(x, index), dtype)
                em.here.append(L.Assign(acc.value, L.expr(COMBINE[kind], (acc, e), dtype), True))

            self.over("r", start, stop, many, step)
            target = self.naming.of(out) if chunks == 1 else self.naming.scratch("partial0", dtype, chunks * width)
            em.here.append(L.Store(target, o, em.cast(acc, out.dtype) if chunks == 1 else acc))

        notes = f"column reduce of {list(shape)} over {list(axes)}{self._also()}"
        made = [self.spread(chunks * width, part, notes)]
        return made if chunks == 1 else [*made, self.again()._add_chunks(chunks, width, kind, dtype)]

    def _add_chunks(self, chunks: int, width: int, kind: str, dtype: DType) -> Made:
        em, ix, out = self.em, self.ix, self.node.outs[0]
        partial = self.naming.scratch("partial0", dtype, chunks * width)

        def total(o: Expr) -> None:
            acc = em.register(identity(kind, dtype), "a")
            self.over(
                "c",
                ix.const(0),
                ix.const(chunks),
                chunks,
                lambda c: em.here.append(
                    L.Assign(
                        acc.value,
                        L.expr(COMBINE[kind], (acc, L.load(partial, ix.add(ix.scale(c, width), o), dtype)), dtype),
                    )
                ),
            )
            em.here.append(L.Store(self.naming.of(out), o, em.cast(acc, out.dtype)))

        return self.spread(width, total, "combine partial rows in order", "_total")

    # Running scans

    def scan(self) -> list[Made]:
        """One lane a line; long lines in pieces: scan each piece, scan the pieces' totals, add what came before."""
        shape, axis = sizes(self.node.args[0]), self.node.attr("axis")
        length, lines = shape[axis], prod(shape) // max(shape[axis], 1)
        if length < LONG_LINE or lines >= BUSY_LANES:
            return [self._pieces(length, 1)]
        size = max(isqrt(length), -(-length * lines // BUSY_LANES))
        count = -(-length // size)
        return [self._pieces(size, count), self.again()._before(count), self.again()._add_before(size, count)]

    def _line(self, o: Expr) -> Callable[[Expr], Index]:
        """The multi-index of step i of line ``o``."""
        shape, axis = sizes(self.node.args[0]), self.node.attr("axis")
        at = self.ix.split(o, [d for a, d in enumerate(shape) if a != axis])

        def index(i: Expr) -> Index:
            j = self.ix.offset(self.ix.scale(i, -1), shape[axis] - 1) if self.node.attr("reverse") else i
            return (*at[:axis], j, *at[axis:])

        return index

    def _pieces(self, size: int, count: int) -> Made:
        n, x, out, em, ix = self.node, self.node.args[0], self.node.outs[0], self.em, self.ix
        axis, kind, shape = n.attr("axis"), n.attr("kind"), sizes(self.node.args[0])
        length, lines = shape[axis], prod(shape) // max(shape[axis], 1)

        def piece(o: Expr) -> None:
            line, p = (ix.div(o, count), ix.mod(o, count)) if count > 1 else (o, ix.const(0))
            index = self._line(line)
            acc = em.register(identity(kind, out.dtype), "s")

            def step(i: Expr) -> None:
                e = em.value(x, index(i))
                em.here.append(L.Assign(acc.value, L.expr(COMBINE[kind], (acc, e), out.dtype)))
                em.here.append(L.Store(self.naming.of(out), ix.linear(index(i), shape), acc))

            start = em.let(ix.scale(p, size))
            end = ix.offset(start, size)
            stop = L.expr("min", (end, ix.const(length)), ix.dtype) if size * count != length else end
            self.over("i", start, stop, length, step)
            if count > 1:
                em.here.append(L.Store(self.naming.scratch("totals", out.dtype, lines * count), o, acc))

        return self.spread(lines * count, piece, f"running {kind} along axis {axis} of {list(shape)}")

    def _before(self, count: int) -> Made:
        """Replace each piece's total by the combination of those before it."""
        out, em, ix, kind = self.node.outs[0], self.em, self.ix, self.node.attr("kind")
        shape, axis = sizes(self.node.args[0]), self.node.attr("axis")
        lines = prod(shape) // shape[axis]
        totals = self.naming.scratch("totals", out.dtype, lines * count)

        def line(o: Expr) -> None:
            acc = em.register(identity(kind, out.dtype), "s")

            def step(p: Expr) -> None:
                at = ix.add(ix.scale(o, count), p)
                name = em.name("v")
                em.here.append(L.Let(name, L.load(totals, at, out.dtype)))
                em.here.append(L.Store(totals, at, acc))
                em.here.append(L.Assign(acc.value, L.expr(COMBINE[kind], (acc, L.var(name, out.dtype)), out.dtype)))

            self.over("p", ix.const(0), ix.const(count), count, step)

        return self.spread(lines, line, "running totals of pieces", "_before")

    def _add_before(self, size: int, count: int) -> Made:
        out, em, ix, kind = self.node.outs[0], self.em, self.ix, self.node.attr("kind")
        shape, axis = sizes(self.node.args[0]), self.node.attr("axis")
        length, lines = shape[axis], prod(shape) // shape[axis]
        totals, target = self.naming.scratch("totals", out.dtype, lines * count), self.naming.of(out)

        def element(o: Expr) -> None:
            line, i = ix.div(o, length), ix.mod(o, length)
            at = ix.linear(self._line(line)(i), shape)
            before = L.load(totals, ix.add(ix.scale(line, count), ix.div(i, size)), out.dtype)
            here = L.load(target, at, out.dtype)
            em.here.append(L.Store(target, at, L.expr(COMBINE[kind], (before, here), out.dtype)))

        return self.spread(length * lines, element, "add what came before", "_add")

    # Scatters

    def scatter(self) -> list[Made]:
        """Updates as if one after another. The base is already in the output's storage.

        Few updates: one lane for each trailing position applies them in order. Many: ``set`` lets an atomic
        maximum find the last update of each place; commutative kinds are atomic.
        """
        n = self.node
        updates, rest = prod(sizes(n.args[2])), prod(sizes(n.args[0])[len(n.args) - 2 :])
        kind, dtype = n.attr("kind"), n.outs[0].dtype
        if updates * rest == 0:
            return []
        if updates <= FEW_UPDATES:
            return [self._in_order(updates, rest)]
        if kind == "set" and "atomic-max-i32" in self.caps.features:
            return self._last_wins(updates, rest)
        if kind in ("add", "min", "max") and f"atomic-{kind}-{dtype.short}" in self.caps.features:
            return [self._atomic(updates, rest)]
        return [self._in_order(updates, rest)]

    def _place(self, at: Index) -> tuple[list[Expr], Expr]:
        """Where an update goes, and whether that is inside."""
        em, index, ok = self.em, [], L.const(True, bool_)
        for p, d in zip(self.node.args[2:], sizes(self.node.args[0]), strict=False):
            i = em.let(em.as_index(em.value(p, at)))
            ok = L.both(ok, em.inside(i, d))
            index.append(i)
        return index, ok

    def _guarded(self, ok: Expr, body: Callable[[], None]) -> None:
        if ok.op == "const":
            body()
            return
        self.em.open()
        body()
        inner = self.em.close()
        self.em.here.append(L.If(ok, inner))

    def _in_order(self, updates: int, rest: int) -> Made:
        n, em, ix, out = self.node, self.em, self.ix, self.node.outs[0]
        shape, batch, kind = sizes(n.args[0]), sizes(n.args[2]), n.attr("kind")
        tail_shape, target = shape[len(n.args) - 2 :], self.naming.of(n.outs[0])

        def lane(o: Expr) -> None:
            tail = ix.split(o, tail_shape)

            def update(u: Expr) -> None:
                at = ix.split(u, batch)
                index, ok = self._place(at)

                def put() -> None:
                    e = em.value(n.args[1], (*at, *tail))
                    where = ix.linear((*index, *tail), shape)
                    if kind != "set":
                        e = L.expr(COMBINE[kind], (L.load(target, where, out.dtype), e), out.dtype)
                    em.here.append(L.Store(target, where, e))

                self._guarded(ok, put)

            self.over("u", ix.const(0), ix.const(updates), updates, update)

        return self.spread(rest, lane, f"scatter {kind} into {list(shape)}, in order")

    def _each(
        self,
        updates: int,
        rest: int,
        put: Callable[[Expr, Index, list[Expr], Index], None],
        notes: str,
        label: str = "",
    ) -> Made:
        """One lane for each update and trailing position inside: ``put(update, batch index, place, tail index)``."""
        n, ix = self.node, self.ix
        shape, batch = sizes(n.args[0]), sizes(n.args[2])

        def lane(o: Expr) -> None:
            u, tail = ix.div(o, rest), ix.split(ix.mod(o, rest), shape[len(n.args) - 2 :])
            at = ix.split(u, batch)
            index, ok = self._place(at)
            self._guarded(ok, lambda: put(u, at, index, tail))

        return self.spread(updates * rest, lane, notes, label)

    def _atomic(self, updates: int, rest: int) -> Made:
        n, em, shape = self.node, self.em, sizes(self.node.args[0])
        target, kind = self.naming.of(n.outs[0]), n.attr("kind")
        return self._each(
            updates,
            rest,
            lambda u, at, index, tail: em.here.append(
                L.Atomic(kind, target, self.ix.linear((*index, *tail), shape), em.value(n.args[1], (*at, *tail)))
            ),
            f"scatter {kind} into {list(shape)}, atomic",
        )

    def _last_wins(self, updates: int, rest: int) -> list[Made]:
        """Three kernels: no winner; the largest update number of each place; the winners store."""
        n, shape = self.node, sizes(self.node.args[0])
        lead = shape[: len(n.args) - 2]
        places = prod(lead)
        notes = f"scatter set into {list(shape)}, the last update wins"

        def winner(work: GridSpecial) -> str:
            return work.naming.scratch("winner", int32, places)

        clear = self.again()
        first = clear.spread(
            places, lambda o: clear.em.here.append(L.Store(winner(clear), o, L.const(-1, int32))), notes, "_clear"
        )
        elect = self.again()
        second = elect._each(
            updates,
            1,
            lambda u, at, index, tail: elect.em.here.append(
                L.Atomic("max", winner(elect), elect.ix.linear(index, lead), elect.em.cast(u, int32))
            ),
            notes,
            "_elect",
        )

        def store(u: Expr, at: Index, index: list[Expr], tail: Index) -> None:
            em, ix = self.em, self.ix
            won = L.load(winner(self), ix.linear(index, lead), int32)
            mine = L.expr("eq", (won, em.cast(u, int32)), bool_)
            value = em.value(n.args[1], (*at, *tail))
            em.here.append(
                L.If(mine, (L.Store(self.naming.of(n.outs[0]), ix.linear((*index, *tail), shape), value),))
            )

        return [first, second, self._each(updates, rest, store, notes)]

    # Sorts

    def sort(self) -> list[Made]:
        """A stable merge sort of each line: every element finds its place in the merged run by a binary search."""
        return Sorter(self.node, self.again).build()

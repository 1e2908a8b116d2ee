"""Kernels that are no plain nest: column reductions, running scans, scatters, and sorts."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from rlx.compile import radix, running
from rlx.compile.builder import Builder, Stored
from rlx.compile.emit import Index
from rlx.compile.index import Indexer, sizes
from rlx.compile.naming import Made, Naming
from rlx.compile.nest import CHUNK_WORK, COLUMN_TILE, MAX_CHUNKS
from rlx.compile.reduction import identity, reduce_kind
from rlx.core.dtype import DType, bool_
from rlx.ir import loop as L
from rlx.ir.graph import Node, Value
from rlx.ir.loop import Expr
from rlx.ir.prim import COMBINE


class Special(Builder):
    """Builds the kernels of one opaque node."""

    def __init__(self, name: str, node: Node, is_stored: Stored, views: dict[Value, Value], users: dict[int, int],
                 index_dtype: DType, operand: Value | None = None) -> None:
        super().__init__(name, node, is_stored, views, users, index_dtype)
        self.operand = operand

    def build(self) -> list[Made]:
        """The node's kernels."""
        return {"reduce": self.column, "scan": self.scan, "scatter": self.scatter, "sort": self.sort}[self.node.op]()

    # Column reductions

    def column(self) -> list[Made]:
        """Reduce over axes before the last: tiles of the last axis accumulate in local memory, row after row.

        ``sum(x[r, c], r)``: a chunk of rows adds into ``acc[c]``; a second kernel adds the chunks' partial rows.
        An operand that others need is computed and stored here.
        """
        n, x = self.node, self.node.args[0]
        axes, shape = n.attr("axes"), sizes(self.node.args[0])
        kept = tuple(a for a in range(len(shape)) if a not in axes)
        lead = tuple(shape[a] for a in kept[:-1])
        width, rows = shape[kept[-1]], tuple(shape[a] for a in axes)
        tile = min(width, COLUMN_TILE)
        tiles, many = -(-width // tile), prod(rows)
        blocks = prod(lead) * tiles
        work = prod(shape)
        chunks = max(min(work // CHUNK_WORK, MAX_CHUNKS) // blocks, 1) if blocks < MAX_CHUNKS else 1
        chunks = min(chunks, max(many // 4, 1))
        size = -(-many // chunks)
        chunks = -(-many // size)
        kind = reduce_kind(n)
        out = n.outs[0]
        target = self.naming.of(out) if chunks == 1 else self.naming.scratch("partial0", out.dtype,
                                                                             chunks * prod(sizes(out)))
        em, ix = self.em, self.ix
        total = blocks * chunks
        em.open()
        g = ix.var("g", max(total, 2))
        em.define("g")
        block, chunk = ix.div(g, chunks), ix.mod(g, chunks)
        first = em.let(ix.scale(ix.mod(block, tiles), tile))
        span = ix.const(tile) if width % tile == 0 else em.let(
            L.expr("min", (ix.const(tile), L.expr("sub", (ix.const(width), first), ix.dtype)), ix.dtype))
        outer = ix.split(ix.div(block, tiles), lead) if lead else ()
        em.here.append(L.Array("acc", out.dtype, tile, "local"))
        self._tile_loop(span, lambda c: em.here.append(L.Store("acc", c, identity(kind, out.dtype))))
        start = em.let(ix.scale(chunk, size))
        stop = ix.offset(start, size)
        if many % size:
            stop = L.expr("min", (stop, ix.const(many)), ix.dtype)
        r = ix.var("r", many)
        em.open("r")
        row = ix.split(r, rows)

        def add(c: Expr) -> None:
            place = dict(zip(kept[:-1], outer, strict=True)) | {kept[-1]: ix.add(first, c)}
            index = tuple([row[axes.index(a)] if a in axes else place[a] for a in range(len(shape))])
            e = self.summed(x, index)
            old = L.load("acc", c, out.dtype)
            em.here.append(L.Store("acc", c, L.expr(COMBINE[kind], (old, e), out.dtype)))

        self._tile_loop(span, add)
        em.loop("r", start, stop, L.SERIAL)

        def store(c: Expr) -> None:
            at = ix.linear((*outer, ix.add(first, c)), (*lead, width))
            if chunks > 1:
                at = ix.add(ix.scale(chunk, prod(sizes(out))), at)
            em.here.append(L.Store(target, at, L.load("acc", c, out.dtype)))

        self._tile_loop(span, store)
        body = em.close()
        body = (L.For("g", ix.const(0), ix.const(total), 1, L.GRID, body),)
        made = [self.naming.kernel(self.name, (*em.here, *body),
                                   f"column reduce of {list(shape)} over {list(axes)}{self._also()}")]
        return made if chunks == 1 else [*made, self._combine(out, chunks, kind)]

    def summed(self, x: Value, index: Index) -> Expr:
        """An element of what is summed; stored where others need it."""
        if self.operand is None:
            return self.em.value(x, index)
        e = self.em.let(self.em._inline(x.node, x, index))
        self.em.here.append(L.Store(self.naming.of(x), self.ix.linear(index, sizes(x)), e))
        return e

    def _also(self) -> str:
        return "" if self.operand is None else f", {self.operand.node.op} stored"

    def _tile_loop(self, span: Expr, body: Callable[[Expr], None]) -> None:
        name = self.em.name("c")
        self.em.open(name)
        body(self.ix.var(name, COLUMN_TILE + 1))
        self.em.loop(name, self.ix.const(0), span, L.VECTOR)

    def _combine(self, out: Value, chunks: int, kind: str) -> Made:
        naming, ix = Naming(self.ix.dtype), Indexer(self.ix.dtype)
        n = prod(sizes(out))
        part = naming.scratch("partial0", out.dtype, chunks * n)
        i, c = ix.var("i", max(n, 2)), ix.var("c", chunks)
        target = naming.of(out)
        first = L.For("i", ix.const(0), ix.const(n), 1, L.VECTOR, (L.Store(target, i, L.load(part, i, out.dtype)),))
        old = L.load(target, i, out.dtype)
        e = L.load(part, ix.add(ix.scale(c, n), i), out.dtype)
        inner = L.For("i", ix.const(0), ix.const(n), 1, L.VECTOR,
                      (L.Store(target, i, L.expr(COMBINE[kind], (old, e), out.dtype)),))
        rest = L.For("c", ix.const(1), ix.const(chunks), 1, L.SERIAL, (inner,))
        return naming.kernel(f"{self.name}_total", (first, rest), "combine partial rows in order")

    # Running scans

    def scan(self) -> list[Made]:
        """One pass along the axis for each line: ``acc = combine(acc, x[i]); out[i] = acc``.

        Few long lines go in pieces.
        """
        n, x, out = self.node, self.node.args[0], self.node.outs[0]
        if running.pays(n):
            return running.Running(n, self.more).build()
        axis, kind, shape = n.attr("axis"), n.attr("kind"), sizes(self.node.args[0])
        em, ix = self.em, self.ix
        others = tuple(d for a, d in enumerate(shape) if a != axis)
        target = self.naming.of(out)

        def line(at: Index) -> None:
            acc = em.register(identity(kind, out.dtype), "s")

            def step(i: Expr) -> None:
                j = ix.offset(ix.scale(i, -1), shape[axis] - 1) if n.attr("reverse") else i
                index = (*at[:axis], j, *at[axis:])
                em.here.append(L.Assign(acc.value, L.expr(COMBINE[kind], (acc, em.value(x, index)), out.dtype)))
                em.here.append(L.Store(target, ix.linear(index, shape), acc))

            name = em.name("i")
            i = ix.var(name, max(shape[axis], 2))
            em.open(name)
            step(i)
            em.loop(name, ix.const(0), ix.const(shape[axis]), L.SERIAL)

        parallel = prod(shape) > CHUNK_WORK and prod(others) > 1
        if parallel:
            self.over_grid(others, line)
        else:
            self.loops("o", others, L.SERIAL, line)
        return [self.naming.kernel(self.name, tuple(em.here), f"running {kind} along axis {axis} of {list(shape)}")]

    # Scatters

    def scatter(self) -> list[Made]:
        """Updates in order, so that duplicates combine as on one processor: ``out[i] kind= update``.

        The base is already in the output's storage.
        """
        n = self.node
        base, update, picks, out = n.args[0], n.args[1], n.args[2:], n.outs[0]
        kind, shape = n.attr("kind"), sizes(n.args[0])
        em, ix = self.em, self.ix
        batch, rest = sizes(picks[0]), shape[len(picks):]
        target = self.naming.of(out)
        self.base = self.views.get(base, base)

        def one(at: Index) -> None:
            index: list[Expr] = []
            ok = L.const(True, bool_)
            for p, d in zip(picks, shape, strict=False):
                i = em.let(em.as_index(em.value(p, at)))
                ok = L.both(ok, em.inside(i, d))
                index.append(i)
            guard = ok.op != "const"
            if guard:
                em.open()

            def put(tail: Index) -> None:
                e = em.value(update, (*at, *tail))
                where = ix.linear((*index, *tail), shape)
                if kind != "set":
                    e = L.expr(COMBINE[kind], (L.load(target, where, out.dtype), e), out.dtype)
                em.here.append(L.Store(target, where, e))

            self.loops("r", rest, L.SERIAL, put, last=L.VECTOR)
            if guard:
                inner = em.close()
                em.here.append(L.If(ok, inner))

        self.loops("o", batch, L.SERIAL, one)
        return [self.naming.kernel(self.name, tuple(em.here), f"scatter {kind} into {list(shape)}")]

    # Sorts

    def sort(self) -> list[Made]:
        """Long lines by their bytes; short ones by a merge sort: stable, NaN last, payloads moved with the keys.

        Runs of width 1, 2, 4, ... are merged between output and a scratch buffer; the last merge ends in the output.
        """
        n = self.node
        if radix.pays(n):
            return radix.Radix(n, self.more).build()
        axis, shape = n.attr("axis"), sizes(n.args[0])
        em, ix = self.em, self.ix
        length = shape[axis]
        passes = max(length - 1, 0).bit_length()
        outs = [self.naming.of(o) for o in n.outs]
        temps = [self.naming.scratch(f"scratch{k}", o.dtype, prod(shape)) for k, o in enumerate(n.outs)]
        others = tuple(d for a, d in enumerate(shape) if a != axis)

        def line(at: Index) -> None:
            def place(i: Expr) -> Expr:
                return ix.linear((*at[:axis], i, *at[axis:]), shape)

            src, dst = (outs, temps) if passes % 2 == 0 else (temps, outs)
            name = em.name("i")
            i = ix.var(name, max(length, 2))
            em.open(name)
            for k, x in enumerate(n.args):
                em.here.append(L.Store(src[k], place(i), em.value(x, (*at[:axis], i, *at[axis:]))))
            em.loop(name, ix.const(0), ix.const(length), L.SERIAL)
            for p in range(passes):
                self._merge(src, dst, 1 << p, length, place)
                src, dst = dst, src

        if prod(shape) > CHUNK_WORK // 4 and prod(others) > 1:
            self.over_grid(others, line)
        else:
            self.loops("o", others, L.SERIAL, line)
        return [self.naming.kernel(self.name, tuple(em.here), f"merge sort along axis {axis} of {list(shape)}")]

    def _merge(self, src: list[str], dst: list[str], width: int, n: int, place: Callable[[Expr], Expr]) -> None:
        """``for pairs of runs: merge src[lo:mid], src[mid:hi] -> dst[lo:hi]``, taking from the left on ties."""
        em, ix = self.em, self.ix
        name = em.name("m")
        em.open(name)
        lo = em.let(ix.scale(L.var(name, ix.dtype), 2 * width))

        def capped(e: Expr) -> Expr:
            return em.let(L.expr("min", (e, ix.const(n)), ix.dtype))

        mid, hi = capped(ix.offset(lo, width)), capped(ix.offset(lo, 2 * width))
        a, b = em.register(lo, "l"), em.register(mid, "h")
        em.mutable |= {a.value, b.value}
        loop = em.name("q")
        em.open(loop)
        q = L.var(loop, ix.dtype)
        ka, kb = (em.let(L.load(src[0], place(self._below(x, n)), self.node.args[0].dtype)) for x in (a, b))
        right_done = L.expr("ge", (b, hi), bool_)
        left_left = L.less(a, mid)
        left = em.let(L.both(left_left, L.expr("or", (right_done, self._before_or_equal(ka, kb)), bool_)))
        pick = em.let(L.select(left, a, b))
        for k, x in enumerate(self.node.args):
            em.here.append(L.Store(dst[k], place(q), L.load(src[k], place(pick), x.dtype)))
        em.here.append(L.Assign(a.value, L.select(left, ix.offset(a, 1), a)))
        em.here.append(L.Assign(b.value, L.select(left, b, ix.offset(b, 1))))
        em.loop(loop, lo, hi, L.SERIAL)
        em.loop(name, ix.const(0), ix.const(-(-n // (2 * width))), L.SERIAL)

    def _below(self, i: Expr, n: int) -> Expr:
        return L.expr("min", (i, self.ix.const(max(n - 1, 0))), self.ix.dtype)

    def _before_or_equal(self, a: Expr, b: Expr) -> Expr:
        """Whether ``a`` may stand before ``b``; NaN stands after everything."""
        op = "ge" if self.node.attr("descending") else "le"
        ordered = L.expr(op, (a, b), bool_)
        if a.dtype.is_float:
            return L.expr("or", (ordered, L.expr("isnan", (b,), bool_)), bool_)
        return ordered

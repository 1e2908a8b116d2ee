"""Schedule attention for cores with vector units: blocks of queries against blocks of keys, scores never stored.

``out = softmax(s) v`` row by row with a running maximum and sum: a block of keys adds ``exp(s - top) v`` to what the
blocks before it left, scaled by ``exp(old top - top)``. After M. Milakov and N. Gimelshein, arXiv 1805.02867, and
T. Dao et al., arXiv 2205.14135. Both products are register tiles over packed panels; masks, scales and casts are
computed on a tile of scores.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod

from rlx.compile.attend_form import Attend
from rlx.compile.builder import Builder, Stored
from rlx.compile.emit import Emitter, Index
from rlx.compile.index import sizes
from rlx.compile.naming import Made
from rlx.compile.nest import MAX_CHUNKS
from rlx.compile.nest_form import geometry
from rlx.compile.reduction import reduce_index
from rlx.core.caps import Caps
from rlx.core.dtype import DType, bool_
from rlx.ir import loop as L
from rlx.ir.expand.build import E
from rlx.ir.expand.exp import exp_weight
from rlx.ir.graph import Value
from rlx.ir.loop import Expr
from rlx.ir.walk import mentions

#: Queries of one block: what packing its keys costs is little beside that many rows.
QUERIES = 128
#: Keys of one block, and keys up to which there is one block: panels of keys and values stay in the second cache.
KEYS, ONE_BLOCK = 128, 192
#: What a tile costs beside its rows, in rows (measured: 128 queries of 32 are 5 % faster in tiles of 12 than of 8).
TILE = 1.5
#: Multiply-adds in one chunk: about 20 us of one core.
CHUNK = 1_000_000


class Attention(Builder):
    """Builds the kernel of one attention."""

    def __init__(self, name: str, form: Attend, is_stored: Stored, views: dict[Value, Value], users: dict[int, int],
                 index_dtype: DType, caps: Caps) -> None:
        super().__init__(name, form.out.node, is_stored, views, users, index_dtype)
        self.form = form
        self.product, self.final = form.first.node, form.out.node
        self.type = form.out.dtype
        shape = sizes(form.first)
        self.batch, (self.queries, self.keys) = shape[:-2], shape[-2:]
        self.depth = sizes(self.product.args[0])[self.product.attr("contract")[0][0]]
        self.width = sizes(form.out)[-1]
        most, wide = geometry(self.type, caps.vector_bytes)
        lanes = caps.vector_bytes // self.type.itemsize
        # Rows of a tile: few tiles, little of the last one empty.
        self.rows = min(range(max(most * 2 // 3, 1), most + 1), key=lambda r: -(-self.queries // r) * (r + TILE))
        self.key_panel = lanes if self.keys <= lanes else wide
        self.value_panel = lanes if self.width <= lanes else wide
        blocks = -(-self.queries // QUERIES)
        self.block = -(-self.queries // (blocks * self.rows)) * self.rows
        self.blocks = -(-self.queries // self.block)
        self.span = self.keys if self.keys <= ONE_BLOCK else KEYS
        self.panels = -(-self.width // self.value_panel)

    def build(self) -> list[Made]:
        """One kernel over batches and blocks of queries."""
        em, ix = self.em, self.ix
        total = prod(self.batch) * self.blocks
        work = self.block * self.keys * (self.depth + self.width)
        chunks = max(min(total, total * work // CHUNK, MAX_CHUNKS), 1)
        size = -(-total // chunks)
        chunks = -(-total // size)
        em.open()
        g = ix.var("g", max(chunks, 2))
        em.define("g")
        start = em.let(ix.scale(g, size))
        stop = em.let(L.expr("min", (ix.offset(start, size), ix.const(total)), ix.dtype)) if total % size else (
            ix.offset(start, size))
        self._arrays()
        t = ix.var("t", total)
        em.open("t")
        batch = tuple(map(em.let, ix.split(ix.div(t, self.blocks), self.batch))) if self.batch else ()
        ix.extent.update({str(b.value): n for b, n in zip(batch, self.batch, strict=True) if b.op == "var"})
        first = em.let(ix.scale(ix.mod(t, self.blocks), self.block))
        self._query_block(batch, first)
        whole = self.keys // self.span
        single = self.keys == self.span
        if not single:
            self._begin()
        self.loop("b", whole, L.SERIAL, lambda b: self._key_block(batch, first, ix.scale(b, self.span), self.span,
                                                                  single))
        if self.keys % self.span:
            self._key_block(batch, first, ix.const(whole * self.span), self.keys % self.span, single)
        if not single:
            self._finish(batch, first)
        em.loop("t", start, stop, L.SERIAL)
        em.loop("g", ix.const(0), ix.const(chunks), L.GRID)
        notes = (f"attention of {self.queries} queries to {self.keys} keys, blocks of {self.block} x {self.span}, "
                 f"tiles of {self.rows} x {self.key_panel}")
        return [self.naming.kernel(self.name, tuple(em.here), notes)]

    def _arrays(self) -> None:
        need = {"queries": self.block * self.depth,
                "keys": -(-self.span // self.key_panel) * self.key_panel * self.depth,
                "values": self.span * self.panels * self.value_panel,
                "scores": self.rows * self.span,
                "tile": self.rows * max(self.key_panel, self.value_panel), "scale": self.rows}
        if self.keys > self.span:
            need |= {"top": self.block, "total": self.block, "sum": self.block * self.panels * self.value_panel}
        self.em.here.extend(L.Array(name, self.type, n, "local") for name, n in need.items())

    # Operands

    def _row(self, first: Expr, i: Expr) -> Expr:
        """The query of a row; rows beyond the last query repeat it."""
        row = self.ix.add(first, i)
        if self.block * self.blocks == self.queries:
            return row
        return self.em.let(L.expr("min", (row, self.ix.const(self.queries - 1)), self.ix.dtype))

    def _query_block(self, batch: Index, first: Expr) -> None:
        ix = self.ix

        def row(i: Expr) -> None:
            at = self._row(first, i)
            self.loop("d", self.depth, L.VECTOR, lambda d: self._put("queries", ix.add(ix.scale(i, self.depth), d),
                                                                     self._operand(0, (*batch, at, ix.const(0)), d)))
        self.loop("q", self.block, L.SERIAL, row)

    def _operand(self, k: int, outer: Index, d: Expr) -> Expr:
        """An element of the first product's operand: queries (0) or keys (1)."""
        x, index = reduce_index(self.product, outer, (d,))[k]
        return self.em.value(x, index)

    def _pack_keys(self, batch: Index, begin: Expr, count: int) -> None:
        """``keys[p, d, j] = k[begin + p*panel + j, d]``, zero beyond the last."""
        ix, w = self.ix, self.key_panel

        def panel(p: Expr, n: int) -> None:
            base = self.em.let(ix.scale(p, self.depth * w))
            at = self.em.let(ix.add(begin, ix.scale(p, w)))
            found = self._lines(batch, at)
            if found is not None:
                source, index, stride = found
                self.em.here.append(L.Transpose("keys", base, w, source, self.em.let(index), stride, n, self.depth,
                                                self.type))
            else:
                self.loop("j", n, L.SERIAL, lambda j: self.loop("d", self.depth, L.VECTOR, lambda d: self._put(
                    "keys", ix.add(base, ix.add(ix.scale(d, w), j)),
                    self._operand(1, (*batch, ix.const(0), ix.add(at, j)), d))))
            if n < w:
                self.loop("d", self.depth, L.SERIAL, lambda d: self._fill("keys", ix.add(base, ix.scale(d, w)), n, w,
                                                                          0.0))
        self._panels("p", count, w, panel)

    def _lines(self, batch: Index, at: Expr) -> tuple[str, Expr, int] | None:
        """Buffer, first index and stride of the keys, when each lies along memory."""
        ix = self.ix
        j, d = ix.var("kj", max(self.key_panel, 2)), ix.var("kd", max(self.depth, 2))
        x, index = reduce_index(self.product, (*batch, ix.const(0), ix.add(at, j)), (d,))[1]
        e = Emitter(ix, self.em.stored, {}).value(x, index)
        if e.op != "load":
            return None
        terms, c = ix.terms(e.args[0])
        stride = terms.pop(j, 0)
        if terms.pop(d, 0) != 1 or stride < self.depth or any(mentions(t, "kj", "kd") for t in terms):
            return None
        return str(e.value), ix.build(terms, c), stride

    def _pack_values(self, batch: Index, begin: Expr, count: int) -> None:
        """``values[p, k, j] = v[begin + k, p*panel + j]``, zero beyond the last column."""
        ix, w = self.ix, self.value_panel

        def panel(p: Expr, n: int) -> None:
            def line(k: Expr) -> None:
                base = self.em.let(ix.add(ix.scale(p, self.span * w), ix.scale(k, w)))
                self.loop("j", n, L.VECTOR, lambda j: self._put("values", ix.add(base, j), self._value(
                    batch, ix.add(begin, k), ix.add(ix.scale(p, w), j))))
                if n < w:
                    self._fill("values", base, n, w, 0.0)
            self.loop("k", count, L.SERIAL, line)
        self._panels("p", self.width, w, panel)

    def _value(self, batch: Index, key: Expr, column: Expr) -> Expr:
        x, index = reduce_index(self.final, (*batch, self.ix.const(0), column), (key,))[1]
        return self.em.value(x, index)

    # Blocks

    def _begin(self) -> None:
        """Nothing seen: maximum -inf, sums 0."""
        zero = self.ix.const(0)
        self._fill("top", zero, 0, self.block, -inf)
        self._fill("total", zero, 0, self.block, 0.0)
        self._fill("sum", zero, 0, self.block * self.panels * self.value_panel, 0.0)

    def _key_block(self, batch: Index, first: Expr, begin: Expr, count: int, single: bool) -> None:
        """All rows against ``count`` keys."""
        begin = self.em.let(begin)
        self._pack_keys(batch, begin, count)
        self._pack_values(batch, begin, count)

        def rows(r: Expr) -> None:
            r = self.em.let(self.ix.scale(r, self.rows))
            self._scores(batch, first, r, begin, count)
            self.loop("i", self.rows, L.SERIAL, lambda i: self._weigh(self.ix.add(r, i), i, count, single))
            self._panels("p", self.width, self.value_panel, lambda p, n: self._add(batch, first, r, p, n, count,
                                                                                   single))
        self.loop("r", self.block // self.rows, L.SERIAL, rows)

    def _scores(self, batch: Index, first: Expr, r: Expr, begin: Expr, count: int) -> None:
        """``scores[i, j]`` of one tile's rows: the product, then what follows it element by element."""
        em, ix, w = self.em, self.ix, self.key_panel

        def panel(p: Expr, n: int) -> None:
            em.here.append(L.Contract("tile", "queries", em.let(ix.scale(r, self.depth)), (self.depth, 1), "keys",
                                      em.let(ix.scale(p, self.depth * w)), self.rows, w, self.depth, self.type))
            at = em.let(ix.add(begin, ix.scale(p, w)))

            def row(i: Expr) -> None:
                query = self._row(first, ix.add(r, i))

                def column(j: Expr) -> None:
                    index = (*batch, query, ix.add(at, j))
                    em.held[self.form.first] = (index, L.load("tile", ix.add(ix.scale(i, w), j), self.type))
                    e = em.value(self.form.scores, index)
                    self._put("scores", ix.add(ix.scale(i, self.span), ix.add(ix.scale(p, w), j)), e)
                self.loop("j", n, L.VECTOR, column)
            self.loop("i", self.rows, L.SERIAL, row)
        self._panels("p", count, w, panel)

    def _weigh(self, row: Expr, i: Expr, count: int, single: bool) -> None:
        """``scores = exp(scores - top)`` of one row, its maximum and sum brought up to date."""
        em, ix = self.em, self.ix
        low, zero = L.const(-inf, self.type), L.const(0.0, self.type)
        base = em.let(ix.scale(i, self.span))
        # A row of -inf so far is shifted by nothing: exp(-inf - -inf) would not be 0.
        top = em.register(low if single else L.load("top", row, self.type), "m")
        old = self._name(top)
        score: Callable[[Expr], Expr] = lambda j: L.load("scores", ix.add(base, j), self.type)
        self.loop("j", count, L.VECTOR, lambda j: em.here.append(
            L.Assign(top.value, L.expr("max", (top, score(j)), self.type), True)))
        shift = top if single else self._name(L.select(L.expr("eq", (top, low), bool_), zero, top))
        total = em.register(zero, "s")

        def weight(j: Expr) -> None:
            e = self._name(exp_weight(E(self._name(L.expr("sub", (score(j), shift), self.type)))).x)
            self._put("scores", ix.add(base, j), e)
            em.here.append(L.Assign(total.value, L.expr("add", (total, e), self.type), True))
        self.loop("j", count, L.VECTOR, weight)
        if single:
            self._put("scale", i, L.expr("div", (L.const(1.0, self.type), total), self.type))
            return
        scale = self._name(exp_weight(E(self._name(L.expr("sub", (old, shift), self.type)))).x)
        self._put("scale", i, scale)
        self._put("top", row, top)
        before = L.expr("mul", (L.load("total", row, self.type), scale), self.type)
        self._put("total", row, L.expr("add", (before, total), self.type))

    def _add(self, batch: Index, first: Expr, r: Expr, p: Expr, n: int, count: int, single: bool) -> None:
        """A panel of ``scores @ values``: the result of one block, or added to what earlier blocks left."""
        em, ix, w = self.em, self.ix, self.value_panel
        em.here.append(L.Contract("tile", "scores", ix.const(0), (self.span, 1), "values",
                                  em.let(ix.scale(p, self.span * w)), self.rows, w, count, self.type))

        def row(i: Expr) -> None:
            scale = self._name(L.load("scale", i, self.type))
            at = ix.add(r, i)

            def column(j: Expr) -> None:
                new = L.load("tile", ix.add(ix.scale(i, w), j), self.type)
                if single:
                    self._result(batch, ix.add(first, at), ix.add(ix.scale(p, w), j),
                                 L.expr("mul", (new, scale), self.type))
                    return
                place = ix.add(ix.scale(at, self.panels * w), ix.add(ix.scale(p, w), j))
                before = L.expr("mul", (L.load("sum", place, self.type), scale), self.type)
                self._put("sum", place, L.expr("add", (before, new), self.type))
            self.loop("j", n, L.VECTOR, column)

        name = em.name("i")
        stop = ix.const(self.rows)
        if single and self.block * self.blocks != self.queries:
            left = L.expr("sub", (ix.const(self.queries), ix.add(first, r)), ix.dtype)
            stop = em.let(L.expr("min", (stop, left), ix.dtype))
        em.open(name)
        row(ix.var(name, max(self.rows, 2)))
        em.loop(name, ix.const(0), stop, L.SERIAL)

    def _finish(self, batch: Index, first: Expr) -> None:
        """``out = sum / total`` of the rows that are queries."""
        em, ix = self.em, self.ix
        stop = ix.const(self.block)
        if self.block * self.blocks != self.queries:
            left = L.expr("sub", (ix.const(self.queries), first), ix.dtype)
            stop = em.let(L.expr("min", (stop, left), ix.dtype))
        em.open("i")
        i = ix.var("i", max(self.block, 2))
        total = self._name(L.load("total", i, self.type))
        scale = self._name(L.expr("div", (L.const(1.0, self.type), total), self.type))
        line = ix.scale(i, self.panels * self.value_panel)
        self.loop("j", self.width, L.VECTOR, lambda j: self._result(
            batch, ix.add(first, i), j, L.expr("mul", (L.load("sum", ix.add(line, j), self.type), scale), self.type)))
        em.loop("i", ix.const(0), stop, L.SERIAL)

    # Small things

    def _result(self, batch: Index, query: Expr, column: Expr, e: Expr) -> None:
        out = self.form.out
        self._put(self.naming.of(out), self.ix.linear((*batch, query, column), sizes(out)), e)

    def _name(self, e: Expr) -> Expr:
        """A name for ``e`` here: what local memory holds must not be read earlier."""
        name = self.em.name("v")
        self.em.here.append(L.Let(name, e))
        self.em.define(name)
        return L.var(name, e.dtype)

    def _put(self, array: str, at: Expr, e: Expr) -> None:
        self.em.here.append(L.Store(array, at, e))

    def _fill(self, array: str, base: Expr, start: int, stop: int, x: float) -> None:
        em, ix = self.em, self.ix
        name = em.name("z")
        em.open(name)
        self._put(array, ix.add(base, ix.var(name, max(stop, 2))), L.const(x, self.type))
        em.loop(name, ix.const(start), ix.const(stop), L.VECTOR)

    def _panels(self, name: str, count: int, width: int, body: Callable[[Expr, int], None]) -> None:
        """Panels of ``width`` elements, and the smaller one of what is left."""
        whole = count // width
        if whole:
            self.loop(name, whole, L.SERIAL, lambda p: body(p, width))
        if count % width:
            body(self.ix.const(whole), count % width)

    def loop(self, name: str, n: int, kind: str, body: Callable[[Expr], None]) -> None:
        """A loop under a name of its own: several stand in one block."""
        super().loop(self.em.name(name), n, kind, body)

"""In-kernel loops for cores with vector units: a tile of lanes in local arrays, stepped by vector loops.

``for b in tiles of a chunk: s = init; loop: for v in lanes: s[v] = step(s[v]); out = s``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import final

from rlx.compile.emit import Index
from rlx.compile.index import sizes
from rlx.compile.inkernel import InKernel, LoopKernel, Read
from rlx.compile.lane import OtherLane, candidates, ravel, unravel
from rlx.compile.loop_level import MAX_STATE, Level
from rlx.core.dtype import DType, bool_
from rlx.ir import loop as L
from rlx.ir.graph import Node, Value
from rlx.ir.loop import Expr, Stmt

#: Lanes of a tile: a few vectors of any width, so that independent lanes hide the latency of one lane's chain.
TILE = 64
#: Chunks of tiles that workers pick up one by one: lanes that end early leave room for others.
MAX_CHUNKS = 512


def in_tiles(n: Node, views: dict[Value, Value], index_dtype: DType) -> InKernel | None:
    """The loop as one kernel, or None where its lanes depend on each other."""
    for lanes in candidates(n):
        try:
            return TileLoop(n, lanes, views, index_dtype).build()
        except (OtherLane, RecursionError):
            continue
    return None


@final
class TileLoop(LoopKernel):
    """A loop over tiles of lanes."""

    def build(self) -> InKernel:
        """Chunks of tiles of lanes; in each tile first values, the loop, and the results."""
        if self.lanes:
            return self.made(self._tiles(prod(self.lanes)))
        self._tile(self.ix.const(0), 1)
        return self.made(tuple(self.em.here))

    def suit(self, level: Level) -> Level:
        return level

    def _tiles(self, count: int) -> tuple[Stmt, ...]:
        """``for g in grid: for b in tiles of chunk g: tile``."""
        em, ix = self.em, self.ix
        # Whole tiles in a row of lanes, so that a tile has one row index; else whole tiles at all.
        fits = [w for n in (self.lanes[-1], count) for w in (TILE, 96, 80, 48, 128, 112, 40, 32) if n % w == 0]
        width = min(fits[0] if fits else TILE, count)
        tiles = -(-count // width)
        chunks = min(tiles, MAX_CHUNKS)
        per = -(-tiles // chunks)
        chunks = -(-tiles // per)
        em.open()
        g = ix.var("g", max(chunks, 2))
        em.define("g")
        em.open("b")
        b = ix.var("b", max(tiles, 2))
        self._tile(b, width)
        start = ix.scale(g, per)
        stop = ix.offset(start, per)
        if tiles % per:
            stop = L.expr("min", (stop, ix.const(tiles)), ix.dtype)
        em.loop("b", start, stop, L.SERIAL)
        grid = L.For("g", ix.const(0), ix.const(chunks), 1, L.GRID, em.close())
        return (*em.here, grid)

    def _tile(self, b: Expr, width: int) -> None:
        """First values, the loop, the results, for one tile of lanes."""
        em = self.em
        count = prod(self.lanes)
        self.tile, self.size, self.base = b, width, self.ix.scale(b, width)
        self.in_row = width if self.lanes and self.lanes[-1] % width == 0 else 0
        self.width: Expr = self.ix.const(width)
        if self.lanes and count % width:
            left = self.ix.add(self.ix.const(count), self.ix.scale(self.base, -1))
            self.width = em.let(L.expr("min", (self.ix.const(width), left), self.ix.dtype))
        self.first(self.outer)
        self.loop(self.outer)
        if self.outer.cells:
            self.over_lanes(self._last_lanes)
        self._last_scalars(b)

    def cell(self, dtype: DType) -> str:
        name = self.em.name("s")
        self.em.here.append(L.Array(name, dtype, self.size, "local"))
        return name

    def over_lanes(self, work: Callable[[], None]) -> None:
        """``for v in lanes of the tile: work``."""
        if not self.lanes:
            work()
            return
        em = self.em
        name = em.name("v")
        em.open(name)
        self.v = L.var(name, self.ix.dtype)
        self.lane = self._lane_index(self.v)
        with self.scope():
            work()
        em.loop(name, self.ix.const(0), self.width, L.VECTOR)
        self.lane = ()

    def _lane_index(self, v: Expr) -> Index:
        """The index of lane ``v`` of the tile."""
        if not self.in_row:
            return self.ix.split(self._below(L.add(self.base, v), prod(self.lanes)), self.lanes)
        row = self.lanes[-1] // self.in_row
        column = self._below(L.add(self.ix.scale(self.ix.mod(self.tile, row), self.in_row), v), self.lanes[-1])
        return (*self.ix.split(self.ix.div(self.tile, row), self.lanes[:-1]), column)

    def _below(self, e: Expr, extent: int) -> Expr:
        """A variable that holds an index, known to be below ``extent``."""
        return self.ix.var(str(self.named(e).value), extent)

    def note_facts(self, level: Level) -> None:
        """Nothing: lanes that are done run along with those that go on."""

    def keep(self, v: Value) -> Read:
        """Cells for a value of each lane, filled now."""
        trailing = sizes(v)[len(self.lanes):]
        if prod(trailing) > MAX_STATE:
            raise OtherLane("a long value of each lane")
        cells = [self.cell(v.dtype) for _ in range(prod(trailing))]

        def fill() -> None:
            for j, cell in enumerate(cells):
                place = tuple(self.ix.const(k) for k in unravel(j, trailing))
                self.em.here.append(L.Store(cell, self.v, self.em.value(v, (*self.lane, *place))))
        self.over_lanes(fill)
        return lambda index: self.em.let(L.load(cells[ravel(self.own(index), trailing)], self.v, v.dtype))

    def _last_lanes(self) -> None:
        for at, cell in self.outer.cells.items():
            out, index = self.result(at)
            self.em.here.append(L.Store(out, index, L.load(cell, self.v, self.n.outs[at[0]].dtype)))

    def _last_scalars(self, b: Expr) -> None:
        """Every tile has the same scalars; the first one stores them."""
        stores = tuple(L.Store(*self.result(at), r) for at, r in self.outer.registers.items())
        if stores:
            first = L.expr("eq", (b, self.ix.const(0)), bool_)
            self.em.here.extend([L.If(first, stores)] if b.op != "const" else stores)

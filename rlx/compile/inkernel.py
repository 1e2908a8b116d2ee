"""In-kernel loops: a loop whose carried values stay in their lane becomes a loop inside one kernel.

``while any(z.z < 4): z = where(z.z < 4, z*z + c, z)`` over an image -> one kernel; a tile of lanes at a time runs the
whole loop on values in registers and cache, and stops when its own lanes are done.

A *lane* is an index of the leading axes that all carried arrays share. Each carried array is, for a lane, a few numbers
(its trailing axes, unrolled); carried scalars are the same for all lanes. The loop qualifies when every new value of a
lane is computed from carried values of that lane, from the scalars, and from anything that the loop only reads. Else it
is left to the general lowering: steps of the program, repeated. A carried array that the body only writes, one slice an
iteration (the results that a scan stacks up), is written through to memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from rlx.compile.emit import Index
from rlx.compile.fuse import sizes
from rlx.compile.index import Indexer
from rlx.compile.lane import (
    LaneEmitter,
    OtherLane,
    Stacked,
    candidates,
    condition,
    is_each,
    lead,
    ravel,
    stacked,
    unravel,
)
from rlx.compile.nest import Made, Naming
from rlx.core.dtype import DType, bool_, int32
from rlx.ir import loop as L
from rlx.ir.graph import Node, Value, postorder
from rlx.ir.loop import Expr, Stmt

#: Lanes of a tile: a few vectors of any width, so that independent lanes hide the latency of one lane's chain.
TILE = 64
#: Most numbers that a lane carries; more do not stay in registers and first-level cache.
MAX_STATE = 64
#: Chunks of tiles that workers pick up one by one: lanes that end early leave room for others.
MAX_CHUNKS = 512


@dataclass(frozen=True, slots=True)
class InKernel:
    """The kernel of a loop, and results that are copies of operands."""

    made: Made
    copies: tuple[tuple[Value, Value], ...]


def in_kernel(n: Node, views: dict[Value, Value], index_dtype: DType) -> InKernel | None:
    """The loop as one kernel, or None where its lanes depend on each other."""
    for lanes in candidates(n):
        try:
            return _Lanes(n, lanes, views, index_dtype).build()
        except (OtherLane, RecursionError):
            continue
    return None


class _Lanes:
    """Builds the kernel of one loop over one lane shape."""

    def __init__(self, n: Node, lanes: tuple[int, ...], views: dict[Value, Value], index_dtype: DType) -> None:
        self.n, self.lanes, self.views = n, lanes, views
        self.naming = Naming(index_dtype)
        self.ix = Indexer(index_dtype)
        self.body = n.graphs[-1]
        self.lead, self.carry = lead(n), n.attr("carry")
        self.inits = n.args[self.lead:self.lead + self.carry]
        self.inputs = self.body.inputs[self.lead:self.lead + self.carry]
        self.where: dict[Value, Value] = {}
        for g in n.graphs:
            skip = self.lead if g is self.body else 0
            self.where.update(zip(g.inputs[skip + self.carry:], n.args[self.lead + self.carry:], strict=True))
        users: dict[int, int] = {}
        for g in n.graphs:
            for m in postorder(g.outputs):
                for a in m.args:
                    users[id(a.node)] = users.get(id(a.node), 0) + 1
        self.em = LaneEmitter(self.ix, self.stored, users)
        self.lane: Index = ()
        self.cells: dict[tuple[int, int], str] = {}
        self.registers: dict[tuple[int, int], Expr] = {}
        self._sort()

    def _sort(self) -> None:
        """Tell apart arrays of lanes, scalars, stacks, and what does not change."""
        k = len(self.lanes)
        self.fixed: list[int] = []
        self.stacks: dict[int, Stacked] = {}
        self.arrays: list[int] = []
        self.scalars: list[int] = []
        for i, (v, o) in enumerate(zip(self.inputs, self.body.outputs, strict=True)):
            stack = stacked(o, v, self.body)
            if o is v:
                self.fixed.append(i)
                self.where[v] = self.inits[i]
            elif stack is not None:
                self.stacks[i] = stack
            elif k and sizes(v)[:k] == self.lanes:
                self.arrays.append(i)
            elif not k or v.shape == ():
                self.scalars.append(i)
            else:
                raise OtherLane(f"a carried array of shape {v.shape}")
        state = sum(prod(self.trailing(i)) for i in (*self.arrays, *self.scalars))
        each = is_each(self.n)
        if state > MAX_STATE or (each and (self.scalars or self.stacks or not k)):
            raise OtherLane("too much is carried")
        for i, s in self.stacks.items():
            if sizes(s.scatter.args[1])[:k] != self.lanes and k:
                raise OtherLane(f"a stack {i} of other lanes")

    def trailing(self, i: int) -> tuple[int, ...]:
        """The shape of carried value ``i`` in one lane."""
        shape = sizes(self.inputs[i])
        return shape[len(self.lanes):] if i in self.arrays else shape

    def stored(self, v: Value) -> str | None:
        """The parameter that holds an operand that the loop only reads."""
        found = self.where.get(v)
        if found is None:
            return None
        return self.naming.of(self.views.get(found, found))

    def buffer(self, v: Value) -> str:
        return self.naming.of(self.views.get(v, v))

    # The kernel

    def build(self) -> InKernel:
        """Chunks of tiles of lanes; in each tile first values, the loop, and the results."""
        em, ix = self.em, self.ix
        self._place_scalars_of_loop()
        count = prod(self.lanes)
        body: tuple[Stmt, ...] = ()
        if self.lanes:
            body = self._tiles(count)
        else:
            self._tile(ix.const(0), 1)
        notes = f"{self.n.op} over {list(self.lanes)} in the kernel"
        made = self.naming.kernel("k", (*em.here, *body), notes)
        copies = [(self.n.outs[i], self.inits[i]) for i in self.fixed]
        copies += [(self.n.outs[i], self.inits[i]) for i, s in self.stacks.items() if not self._covered(i, s)]
        return InKernel(made, tuple(copies))

    def _place_scalars_of_loop(self) -> None:
        """The number of iterations, and the counter."""
        self.times: Expr | None = None
        if self.lead:
            known = self.n.args[0].node
            if known.op == "const":
                self.times = self.ix.const(int(known.attr("value")))
                self.counter = self.ix.var("n", max(int(known.attr("value")), 2))
            else:
                self.times = self.em.let(self.em.cast(
                    L.load(self.buffer(self.n.args[0]), self.ix.const(0), self.n.args[0].dtype), self.ix.dtype))
                self.counter = L.var("n", self.ix.dtype)
            dtype = self.body.inputs[0].dtype
            self.em.placed[self.body.inputs[0]] = lambda _: self.em.cast(self.counter, dtype)

    def _covered(self, i: int, s: Stacked) -> bool:
        """Whether the loop writes every slice of a stack: its index is the counter, up or down, over all iterations."""
        if s.scatter.attr("kind") != "set" or len(s.scatter.args) != 3 or self.n.op != "loop":
            return False
        known = self.n.args[0].node
        if known.op != "const":
            return False
        times = int(known.attr("value"))
        e = self.em.as_index(self.em.value(s.scatter.args[2], ()))
        terms, c = self.ix.terms(e)
        size = sizes(self.inputs[i])[s.order[0]]
        return size == times and (list(terms.values()), c) in (([1], 0), ([-1], times - 1)) and self.counter in terms

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
        return (L.For("g", ix.const(0), ix.const(chunks), 1, L.GRID, em.close()),)

    def _tile(self, b: Expr, width: int) -> None:
        """First values, the loop, the results, for one tile of lanes."""
        em = self.em
        count = prod(self.lanes)
        self.tile, self.base = b, self.ix.scale(b, width)
        self.in_row = width if self.lanes and self.lanes[-1] % width == 0 else 0
        self.width: Expr = self.ix.const(width)
        if self.lanes and count % width:
            left = self.ix.add(self.ix.const(count), self.ix.scale(self.base, -1))
            self.width = em.let(L.expr("min", (self.ix.const(width), left), self.ix.dtype))
        for i in self.arrays:
            for j in range(prod(self.trailing(i))):
                self.cells[i, j] = self._array(self.inputs[i].dtype, width)
        self._over_lanes(self._first_lanes)
        self._first_scalars()
        loop = self._loop()
        em.here.append(loop)
        self._over_lanes(self._last_lanes)
        self._last_scalars(b)

    def _array(self, dtype: DType, width: int) -> str:
        name = self.em.name("s")
        self.em.here.append(L.Array(name, dtype, width, "local"))
        return name

    def _over_lanes(self, work: Callable[[], None]) -> None:
        """``for v in lanes of the tile: work``."""
        if not self.lanes:
            return
        em = self.em
        name = em.name("v")
        em.open(name)
        self.v = L.var(name, self.ix.dtype)
        self.lane = self._lane_index(self.v)
        work()
        em.loop(name, self.ix.const(0), self.width, L.VECTOR)
        self.lane = ()

    def _lane_index(self, v: Expr) -> Index:
        """The index of lane ``v`` of the tile."""
        if not self.in_row:
            return self.ix.split(self._named(L.add(self.base, v), prod(self.lanes)), self.lanes)
        row = self.lanes[-1] // self.in_row
        column = self._named(L.add(self.ix.scale(self.ix.mod(self.tile, row), self.in_row), v), self.lanes[-1])
        return (*self.ix.split(self.ix.div(self.tile, row), self.lanes[:-1]), column)

    def _named(self, e: Expr, extent: int) -> Expr:
        """A variable that holds an index, known to be below ``extent``."""
        name = self.em.name("t")
        self.em.here.append(L.Let(name, e))
        self.em.define(name)
        return self.ix.var(name, extent)

    def _at(self, shape: Sequence[int], j: int) -> Index:
        """The constant index of element ``j`` of a lane's part."""
        return tuple(self.ix.const(k) for k in unravel(j, shape))

    def _first_lanes(self) -> None:
        for (i, j), cell in self.cells.items():
            index = (*self.lane, *self._at(self.trailing(i), j))
            init = L.load(self.buffer(self.inits[i]), self.ix.linear(index, sizes(self.inits[i])), self.inits[i].dtype)
            self.em.here.append(L.Store(cell, self.v, init))

    def _first_scalars(self) -> None:
        for i in self.scalars:
            for j in range(prod(self.trailing(i))):
                init = L.load(self.buffer(self.inits[i]), self.ix.const(j), self.inits[i].dtype)
                register = self.em.register(init, "r")
                self.em.mutable.add(register.value)
                self.registers[i, j] = register

    def _last_lanes(self) -> None:
        for (i, j), cell in self.cells.items():
            index = (*self.lane, *self._at(self.trailing(i), j))
            at = self.ix.linear(index, sizes(self.inits[i]))
            self.em.here.append(L.Store(self.buffer(self.n.outs[i]), at, L.load(cell, self.v, self.inits[i].dtype)))

    def _last_scalars(self, b: Expr) -> None:
        """Every tile has the same scalars; the first one stores them."""
        stores = tuple(L.Store(self.buffer(self.n.outs[i]), self.ix.const(j), r) for (i, j),
                       r in self.registers.items())
        if stores:
            first = L.expr("eq", (b, self.ix.const(0)), bool_)
            self.em.here.extend([L.If(first, stores)] if b.op != "const" else stores)

    # The loop

    def _loop(self) -> Stmt:
        """The loop itself, as a statement; what it keeps of each lane is noted on the way."""
        em = self.em
        more: Expr | None = None
        if not self.lead:
            # A loop over lanes starts once: what is done does not change.
            more = em.register(L.const(1, int32), "m")
            em.mutable.add(more.value)
            if not is_each(self.n):
                self._test(more, self.registers)
        em.open("n" if self.lead else None)
        if more is not None and is_each(self.n):
            em.here.append(L.Assign(more.value, L.const(0, int32)))
        new = self._new_scalars()
        if self.lanes:
            self._over_lanes(lambda: self._step(more))
        else:
            self._stack_stores()
        if more is not None and not is_each(self.n):
            self._test(more, new)
        em.here.extend([L.Assign(self.registers[at].value, e) for at, e in new.items()])
        body = em.close()
        if self.lead:
            assert self.times is not None
            return L.For("n", self.ix.const(0), self.times, 1, L.SERIAL, body)
        assert more is not None
        return L.Loop(L.expr("ne", (more, L.const(0, int32)), bool_), body)

    def _place(self, inputs: Sequence[Value], scalars: Mapping[tuple[int, int], Expr]) -> None:
        """Carried values read their cells and registers."""
        for i, v in enumerate(inputs):
            if i in self.arrays:
                self.em.placed[v] = lambda index, i=i: self._cell(i, index)  # type: ignore[misc]
            elif i in self.scalars:
                self.em.placed[v] = lambda index, i=i: self._element(scalars, i, index)  # type: ignore[misc]
            elif i in self.stacks:
                self.em.placed[v] = _refuse
            else:
                self.where[v] = self.inits[i]

    def _cell(self, i: int, index: Index) -> Expr:
        k = len(self.lanes)
        at = index[k:]
        if not self.lane or index[:k] != self.lane or any(e.op != "const" for e in at):
            raise OtherLane("a lane reads another")
        j = ravel([int(e.value) for e in at], self.trailing(i))
        return self.em.let(L.load(self.cells[i, j], self.v, self.inputs[i].dtype))

    def _element(self, scalars: Mapping[tuple[int, int], Expr], i: int, index: Index) -> Expr:
        if any(e.op != "const" for e in index):
            raise OtherLane("a carried array is indexed by a value")
        return scalars[i, ravel([int(e.value) for e in index], self.trailing(i))]

    def _test(self, more: Expr, scalars: Mapping[tuple[int, int], Expr]) -> None:
        """Set ``more`` to the condition on these scalars, in a block of its own: nothing of it is remembered."""
        em, head = self.em, self.n.graphs[0]
        em.open()
        self._place(head.inputs[:self.carry], scalars)
        e = em.cast(em.value(head.outputs[0], ()), int32)
        em.here.append(L.Assign(more.value, e))
        done = em.close()
        em.here.extend(done)

    def _new_scalars(self) -> dict[tuple[int, int], Expr]:
        em = self.em
        self._place(self.inputs, self.registers)
        out = {}
        for i in self.scalars:
            for j in range(prod(self.trailing(i))):
                e = em.value(self.body.outputs[i], self._at(self.trailing(i), j))
                out[i, j] = self._copy(e)
        return out

    def _copy(self, e: Expr) -> Expr:
        """A name for a value before any register changes, also where it is a register itself."""
        if e.op == "const":
            return e
        if e.op == "var":
            name = self.em.name("t")
            self.em.here.append(L.Let(name, e))
            self.em.define(name)
            return L.var(name, e.dtype)
        return self.em.let(e)

    def _step(self, more: Expr | None) -> None:
        """One iteration of one lane."""
        em = self.em
        self._place(self.inputs, self.registers)
        new = []
        for (i, j), cell in self.cells.items():
            e = em.value(self.body.outputs[i], (*self.lane, *self._at(self.trailing(i), j)))
            new.append((cell, em.let(e)))
        if more is not None and is_each(self.n):
            active = self._active()
            em.here.append(L.Assign(more.value, L.expr("or", (more, em.cast(active, int32)), int32), True))
        self._stack_stores()
        em.here.extend(L.Store(cell, self.v, e) for cell, e in new)

    def _active(self) -> Expr:
        """Whether this lane goes on, by its values before the iteration."""
        head = self.n.graphs[0]
        self._place(head.inputs[:self.carry], self.registers)
        return self.em.let(self.em.value(condition(head), self.lane))

    def _stack_stores(self) -> None:
        """Write slices of stacks."""
        for i, s in self.stacks.items():
            _, update, *picks = s.scatter.args
            shape, stack = sizes(update), sizes(self.inputs[i])
            at = [self.em.as_index(self.em.value(p, ())) for p in picks]
            k = len(self.lanes)
            for j in range(prod(shape[k:])):
                index = (*self.lane, *self._at(shape[k:], j))
                self._stack_store(i, s, at, index, self.em.let(self.em.value(update, index)), stack)

    def _stack_store(self, i: int, s: Stacked, at: list[Expr], index: Index, e: Expr, stack: tuple[int, ...]) -> None:
        em = self.em
        inner = (*at, *index)
        original: list[Expr] = [self.ix.const(0)] * len(stack)
        for place, axis in enumerate(s.order):
            original[axis] = inner[place]
        ok = L.const(True, bool_)
        for a, axis in zip(at, s.order, strict=False):
            ok = L.both(ok, em.inside(a, stack[axis]))
        name = self.buffer(self.n.outs[i])
        where = self.ix.linear(original, stack)
        if s.scatter.attr("kind") == "add":
            e = L.expr("add", (L.load(name, where, e.dtype), e), e.dtype)
        store = L.Store(name, where, e)
        em.here.append(store if ok.op == "const" and ok.value else L.If(ok, (store,)))


def _refuse(index: Index) -> Expr:
    raise OtherLane("a stack is read")

"""In-kernel loops: a loop whose carried values stay in their lane becomes a loop inside one kernel.

``while any(z.z < 4): z = where(z.z < 4, z*z + c, z)`` over an image -> one kernel; a tile of lanes at a time runs the
whole loop on values in registers and cache, and stops when its own lanes are done.

A *lane* is an index of the leading axes that all carried arrays share. Each carried array is, for a lane, a few numbers
(its trailing axes, unrolled); carried scalars are the same for all lanes. The loop qualifies when every new value of a
lane is computed from carried values of that lane, from the scalars, and from anything that the loop only reads. Else it
is left to the general lowering: steps of the program, repeated. Loops and branches in the body are part of the kernel
too. A carried array that the body only writes, one slice an iteration (the results that a scan stacks up), is written
through to memory.

Here is what every target shares; :mod:`~rlx.compile.inkernel_tile` keeps a tile of lanes in local arrays and steps
them in vector loops, :mod:`~rlx.compile.inkernel_point` gives each lane of a workgroup one point in registers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from rlx.compile.emit import Index
from rlx.compile.index import Indexer, sizes
from rlx.compile.lane import LaneEmitter, OtherLane, Stacked, condition, ravel, unravel
from rlx.compile.loop_level import Level, Slot, control_nodes, count_users, level_of, results_of
from rlx.compile.naming import Made, Naming
from rlx.core.dtype import DType, bool_, int32
from rlx.ir import loop as L
from rlx.ir.graph import Node, Value
from rlx.ir.loop import Expr, Stmt

Read = Callable[[Index], Expr]


@dataclass(frozen=True, slots=True)
class InKernel:
    """The kernel of a loop, and results that are copies of operands."""

    made: Made
    copies: tuple[tuple[Value, Value], ...]


class LoopKernel(ABC):
    """Builds the kernel of one loop over one lane shape."""

    def __init__(self, n: Node, lanes: tuple[int, ...], views: dict[Value, Value], index_dtype: DType) -> None:
        self.n, self.lanes, self.views = n, lanes, views
        self.naming = Naming(index_dtype)
        self.ix = Indexer(index_dtype)
        self.where: dict[Value, Value] = {}
        users: dict[int, int] = {}
        count_users(n.graphs, users, set())
        self.em = LaneEmitter(self.ix, self.stored, users)
        self.lane: Index = ()
        self.v: Expr = self.ix.const(0)
        self.outer = self.suit(level_of(n, lanes, True))
        for inputs, fixed in self._operands(self.outer):
            self.where.update(zip(inputs, self.outer.rest, strict=True))
            self.where.update((v, self.outer.inits[i]) for i, v in fixed)

    def _operands(self, level: Level) -> Iterator[tuple[Sequence[Value], list[tuple[int, Value]]]]:
        """For each graph of a loop: its inputs for unchanging operands, and those for carried values that stay."""
        for g in level.n.graphs:
            first = level.lead if g is level.body else 0
            carried = g.inputs[first:first + len(level.inits)]
            yield g.inputs[first + len(level.inits):], [(i, carried[i]) for i in level.fixed]

    def stored(self, v: Value) -> str | None:
        """The parameter that holds an operand that the loop only reads."""
        found = self.where.get(v)
        return None if found is None else self.buffer(found)

    def buffer(self, v: Value) -> str:
        """The parameter that stands for a stored value."""
        return self.naming.of(self.views.get(v, v))

    # What targets do their own way

    @abstractmethod
    def build(self) -> InKernel:
        """The kernel, with the frame that runs over all lanes."""

    @abstractmethod
    def suit(self, level: Level) -> Level:
        """What a loop carries or branches leave, in the kind of storage that this target keeps it in."""

    @abstractmethod
    def over_lanes(self, work: Callable[[], None]) -> None:
        """Do the work for every lane at hand, with ``self.lane`` set."""

    @abstractmethod
    def note_facts(self, level: Level) -> None:
        """Note what is true of a lane while it runs an iteration."""

    @abstractmethod
    def keep(self, v: Value) -> Read:
        """Compute a value of each lane now, and say how to read it later."""

    # Loops

    def first(self, level: Level) -> None:
        """Storage for what a loop carries, with its first values."""
        for at in level.slots(level.arrays):
            level.cells[at] = self.cell(level.inputs[at[0]].dtype)
        if level.cells:
            self.over_lanes(lambda: self._fill(level.cells, {
                at: self._initial(level, at) for at in level.cells}))
        for at in level.slots(level.scalars):
            level.registers[at] = self._register(self._initial(level, at), "r")

    def _initial(self, level: Level, at: Slot) -> Expr:
        v, index = level.inits[at[0]], self.element(level, at)
        if level is self.outer:
            return L.load(self.buffer(v), self.ix.linear(index, sizes(v)), v.dtype)
        return self.em.value(v, index)

    def _register(self, init: Expr, prefix: str) -> Expr:
        register = self.em.register(init, prefix)
        self.em.mutable.add(register.value)
        return register

    def cell(self, dtype: DType) -> str:
        """An array with a number for each lane of a tile."""
        raise OtherLane("no cells here")

    def _fill(self, cells: Mapping[Slot, str], values: Mapping[Slot, Expr]) -> None:
        self.em.here.extend([L.Store(cell, self.v, values[at]) for at, cell in cells.items()])

    def element(self, level: Level, at: Slot) -> Index:
        """The index of a carried number, in the lane at hand."""
        i, j = at
        place = tuple(self.ix.const(k) for k in unravel(j, level.trailing(i)))
        return (*self.lane, *place) if i in level.owned else place

    def loop(self, level: Level) -> None:
        """The loop itself; the storage of its carried values holds the results afterwards."""
        em = self.em
        counter = em.name("n")
        times = self._times(level, counter) if level.lead else self._start(level)
        em.open(counter if level.lead else None)
        with self.scope():
            self._iteration(level)
        body = em.close()
        if level.lead:
            em.here.append(L.For(counter, self.ix.const(0), times, 1, L.SERIAL, body))
        else:
            em.here.append(L.Loop(L.expr("ne", (times, L.const(0, int32)), bool_), body))

    def _start(self, level: Level) -> Expr:
        """The register that says whether the loop goes on."""
        level.more = self._register(L.const(1, int32), "m")
        # A loop over the lanes of a tile starts once: what is done does not change.
        if not self._any(level):
            self._test(level, level.registers)
        return level.more

    def _iteration(self, level: Level) -> None:
        em, more = self.em, level.more
        if self._any(level):
            assert more is not None
            em.here.append(L.Assign(more.value, L.const(0, int32)))
        new = self._step(level)
        if more is not None and not self._any(level):
            self._test(level, new)
        em.here.extend([L.Assign(level.registers[at].value, e) for at, e in new.items()])

    def _any(self, level: Level) -> bool:
        """Whether the loop goes on while any of several lanes does."""
        return level.each and bool(level.cells)

    def _times(self, level: Level, counter: str) -> Expr:
        """The number of iterations; and the counter, which the body reads."""
        em, count = self.em, level.n.args[0]
        if count.node.op == "const":
            known = int(count.node.attr("value"))
            times, now = self.ix.const(known), self.ix.var(counter, max(known, 2))
        else:
            e = (L.load(self.buffer(count), self.ix.const(0), count.dtype) if level is self.outer else
                 em.value(count, ()))
            times, now = em.let(em.cast(e, self.ix.dtype)), L.var(counter, self.ix.dtype)
        if level is self.outer:
            self.counter = now
        first = level.body.inputs[0]
        em.placed[first] = lambda _: em.cast(now, first.dtype)
        return times

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is placed inside is forgotten after."""
        before = dict(self.em.placed), self.em.facts
        yield
        self.em.placed, self.em.facts = before

    def _place(self, level: Level, inputs: Sequence[Value], scalars: Mapping[Slot, Expr]) -> None:
        """Carried values read their cells and registers."""
        for i, v in enumerate(inputs):
            if i in level.arrays:
                self.em.placed[v] = lambda index, i=i: self._cell(level, i, index)  # type: ignore[misc]
            elif i in level.scalars:
                self.em.placed[v] = lambda index, i=i: self._scalar(level, scalars, i, index)  # type: ignore[misc]
            elif i in level.stacks:
                self.em.placed[v] = _refuse

    def _cell(self, level: Level, i: int, index: Index) -> Expr:
        j = ravel(self.own(index), level.trailing(i))
        return self.em.let(L.load(level.cells[i, j], self.v, level.inputs[i].dtype))

    def own(self, index: Index) -> list[int]:
        """The constant place in a lane's part that an index means."""
        k = len(self.lanes)
        if not self.lane or index[:k] != self.lane:
            raise OtherLane("a lane reads another")
        return _constants(index[k:])

    def _scalar(self, level: Level, scalars: Mapping[Slot, Expr], i: int, index: Index) -> Expr:
        place = self.own(index) if i in level.owned else _constants(index)
        return scalars[i, ravel(place, level.trailing(i))]

    def _test(self, level: Level, scalars: Mapping[Slot, Expr]) -> None:
        """Set ``more`` to the condition on these scalars, in a block of its own: nothing of it is remembered."""
        em, head = self.em, level.head
        assert level.more is not None
        em.open()
        with self.scope():
            self._place(level, head.inputs[:len(level.inits)], scalars)
            test = (condition(head), self.lane) if level.each else (head.outputs[0], ())
            self.pieces([test[0]])
            em.here.append(L.Assign(level.more.value, em.cast(em.value(*test), int32)))
        done = em.close()
        em.here.extend(done)

    def _step(self, level: Level) -> dict[Slot, Expr]:
        """One iteration: cells are set, and the new values of the registers are returned."""
        em, outputs = self.em, level.body.outputs
        level.now = {at: self.named(r) for at, r in level.registers.items()}
        self._place(level, level.inputs, level.now)
        self.note_facts(level)
        self.pieces([o for i, o in enumerate(outputs) if i not in level.fixed])
        new = {at: em.let(em.value(outputs[at[0]], self.element(level, at))) for at in level.registers}
        if level is self.outer:
            self.whole = {i for i, s in level.stacks.items() if self._covered(i, s)}
        if level.cells or level.stacks:
            self.over_lanes(lambda: self._lane_step(level))
        return new

    def named(self, e: Expr) -> Expr:
        """A name for what a register holds now."""
        name = self.em.name("t")
        self.em.here.append(L.Let(name, e))
        self.em.define(name)
        return L.var(name, e.dtype)

    def _lane_step(self, level: Level) -> None:
        em = self.em
        self._place(level, level.inputs, level.now)
        new = {at: em.let(em.value(level.body.outputs[at[0]], self.element(level, at))) for at in level.cells}
        if self._any(level):
            active = self._active(level)
            assert level.more is not None
            em.here.append(L.Assign(level.more.value, L.expr("or", (level.more, em.cast(active, int32)), int32), True))
        for i, s in level.stacks.items():
            self._stack_stores(level, i, s)
        self._fill(level.cells, new)

    def _active(self, level: Level) -> Expr:
        """Whether this lane goes on, by its values before the iteration."""
        self._place(level, level.head.inputs[:len(level.inits)], level.now)
        return self.em.let(self.em.value(condition(level.head), self.lane))

    # Loops and branches inside

    def pieces(self, outputs: Sequence[Value]) -> None:
        """Run the loops and branches that these values need, and place their results."""
        for n in control_nodes(outputs):
            if all(v in self.em.placed for v in n.outs):
                continue
            if n.op == "cond":
                self._branches(n)
            else:
                self._inner(n)

    def _inner(self, n: Node) -> None:
        """A loop inside the loop."""
        level = self.suit(level_of(n, self.lanes, False))
        for graph, fixed in self._operands(level):
            for v, operand in zip(graph, level.rest, strict=True):
                self.em.placed[v] = self.given(operand)
            for i, v in fixed:
                self.em.placed[v] = self.given(level.inits[i])
        self.first(level)
        self.loop(level)
        level.now = {at: self.named(r) for at, r in level.registers.items()}
        self._place(level, n.outs, level.now)
        for i in level.fixed:
            self.em.placed[n.outs[i]] = self.given(level.inits[i])

    def given(self, v: Value) -> Read:
        """How a graph inside reads an operand."""
        k = len(self.lanes)
        if v.shape == ():
            e = self.em.let(self.em.value(v, ()))
            return lambda _: e
        if k and sizes(v)[:k] == self.lanes and not self._at_hand(v):
            return self.keep(v)
        return lambda index: self.em.value(v, index)

    def _at_hand(self, v: Value) -> bool:
        """Whether a value is stored, or a view of what is."""
        while v not in self.em.placed and self.stored(v) is None:
            if v.node.op in ("const", "iota"):
                return True
            if v.node.op not in ("reshape", "permute", "broadcast", "slice", "flip"):
                return False
            v = v.node.args[0]
        return True

    def _branches(self, n: Node) -> None:
        """``if index == 0: .. elif ..``: only the branch taken runs."""
        em, index = self.em, self.em.let(self.em.value(n.args[0], ()))
        out = self.suit(results_of(n, self.lanes))
        for at in out.slots(out.arrays):
            out.cells[at] = self.cell(n.outs[at[0]].dtype)
        for at in out.slots(out.scalars):
            out.registers[at] = self._register(L.const(0, n.outs[at[0]].dtype), "r")
        operands = [self.given(v) for v in n.args[1:]]
        last: tuple[Stmt, ...] = ()
        for k in reversed(range(len(n.graphs))):
            done = self._branch(n, k, operands, out)
            if k == len(n.graphs) - 1:
                last = done
            else:
                last = (L.If(L.expr("eq", (index, L.const(k, index.dtype)), bool_), done, last),)
        em.here.extend(last)
        out.now = {at: self.named(r) for at, r in out.registers.items()}
        self._place(out, n.outs, out.now)

    def _branch(self, n: Node, k: int, operands: Sequence[Read], out: Level) -> tuple[Stmt, ...]:
        em, graph = self.em, n.graphs[k]
        em.open()
        with self.scope(), em.no_further():
            em.placed.update(zip(graph.inputs, operands, strict=True))
            self.pieces(graph.outputs)
            for at, r in out.registers.items():
                e = em.value(graph.outputs[at[0]], self.element(out, at))
                em.here.append(L.Assign(r.value, e))
            if out.cells:
                self.over_lanes(lambda: self._fill(out.cells, {
                    at: em.let(em.value(graph.outputs[at[0]], self.element(out, at))) for at in out.cells}))
        return em.close()

    # Stacks

    def _covered(self, i: int, s: Stacked) -> bool:
        """Whether the loop writes every slice of a stack: its index is the counter, up or down, over all iterations."""
        if s.scatter.attr("kind") != "set" or len(s.scatter.args) != 3 or self.n.op != "loop":
            return False
        known = self.n.args[0].node
        if known.op != "const":
            return False
        times = int(known.attr("value"))
        terms, c = self.ix.terms(self.em.as_index(self.em.value(s.scatter.args[2], ())))
        size = sizes(self.outer.inputs[i])[s.order[0]]
        return size == times and (list(terms.values()), c) in (([1], 0), ([-1], times - 1)) and self.counter in terms

    def _stack_stores(self, level: Level, i: int, s: Stacked) -> None:
        """Write this lane's part of a slice of a stack."""
        _, update, *picks = s.scatter.args
        shape, stack = sizes(update), sizes(level.inputs[i])
        at = [self.em.as_index(self.em.value(p, ())) for p in picks]
        k = len(self.lanes)
        for j in range(prod(shape[k:])):
            index = (*self.lane, *(self.ix.const(x) for x in unravel(j, shape[k:])))
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

    # Results

    def made(self, body: tuple[Stmt, ...]) -> InKernel:
        """The finished kernel, and the results that are copies of operands."""
        made = self.naming.kernel("k", body, f"{self.n.op} over {list(self.lanes)} in the kernel")
        copies = [(self.n.outs[i], self.outer.inits[i]) for i in self.outer.fixed]
        copies += [(self.n.outs[i], self.outer.inits[i]) for i in self.outer.stacks if i not in self.whole]
        return InKernel(made, tuple(copies))

    def result(self, at: Slot) -> tuple[str, Expr]:
        """Where a carried number's result goes."""
        out = self.n.outs[at[0]]
        return self.buffer(out), self.ix.linear(self.element(self.outer, at), sizes(out))


def _constants(index: Index) -> list[int]:
    if any(e.op != "const" for e in index):
        raise OtherLane("a carried array is indexed by a value")
    return [int(e.value) for e in index]


def _refuse(index: Index) -> Expr:
    raise OtherLane("a stack is read")


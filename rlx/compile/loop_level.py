"""One loop of a nest of loops in a kernel: which of its carried values belong to a lane, and which all lanes share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from rlx.compile.index import sizes
from rlx.compile.lane import OtherLane, Stacked, is_each, lead, stacked
from rlx.ir.graph import Graph, Node, Value, postorder
from rlx.ir.loop import Expr
from rlx.ir.prim import CONTROL

#: Most numbers that a lane carries; more do not stay in registers and first-level cache.
MAX_STATE = 64
#: Most numbers of a carried array that all lanes share; each is a register.
MAX_SHARED = 16

#: An element of a carried value: its number among them, and its place in the lane's part.
Slot = tuple[int, int]


@dataclass
class Level:
    """A loop and its carried values, by their numbers.

    ``owned`` ones have a part in each lane, others are the same for all lanes; ``fixed`` ones stay as they are, and
    ``stacks`` are written slice by slice. Numbers of ``arrays`` are kept in ``cells``, an element for each lane of a
    tile, those of ``scalars`` in ``registers``; ``now`` names what the registers held when the iteration began.
    """

    n: Node
    lanes: tuple[int, ...]
    lead: int
    body: Graph
    inits: tuple[Value, ...]
    inputs: tuple[Value, ...]
    arrays: list[int] = field(default_factory=list)
    scalars: list[int] = field(default_factory=list)
    owned: set[int] = field(default_factory=set)
    fixed: list[int] = field(default_factory=list)
    stacks: dict[int, Stacked] = field(default_factory=dict)
    cells: dict[Slot, str] = field(default_factory=dict)
    registers: dict[Slot, Expr] = field(default_factory=dict)
    now: dict[Slot, Expr] = field(default_factory=dict)
    more: Expr | None = None

    @property
    def head(self) -> Graph:
        """The condition of a ``while``."""
        return self.n.graphs[0]

    @property
    def each(self) -> bool:
        """Whether lanes stop by themselves."""
        return is_each(self.n)

    @property
    def rest(self) -> tuple[Value, ...]:
        """Operands that do not change."""
        return self.n.args[self.lead + len(self.inits):]

    def trailing(self, i: int) -> tuple[int, ...]:
        """The shape of carried value ``i`` in one lane."""
        shape = sizes(self.inputs[i])
        return shape[len(self.lanes):] if i in self.owned else shape

    def slots(self, which: Sequence[int]) -> list[Slot]:
        """Every number of these carried values."""
        return [(i, j) for i in which for j in range(prod(self.trailing(i)))]


def level_of(n: Node, lanes: tuple[int, ...], stacks: bool) -> Level:
    """Sort what a loop carries; OtherLane where it is not of these lanes. Stacks are taken where the caller can."""
    body, first, carry = n.graphs[-1], lead(n), n.attr("carry")
    level = Level(n, lanes, first, body, n.args[first:first + carry], body.inputs[first:first + carry])
    k = len(lanes)
    for i, (v, o) in enumerate(zip(level.inputs, body.outputs, strict=True)):
        stack = stacked(o, v, body) if stacks else None
        if o is v:
            level.fixed.append(i)
        elif stack is not None:
            level.stacks[i] = stack
        else:
            _sort(level, i)
    state = sum(prod(level.trailing(i)) for i in (*level.arrays, *level.scalars))
    if state > MAX_STATE or (level.each and (level.scalars or level.stacks or not k)):
        raise OtherLane("too much is carried")
    for i, s in level.stacks.items():
        if k and sizes(s.scatter.args[1])[:k] != lanes:
            raise OtherLane(f"a stack {i} of other lanes")
    return level


def results_of(n: Node, lanes: tuple[int, ...]) -> Level:
    """What the branches of a ``cond`` leave, sorted like what a loop carries."""
    level = Level(n, lanes, 0, n.graphs[0], (), n.outs)
    for i in range(len(n.outs)):
        _sort(level, i)
    return level


def _sort(level: Level, i: int) -> None:
    shape, k = sizes(level.inputs[i]), len(level.lanes)
    if k and shape[:k] == level.lanes:
        level.arrays.append(i)
        level.owned.add(i)
    elif not k or prod(shape) <= MAX_SHARED:
        level.scalars.append(i)
    else:
        raise OtherLane(f"a carried array of shape {shape}")


def control_nodes(outputs: Sequence[Value]) -> list[Node]:
    """Loops and branches that the values need, arguments first; not those inside of them."""
    return [m for m in postorder(outputs) if m.op in CONTROL]


def count_users(graphs: Sequence[Graph], users: dict[int, int], seen: set[int]) -> None:
    """How often each node is an argument, in graphs and the graphs inside; OtherLane where two nodes share a graph."""
    for g in graphs:
        if id(g) in seen:
            raise OtherLane("two nodes share a graph")
        seen.add(id(g))
        for m in postorder(g.outputs):
            for a in m.args:
                users[id(a.node)] = users.get(id(a.node), 0) + 1
            count_users(m.graphs, users, seen)

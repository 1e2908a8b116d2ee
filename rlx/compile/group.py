"""What fusion decides: groups of members computed by one kernel, nodes that stand alone, and the plan of a graph.

A group has an outer domain. Its members are *points* (a value for each outer index), *reduces* and *raggeds* (an inner
loop for each outer index), *rows* (a value for each outer and inner index) and *totals* (a reduction over the whole
outer domain).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rlx.compile.attend_form import Attend
from rlx.compile.emit import Index
from rlx.compile.index import Indexer, Sizes
from rlx.ir.graph import Node, Value

POINT, REDUCE, RAGGED, ROW, TOTAL = "point", "reduce", "ragged", "row", "total"


@dataclass(eq=False)
class Member:
    """A stored value that a group computes."""

    value: Value
    kind: str
    reads: list[tuple[Value, Index]] = field(default_factory=list)


@dataclass(eq=False)
class Group:
    """Members computed by one kernel over an outer domain (and one inner domain where there are rows or reduces)."""

    outer: Sizes
    inner: Sizes | None = None
    members: list[Member] = field(default_factory=list)

    def member(self, v: Value) -> Member | None:
        return next((m for m in self.members if m.value is v), None)

    def values(self) -> list[Value]:
        return [m.value for m in self.members]

    def buffers(self) -> set[Value]:
        """Values read from or written to storage."""
        found = {v for m in self.members for v, _ in m.reads}
        return found | set(self.values())


@dataclass(eq=False)
class Opaque:
    """A node that is a step (or a kernel) of its own: native call, control flow, sort, scan, scatter, column sums.

    ``operand`` is what a column sum computes and stores on its way, for others to read.
    """

    node: Node
    reads: list[Value] = field(default_factory=list)
    operand: Value | None = None

    def values(self) -> list[Value]:
        return list(self.node.outs) if self.operand is None else [*self.node.outs, self.operand]


Piece = Group | Opaque


@dataclass(eq=False)
class Plan:
    """Pieces in execution order, the values that live in storage, and the views that are other names of them."""

    pieces: list[Piece]
    stored: set[Value]
    views: dict[Value, Value]
    users: dict[int, int]
    #: Contractions that are the end of an attention, a kernel of its own.
    attends: dict[Node, Attend]


def outer_vars(ix: Indexer, shape: Sizes) -> Index:
    return tuple([ix.var(f"o{k}", n) for k, n in enumerate(shape)])


def inner_vars(ix: Indexer, shape: Sizes) -> Index:
    return tuple([ix.var(f"i{k}", n) for k, n in enumerate(shape)])


def stages(g: Group) -> dict[Value, int]:
    """For each member, how many inner loops must be complete before it can be computed."""
    need: dict[Value, int] = {}
    for m in g.members:
        level = 0
        for u, _ in m.reads:
            dep = g.member(u)
            if dep is not None:
                level = max(level, need[u] + (1 if dep.kind in (REDUCE, RAGGED) else 0))
        need[m.value] = level
    return need

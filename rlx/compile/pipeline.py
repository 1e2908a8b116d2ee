"""The compiler on one screen: every pass, in order, with its text kept for whoever asks."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from rlx.compile.legalize import Policy, Target, legalize
from rlx.compile.lower import lower
from rlx.compile.memory import place
from rlx.compile.report import Report
from rlx.compile.simplify import simplify
from rlx.core.shape import is_static
from rlx.core.errors import CompileError
from rlx.ir.graph import Graph
from rlx.ir.loop import Program


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A graph at every level: as traced (``hir``), in primitives (``mir``), and as a program (None for graph devices)."""

    hir: Graph
    mir: Graph
    program: Program | None
    report: Report
    seconds: dict[str, float]


def compile_graph(graph: Graph, target: Target, policy: Policy | None = None, name: str = "main") -> Lowered:
    """HIR -> simplify -> legalize -> MIR -> simplify -> (fuse, schedule, memory) -> LIR."""
    clock = _Clock()
    _need_static(graph)
    hir = simplify(graph)
    clock.lap("simplify")
    legal, report = legalize(hir, target, policy)
    clock.lap("legalize")
    mir = simplify(legal)
    clock.lap("simplify MIR")
    program = None
    if target.caps.schedule != "graph":
        program = place(lower(mir, target.caps, name))
        clock.lap("fuse and schedule")
    return Lowered(hir, mir, program, report, clock.laps)


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        now = perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now


def _need_static(graph: Graph) -> None:
    for v in graph.inputs:
        if not is_static(v.shape):
            raise CompileError(f"a program over {v.type} has sizes that are not known", where=v.node.where,
                               why="a program is compiled for numbers", do="bind the dimensions first (graph.bind_sizes)")

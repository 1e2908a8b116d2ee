"""The compiler on one screen: every pass, in order, with its text kept for whoever asks."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from time import perf_counter

from rlx.compile.hoist import hoist, split_setup
from rlx.compile.legalize import Policy, Target, legalize
from rlx.compile.lower import lower
from rlx.compile.memory import place
from rlx.compile.report import Report
from rlx.compile.simplify import simplify
from rlx.core import flags
from rlx.core.errors import CompileError, ValueIssue
from rlx.core.shape import is_static
from rlx.ir.graph import Graph, graph_scope
from rlx.ir.loop import Program
from rlx.ir.text import print_graph, print_program
from rlx.ir.verify import verify_hir, verify_mir, verify_program


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A graph at every level: as traced (``hir``), in primitives (``mir``), as a program (None for graph devices).

    ``setup`` computes, from the inputs that are the same in every call, the last inputs of the program (None: nothing).
    """

    hir: Graph
    mir: Graph
    program: Program | None
    report: Report
    seconds: dict[str, float]
    setup: Program | None = None
    #: How many of the last inputs are the same in every call.
    fixed: int = 0


@graph_scope()
def compile_graph(graph: Graph, target: Target, policy: Policy | None = None, name: str = "main",
                  fixed: int = 0) -> Lowered:
    """HIR -> simplify -> legalize -> MIR -> simplify -> (fuse, schedule, hoist, memory) -> LIR.

    The last ``fixed`` inputs are the same in every call: what depends on them alone becomes a setup, where the device
    runs loop nests. The flag ``verify`` checks the grammar after every pass; ``dump`` writes the text of every level.
    """
    clock = _Clock()
    check = bool(flags.get("verify"))
    _need_static(graph)
    hir = simplify(verify_hir(graph) if check else graph)
    clock.lap("simplify")
    first = len(hir.inputs) - (fixed if target.caps.schedule == "nest" else 0)
    legal, report = legalize(verify_hir(hir) if check else hir, target, policy, first)
    clock.lap("legalize")
    mir = simplify(verify_mir(legal) if check else legal)
    clock.lap("simplify MIR")
    program = setup = None
    if target.caps.schedule != "graph":
        lowered = lower(verify_mir(mir) if check else mir, target.caps, _identifier(name), first)
        setup, program = split_setup(hoist(verify_program(lowered) if check else lowered), first)
        program, setup = place(program), None if setup is None else place(setup)
        if check:
            verify_program(program)
            if setup is not None:
                verify_program(setup)
        clock.lap("fuse and schedule")
    _dump(str(flags.get("dump")), name, hir, mir, program)
    return Lowered(hir, mir, program, report, clock.laps, setup, fixed)


def _dump(folder: str, name: str, hir: Graph, mir: Graph, program: Program | None) -> None:
    """Write ``name-digest.hir.txt`` and so on; equal programs are written to the same files."""
    if not folder:
        return
    texts = {"hir": print_graph(hir), "mir": print_graph(mir)}
    if program is not None:
        texts["lir"] = print_program(program)
    digest = hashlib.sha256("".join(texts.values()).encode()).hexdigest()[:8]
    try:
        os.makedirs(folder, exist_ok=True)
        for level, text in texts.items():
            with open(os.path.join(folder, f"{name}-{digest}.{level}.txt"), "w", encoding="utf-8") as f:
                f.write(text)
    except OSError as e:
        raise ValueIssue(f"the text of {name} cannot be written to {folder!r}", why=f"{e.strerror}: {e.filename}",
                         do="set RLX_DUMP (flag dump) to a directory that can be written, or to nothing") from None


def _identifier(name: str) -> str:
    """A function's name as a program's: a lambda has none."""
    return name if name.isidentifier() else "main"


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
                               why="a program is compiled for numbers",
                               do="bind the dimensions first (graph.bind_sizes)")

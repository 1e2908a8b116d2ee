"""Lower: MIR -> LIR. Plans storage and kernels of a graph and its sub-graphs and orders them as program steps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

from rlx.compile import grid_tile, nest_tile
from rlx.compile.attend_form import Attend
from rlx.compile.fuse import fuse
from rlx.compile.grid import Grid
from rlx.compile.grid_join import join
from rlx.compile.grid_special import GridSpecial
from rlx.compile.group import Group, Opaque, Piece, Plan, outer_vars, stages
from rlx.compile.index import Indexer, sizes
from rlx.compile.inkernel_point import in_points
from rlx.compile.inkernel_tile import in_tiles
from rlx.compile.naming import Made, Naming
from rlx.compile.nest import HOT_WORK, ROW_LOCAL, Nest
from rlx.compile.nest_attend import Attention
from rlx.compile.reduction import identity, reduce_kind
from rlx.compile.special import Special
from rlx.core.caps import Caps
from rlx.core.dtype import DType, bool_, int32, int64, uint8
from rlx.ir import loop as L
from rlx.ir.claim import Call, Claim
from rlx.ir.graph import UNIQUE, Graph, Node, Type, Value, clone, node, rebuild


def lower(graph: Graph, caps: Caps, name: str = "main", first: int | None = None) -> L.Program:
    """The program of a legal graph: inputs and outputs by slot, temps not yet placed.

    Inputs from number ``first`` on are the same in every call.
    """
    work = _Lowering(caps)
    work.fixed = set(graph.inputs[len(graph.inputs) if first is None else first:])
    buffers = {}
    for slot, v in enumerate(graph.inputs):
        buffers[v] = work.buffer(f"in{slot}", v.dtype, _size(v), "input", slot)
    targets = [work.buffer(f"out{slot}", v.dtype, _size(v), "output", slot) for slot, v in enumerate(graph.outputs)]
    steps = work.graph(graph, buffers, targets, {})
    return L.Program(name, tuple(work.buffers.values()), tuple(steps))


def _size(v: Value) -> int:
    n = 1
    for d in sizes(v):
        n *= d
    return n


@dataclass
class _Scope:
    """One graph being lowered: its plan, where each value lives, and which carried inputs may be overwritten."""

    plan: Plan
    names: dict[Value, str]
    outputs: set[Value]
    in_place: dict[Value, Value] = field(default_factory=dict)


class _Lowering:
    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.index: DType = int64 if caps.index_bits == 64 else int32
        self.buffers: dict[str, L.Buffer] = {}
        self.kernels: dict[Any, L.Kernel] = {}
        self.counter = 0
        #: Inputs of the program that are the same in every call.
        self.fixed: set[Value] = set()
        #: Loops around the graph that is being lowered.
        self.loops = 0

    def buffer(self, name: str, dtype: DType, size: int, role: str, slot: int = 0) -> str:
        self.buffers[name] = L.Buffer(name, dtype, size, role, slot)
        return name

    def temp(self, dtype: DType, size: int) -> str:
        self.counter += 1
        return self.buffer(f"t{self.counter}", dtype, size, "temp")

    # Graphs

    def graph(self, g: Graph, given: dict[Value, str], targets: Sequence[str],
              carried: dict[Value, int]) -> list[L.Step]:
        """Steps that leave output k in ``targets[k]``.

        ``carried`` maps an input to the output that takes its place in the next iteration: when every read of the input
        comes before that output is written, both share one buffer (``targets`` names the input's own buffer).
        """
        g = without_empty(g)
        plan = fuse(g, self.index, *self._contractions(), self.caps.max_buffers,
                    attend=self.caps.schedule == "nest")
        scope = _Scope(plan, dict(given), set(g.outputs))
        copies = self._assign_outputs(g, scope, targets, carried)
        steps: list[L.Step] = []
        for k, piece in enumerate(plan.pieces):
            steps.extend(self._piece(piece, scope, plan.pieces[k + 1:]))
        steps += self._copies(copies, scope)
        return join(steps, self.buffers, self.index, self.caps, self._kernel) if self.caps.schedule == "grid" else steps

    def _contractions(self) -> tuple[Callable[[Node], Sequence[Value]], Callable[[Node], bool]]:
        """Which operands of a contraction are stored, and whether it is scheduled in tiles, with points alone."""
        if self.caps.schedule == "nest":
            return nest_tile.operands, lambda n: nest_tile.form(n) is not None
        return partial(grid_tile.operands, caps=self.caps), partial(grid_tile.is_tiled, caps=self.caps)

    def _assign_outputs(self, g: Graph, scope: _Scope, targets: Sequence[str],
                        carried: dict[Value, int]) -> list[tuple[str, Value]]:
        """Compute results in their target where that is possible; list the copies that remain."""
        copies: list[tuple[str, Value]] = []
        owner = {k: v for v, k in carried.items()}
        for k, (v, target) in enumerate(zip(g.outputs, targets, strict=True)):
            root = scope.plan.views.get(v, v)
            old = owner.get(k)
            if root in scope.names or (old is not None and not self._may_overwrite(old, root, g, scope.plan)):
                copies.append((target, root))
                continue
            scope.names[root] = target
            if old is not None:
                scope.in_place[root] = old
        return copies

    def _copies(self, copies: list[tuple[str, Value]], scope: _Scope) -> list[L.Step]:
        """Move results to their targets; through temps where a target is still to be read as a source."""
        sources = [(t, self._name(v, scope)) for t, v in copies]
        sources = [(t, s) for t, s in sources if t != s]
        written = {t for t, _ in sources}
        steps: list[L.Step] = []
        moved = []
        for t, s in sources:
            if s in written:
                b = self.buffers[s]
                temp = self.temp(b.dtype, b.size)
                steps.append(L.Copy(temp, s))
                s = temp
            moved.append(L.Copy(t, s))
        return steps + list(moved)

    def _may_overwrite(self, old: Value, new: Value, g: Graph, plan: Plan) -> bool:
        """Whether ``new`` can be written into the storage of the carried input ``old``."""
        if old.type.dtype != new.type.dtype or prod(sizes(old)) != prod(sizes(new)):
            return False
        if old in (plan.views.get(v, v) for v in g.outputs):
            return False
        names = {old} | {v for v, x in plan.views.items() if x is old}
        at = next(k for k, p in enumerate(plan.pieces) if new in p.values())
        for later in plan.pieces[at + 1:]:
            if names & _reads(later):
                return False
        writer = plan.pieces[at]
        if isinstance(writer, Opaque):
            n = writer.node
            base = plan.views.get(n.args[0], n.args[0]) if n.op == "scatter" else None
            if base is not old:
                return not (names & _reads(writer)) and n.op not in ("while", "loop", "cond")
            inline = [r for a in n.args[1:] for r in _storage_of(a, plan)]
            return old not in inline
        return self._reads_in_place(writer, names, new)

    def _reads_in_place(self, g: Group, names: set[Value], new: Value) -> bool:
        member = g.member(new)
        assert member is not None
        if member.kind != "point":
            return not any(u in names for m in g.members for u, _ in m.reads)
        need = stages(g)
        expected = outer_vars(Indexer(self.index), g.outer)
        return all(u not in names or (index == expected and sizes(u) == g.outer and need[m.value] <= need[new])
                   for m in g.members for u, index in m.reads)

    # Pieces

    def _piece(self, piece: Piece, scope: _Scope, later: Sequence[Piece]) -> list[L.Step]:
        if isinstance(piece, Group):
            return self._group(piece, scope, later)
        n = piece.node
        if n.op == "native":
            return [self._native(n, scope)]
        if n in scope.plan.attends:
            return self._attention(scope.plan.attends[n], scope)
        if n.op in ("while", "loop"):
            views = scope.plan.views
            made = (in_points(n, views, self.index, self.caps) if self.caps.schedule == "grid" else
                    in_tiles(n, views, self.index))
            if made is not None:
                copies = [L.Copy(self._name(d, scope), self._name(s, scope)) for d, s in made.copies]
                return [*copies, *self._launches([made.made], scope, n.op)]
        if n.op == "while":
            return self._while(n, scope)
        if n.op == "loop":
            return self._repeat(n, scope)
        if n.op == "cond":
            return self._cond(n, scope)
        return self._special(n, scope, piece.operand)

    def _group(self, g: Group, scope: _Scope, later: Sequence[Piece]) -> list[L.Step]:
        if 0 in g.outer:
            return self._fill([m.value for m in g.members if m.kind == "total"], scope)
        outside = set().union(*map(_reads, later)) if later else set()
        outside = {scope.plan.views.get(v, v) for v in outside}
        outputs = {scope.plan.views.get(v, v) for v in scope.outputs}
        need = stages(g)
        kept: set[Value] = set()
        for m in g.members:
            rows = m.kind == "row" and any(need[c.value] > need[m.value] and any(u is m.value for u, _ in c.reads)
                                           for c in g.members)
            big = rows and prod(g.inner or ()) * m.value.dtype.itemsize > ROW_LOCAL
            if m.value in outside or m.value in outputs or m.kind == "total" or big:
                kept.add(m.value)
        overwritten = {scope.in_place[m.value] for m in g.members if m.value in scope.in_place}
        args = ("k", g, scope.plan.stored, scope.plan.views, scope.plan.users, kept, overwritten, self.index)
        dot = nest_tile.fits(g) if self.caps.schedule == "nest" else None
        nest = (Grid(*args, caps=self.caps) if self.caps.schedule == "grid" else
                Nest(*args) if dot is None else nest_tile.Tiled(*args).prepare(dot, self.caps, self.fixed))
        if self.loops:
            nest.chunk_work = HOT_WORK
        return self._launches(nest.build(), scope, "_".join(dict.fromkeys(m.value.node.op for m in g.members)))

    def _attention(self, form: Attend, scope: _Scope) -> list[L.Step]:
        stored = scope.plan.stored
        made = Attention("k", form, lambda v: v in stored, scope.plan.views, scope.plan.users, self.index, self.caps)
        return self._launches(made.build(), scope, "attention")

    def _fill(self, reduced: Sequence[Value], scope: _Scope) -> list[L.Step]:
        """What is left of a kernel over nothing: reductions of no elements have their identity everywhere."""
        naming = Naming(self.index)
        index = L.var("i", self.index)
        zero = L.const(0, self.index)
        fills = [L.For("i", zero, L.const(prod(sizes(v)), self.index), 1, L.SERIAL,
                       (L.Store(naming.of(v), index, identity(reduce_kind(v.node), v.dtype)),)) for v in reduced]
        return self._launches([naming.kernel("k", tuple(fills), "reductions of nothing")], scope,
                              "fill") if fills else []

    def _special(self, n: Node, scope: _Scope, operand: Value | None = None) -> list[L.Step]:
        if n.op == "reduce" and (0 in sizes(n.args[0])):
            return self._fill([v for v in n.outs if prod(sizes(v))], scope)
        stored = scope.plan.stored
        steps: list[L.Step] = []
        if n.op == "scatter":
            out, base = self._name(n.outs[0], scope), self._name(n.args[0], scope)
            if out != base:
                steps.append(L.Copy(out, base))
        args = ("k", n, lambda v: v in stored, scope.plan.views, scope.plan.users, self.index, operand)
        made = (GridSpecial(*args, caps=self.caps) if self.caps.schedule == "grid" else Special(*args)).build()
        return steps + self._launches(made, scope, n.op)

    def _launches(self, made: Sequence[Made], scope: _Scope, label: str) -> list[L.Step]:
        scratch: dict[str, str] = {}
        steps: list[L.Step] = []
        for k, m in enumerate(made):
            names = []
            for key, p in zip(m.bound, m.kernel.params, strict=True):
                if isinstance(key, str):
                    if key not in scratch:
                        scratch[key] = self.temp(p.dtype, p.size)
                    names.append(scratch[key])
                else:
                    names.append(self._name(key, scope))
            steps.append(L.Launch(self._kernel(m.kernel, label + ("_total" if k else "")), tuple(names)))
        return steps

    def _kernel(self, k: L.Kernel, label: str) -> L.Kernel:
        """One kernel for equal bodies, under a name that says what it does."""
        key = (k.params, k.body)
        found = self.kernels.get(key)
        if found is None:
            digest = hashlib.sha256(repr(key).encode()).hexdigest()[:8]
            found = self.kernels[key] = L.Kernel(f"{label[:40]}_{digest}", k.params, k.body, k.notes)
        return found

    def _name(self, v: Value, scope: _Scope) -> str:
        v = scope.plan.views.get(v, v)
        if v not in scope.names:
            scope.names[v] = self.temp(v.dtype, _size(v))
        return scope.names[v]

    # Steps of their own

    def _native(self, n: Node, scope: _Scope) -> L.Step:
        names = tuple([self._name(v, scope) for v in (*n.args, *n.outs)])
        types = tuple([(v.dtype, sizes(v)) for v in (*n.args, *n.outs)])
        scratch: tuple[str, ...] = ()
        if isinstance(n.payload, Claim) and n.payload.scratch is not None:
            count = len(n.args)
            size = n.payload.scratch(Call(n.attr("op"), types[:count], types[count:], dict(n.attr("attrs"))))
            scratch = (self.temp(uint8, size),) if size else ()
        return L.Native(n.attr("claim"), names, types, len(n.args), n.attr("attrs"), scratch)

    def _while(self, n: Node, scope: _Scope) -> list[L.Step]:
        carry = n.attr("carry")
        state, steps = self._state(n.args[:carry], n.outs, scope)
        rest = [self._name(v, scope) for v in n.args[carry:]]
        head, body = n.graphs
        pred = self.temp(head.outputs[0].dtype, 1)
        test = self.graph(head, dict(zip(head.inputs, state + rest, strict=True)), [pred], {})
        self.loops += 1
        work = self.graph(body, dict(zip(body.inputs, state + rest, strict=True)), state,
                          {v: k for k, v in enumerate(body.inputs[:carry])})
        self.loops -= 1
        return [*steps, L.While(tuple(test), pred, tuple(work))]

    def _repeat(self, n: Node, scope: _Scope) -> list[L.Step]:
        carry = n.attr("carry")
        count, inits, rest = n.args[0], n.args[1:1 + carry], n.args[1 + carry:]
        state, steps = self._state(inits, n.outs, scope)
        fixed = [self._name(v, scope) for v in rest]
        (body,) = n.graphs
        counter = self.temp(int64, 1)
        names = [counter, *state, *fixed]
        self.loops += 1
        work = self.graph(body, dict(zip(body.inputs, names, strict=True)), state,
                          {v: k for k, v in enumerate(body.inputs[1:1 + carry])})
        self.loops -= 1
        times: int | str = int(count.node.attr("value")) if count.node.op == "const" else self._name(count, scope)
        return [*steps, L.Repeat(times, counter, tuple(work))]

    def _state(self, inits: Sequence[Value], outs: Sequence[Value], scope: _Scope) -> tuple[list[str], list[L.Step]]:
        """Buffers that hold what a loop carries, filled with the first values."""
        names = [self._name(o, scope) for o in outs]
        return names, [L.Copy(d, self._name(v, scope)) for d, v in zip(names, inits, strict=True)]

    def _cond(self, n: Node, scope: _Scope) -> list[L.Step]:
        """``switch``: a chain of two-way branches on ``index == k``."""
        targets = [self._name(o, scope) for o in n.outs]
        operands = [self._name(v, scope) for v in n.args[1:]]
        index = self._name(n.args[0], scope)
        branches = [self.graph(g, dict(zip(g.inputs, operands, strict=True)), targets, {}) for g in n.graphs]
        steps = branches[-1]
        for k in range(len(branches) - 2, -1, -1):
            pred = self.temp(bool_, 1)
            steps = [L.Launch(self._is(k, n.args[0].dtype), (index, pred)),
                     L.Branch(pred, tuple(branches[k]), tuple(steps))]
        return steps

    def _is(self, k: int, dtype: DType) -> L.Kernel:
        zero = L.const(0, self.index)
        same = L.expr("eq", (L.load("b0", zero, dtype), L.const(k, dtype)), bool_)
        return self._kernel(L.Kernel("k", (L.Param("b0", dtype, 1, "r"), L.Param("b1", bool_, 1, "w")),
                                     (L.Store("b1", zero, same),), f"index == {k}"), "is")




def without_empty(g: Graph) -> Graph:
    """Values of no elements are filled with a constant: no kernel, and no index into an axis of size 0.

    ``exp(x[0:0] + y)`` -> ``broadcast(0)``
    """
    if not any(0 in t.shape for n in g.nodes() for t in n.types):
        return g

    def make(n: Node, args: tuple[Value, ...]) -> Sequence[Value]:
        if n.op in UNIQUE or n.op == "const":
            return n.outs
        if len(n.types) == 1 and 0 in n.types[0].shape:
            t = n.types[0]
            zero = node("const", types=(Type(t.dtype, ()),), attrs=(("value", False if t.dtype == bool_ else 0),),
                        where=n.where)
            return node("broadcast", zero.outs, n.types, attrs=(("shape", t.shape),), where=n.where).outs
        return clone(n, args).outs

    return Graph(g.inputs, rebuild(g.outputs, {v: v for v in g.inputs}, make), g.name)


def _reads(p: Piece) -> set[Value]:
    """Stored values that a piece loads."""
    if isinstance(p, Opaque):
        return set(p.reads)
    return {u for m in p.members for u, _ in m.reads}


def _storage_of(v: Value, plan: Plan) -> list[Value]:
    """The stored values that an inlined operand reads."""
    out: list[Value] = []
    stack, seen = [v], set()
    while stack:
        u = stack.pop()
        root = plan.views.get(u, u)
        if root in plan.stored:
            out.append(root)
        elif u not in seen:
            seen.add(u)
            stack.extend(u.node.args)
    return out



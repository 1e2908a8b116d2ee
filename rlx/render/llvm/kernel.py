"""Kernel LIR to LLVM IR text: loops, registers, stores; expressions are :mod:`rlx.render.llvm.expression`'s.

The text is scalar: LLVM's loop vectoriser makes the vectors. A ``vector`` loop tells it that iterations
are independent (``llvm.loop.parallel_accesses``); a reduction vectorises in any loop by the ``reassoc``
flag on its combining operation.

    for i in range(0, n, 1) vector: y[i] = exp(x[i])
->  header: i = phi; br i < n, body, exit
    body:   load, call @rlx.exp.f32 (inlined), store, all in access group g
    latch:  i + 1; br header, !llvm.loop {parallel_accesses g}

``llvm.loop.vectorize.enable`` is not set: it permits reordering sums that asked for their order, overrides
the cost model, and prints a warning on standard error for every loop that has no vector form.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.core.dtype import int64
from rlx.core.errors import CompileError
from rlx.ir import loop
from rlx.render.bounds import interval
from rlx.render.llvm import tile, transpose
from rlx.render.llvm.atomic import emit_atomic
from rlx.render.llvm.builder import Builder
from rlx.render.llvm.expression import Evaluator, Memory, Scope, Slot
from rlx.render.llvm.helpers import Helpers
from rlx.render.llvm.rare import is_worth_versions
from rlx.render.llvm.types import Value, label, memory_type, register_type, symbol

_MUST_PROGRESS = '!"llvm.loop.mustprogress"'
_FULL_UNROLL = '!"llvm.loop.unroll.full"'
_UNROLL = '!"llvm.loop.unroll.enable"'
_NO_UNROLL = '!"llvm.loop.unroll.disable"'
#: Iterations of a vector loop that fill a vector and that LLVM would write out in full.
_SHORT = (16, 257)


def render_kernel(kernel: loop.Kernel, helpers: Helpers) -> str:
    """The text of ``define internal void @<symbol(name)>(ptr %bufs, i64 %g)``.

    ``%bufs`` points to one pointer a kernel parameter, in order; ``%g`` is the linear index over the
    grid loops, the last one fastest (ignored by a kernel without any). Raises CompileError for
    ``block`` and ``lane`` loops.
    """
    return _Renderer(kernel, helpers).render()


def module(kernels: Sequence[loop.Kernel], *, fast: bool = False) -> str:
    """A whole module: each kernel, an external alias ``<name>.entry`` to reach it by, and what they need."""
    helpers = Helpers(fast=fast)
    texts = [render_kernel(k, helpers) for k in kernels]
    aliases = [f"@{symbol(k.name)}.entry = alias void (ptr, i64), ptr @{symbol(k.name)}" for k in kernels]
    return "\n".join((*aliases, "", *texts, helpers.text()))


class _Renderer:
    """The state of one kernel's rendering; ``depth`` counts enclosing loops, ``grid_seen`` grid loops.

    ``dry`` evaluates what a loop computes without keeping it.
    """

    def __init__(self, kernel: loop.Kernel, helpers: Helpers) -> None:
        self.kernel, self.helpers = kernel, helpers
        self.b = Builder(helpers)
        self.scope = Scope()
        self.ev = Evaluator(self.b, self.scope)
        self.depth = 0
        self.grid = _grid_strides(kernel)
        self.grid_seen = 0
        self.dry = False

    def render(self) -> str:
        for i, p in enumerate(self.kernel.params):
            at = self.b.op(f"getelementptr inbounds ptr, ptr %bufs, i64 {i}", "a")
            self.scope.memory[p.name] = Memory(
                self.b.op(f"load ptr, ptr {at}, align 8", label(p.name)), p.dtype, p.size
            )
        self.block(self.kernel.body)
        self.b.do("ret void")
        return self.b.text(f"define internal void @{symbol(self.kernel.name)}(ptr %bufs, i64 %g) nounwind")

    def block(self, body: tuple[loop.Stmt, ...]) -> None:
        """Statements in a scope of their own: names defined in it end with it."""
        outer = self.scope
        self.enter(outer.copy())
        for s in body:
            self.statement(s)
        self.enter(outer)

    def enter(self, scope: Scope) -> None:
        self.scope = self.ev.scope = scope

    def statement(self, s: loop.Stmt) -> None:
        match s:
            case loop.For():
                self.loop_(s)
            case loop.Let(name, value):
                self.scope.names[name] = self.ev.value(value)
                if value.dtype.is_integer:
                    self.scope.ranges[name] = interval(value, self.scope.ranges, {})
                else:
                    self.scope.ranges.pop(name, None)
            case loop.Register(name, init):
                self.register(name, init)
            case loop.Assign(name, value, reassoc):
                x = self.ev.value(value, reassoc=reassoc)
                if not self.dry:
                    self.assign(self.slot(name), x)
            case loop.Array(name, dtype, size):
                count = size * (2 if dtype.is_complex else 1)
                pointer = self.b.slot(memory_type(dtype), count, align=64)
                self.scope.memory[name] = Memory(pointer, dtype, size, self.depth)
            case loop.Store(buffer, index, value):
                i, x = self.ev.values((index, value))
                if not self.dry:
                    self.ev.store(buffer, self.ev.index(index, str(i)), x)
            case loop.Atomic(kind, buffer, index, value):
                i, x = self.ev.values((index, value))
                memory, p = self.ev.address(buffer, self.ev.index(index, str(i)))
                emit_atomic(self.b, kind, memory.dtype, p, x)
            case loop.If():
                self.if_(s)
            case loop.Loop(cond, body):
                self.while_(cond, body)
            case loop.Contract():
                self.contract(s)
            case loop.Transpose():
                self.transpose(s)
            case loop.Barrier():
                pass  # a workgroup of this target is one lane

    def contract(self, s: loop.Contract) -> None:
        """Call the micro-kernel of this tile's shape."""
        pointers = []
        for name, index in ((s.acc, None), (s.a, s.a_index), (s.b, s.b_index)):
            at = "0" if index is None else self.ev.index(index, str(self.ev.value(index)))
            pointers.append(self.ev.address(name, at)[1])
        name = tile.define(s, self.helpers)
        self.b.do(f"call void @{name}({', '.join('ptr ' + p for p in pointers)})")

    def transpose(self, s: loop.Transpose) -> None:
        """Call the function that transposes a block of this shape."""
        pointers = [self.ev.address(name, self.ev.index(index, str(self.ev.value(index))))[1]
                    for name, index in ((s.dst, s.dst_index), (s.src, s.src_index))]
        name = transpose.define(s, self.helpers)
        self.b.do(f"call void @{name}({', '.join('ptr ' + p for p in pointers)})")

    def register(self, name: str, init: loop.Expr) -> None:
        x = self.ev.value(init)
        slot = Slot(
            init.dtype,
            tuple(self.b.slot(register_type(init.dtype)) for _ in range(2 if isinstance(x, tuple) else 1)),
        )
        self.scope.names[name] = slot
        self.scope.ranges.pop(name, None)
        self.assign(slot, x)

    def slot(self, name: str) -> Slot:
        found = self.scope.names.get(name)
        if not isinstance(found, Slot):
            raise CompileError(
                f"{name!r} is assigned but is not a register here",
                why="only names declared with var can be set",
                do="declare it with var before the loop",
            )
        return found

    def assign(self, slot: Slot, x: Value) -> None:
        parts = x if isinstance(x, tuple) else (x,)
        for part, pointer in zip(parts, slot.pointers, strict=True):
            self.b.do(f"store {register_type(slot.dtype)} {part}, ptr {pointer}")

    def if_(self, s: loop.If) -> None:
        b, cond = self.b, self.ev.real(s.cond)
        then, orelse, end = b.name("if"), b.name("else"), b.name("end")
        b.branch(cond, then, orelse if s.orelse else end)
        b.start(then)
        self.block(s.then)
        b.jump(end)
        if s.orelse:
            b.start(orelse)
            self.block(s.orelse)
            b.jump(end)
        b.start(end)

    def while_(self, cond: loop.Expr, body: tuple[loop.Stmt, ...]) -> None:
        b = self.b
        head, inside, end = b.name("while"), b.name("do"), b.name("end")
        b.jump(head)
        b.start(head)
        b.branch(self.ev.real(cond), inside, end)
        b.start(inside)
        self.depth += 1
        self.block(body)
        self.depth -= 1
        b.jump(head)
        b.start(end)

    def loop_(self, s: loop.For) -> None:
        if s.kind == loop.GRID:
            self.grid_loop(s)
        elif s.kind in (loop.BLOCK, loop.LANE):
            raise CompileError(
                f"kernel {self.kernel.name!r} has a {s.kind} loop",
                why="this target runs one lane a workgroup",
                do="schedule it for a core device",
            )
        elif is_worth_versions(s):
            self.versions(s)
        else:
            self.counted(s)

    def grid_loop(self, s: loop.For) -> None:
        """Bind the variable to its digit of ``%g``; the body runs once."""
        if self.grid_seen >= len(self.grid) or self.depth:
            raise CompileError(
                f"grid loop {s.var!r} of kernel {self.kernel.name!r} is not outermost",
                why="grid loops stand outermost, one in the other, at most three deep",
                do="make it a serial loop",
            )
        extent, stride = self.grid[self.grid_seen]
        x = "%g" if stride == 1 else self.b.op(f"udiv i64 %g, {stride}", label(s.var))
        if self.grid_seen:
            x = self.b.op(f"urem i64 {x}, {extent}", label(s.var))
        if s.start.dtype.bits < 64:
            x = self.b.op(f"trunc i64 {x} to {register_type(s.start.dtype)}", label(s.var))
        self.grid_seen += 1
        outer = self.scope
        self.enter(outer.copy())
        self.scope.names[s.var] = x
        self.scope.ranges[s.var] = (0, extent - 1)
        self.block(s.body)
        self.enter(outer)

    def versions(self, s: loop.For) -> None:
        """Look for a rare case first, then run the loop with or without it."""
        b = self.b
        outer, b.flag = (b.cases, b.flag), b.slot("i32")
        b.do(f"store i32 0, ptr {b.flag}")
        b.cases, self.dry = "check", True
        self.counted(s)
        self.dry = False
        rare, common, end = b.name("rare"), b.name("common"), b.name("end")
        found = b.op(f"load i32, ptr {b.flag}")
        b.branch(b.op(f"icmp ne i32 {found}, 0"), rare, common)
        for block, b.cases in ((rare, "all"), (common, "common")):
            b.start(block)
            self.counted(s)
            b.jump(end)
        b.start(end)
        b.cases, b.flag = outer

    def counted(self, s: loop.For) -> None:
        """A counting loop: test, body, step."""
        if s.step == 0:
            raise CompileError(
                f"loop over {s.var!r} has step 0", why="it would never end", do="use a positive step"
            )
        b, t = self.b, register_type(s.start.dtype)
        start, stop = (str(x) for x in self.ev.values((s.start, s.stop)))
        known: dict[int, tuple[int, int]] = {}
        first, last = (
            interval(s.start, self.scope.ranges, known),
            interval(s.stop, self.scope.ranges, known),
        )
        head, inside, latch, end = (b.name(stem) for stem in ("for", "do", "next", "end"))
        before, var, following = b.block, f"%{b.name(label(s.var))}", f"%{b.name(label(s.var))}"
        b.jump(head)
        b.start(head)
        b.do(f"{var} = phi {t} [ {start}, %{before} ], [ {following}, %{latch} ]")
        order = ("s" if s.start.dtype.kind == "i" else "u") + ("lt" if s.step > 0 else "gt")
        b.branch(b.op(f"icmp {order} {t} {var}, {stop}"), inside, end)
        b.start(inside)
        groups = self.body(s, var, (first[0], last[1] - 1) if s.step > 0 else (last[0] + 1, first[1]))
        b.jump(latch)
        b.start(latch)
        # The step cannot pass the end of a 64-bit range: stops are counts of elements.
        wrap = "nsw " if s.start.dtype == int64 else ""
        b.do(f"{following} = add {wrap}{t} {var}, {s.step}")
        b.jump(head, self.properties(s, groups))
        b.start(end)

    def body(self, s: loop.For, var: str, span: tuple[int, int]) -> str:
        """The body of a counting loop; returns the access group of a vector loop."""
        outer, group = self.scope, ""
        self.enter(outer.copy())
        self.scope.names[s.var], self.scope.ranges[s.var] = var, span
        if s.kind == loop.VECTOR:
            group = self.helpers.access_group()
            self.scope.groups = (*self.scope.groups, (self.depth, group))
        self.depth += 1
        self.block(s.body)
        self.depth -= 1
        self.enter(outer)
        return group

    def properties(self, s: loop.For, group: str) -> str:
        """The metadata tail of the back edge."""
        properties = [_MUST_PROGRESS]
        if s.kind == loop.UNROLL:
            properties.append(_FULL_UNROLL if _is_constant(s) else _UNROLL)
        if s.kind == loop.SERIAL and not _is_constant(s) and not any(isinstance(x, loop.For) for x in s.body):
            # A short loop of unknown length (a CSR row): the rest of an unrolled one costs more than it saves.
            properties.append(_NO_UNROLL)
        if s.kind == loop.SERIAL and _is_constant(s) and any(map(_is_short, s.body)):
            # Written out, each of its copies of the inner loop would be made vectors: time to compile, no speed.
            properties.append(_NO_UNROLL)
        if _is_short(s):
            # Written out before it is made vectors, its independence would be forgotten and it would stay scalar.
            properties.append(_NO_UNROLL)
        if group:
            properties.append(f'!"llvm.loop.parallel_accesses", {group}')
        return f", !llvm.loop {self.helpers.loop(tuple(properties))}"


def _grid_strides(kernel: loop.Kernel) -> list[tuple[int, int]]:
    """(extent, stride in ``%g``) of each grid loop, outermost first."""
    body, found = kernel.body, []
    while grids := [s for s in body if isinstance(s, loop.For) and s.kind == loop.GRID]:
        g = grids[0]
        if (
            len(grids) > 1
            or g.start.op != "const"
            or g.stop.op != "const"
            or g.start.value != 0
            or g.step != 1
        ):
            raise CompileError(
                f"grid loop {g.var!r} of kernel {kernel.name!r} does not count from 0 to a constant by 1",
                why="a launch has one linear index over constant extents",
                do="shift and scale the variable inside the loop",
            )
        found.append(int(g.stop.value))
        body = g.body
    strides, stride = [], 1
    for extent in reversed(found):
        strides.append((extent, stride))
        stride *= extent
    return strides[::-1]


def _is_short(s: loop.Stmt) -> bool:
    """A vector loop that LLVM would write out in full before it makes vectors."""
    return (isinstance(s, loop.For) and s.kind == loop.VECTOR and _is_constant(s)
            and s.stop.value - s.start.value in range(*_SHORT))


def _is_constant(s: loop.For) -> bool:
    return s.start.op == "const" and s.stop.op == "const"

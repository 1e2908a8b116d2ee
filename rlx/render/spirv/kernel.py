"""Kernels as SPIR-V modules: bindings, functions, and structured control flow."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from rlx.core.dtype import DType, bool_, float32, int32, uint32
from rlx.core.errors import CompileError
from rlx.ir import loop as L
from rlx.ir.loop import Expr, Stmt
from rlx.render.commands import grid_of
from rlx.render.portable import Helper, Portable
from rlx.render.spirv.expression import Emitter, Place
from rlx.render.spirv.module import (
    CAPABILITY,
    ENTRY_POINT,
    EXECUTION_MODE,
    EXT_INST_IMPORT,
    EXTENSION,
    FUNCTION,
    INPUT,
    MEMORY_MODEL,
    STORAGE_BUFFER,
    WORKGROUP,
    Module,
    instruction,
    text,
)

_LABEL, _BRANCH, _BRANCH_IF, _RETURN, _RETURN_VALUE, _END = 248, 249, 250, 253, 254, 56
_ATOMIC = {("add", "i"): 234, ("add", "u"): 234, ("min", "i"): 236, ("min", "u"): 237, ("max", "i"): 238,
           ("max", "u"): 239, ("and", "i"): 240, ("and", "u"): 240, ("or", "i"): 241, ("or", "u"): 241}


@dataclass(frozen=True, slots=True)
class Binary:
    """A shader module with entry point ``main``, and the workgroups that cover its grid."""

    words: bytes
    groups: tuple[int, int, int]
    workgroup: int


#: Promises about floats that a driver may be asked to keep: (capability, execution mode) of SPV_KHR_float_controls.
PROMISES = {"denormals": (4464, 4459), "nan": (4466, 4461)}


def render_kernel(p: Portable, promises: frozenset[tuple[str, int]] = frozenset()) -> Binary:
    """One module; parameter k is binding k of descriptor set 0.

    ``promises`` are the (name in PROMISES, bits) that the driver can keep: subnormal numbers stay, and NaN, infinities
    and the sign of zero are not optimized away. Each is asked for where the kernel has floats of that width.
    """
    return _Printer(p, promises).binary()


class _Printer:
    def __init__(self, p: Portable, promises: frozenset[tuple[str, int]]) -> None:
        self.p = p
        self.promises = promises
        self.m = Module()
        self.glsl = self.m.id()
        self.grid = p.kernel.grid()
        self.groups = grid_of(self.grid)
        self.lanes = _lanes(p.kernel.body)
        self.fence = any("w" in q.access for q in p.kernel.params)
        self.functions: dict[str, int] = {}
        self.left = 0

    def binary(self) -> Binary:
        m = self.m
        buffers = {q.name: self._buffer(k, q) for k, q in enumerate(self.p.kernel.params)}
        self.group = group = self._builtin(26, 3)
        lane = self._builtin(29, 1)
        for h in self.p.helpers:
            self._helper(h)
        main = self._main(buffers, lane)
        for capability in self._capabilities():
            m.head += instruction(CAPABILITY, capability)
        kept = sorted((PROMISES[name], bits) for name, bits in self.promises if (22, bits) in m._known)
        for capability in dict.fromkeys(c for (c, _), _ in kept):
            m.head += instruction(CAPABILITY, capability)
        if kept:
            m.head += instruction(EXTENSION, *text("SPV_KHR_float_controls"))
        m.head += instruction(EXT_INST_IMPORT, self.glsl, *text("GLSL.std.450"))
        m.head += instruction(MEMORY_MODEL, 0, 1)
        m.head += instruction(ENTRY_POINT, 5, main, *text("main"), group, lane)
        m.head += instruction(EXECUTION_MODE, main, 17, self.lanes, 1, 1)
        for (_, mode), bits in kept:
            m.head += instruction(EXECUTION_MODE, main, mode, bits)
        return Binary(m.words(), self.groups, self.lanes)

    def _capabilities(self) -> list[int]:
        known = self.m._known
        return [1, *([11] if any(k[:2] == (21, 64) for k in known) else []), *([10] if (22, 64) in known else [])]

    def _buffer(self, k: int, q: L.Param) -> Place:
        atomic = q.name in self.p.atomic
        cell = uint32 if atomic and q.dtype == float32 else q.dtype
        pointer = self.m.variable(STORAGE_BUFFER, self.m.buffer(cell))
        self.m.decorate(pointer, 34, 0)
        self.m.decorate(pointer, 33, k)
        return Place(pointer, cell, STORAGE_BUFFER, "buffer")

    def _builtin(self, number: int, width: int) -> int:
        t = self.m.type(uint32)
        pointer = self.m.variable(INPUT, self.m.vector(t, width) if width > 1 else t)
        self.m.decorate(pointer, 11, number)
        return pointer

    # Functions

    def _helper(self, h: Helper) -> None:
        m = self.m
        e = Emitter(m, self.glsl, self.functions, self.group)
        kinds = [m.type(v.dtype) for v in h.params]
        result = m.type(h.result.dtype)
        ids = [m.id() for _ in h.params]
        e.values.update((v.value, i) for v, i in zip(h.params, ids, strict=True))
        scope = _Scope(self, e)
        scope.block(h.body)
        e.do(_RETURN_VALUE, e.value(h.result))
        params = [w for t, i in zip(kinds, ids, strict=True) for w in instruction(55, t, i)]
        self.functions[h.name] = self._wrap(scope, result, m.function(result, kinds), params)

    def _main(self, buffers: dict[str, Place], lane: int) -> int:
        m = self.m
        e = Emitter(m, self.glsl, self.functions, self.group)
        e.places.update(buffers)
        x = e.coordinate(0)
        if self.groups[1] > 1:
            x = e.put(128, uint32, x, e.put(132, uint32, e.coordinate(1), m.constant(self.groups[0], uint32)))
        scope = _Scope(self, e)
        scope.flat, scope.lane = x, e.put(61, uint32, lane)
        scope.block(self.p.kernel.body)
        e.do(_RETURN)
        return self._wrap(scope, m.void(), m.function(m.void(), []), [])

    def _wrap(self, scope: _Scope, result: int, kind: int, params: list[int]) -> int:
        """Function header, its variables, and its body."""
        out, label = self.m.id(), self.m.id()
        self.m.functions += [*instruction(54, result, out, 0, kind), *params, *instruction(_LABEL, label),
                             *scope.variables, *scope.e.body, *instruction(_END)]
        return out


class _Scope:
    """Statements of one function."""

    def __init__(self, printer: _Printer, e: Emitter) -> None:
        self.k, self.e, self.m = printer, e, printer.m
        self.variables: list[int] = []
        self.flat = self.lane = 0

    def block(self, body: tuple[Stmt, ...]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        e = self.e
        match s:
            case L.Let(name=n, value=v):
                e.values[n] = e.value(v)
            case L.Register(name=n, init=v):
                x = e.value(v)
                e.values.pop(n, None)
                e.places[n] = self.local(v.dtype)
                e.do(62, e.places[n].pointer, x)
            case L.Assign(name=n, value=v):
                e.do(62, e.places[n].pointer, e.value(v))
            case L.Array():
                self.array(s)
            case L.Store(buffer=b, index=i, value=v):
                self.store(b, i, v)
            case L.Atomic():
                self.atomic(s)
            case L.For():
                self.loop_over(s)
            case L.If(cond=c, then=a, orelse=b):
                self.branch(e.value(c), lambda: self.block(a), (lambda: self.block(b)) if b else None)
            case L.Loop(cond=c, body=inner):
                self.loop(lambda: e.value(c), lambda: self.block(inner), lambda: None)
            case L.Barrier():
                memory = 0x108 | (0x40 if self.k.fence else 0)
                two = self.m.constant(2, uint32)
                e.do(224, two, two, self.m.constant(memory, uint32))
            case _:
                raise CompileError(f"a {type(s).__name__} statement has no SPIR-V",
                                   why="it is for cores with vector units", do="schedule for workgroups")

    def local(self, d: DType, size: int = 0) -> Place:
        """A variable of the function: one register, or an array."""
        t = self.m.type(d)
        pointee = self.m.array(t, size) if size else t
        pointer = self.m.id()
        self.variables += instruction(59, self.m.pointer(FUNCTION, pointee), pointer, FUNCTION)
        return Place(pointer, d, FUNCTION, "array" if size else "register")

    def array(self, s: L.Array) -> None:
        if s.space == "shared":
            pointer = self.m.variable(WORKGROUP, self.m.array(self.m.type(s.dtype), s.size))
            self.e.places[s.name] = Place(pointer, s.dtype, WORKGROUP, "array")
        else:
            self.e.places[s.name] = self.local(s.dtype, s.size)

    def store(self, buffer: str, index: Expr, value: Expr) -> None:
        e, place = self.e, self.e.places[buffer]
        x = e.value(value)
        if place.dtype != value.dtype:
            x = e.put(124, place.dtype, x)
        e.do(62, e.address(buffer, e.value(index)), x)

    # Control flow

    def label(self, i: int) -> None:
        self.e.do(_LABEL, i)

    def branch(self, cond: int, then: object, orelse: object = None) -> None:
        yes, no, merge = (self.m.id() for _ in range(3))
        self.e.do(247, merge, 0)
        self.e.do(_BRANCH_IF, cond, yes, no if orelse else merge)
        self.label(yes)
        then()  # type: ignore[operator]
        self.e.do(_BRANCH, merge)
        if orelse:
            self.label(no)
            orelse()  # type: ignore[operator]
            self.e.do(_BRANCH, merge)
        self.label(merge)

    def loop(self, cond: object, body: object, step: object) -> None:
        head, test, inside, onward, merge = (self.m.id() for _ in range(5))
        e = self.e
        e.do(_BRANCH, head)
        self.label(head)
        e.do(246, merge, onward, 0)
        e.do(_BRANCH, test)
        self.label(test)
        e.do(_BRANCH_IF, cond(), inside, merge)  # type: ignore[operator]
        self.label(inside)
        body()  # type: ignore[operator]
        e.do(_BRANCH, onward)
        self.label(onward)
        step()  # type: ignore[operator]
        e.do(_BRANCH, head)
        self.label(merge)

    def loop_over(self, s: L.For) -> None:
        e, d = self.e, s.start.dtype
        if s.kind == L.GRID:
            self.grid(s)
            return
        if s.kind == L.BLOCK:
            e.values[s.var] = e.cast(self.lane, uint32, d)
            if int(s.stop.value) == self.k.lanes:
                self.block(s.body)
            else:
                inside = e.put(176, bool_, self.lane, self.m.constant(int(s.stop.value), uint32))
                self.branch(inside, lambda: self.block(s.body))
            return
        stop = e.value(s.stop)
        place = self.local(d)
        e.do(62, place.pointer, e.value(s.start))

        def cond() -> int:
            return e.put(177 if d.kind == "i" else 176, bool_, e.put(61, d, place.pointer), stop)

        def body() -> None:
            e.values[s.var] = e.put(61, d, place.pointer)
            self.block(s.body)

        def step() -> None:
            e.do(62, place.pointer, e.put(128, d, e.put(61, d, place.pointer), self.m.constant(s.step, d)))

        self.loop(cond, body, step)

    def grid(self, s: L.For) -> None:
        k, e, d = self.k, self.e, s.start.dtype
        outermost = not k.left
        if outermost:
            k.left = prod(k.grid)
        total, extent = k.left, int(s.stop.value)
        k.left //= extent
        at = self.flat if k.left == 1 else e.put(134, uint32, self.flat, self.m.constant(k.left, uint32))
        if not outermost:
            at = e.put(137, uint32, at, self.m.constant(extent, uint32))
        e.values[s.var] = e.cast(at, uint32, d)
        if outermost and k.groups[0] * k.groups[1] != total:
            inside = e.put(176, bool_, self.flat, self.m.constant(total, uint32))
            self.branch(inside, lambda: self.block(s.body))
        else:
            self.block(s.body)

    # Atomics

    def atomic(self, s: L.Atomic) -> None:
        e, place = self.e, self.e.places[s.buffer]
        address, x = e.address(s.buffer, e.value(s.index)), e.value(s.value)
        scope, none = self.m.constant(1, uint32), self.m.constant(0, uint32)
        if s.value.dtype in (int32, uint32):
            e.put(_ATOMIC[s.kind, s.value.dtype.kind], place.dtype, address, scope, none, x)
            return
        if s.value.dtype != float32:
            raise CompileError(f"an atomic {s.kind} on {s.value.dtype.name} has no SPIR-V here",
                               why="the module uses atomics of 32 bits", do="use float32, or another device")
        self.swap_loop(s.kind, address, x, scope, none)

    def swap_loop(self, kind: str, address: int, x: int, scope: int, none: int) -> None:
        """A float update by compare-and-swap of its bits; NaN, once there, stays."""
        e = self.e
        again = self.local(bool_)
        e.do(62, again.pointer, self.m.constant(True, bool_))

        def body() -> None:
            old_bits = e.put(61, uint32, address)
            old = e.put(124, float32, old_bits)
            if kind == "add":
                new = e.float_op(129, float32, [old, x])
            else:
                first = e.put(184 if kind == "min" else 186, bool_, old, x)
                keep = e.put(166, bool_, first, e.is_nan(old, float32))
                new = e.put(169, float32, keep, old, x)
            found = e.put(230, uint32, address, scope, none, none, e.put(124, uint32, new), old_bits)
            e.do(62, again.pointer, e.put(171, bool_, found, old_bits))

        self.loop(lambda: e.put(61, bool_, again.pointer), body, lambda: None)


def _lanes(body: tuple[Stmt, ...]) -> int:
    """Lanes of a workgroup: the longest block loop."""
    most = 1
    for s in body:
        if isinstance(s, L.For):
            most = max(most, int(s.stop.value) if s.kind == L.BLOCK else _lanes(s.body))
    return most


__all__ = ["Binary", "render_kernel"]

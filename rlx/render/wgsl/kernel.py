"""Kernels as WGSL: bindings, workgroup memory, the entry point, and statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

from rlx.core.dtype import DType, float32, int32, uint32
from rlx.core.errors import CompileError
from rlx.ir import loop as L
from rlx.ir.loop import Stmt
from rlx.render.commands import grid_of
from rlx.render.portable import Helper, Portable
from rlx.render.wgsl.expression import Writer, type_name
from rlx.render.wgsl.guard import Guard


@dataclass(frozen=True, slots=True)
class Shader:
    """The text of a compute shader with entry point ``main``, and the workgroups that cover its grid."""

    text: str
    groups: tuple[int, int, int]
    workgroup: int


def render_kernel(p: Portable) -> Shader:
    """One shader; binding k is parameter k."""
    return _Printer(p).shader()


class _Printer:
    def __init__(self, p: Portable) -> None:
        self.p = p
        self.grid = p.kernel.grid()
        self.groups = grid_of(self.grid)
        self.lanes = _lanes(p.kernel.body)
        self.guard = Guard()
        self.loads: dict[str, Callable[[str], str]] = {}
        self.cells: dict[str, DType] = {}
        self.writer = Writer(self.loads, self.guard)
        self.shared: list[str] = []
        self.lines: list[str] = []
        self.fence = any("w" in q.access for q in p.kernel.params)
        self.left = 0

    def shader(self) -> Shader:
        """The whole text."""
        bindings = [self._binding(k, q) for k, q in enumerate(self.p.kernel.params)]
        helpers = [self._helper(h) for h in self.p.helpers]
        self.guard.lets.clear()
        self._block(self.p.kernel.body, 1)
        body = "\n".join(self.lines)
        text = "\n".join([
            *bindings, *self.shared, "var<private> rlx_zero: u32;", *helpers,
            f"@compute @workgroup_size({self.lanes})",
            "fn main(@builtin(workgroup_id) rlx_group: vec3<u32>, @builtin(local_invocation_index) rlx_lane: u32) {",
            # One layer of workgroups is launched, which no compiler knows. (It knows the bounds of an array's length.)
            "  rlx_zero = rlx_group.z;",
            body, "}", ""])
        return Shader(text, self.groups, self.lanes)

    # Declarations

    def _binding(self, k: int, q: L.Param) -> str:
        atomic = q.name in self.p.atomic
        cell = q.dtype if not atomic or q.dtype in (int32, uint32) else uint32
        self.cells[q.name] = q.dtype
        self.loads[q.name] = partial(_load_atomic, q.name, q.dtype) if atomic else partial(_load, q.name)
        access = "read" if q.access == "r" else "read_write"
        inner = f"atomic<{type_name(cell)}>" if atomic else type_name(cell)
        return f"@group(0) @binding({k}) var<storage, {access}> {q.name}: array<{inner}>;"

    def _helper(self, h: Helper) -> str:
        self.guard.lets.clear()
        outer, self.lines = self.lines, []
        self._block(h.body, 1)
        body, self.lines = self.lines, outer
        params = ", ".join(f"{v.value}: {type_name(v.dtype)}" for v in h.params)
        result = self.writer.text(h.result)
        head = f"fn {h.name}({params}) -> {type_name(h.result.dtype)} {{"
        return "\n".join([head, *body, f"  return {result};", "}"])

    # Statements

    def _put(self, depth: int, line: str) -> None:
        self.lines.append("  " * depth + line)

    def _block(self, body: tuple[Stmt, ...], depth: int) -> None:
        for s in body:
            self._statement(s, depth)

    def _statement(self, s: Stmt, depth: int) -> None:
        t = self.writer.text
        match s:
            case L.Let(name=n, value=e):
                self._put(depth, f"let {n} = {t(e)};")
                self.guard.lets[n] = e
            case L.Register(name=n, init=e):
                self._put(depth, f"var {n}: {type_name(e.dtype)} = {t(e)};")
            case L.Assign(name=n, value=e):
                self._put(depth, f"{n} = {t(e)};")
            case L.Array():
                self._array(s, depth)
            case L.Store(buffer=b, index=i, value=e):
                self._put(depth, self._store(b, t(i), t(e)))
            case L.Atomic():
                self._atomic(s, depth)
            case L.For():
                self._for(s, depth)
            case L.If(cond=c, then=a, orelse=b):
                self._put(depth, f"if ({t(c)}) {{")
                self._block(a, depth + 1)
                if b:
                    self._put(depth, "} else {")
                    self._block(b, depth + 1)
                self._put(depth, "}")
            case L.Loop(cond=c, body=inner):
                self._put(depth, f"while ({t(c)}) {{")
                self._block(inner, depth + 1)
                self._put(depth, "}")
            case L.Barrier():
                self._put(depth, "workgroupBarrier();" + (" storageBarrier();" if self.fence else ""))

    def _array(self, s: L.Array, depth: int) -> None:
        self.cells[s.name] = s.dtype
        self.loads[s.name] = partial(_load, s.name)
        declared = f"{s.name}: array<{type_name(s.dtype)}, {s.size}>;"
        if s.space == "shared":
            self.shared.append(f"var<workgroup> {declared}")
        else:
            self._put(depth, f"var {declared}")

    def _store(self, buffer: str, index: str, value: str) -> str:
        if buffer in self.p.atomic:
            bits = value if self.cells[buffer] in (int32, uint32) else f"bitcast<u32>({value})"
            return f"atomicStore(&{buffer}[{index}], {bits});"
        return f"{buffer}[{index}] = {value};"

    def _atomic(self, s: L.Atomic, depth: int) -> None:
        index, value, d = self.writer.text(s.index), self.writer.text(s.value), self.cells[s.buffer]
        if d in (int32, uint32):
            name = {"add": "Add", "min": "Min", "max": "Max", "and": "And", "or": "Or"}[s.kind]
            self._put(depth, f"atomic{name}(&{s.buffer}[{index}], {value});")
            return
        if d != float32:
            raise CompileError(f"an atomic {s.kind} on {d.name} has no WGSL", why="the language's atomics have 32 bits",
                               do="use float32, or another device")
        self._swap_loop(s, index, value, depth)

    def _swap_loop(self, s: L.Atomic, index: str, value: str, depth: int) -> None:
        """A float update by compare-and-swap of its bits; NaN, once there, stays."""
        old = "bitcast<f32>(rlx_old)"
        nan = f"((bitcast<u32>({old}) & 0x7fffffffu) > 0x7f800000u)"
        new = {"add": f"{old} + rlx_value", "min": f"select(rlx_value, {old}, {old} < rlx_value || {nan})",
               "max": f"select(rlx_value, {old}, {old} > rlx_value || {nan})"}[s.kind]
        for k, line in enumerate((
                "{", f"let rlx_value = {value};", "loop {", f"let rlx_old = atomicLoad(&{s.buffer}[{index}]);",
                f"let rlx_swap = atomicCompareExchangeWeak(&{s.buffer}[{index}], rlx_old, bitcast<u32>({new}));",
                "if (rlx_swap.exchanged) { break; }", "}", "}")):
            self._put(depth + (0, 1, 1, 2, 2, 2, 1, 0)[k], line)

    def _for(self, s: L.For, depth: int) -> None:
        t, d = self.writer.text, type_name(s.start.dtype)
        if s.kind == L.GRID:
            self._grid(s, depth)
        elif s.kind == L.BLOCK:
            self._put(depth, f"let {s.var} = {d}(rlx_lane);")
            if int(s.stop.value) == self.lanes:
                self._block(s.body, depth)
            else:
                self._put(depth, f"if ({s.var} < {t(s.stop)}) {{")
                self._block(s.body, depth + 1)
                self._put(depth, "}")
        else:
            stop = self._fixed(s, depth)
            step = t(L.const(s.step, s.start.dtype))
            self._put(depth, f"for (var {s.var}: {d} = {t(s.start)}; {s.var} < {stop}; {s.var} += {step}) {{")
            self._block(s.body, depth + 1)
            self._put(depth, "}")

    def _fixed(self, s: L.For, depth: int) -> str:
        """The end of a loop, evaluated once."""
        text = self.writer.text(s.stop)
        if s.stop.op in ("const", "var"):
            return text
        self._put(depth, f"let {s.var}_end = {text};")
        return f"{s.var}_end"

    def _grid(self, s: L.For, depth: int) -> None:
        d = type_name(s.start.dtype)
        outermost = not self.left
        if outermost:
            self.left = prod(self.grid)
            flat = "rlx_group.x" if self.groups[1] == 1 else f"(rlx_group.x + rlx_group.y * {self.groups[0]}u)"
            self._put(depth, f"let rlx_flat = {flat};")
            if self.groups[0] * self.groups[1] != self.left:
                self._put(depth, f"if (rlx_flat >= {self.left}u) {{ return; }}")
        self.left //= int(s.stop.value)
        at = "rlx_flat" if self.left == 1 else f"(rlx_flat / {self.left}u)"
        if not outermost:
            at = f"({at} % {int(s.stop.value)}u)"
        self._put(depth, f"let {s.var} = {d}({at});")
        self._block(s.body, depth)


def _lanes(body: tuple[Stmt, ...]) -> int:
    """Lanes of a workgroup: the longest block loop."""
    most = 1
    for s in body:
        if isinstance(s, L.For):
            if s.kind == L.BLOCK:
                most = max(most, int(s.stop.value))
            else:
                most = max(most, _lanes(s.body))
    return most


def _load(name: str, index: str) -> str:
    return f"{name}[{index}]"


def _load_atomic(name: str, dtype: DType, index: str) -> str:
    load = f"atomicLoad(&{name}[{index}])"
    return load if dtype in (int32, uint32) else f"bitcast<{type_name(dtype)}>({load})"


__all__ = ["Shader", "render_kernel"]

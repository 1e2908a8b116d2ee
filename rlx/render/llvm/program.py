"""A whole LIR program as one LLVM module: every step is control flow inside one native function.

``void @rlx_main(ptr %io, ptr %arena)``: ``%io`` points to an array of pointers, inputs by slot, then
outputs by slot, then constants in order; ``%arena`` is the memory of the temps, 64-byte aligned. A kernel
whose grid has one point is called directly; a larger one goes through ``rlx_parallel_for(kernel, buffers,
points)``, which the device provides. A native call is ``void @symbol(ptr %bufs)`` over the table of its
buffers, then its scratch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rlx.core.errors import VerifyError
from rlx.ir.loop import Branch, Buffer, Copy, Kernel, Launch, Native, Program, Repeat, Step, While
from rlx.render.llvm.helpers import Helpers
from rlx.render.llvm.kernel import render_kernel
from rlx.render.llvm.types import symbol

#: The text of one kernel: ``define internal void @<symbol(kernel)>(ptr %bufs, i64 %g)``.
KernelRenderer = Callable[[Kernel], str]
#: What a claim emits for one use: the function's symbol, and the module text that defines it.
NativeLowering = Callable[[Native], tuple[str, str]]
_DECLARE = re.compile(r"^declare [^@\n]*@([\w.$-]+)\(")


@dataclass(frozen=True, slots=True)
class Slots:
    """Where each buffer's pointer comes from: ``table`` gives places in the io table; ``inputs`` and
    ``outputs`` count.
    """

    table: dict[str, int]
    inputs: int
    outputs: int
    consts: tuple[Buffer, ...]


def slots(program: Program) -> Slots:
    """The layout of the io table: inputs and outputs at their slot numbers, then the constants in order."""
    of = {role: [b for b in program.buffers if b.role == role] for role in ("input", "output", "const")}
    inputs, outputs = (max((b.slot + 1 for b in of[role]), default=0) for role in ("input", "output"))
    table = {b.name: b.slot for b in of["input"]}
    table.update({b.name: inputs + b.slot for b in of["output"]})
    table.update({b.name: inputs + outputs + i for i, b in enumerate(of["const"])})
    return Slots(table, inputs, outputs, tuple(of["const"]))


def render_steps(program: Program, natives: Mapping[str, NativeLowering], symbol: Callable[[str], str],
                 kernels: KernelRenderer, shared: Callable[[], str]) -> str:
    """The module text, given how kernels are rendered and named, and what they share (read after the last
    one).

    Raises VerifyError for a step over an unknown buffer, a copy between different sizes, or two kernels of
    one name.
    """
    writer = _Writer(program, natives, symbol)
    writer.steps(program.steps)
    texts = [kernels(k) for k in writer.kernels.values()]
    parts = [writer.function(), *texts, *writer.natives.values(), shared()]
    return _declare_once("\n".join(parts), writer.declared)


def render_program(program: Program, natives: Mapping[str, NativeLowering], *, fast: bool = False) -> str:
    """The module text of a program; ``natives`` are the lowerings of the claims it calls, by claim name.

    ``fast`` takes the cheaper expansions of transcendental functions.
    """
    helpers = Helpers(fast=fast)
    return render_steps(program, natives, symbol, lambda k: render_kernel(k, helpers), helpers.text)


def _declare_once(text: str, first: list[str]) -> str:
    """The text with each outside function declared once; its parts were written without knowing of each
    other.
    """
    seen: dict[str, str] = {}
    lines: list[str] = []
    for line in [*first, *text.split("\n")]:
        match = _DECLARE.match(line)
        if match is None:
            lines.append(line)
        else:
            seen.setdefault(match.group(1), line)
    return "\n".join([*(seen[n] for n in sorted(seen)), "", *lines]).rstrip() + "\n"


@dataclass(slots=True)
class _Writer:
    """Collects the entry block (pointers and tables) and the body of ``rlx_main``."""

    program: Program
    lowerings: Mapping[str, NativeLowering]
    symbol: Callable[[str], str]
    entry: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    natives: dict[str, str] = field(default_factory=dict)
    declared: list[str] = field(default_factory=list)
    _pointers: dict[str, str] = field(default_factory=dict)
    _tables: dict[tuple[str, ...], str] = field(default_factory=dict)
    _buffers: dict[str, Buffer] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        self._buffers = {b.name: b for b in self.program.buffers}
        self._places = slots(self.program).table

    def function(self) -> str:
        """The text of ``rlx_main``."""
        return "\n".join(["define void @rlx_main(ptr %io, ptr %arena) {", "entry:", *self.entry,
                          "  br label %start", "start:", *self.body, "  ret void", "}", ""])

    def steps(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            if isinstance(step, Launch):
                self._launch(step)
            elif isinstance(step, Native):
                self._native(step)
            elif isinstance(step, Copy):
                self._copy(step)
            elif isinstance(step, While):
                self._while(step)
            elif isinstance(step, Branch):
                self._branch(step)
            else:
                self._repeat(step)

    def _launch(self, step: Launch) -> None:
        kernel = step.kernel
        name = self.symbol(kernel.name)
        if self.kernels.setdefault(name, kernel) != kernel:
            raise VerifyError(f"two kernels are named {kernel.name!r}", why="a kernel's name is its symbol",
                              do="give each distinct kernel its own name")
        self._check_binding(step)
        points = math.prod(kernel.grid())
        if points == 1:
            self._do(f"call void @{name}(ptr {self._table(step.buffers)}, i64 0)")
        elif points > 1:
            self._declare("declare void @rlx_parallel_for(ptr, ptr, i64)")
            table = self._table(step.buffers)
            self._do(f"call void @rlx_parallel_for(ptr @{name}, ptr {table}, i64 {points})")

    def _check_binding(self, step: Launch) -> None:
        params = step.kernel.params
        given = [self._buffer(b) for b in step.buffers]
        for p, b in zip(params, given):
            if p.dtype != b.dtype or p.size > b.size:
                raise VerifyError(f"buffer {b.name!r} does not fit {p.name!r} of kernel {step.kernel.name!r}",
                                  why=f"{b.dtype.short}[{b.size}] is bound to {p.dtype.short}[{p.size}]",
                                  do="bind a buffer of that dtype and at least that size")
        if len(params) != len(given):
            raise VerifyError(f"kernel {step.kernel.name!r} takes {len(params)} buffers",
                              why=f"{len(given)} are bound", do="bind one buffer to each parameter")

    def _native(self, step: Native) -> None:
        if step.claim not in self.lowerings:
            raise VerifyError(f"no claim {step.claim!r} on this device", why="a native step names a claim",
                              do=f"use one of {', '.join(sorted(self.lowerings)) or '(none)'}")
        name, text = self.lowerings[step.claim](step)
        self.natives.setdefault(name, text)
        self._do(f"call void @{name}(ptr {self._table(step.buffers + step.scratch)})")

    def _copy(self, step: Copy) -> None:
        dst, src = self._buffer(step.dst), self._buffer(step.src)
        if dst.nbytes != src.nbytes:
            raise VerifyError(f"copy of {src.name!r} to {dst.name!r}: sizes differ",
                              why=f"{src.nbytes} bytes to {dst.nbytes}",
                              do="copy between buffers of one size")
        self._declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        pointers = f"ptr {self._pointer(dst.name)}, ptr {self._pointer(src.name)}"
        self._do(f"call void @llvm.memcpy.p0.p0.i64({pointers}, i64 {dst.nbytes}, i1 false)")

    def _while(self, step: While) -> None:
        head, body, done = self._label("head"), self._label("body"), self._label("done")
        self._do(f"br label %{head}")
        self._start(head)
        self.steps(step.head)
        self._do(f"br i1 {self._truth(step.pred)}, label %{body}, label %{done}")
        self._start(body)
        self.steps(step.body)
        self._do(f"br label %{head}")
        self._start(done)

    def _branch(self, step: Branch) -> None:
        then, orelse, done = self._label("then"), self._label("else"), self._label("done")
        self._do(f"br i1 {self._truth(step.pred)}, label %{then}, label %{orelse}")
        for label, steps in ((then, step.then), (orelse, step.orelse)):
            self._start(label)
            self.steps(steps)
            self._do(f"br label %{done}")
        self._start(done)

    def _repeat(self, step: Repeat) -> None:
        test, body, done = self._label("test"), self._label("body"), self._label("done")
        at = f"%{self._label('i')}"
        self.entry.append(f"  {at} = alloca i64")
        count = str(step.count) if isinstance(step.count, int) else self._integer(step.count)
        self._do(f"store i64 0, ptr {at}")
        self._do(f"br label %{test}")
        self._start(test)
        now = self._let(f"load i64, ptr {at}")
        self._do(f"br i1 {self._let(f'icmp slt i64 {now}, {count}')}, label %{body}, label %{done}")
        self._start(body)
        self._set_counter(step.counter, now)
        self.steps(step.body)
        self._do(f"store i64 {self._let(f'add i64 {now}, 1')}, ptr {at}")
        self._do(f"br label %{test}")
        self._start(done)

    def _set_counter(self, name: str, value: str) -> None:
        bits = self._integer_bits(name)
        if bits < 64:
            value = self._let(f"trunc i64 {value} to i{bits}")
        self._do(f"store i{bits} {value}, ptr {self._pointer(name)}")

    def _integer(self, name: str) -> str:
        """The first element of an integer buffer as i64."""
        bits = self._integer_bits(name)
        value = self._let(f"load i{bits}, ptr {self._pointer(name)}")
        if bits == 64:
            return value
        widen = "zext" if self._buffer(name).dtype.kind == "u" else "sext"
        return self._let(f"{widen} i{bits} {value} to i64")

    def _integer_bits(self, name: str) -> int:
        dtype = self._buffer(name).dtype
        if not dtype.is_integer:
            raise VerifyError(f"{name!r} counts a loop but holds {dtype.short}",
                              do="count with an integer buffer")
        return dtype.bits

    def _truth(self, name: str) -> str:
        """The first element of a bool buffer as i1."""
        if self._buffer(name).dtype.kind != "b":
            raise VerifyError(f"{name!r} decides a branch but holds {self._buffer(name).dtype.short}",
                              do="branch on a bool buffer")
        return self._let(f"icmp ne i8 {self._let(f'load i8, ptr {self._pointer(name)}')}, 0")

    def _buffer(self, name: str) -> Buffer:
        if name not in self._buffers:
            raise VerifyError(f"program {self.program.name!r} has no buffer {name!r}",
                              do="declare it in buffers")
        return self._buffers[name]

    def _pointer(self, name: str) -> str:
        """The buffer's pointer, computed once in the entry block."""
        if name not in self._pointers:
            buffer, new = self._buffer(name), f"%p{len(self._pointers)}"
            if buffer.role == "temp":
                self.entry.append(f"  {new} = getelementptr i8, ptr %arena, i64 {buffer.offset}")
            else:
                self.entry.append(f"  {new}.at = getelementptr ptr, ptr %io, i64 {self._places[name]}")
                self.entry.append(f"  {new} = load ptr, ptr {new}.at")
            self._pointers[name] = new
        return self._pointers[name]

    def _table(self, names: tuple[str, ...]) -> str:
        """A table of these buffers' pointers on the stack, filled once in the entry block."""
        if names not in self._tables:
            pointers = [self._pointer(n) for n in names]
            new = f"%t{len(self._tables)}"
            self.entry.append(f"  {new} = alloca [{len(names)} x ptr]")
            for i, pointer in enumerate(pointers):
                self.entry.append(f"  {new}.{i} = getelementptr ptr, ptr {new}, i64 {i}")
                self.entry.append(f"  store ptr {pointer}, ptr {new}.{i}")
            self._tables[names] = new
        return self._tables[names]

    def _declare(self, line: str) -> None:
        if line not in self.declared:
            self.declared.append(line)

    def _label(self, stem: str) -> str:
        self._count += 1
        return f"{stem}.{self._count}"

    def _let(self, text: str) -> str:
        name = f"%{self._label('v')}"
        self.body.append(f"  {name} = {text}")
        return name

    def _do(self, text: str) -> None:
        self.body.append(f"  {text}")

    def _start(self, label: str) -> None:
        self.body.append(f"{label}:")


__all__ = ["KernelRenderer", "NativeLowering", "Slots", "render_program", "render_steps", "slots"]

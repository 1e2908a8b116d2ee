"""Verify programs: buffers, what each step binds, and that nothing is read before it is written."""

from __future__ import annotations

from math import prod
from typing import NoReturn

from rlx.core.dtype import bool_, int64
from rlx.core.errors import VerifyError
from rlx.ir import loop as L
from rlx.ir.text.loop_print import step_text
from rlx.ir.verify.kernel import check_name, verify_kernel
from rlx.ir.verify.prims import Broken, need

ROLES = ("input", "output", "const", "temp")


def verify_program(program: L.Program) -> L.Program:
    """The program and its kernels, if they are well-formed. Raises VerifyError with the step that is not.

    Offsets of temps are checked once they are placed (``arena`` is not 0).
    """
    _Checker(program).run()
    return program


class _Checker:
    def __init__(self, program: L.Program) -> None:
        self.program = program
        self.buffers: dict[str, L.Buffer] = {}
        self.kernels: dict[str, L.Kernel] = {}

    def run(self) -> None:
        try:
            check_name(self.program.name)
            self.declared()
        except Broken as e:
            self.fail(f"program {self.program.name}", str(e))
        given = {b.name for b in self.buffers.values() if b.role in ("input", "const")}
        after = self.steps(self.program.steps, given)
        missing = [b.name for b in self.buffers.values() if b.role == "output" and b.name not in after and b.size]
        if missing:
            self.fail(f"program {self.program.name}", f"nothing writes the output {missing[0]}")

    def fail(self, what: str, why: str) -> NoReturn:
        raise VerifyError(f"LIR: {what}", where=f"program {self.program.name}", why=why,
                          do="a pass or hand-written IR broke the grammar of rlx.ir.loop")

    def declared(self) -> None:
        for b in self.program.buffers:
            check_name(b.name)
            need(b.name not in self.buffers, f"two buffers are named {b.name}")
            need(b.role in ROLES, f"buffer {b.name} has role {b.role!r}")
            need(type(b.size) is int and b.size >= 0, f"buffer {b.name} has size {b.size}")
            need(b.role == "temp" or b.offset == 0, f"buffer {b.name} is no temp, yet has an offset")
            if b.role == "temp" and self.program.arena:
                need(b.offset >= 0 and b.offset + b.nbytes <= self.program.arena,
                     f"temp {b.name} ends at byte {b.offset + b.nbytes} of an arena of {self.program.arena}")
                need(b.offset % b.dtype.itemsize == 0, f"temp {b.name} is not aligned to its elements")
            self.buffers[b.name] = b
        for role in ("input", "output"):
            slots = sorted(b.slot for b in self.program.buffers if b.role == role)
            need(slots == list(range(len(slots))), f"{role} slots are {slots}")

    # Steps; each takes the buffers written so far and returns those written after it

    def steps(self, steps: tuple[L.Step, ...], known: set[str]) -> set[str]:
        known = set(known)
        for s in steps:
            try:
                known = self.step(s, known)
            except Broken as e:
                self.fail(step_text(s), str(e))
        return known

    def step(self, s: L.Step, known: set[str]) -> set[str]:
        match s:
            case L.Launch():
                return known | self.launch(s, known)
            case L.Native():
                return known | self.native(s, known)
            case L.Copy():
                src, dst = self.buffer(s.src), self.buffer(s.dst)
                need(src.dtype == dst.dtype and src.size == dst.size,
                     f"it copies {src.dtype.short}[{src.size}] to {dst.dtype.short}[{dst.size}]")
                self.readable(s.src, known)
                self.writable(s.dst)
                return known | {s.dst}
            case L.While():
                head = self.steps(s.head, known)
                self.flag(s.pred, head)
                self.steps(s.body, head)
                return head
            case L.Branch():
                self.flag(s.pred, known)
                return self.steps(s.then, known) & self.steps(s.orelse, known)
            case L.Repeat():
                return self.repeat(s, known)

    def repeat(self, s: L.Repeat, known: set[str]) -> set[str]:
        if isinstance(s.count, str):
            b = self.buffer(s.count)
            need(b.dtype == int64 and b.size >= 1, f"the count {s.count} is {b.dtype.short}[{b.size}], not an i64")
            self.readable(s.count, known)
        else:
            need(s.count >= 0, f"the count is {s.count}")
        b = self.buffer(s.counter)
        need(b.dtype == int64 and b.size == 1, f"the counter {s.counter} is {b.dtype.short}[{b.size}], not one i64")
        self.writable(s.counter)
        inside = self.steps(s.body, known | {s.counter})
        return inside if isinstance(s.count, int) and s.count > 0 else known

    def launch(self, s: L.Launch, known: set[str]) -> set[str]:
        k = s.kernel
        if k.name not in self.kernels:
            verify_kernel(k)
            self.kernels[k.name] = k
        need(self.kernels[k.name] is k or self.kernels[k.name] == k, f"two kernels are named {k.name}")
        need(len(s.buffers) == len(k.params), f"it binds {len(s.buffers)} buffers to {len(k.params)} parameters")
        for name, p in zip(s.buffers, k.params, strict=True):
            b = self.buffer(name)
            need(b.dtype == p.dtype and b.size == p.size,
                 f"{p.name} is {p.dtype.short}[{p.size}], {name} is {b.dtype.short}[{b.size}]")
            if p.access == "r":
                self.readable(name, known)
            else:
                self.writable(name)
        return {n for n, p in zip(s.buffers, k.params, strict=True) if p.access != "r"}

    def native(self, s: L.Native, known: set[str]) -> set[str]:
        need(len(s.types) == len(s.buffers), f"it has {len(s.types)} types for {len(s.buffers)} buffers")
        need(0 <= s.inputs <= len(s.buffers), f"it reads {s.inputs} of {len(s.buffers)} buffers")
        for name, (dtype, shape) in zip(s.buffers, s.types, strict=True):
            b = self.buffer(name)
            need(b.dtype == dtype and b.size == prod(shape),
                 f"{name} is {b.dtype.short}[{b.size}], its type {dtype.short}{list(shape)}")
        for name in s.buffers[:s.inputs]:
            self.readable(name, known)
        for name in (*s.buffers[s.inputs:], *s.scratch):
            self.writable(name)
        return set(s.buffers[s.inputs:])

    # Buffers

    def buffer(self, name: str) -> L.Buffer:
        need(name in self.buffers, f"there is no buffer {name}")
        return self.buffers[name]

    def readable(self, name: str, known: set[str]) -> None:
        need(name in known or not self.buffer(name).size, f"{name} is read before anything writes it")

    def writable(self, name: str) -> None:
        role = self.buffer(name).role
        need(role in ("temp", "output"), f"it writes {name}, which is an {role}" if role == "input" else
             f"it writes {name}, which is {role}")

    def flag(self, name: str, known: set[str]) -> None:
        b = self.buffer(name)
        need(b.dtype == bool_ and b.size == 1, f"the predicate {name} is {b.dtype.short}[{b.size}], not one bool")
        self.readable(name, known)

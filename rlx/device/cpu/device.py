"""The cpu device: a program becomes one native function, called with a table of pointers."""

from __future__ import annotations

import ctypes
import hashlib
import math
import struct
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, final

import numpy as np

from rlx.core import flags
from rlx.core.caps import Caps
from rlx.core.dtype import DType
from rlx.core.errors import ShapeError, VerifyError
from rlx.device.base import Device, Executable, refuse_form
from rlx.device.cpu import caps, jit, native, storage, threads
from rlx.device.cpu.storage import Storage
from rlx.ir.claim import Claim
from rlx.ir.loop import Buffer, Contract, Copy, For, If, Launch, Loop, Program, Stmt
from rlx.render.llvm.program import Slots, render_program, slots

_ENTRY = "rlx_main"
_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)


def absent() -> str | None:
    """Why there is no cpu device here, or None."""
    return threads.absent() or jit.absent()


def open() -> Device:
    """The cpu device of this process."""
    return CpuDevice()


@final
class CpuDevice(Device):
    """Compiles through LLVM for this host's processor. Everything runs to its end before ``run`` returns."""

    def __init__(self) -> None:
        self.name = "cpu"
        self.dlpack = (1, 0)
        self.caps: Caps = caps.read()
        self.claims: Mapping[str, tuple[Claim, ...]] = native.claims()
        self._lower = {c.name: c.lower for found in self.claims.values() for c in found}

    def empty(self, dtype: DType, shape: Sequence[int]) -> Storage:
        """Uninitialised storage, 64-byte aligned."""
        return storage.empty(dtype, shape)

    def empty_together(self, types: Sequence[tuple[DType, int]]) -> list[Storage]:
        """Storages in one piece of memory, which the system maps in large pages where small pieces would not be."""
        return storage.together(types)

    def upload(self, array: np.ndarray[Any, Any]) -> Storage:
        """The array's own memory when it is contiguous, aligned and in native byte order; else a copy of it.

        A borrowed array must not change while the storage is in use: whoever cannot promise that copies
        first.
        """
        return storage.borrow(array)

    def download(self, storage_: Storage, dtype: DType, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """The content as an array over the same memory."""
        return storage.view(storage_, dtype, shape)

    def load(self, program: Program) -> Executable:
        """Compile the program, or find its object in the disk cache."""
        fast = flags.get("math") == "fast"
        threads.apply_flag()
        facts = f"{program!r} fast={fast} threads={threads.threads()} {_sources()}"
        library = jit.load_lazily(facts, lambda: render_program(program, self._lower, fast=fast), (_ENTRY,), _resolve)
        return CpuExecutable(library, slots(program), program)

    def load_text(self, text: str, program: Program) -> Executable:
        """Load a module that was rendered for the program."""
        threads.apply_flag()
        return CpuExecutable(jit.load(text, (_ENTRY,), _resolve), slots(program), program)

    def load_graph(self, graph: Any) -> Executable:
        """Refuses: this device loads programs."""
        refuse_form(self, "graph")

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def native_calls(self) -> Any:
        """Native calls of programs, where this interpreter can have them."""
        from rlx.device.cpu import entry
        return entry if entry.absent() is None else None

    def native_calls_absent(self) -> str:
        """Why programs are called from Python here; empty where they are not."""
        from rlx.device.cpu import entry
        return entry.absent() or ""


@final
class CpuExecutable(Executable):
    """One native function, its constants, and the size of its arena."""

    __slots__ = ("_call", "_inputs", "_keep", "_library", "_outputs", "_pack", "address", "arena", "consts", "name",
                 "quick")

    def __init__(self, library: jit.Library, layout: Slots, program: Program) -> None:
        self.name = program.name
        self._library = library
        #: What a native call needs: the function, its constants, and the bytes of its arena.
        self.address = library[_ENTRY]
        self._call = _PROTOTYPE(self.address)
        self._inputs, self._outputs = layout.inputs, layout.outputs
        self._keep = [_constant(b) for b in layout.consts]
        self.consts = tuple(s.address for s in self._keep)
        self._pack = struct.Struct(f"{layout.inputs + layout.outputs + len(self.consts)}P").pack
        self.arena = program.arena
        #: Whether it ends so soon that letting go of the interpreter's lock would cost more.
        self.quick = _quick(program)

    def run(self, inputs: Sequence[Storage], outputs: Sequence[Storage]) -> None:
        """Run to the end. Threads may run one executable at once: each has its own arena, each call its own
        table.
        """
        if len(inputs) != self._inputs or len(outputs) != self._outputs:
            raise ShapeError(f"program {self.name!r} takes {self._inputs} inputs and {self._outputs} outputs",
                             why=f"{len(inputs)} and {len(outputs)} were given",
                             do="give one storage for each slot")
        table = self._pack(*[s.address for s in inputs], *[s.address for s in outputs], *self.consts)
        self._call(table, _arena(self.arena) if self.arena else None)


#: Most bytes and most innermost statements of a program that keeps the interpreter's lock: about 20 us.
_QUICK_BYTES, _QUICK_WORK = 1 << 16, 20_000


def _quick(program: Program) -> bool:
    """Whether the program is small: little memory, no loop of unknown length, no library call."""
    if program.arena + sum(b.nbytes for b in program.buffers) > _QUICK_BYTES:
        return False
    work = 0.0
    for s in program.steps:
        if isinstance(s, Launch):
            work += _work(s.kernel.body)
        elif not isinstance(s, Copy):
            return False
    return work <= _QUICK_WORK


def _work(body: tuple[Stmt, ...]) -> float:
    """Statements that run, or infinity where nobody knows."""
    total = 0.0
    for s in body:
        if isinstance(s, For):
            known = s.start.op == s.stop.op == "const"
            total += (int(s.stop.value) - int(s.start.value)) / s.step * _work(s.body) if known else math.inf
        elif isinstance(s, If):
            total += max(_work(s.then), _work(s.orelse))
        elif isinstance(s, Contract):
            total += s.m * s.n * s.depth / 4
        else:
            total += math.inf if isinstance(s, Loop) else 1
    return total


@cache
def _sources() -> str:
    """A digest of the modules that turn a program into text: an object on disk is good while they are the same."""
    root = Path(__file__).parents[2]
    files = sorted(f for folder in ("render", "ir", "device/cpu") for f in (root / folder).rglob("*.py"))
    facts = [(str(f.relative_to(root)), s.st_size, s.st_mtime_ns) for f in files for s in (f.stat(),)]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


class _Arenas(threading.local):
    """Each thread's arena, as large as the largest program it has run; a run leaves nothing in it."""

    memory: Storage | None = None


_arenas = _Arenas()


def _arena(nbytes: int) -> int:
    """The address of at least that many bytes of this thread's own."""
    memory = _arenas.memory
    if memory is None or memory.array.nbytes < nbytes:
        memory = _arenas.memory = Storage(storage.aligned(np.dtype(np.uint8), (nbytes,)))
    return memory.address


def _constant(buffer: Buffer) -> Storage:
    """The constant's elements as the buffer's dtype, in memory that stays."""
    data = np.ascontiguousarray(buffer.data, buffer.dtype.numpy)
    if data.size != buffer.size:
        raise VerifyError(f"constant {buffer.name!r} has {data.size} elements for a buffer of {buffer.size}",
                          do="give as many elements as the buffer's size")
    return storage.borrow(data)


def _resolve(name: str) -> int | None:
    """The address of a function of the pool or of a claim's library."""
    found = threads.resolve(name)
    return native.resolve(name) if found is None else found


__all__ = ["CpuDevice", "CpuExecutable", "absent", "open"]

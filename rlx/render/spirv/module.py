"""A SPIR-V module under construction: sections, deduplicated types and constants, and the final words.

Numbers are those of the SPIR-V 1.3 specification, sections 3 and 2.4 (logical layout).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.core.dtype import DType, uint32

#: Magic number, version 1.3, generator 0.
_MAGIC, _VERSION = 0x07230203, 0x00010300
CAPABILITY, EXTENSION, EXT_INST_IMPORT, MEMORY_MODEL, ENTRY_POINT, EXECUTION_MODE = 17, 10, 11, 14, 15, 16
DECORATE, MEMBER_DECORATE = 71, 72
STORAGE_BUFFER, WORKGROUP, FUNCTION, INPUT = 12, 4, 7, 1


class Module:
    """Collects instructions by section."""

    def __init__(self) -> None:
        self.count = 0
        self.head: list[int] = []
        self.names: list[int] = []
        self.decorations: list[int] = []
        self.globals: list[int] = []
        self.functions: list[int] = []
        self._known: dict[tuple[Any, ...], int] = {}

    def id(self) -> int:
        """A new result id."""
        self.count += 1
        return self.count

    def words(self) -> bytes:
        """The finished module."""
        body = [*self.head, *self.decorations, *self.globals, *self.functions]
        return struct.pack(f"<{5 + len(body)}I", _MAGIC, _VERSION, 0, self.count + 1, 0, *body)

    def decorate(self, target: int, *words: int) -> None:
        self.decorations += instruction(DECORATE, target, *words)

    def declare(self, op: int, *words: int) -> int:
        """A type or constant without result type; equal ones are one."""
        key = (op, *words)
        if key not in self._known:
            self._known[key] = out = self.id()
            self.globals += instruction(op, out, *words)
        return self._known[key]

    # Types

    def void(self) -> int:
        return self.declare(19)

    def type(self, d: DType) -> int:
        """The type of a scalar."""
        if d.kind == "b":
            return self.declare(20)
        if d.is_float:
            return self.declare(22, d.bits)
        return self.declare(21, d.bits, int(d.kind == "i"))

    def pointer(self, storage: int, pointee: int) -> int:
        return self.declare(32, storage, pointee)

    def array(self, element: int, size: int) -> int:
        return self.declare(28, element, self.constant(size, uint32))

    def function(self, result: int, params: Sequence[int]) -> int:
        return self.declare(33, result, *params)

    def vector(self, element: int, n: int) -> int:
        return self.declare(23, element, n)

    def buffer(self, d: DType) -> int:
        """``struct { T data[]; }`` decorated as a storage block."""
        key = ("block", d)
        if key not in self._known:
            element = self.type(d)
            array = self.id()
            self.globals += instruction(29, array, element)
            self.decorate(array, 6, d.itemsize)  # ArrayStride
            block = self._known[key] = self.id()
            self.globals += instruction(30, block, array)
            self.decorate(block, 2)  # Block
            self.decorations += instruction(MEMBER_DECORATE, block, 0, 35, 0)  # Offset 0
        return self._known[key]

    def variable(self, storage: int, pointee: int) -> int:
        """A module-scope variable."""
        out = self.id()
        self.globals += instruction(59, self.pointer(storage, pointee), out, storage)
        return out

    # Constants

    def constant(self, value: Any, d: DType) -> int:
        """A scalar constant."""
        t = self.type(d)
        words = [] if d.kind == "b" else _bits(value, d)
        op = (41 if value else 42) if d.kind == "b" else 43
        key = ("constant", op, t, *words)
        if key not in self._known:
            self._known[key] = out = self.id()
            self.globals += instruction(op, t, out, *words)
        return self._known[key]


def _bits(value: Any, d: DType) -> list[int]:
    if d.is_float:
        with np.errstate(over="ignore"):
            raw = np.array(value, d.numpy).tobytes()
        return list(struct.unpack(f"<{len(raw) // 4}I", raw))
    n = int(value) & (1 << d.bits) - 1
    return [n] if d.bits == 32 else [n & 0xFFFFFFFF, n >> 32]


def instruction(op: int, *operands: int) -> list[int]:
    """One instruction's words."""
    return [(len(operands) + 1) << 16 | op, *operands]


def text(s: str) -> list[int]:
    """A literal string as words."""
    raw = s.encode() + b"\0"
    raw += b"\0" * (-len(raw) % 4)
    return list(struct.unpack(f"<{len(raw) // 4}I", raw))

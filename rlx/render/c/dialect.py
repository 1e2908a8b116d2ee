"""A dialect of C as data: how it spells types, literals, casts, functions, memory and the frame of a kernel.

Values live in a few *register* types: ``bool``, 32- and 64-bit integers, ``f32``, ``f64``. Narrower integers
are kept wrapped in 32-bit registers, float16 and bfloat16 as the float32 of equal value, complex numbers as two
registers.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rlx.core.dtype import DType
from rlx.core.errors import CompileError

_REGISTER = {
    "bool": "bool",
    "i8": "i32",
    "i16": "i32",
    "i32": "i32",
    "i64": "i64",
    "u8": "u32",
    "u16": "u32",
    "u32": "u32",
    "u64": "u64",
    "f16": "f32",
    "bf16": "f32",
    "f32": "f32",
    "f64": "f64",
}


def register(d: DType) -> str:
    """The register type of a dtype; of one part for complex numbers."""
    return _REGISTER[d.real.short]


@dataclass(frozen=True, slots=True)
class Slot:
    """A buffer parameter as a dialect's frame prints it: ``type`` is one stored element, ``size`` counts those.

    ``alone``: no other parameter of the launch reaches its memory.
    """

    name: str
    type: str
    size: int
    written: bool
    binding: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """Workgroups and lanes of a launch, x first."""

    groups: tuple[int, int, int]
    lanes: tuple[int, int, int]


Frame = Callable[[str, tuple[Slot, ...], Shape, tuple[str, ...]], str]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One language of the family.

    ``types`` spells registers and ``storage`` buffer elements (a dtype that is missing there cannot be stored).
    ``bits`` maps ``(from, to)`` registers to an expression in ``{0}`` that keeps the bits. ``math`` maps
    ``(primitive, register)`` to a function, ``atomics`` ``(kind, register)`` to an expression in ``{array}``,
    ``{index}`` and ``{value}``; a float kind that is missing there is made of ``swap``, a compare-and-swap on
    32- or 64-bit words. ``frame`` prints a kernel around its body. ``shared_at`` says where workgroup arrays
    are declared: in the kernel or in the file. ``support`` has the text of functions of the table's own, by name;
    ``support_for`` templates of ``min`` and ``max`` that the language has in one instruction.
    """

    name: str
    types: Mapping[str, str]
    storage: Mapping[str, str]
    suffix: Mapping[str, str]
    function: str
    frame: Frame
    group: Callable[[int], str]
    lane: Callable[[int], str]
    bits: Mapping[tuple[str, str], str]
    math: Mapping[tuple[str, str], str]
    barrier: str = ""
    exchange: str = ""
    shared: str = ""
    shared_at: str = "kernel"
    preamble: str = ""
    support: Mapping[str, str] = field(default_factory=dict)
    support_for: Mapping[tuple[str, str], str] = field(default_factory=dict)
    functional_cast: bool = False
    exact: str = ""
    unroll: str = ""
    pointer: str = "{type}*"
    atomics: Mapping[tuple[str, str], str] = field(default_factory=dict)
    swap: Mapping[str, str] = field(default_factory=dict)
    one_kernel: bool = False

    def type(self, short: str) -> str:
        """A register type. Raises CompileError where the language has none."""
        if short not in self.types:
            raise CompileError(
                f"{self.name} has no {short}",
                why="the language has no type of that width",
                do="use a dtype that the device computes, or another device",
            )
        return self.types[short]

    def cast(self, short: str, text: str) -> str:
        """``text`` converted to a register type."""
        t = self.type(short)
        return f"{t}({text})" if self.functional_cast else f"(({t})({text}))"

    def stored(self, d: DType) -> str:
        """The element type of a buffer. Raises CompileError where it cannot be stored."""
        found = self.storage.get(d.real.short)
        if found is None:
            raise CompileError(
                f"{self.name} has no buffers of {d.name}",
                why="the language has no type of that width",
                do="use a wider dtype, or another device",
            )
        return found

    def fill(self, text: str, **names: str) -> str:
        """Templates of helper functions: ``$u32`` is a type, ``@u32(..)`` a cast, ``#f32:u32(..)`` keeps the bits."""
        for key, value in names.items():
            text = text.replace(f"%{key}%", value)
        while (m := re.search(r"@(\w+)\(|#(\w+):(\w+)\(", text)) is not None:
            end = _closing(text, m.end())
            inner = text[m.end() : end]
            made = self.cast(m[1], inner) if m[1] else self.bitcast(m[2], m[3], inner)
            text = text[: m.start()] + made + text[end + 1 :]
        return re.sub(r"\$(\w+)", lambda m: self.type(m[1]), text)

    def bitcast(self, source: str, target: str, text: str) -> str:
        """The same bits as another register type of that width."""
        if source == target:
            return text
        if "f" not in source + target:
            return self.cast(target, text)
        form = self.bits.get((source, target))
        if form is None:
            raise CompileError(
                f"{self.name} cannot look at the bits of {source}",
                why="the language has no such function",
                do="use a dtype that the device computes, or another device",
            )
        return form.replace("{0}", text)

    def number(self, value: bool | int | float, short: str) -> str:
        """A literal of a register type with exactly this value."""
        if short == "bool":
            return "true" if value else "false"
        if short[0] == "f":
            return self._float(float(value), short)
        n, bits, suffix = int(value), int(short[1:]), self.suffix[short]
        if short[0] == "u":
            return f"{n & ((1 << bits) - 1)}{suffix}"
        n = (n + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
        if n == -(1 << (bits - 1)):
            return f"(-{(1 << (bits - 1)) - 1}{suffix} - 1{suffix})"
        return f"{n}{suffix}" if n >= 0 else f"(-{-n}{suffix})"

    def _float(self, value: float, short: str) -> str:
        with np.errstate(over="ignore"):
            x = np.float32(value) if short == "f32" else np.float64(value)
        if not np.isfinite(x):
            f, i = ("<f", "<I") if short == "f32" else ("<d", "<Q")
            word = (
                struct.unpack(i, struct.pack(f, x))[0]
                if not np.isnan(x)
                else 0x7FC00000
                if short == "f32"
                else 0x7FF8 << 48
            )
            u = "u" + short[1:]
            return self.bitcast(u, short, f"0x{word:x}{self.suffix[u]}")
        text = repr(float(x)) if short == "f64" else np.format_float_scientific(x, unique=True, trim="0")
        if "." not in text and "e" not in text:
            text += ".0"
        text = text.replace("e+", "e") + self.suffix[short]
        return f"({text})" if text.startswith("-") else text


def _closing(text: str, start: int) -> int:
    """Where the parenthesis that opened just before ``start`` closes."""
    depth = 1
    for k in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[k], 0)
        if depth == 0:
            return k
    raise AssertionError(f"unbalanced parentheses in a helper: {text}")

"""How dtypes, constants and names are spelled in LLVM IR.

In a virtual register a bool is ``i1``, an integer ``iN``, float16 ``half``, float32 ``float``, float64
``double``; a bfloat16 is its 16 raw bits (``i16``), and a complex value is a pair of registers. In memory a
bool is one byte.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import Any

import numpy as np

from rlx.core.dtype import DType

#: A value in registers: one SSA name or literal, or (real part, imaginary part).
Value = str | tuple[str, str]

#: Flags on the fmul, fadd and fsub of a kernel: the back end may join them into fused multiply-adds, no more.
CONTRACT = "contract "

_FLOAT = {"float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double"}
_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


def register_type(d: DType) -> str:
    """The type of a value in a register; for a complex dtype, of one part."""
    if d.kind == "b":
        return "i1"
    return _FLOAT[d.real.name] if d.is_inexact else f"i{d.bits}"


def memory_type(d: DType) -> str:
    """The type of an element in memory; for a complex dtype, of one part."""
    return "i8" if d.kind == "b" else register_type(d)


def return_type(d: DType) -> str:
    """The type a function returns: complex values come back as a pair."""
    part = register_type(d)
    return f"{{ {part}, {part} }}" if d.is_complex else part


def suffix(type_: str) -> str:
    """The overload suffix of intrinsics: ``float`` -> ``f32``, ``i64`` -> ``i64``."""
    return _SUFFIX.get(type_, type_)


def is_narrow(d: DType) -> bool:
    """Whether arithmetic runs in float32 and rounds back (float16 and bfloat16)."""
    return d.name in ("float16", "bfloat16")


def signed(value: int, bits: int) -> int:
    """``value`` modulo 2**bits, as a two's complement number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def float_literal(value: float, type_: str) -> str:
    """A ``float`` or ``double`` literal with exactly these bits; LLVM spells both as a double."""
    if type_ == "float":
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    if value != value:
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def bfloat_bits(value: float) -> int:
    """The 16 bits of a double rounded to bfloat16, to nearest even, in one rounding."""
    if value != value:
        return 0x7FC0
    with np.errstate(over="ignore"):
        near = np.float32(value)
    bits = int(near.view(np.uint32))
    back = float(near)
    if back != value and bits & 1 == 0:  # round to odd first, so that the second rounding is the only one
        bits += 1 if abs(back) < abs(value) else -1
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def literal(value: Any, d: DType) -> Value:
    """A constant of dtype ``d``."""
    if d.is_complex:
        z, part = complex(value), register_type(d)
        return float_literal(z.real, part), float_literal(z.imag, part)
    if d.kind == "b":
        return "true" if value else "false"
    if d.is_integer:
        return str(signed(int(value), d.bits))
    if d.name == "bfloat16":
        return str(signed(bfloat_bits(float(value)), 16))
    if d.name == "float16":
        with np.errstate(over="ignore"):
            return f"0xH{int(np.float16(value).view(np.uint16)):04X}"
    return float_literal(float(value), register_type(d))


def symbol(name: str) -> str:
    """A legal LLVM identifier for ``name``, unique for it: changed names get a checksum of the original."""
    clean = re.sub(r"[^A-Za-z0-9_.]", "_", name)
    if clean == name and clean and not clean[0].isdigit():
        return clean
    return f"k_{clean}_{zlib.crc32(name.encode()):08x}"


def label(name: str) -> str:
    """A readable stem for a local name; the builder adds a number that makes it unique."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name) or "v"

"""How a value of each dtype is held by a device with few types: as it is, as two parts, or inside a wider type.

=========  ==========================================  =======================================
dtype      in registers                                in buffers
=========  ==========================================  =======================================
native     itself                                      itself
i64, u64   two u32: low and high word                  two u32 an element
complex    two reals: real and imaginary part          two reals an element
i8 .. u16  i32 or u32, always in range                 four or two an u32 word
bool       bool                                        four a word, one byte each
f16, bf16  f32, always representable in the format     two a word
=========  ==========================================  =======================================
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx.core.dtype import DType, bool_, float32, int32, uint32

#: The rule's name for each dtype that a device may lack, as reports print it.
RULES = {
    "int64": "i64-to-u32-pairs", "uint64": "i64-to-u32-pairs",
    "complex64": "complex-to-pairs", "complex128": "complex-to-pairs",
    "int8": "packed-storage", "int16": "packed-storage", "uint8": "packed-storage", "uint16": "packed-storage",
    "bool": "packed-storage", "float16": "f32-arithmetic", "bfloat16": "f32-arithmetic",
}


@dataclass(frozen=True, slots=True)
class Form:
    """``parts`` in registers; in a buffer ``per_word`` elements share a word of type ``cell`` (0: they do not)."""

    dtype: DType
    parts: tuple[DType, ...]
    cell: DType
    per_word: int = 0

    @property
    def wide(self) -> bool:
        """Whether the value is two registers."""
        return len(self.parts) == 2

    def cells(self, size: int) -> int:
        """Buffer elements of type ``cell`` for ``size`` elements."""
        return -(-size // self.per_word) if self.per_word else size * len(self.parts)


def form(dtype: DType, native: frozenset[DType]) -> Form:
    """How ``dtype`` is held where only ``native`` types exist (32-bit ones always do)."""
    if dtype.kind == "b":
        return Form(dtype, (bool_,), uint32, 4)
    if dtype.is_complex:
        return Form(dtype, (dtype.real, dtype.real), dtype.real)
    if dtype in native:
        return Form(dtype, (dtype,), dtype)
    if dtype.bits == 64 and dtype.is_integer:
        return Form(dtype, (uint32, uint32), uint32)
    if dtype.is_float:
        return Form(dtype, (float32,), uint32, 2)
    return Form(dtype, (int32 if dtype.kind == "i" else uint32,), uint32, 32 // dtype.bits)


def rewrites(native: frozenset[DType], dtypes: frozenset[DType]) -> dict[DType, str]:
    """The rule by which each dtype outside ``native`` is computed."""
    return {d: RULES[d.name] for d in dtypes if d not in native and d.name in RULES}

"""Data types: one frozen record each, their NumPy spelling, and the NumPy-2 promotion lattice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rlx.core.errors import DTypeError


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """A scalar type, one object each: types are compared by identity.

    ``kind`` is NumPy's letter: b bool, i signed, u unsigned, f float, c complex.
    """

    name: str
    kind: str
    bits: int

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return max(self.bits // 8, 1)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype with the same bits (bfloat16 is stored as its 16 raw bits)."""
        return _NUMPY[self.name]

    @property
    def short(self) -> str:
        """The short spelling used in IR text: ``f32``, ``i64``, ``bool``, ``c128``."""
        return _SHORT[self.name]

    def __repr__(self) -> str:
        return f"rlx.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_by_name, (self.name,))

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_inexact(self) -> bool:
        return self.kind in "fc"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def real(self) -> DType:
        """The type of the real part: complex128 -> float64; any other type is its own."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    @property
    def complex(self) -> DType:
        """The complex type with this precision: float32 -> complex64, float64 -> complex128."""
        return complex128 if self.name in ("float64", "complex128") else complex64


bool_ = DType("bool", "b", 8)
int8, int16, int32, int64 = (DType(f"int{b}", "i", b) for b in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (DType(f"uint{b}", "u", b) for b in (8, 16, 32, 64))
float16 = DType("float16", "f", 16)
bfloat16 = DType("bfloat16", "f", 16)
float32 = DType("float32", "f", 32)
float64 = DType("float64", "f", 64)
complex64 = DType("complex64", "c", 64)
complex128 = DType("complex128", "c", 128)

ALL: tuple[DType, ...] = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    float16, bfloat16, float32, float64, complex64, complex128,
)
_NUMPY = {d.name: np.dtype("uint16" if d.name == "bfloat16" else d.name) for d in ALL}
_SHORT = {d.name: d.name if d.name == "bool" else ("bf16" if d.name == "bfloat16" else f"{d.kind}{d.bits}")
          for d in ALL}
BY_NAME = {d.name: d for d in ALL} | {_SHORT[d.name]: d for d in ALL}
_BY_NUMPY = {np.dtype(d.name): d for d in ALL if d.name != "bfloat16"}


def _by_name(name: str) -> DType:
    return BY_NAME[name]


@cache
def _from_any(x: Any) -> DType:
    if isinstance(x, str) and x in BY_NAME:
        return BY_NAME[x]
    if x is bool:
        return bool_
    try:
        d = np.dtype(x)
    except TypeError as e:
        raise DTypeError(f"{x!r} is not a data type", why=str(e),
                         do=f"use one of {', '.join(t.name for t in ALL)}") from None
    if d in _BY_NUMPY:
        return _BY_NUMPY[d]
    if d.newbyteorder("=") in _BY_NUMPY:
        return _BY_NUMPY[d.newbyteorder("=")]
    if d.name == "bfloat16":
        return bfloat16
    raise DTypeError(f"NumPy dtype {d} has no rlx type",
                     why="rlx stores bool, integers of 8 to 64 bits, f16, bf16, f32, f64, c64 and c128",
                     do="convert first, for example with .astype(numpy.float64)")


def as_dtype(x: Any) -> DType:
    """The rlx dtype for an rlx dtype, a name, a NumPy dtype or type, or a Python scalar type."""
    if isinstance(x, DType):
        return x
    return _from_any(x)


def common_type(a: DType, b: DType) -> DType:
    """NumPy-2 promotion of two array dtypes; bfloat16 with float16 gives float32."""
    if a is b or a == b:
        return a
    for x, y in ((a, b), (b, a)):
        if x.name == "bfloat16":
            if y.name == "float16":
                return float32
            if y.kind in "fc":
                return y
            return bfloat16 if y.kind == "b" or y.bits <= 8 else float32 if y.bits <= 16 else float64
    return _BY_NUMPY[np.promote_types(a.numpy, b.numpy)]


_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def weak_type(d: DType, scalar: bool | int | float | complex, default_float: DType) -> DType:
    """The dtype of ``d`` combined with a weak Python scalar (Array API rule)."""
    k = scalar_kind(scalar)
    if _RANK[k] <= _RANK[d.kind]:
        return d
    if k == "i":
        return int64
    if k == "f":
        return default_float
    if d.kind == "f":
        return d.complex
    return default_float.complex


def scalar_kind(x: bool | int | float | complex) -> str:
    """``b``, ``i``, ``f`` or ``c`` for a Python scalar (``i`` for a symbolic size)."""
    if isinstance(x, bool):
        return "b"
    if isinstance(x, (float, complex)):
        return "f" if isinstance(x, float) else "c"
    return "i"


def default_of(scalar: bool | int | float | complex, default_float: DType) -> DType:
    """The dtype of a Python scalar alone: bool, int64, the default float, or its complex."""
    return {"b": bool_, "i": int64, "f": default_float, "c": default_float.complex}[scalar_kind(scalar)]

"""Questions about data types (``result_type``, ``can_cast``, ``finfo``, ``iinfo``, ``isdtype``), and the constants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array, is_scalar
from rlx.array.define import public
from rlx.array.hooks import default_device, default_float
from rlx.core import dtype as dt
from rlx.core.dtype import DType
from rlx.core.errors import DTypeError, ValueIssue

pi, e, inf, nan = math.pi, math.e, math.inf, math.nan
euler_gamma = 0.5772156649015329
newaxis = None

#: Names of the constants, which are public beside the functions.
CONSTANTS: dict[str, Any] = {"pi": pi, "e": e, "inf": inf, "nan": nan, "euler_gamma": euler_gamma, "newaxis": newaxis}

#: NumPy's other names of dtypes, as they are on this library's 64-bit systems.
NAMES: dict[str, DType] = {
    "bool_": dt.bool_, "byte": dt.int8, "ubyte": dt.uint8, "short": dt.int16, "ushort": dt.uint16, "intc": dt.int32,
    "uintc": dt.uint32, "int_": dt.int64, "uint": dt.uint64, "intp": dt.int64, "uintp": dt.uint64, "long": dt.int64,
    "ulong": dt.uint64, "longlong": dt.int64, "ulonglong": dt.uint64, "half": dt.float16, "single": dt.float32,
    "double": dt.float64, "csingle": dt.complex64, "cdouble": dt.complex128,
}
#: NumPy's abstract types, by name, and the kinds they stand for.
_ABSTRACT: dict[str, str] = {
    "generic": "biufc", "number": "iufc", "integer": "iu", "signedinteger": "i", "unsignedinteger": "u",
    "inexact": "fc", "floating": "f", "complexfloating": "c", "bool": "b",
}

_KINDS: dict[str, str] = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu",
                          "real floating": "f", "complex floating": "c", "numeric": "iufc"}


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """Limits of a floating type (of the real part, for a complex type)."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType

    @property
    def tiny(self) -> float:
        """NumPy's name of ``smallest_normal``."""
        return self.smallest_normal


@dataclass(frozen=True, slots=True)
class IntInfo:
    """Limits of an integer type."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(x: Any) -> DType:
    return x.dtype if isinstance(x, Array) else dt.as_dtype(x.dtype if isinstance(x, (np.ndarray, np.generic)) else x)


@public
def finfo(type: Any, /) -> FloatInfo:
    """Limits of a floating or complex dtype, or of an array's dtype.

    >>> import rlx
    >>> rlx.finfo(rlx.float32).eps
    1.1920928955078125e-07
    """
    d = _dtype_of(type)
    if not d.is_inexact:
        raise DTypeError(f"finfo of {d.name}", why="it describes floating types", do="use rlx.iinfo for integers")
    if d == dt.bfloat16:
        # 8 exponent bits as in float32, 8 bits of significand (7 stored).
        top = (2.0 - 2.0**-7) * 2.0**127
        return FloatInfo(16, 2.0**-7, top, -top, 2.0**-126, d)
    info = np.finfo(d.real.numpy)
    return FloatInfo(d.real.bits, float(info.eps), float(info.max), float(info.min), float(info.smallest_normal),
                     d.real)


@public
def iinfo(type: Any, /) -> IntInfo:
    """Limits of an integer dtype, or of an array's dtype."""
    d = _dtype_of(type)
    if not d.is_integer:
        raise DTypeError(f"iinfo of {d.name}", why="it describes integer types", do="use rlx.finfo for floating types")
    info = np.iinfo(d.numpy)
    return IntInfo(d.bits, int(info.max), int(info.min), d)


@public
def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, a name of the standard (``"real floating"``, ...), or a tuple of them."""
    d = dt.as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(d, k) for k in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return d.kind in _KINDS[kind]
    if isinstance(kind, str) and kind not in dt.BY_NAME:
        raise ValueIssue(f"{kind!r} is not a kind of dtypes", why="kinds are a fixed set",
                         do=f"use one of {', '.join(_KINDS)}")
    return d == dt.as_dtype(kind)


@public
def issubdtype(dtype: Any, kind: Any, /) -> bool:
    """Whether a dtype is of NumPy's abstract type ``kind`` (``numpy.floating`` or its name), or is that dtype.

    >>> import rlx
    >>> rlx.issubdtype(rlx.float32, "floating"), rlx.issubdtype(rlx.int8, "inexact")
    (True, False)
    """
    d = _dtype_of(dtype)
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
    return d.kind in _ABSTRACT[name] if name in _ABSTRACT else d == dt.as_dtype(kind)


@public
def common_type(*arrays: Any) -> DType:
    """The inexact dtype that holds the values of all arrays; integers count as the default float."""
    found = [as_array(a).dtype for a in arrays]
    out = default_float(default_device()) if any(not d.is_inexact for d in found) or not found else None
    for d in found:
        out = out if not d.is_inexact else d if out is None else dt.common_type(out, d)
    assert out is not None
    return out


@public
def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether a cast keeps every value (NumPy's ``safe`` rule, which is the promotion lattice)."""
    a, b = _dtype_of(from_), dt.as_dtype(to)
    return dt.common_type(a, b) == b


@public
def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that an operation on these arrays, dtypes and Python numbers gives.

    >>> import rlx
    >>> rlx.result_type(rlx.int8, rlx.float32, 1.5)
    rlx.float32
    """
    firm: DType | None = None
    weak = []
    device = None
    for x in arrays_and_dtypes:
        if is_scalar(x):
            weak.append(x)
            continue
        if isinstance(x, Array):
            device = device or x._value.node.device
        d = _dtype_of(as_array(x) if isinstance(x, (list, tuple)) else x)
        firm = d if firm is None else dt.common_type(firm, d)
    floats = default_float(device or default_device())
    for x in weak:
        firm = dt.default_of(x, floats) if firm is None else dt.weak_type(firm, x, floats)
    if firm is None:
        raise ValueIssue("result_type() of nothing", why="there is no dtype to promote", do="pass an array or a dtype")
    return firm


@public
def promote_types(type1: Any, type2: Any, /) -> DType:
    """The smallest dtype to which both can be cast without loss of values."""
    return dt.common_type(dt.as_dtype(type1), dt.as_dtype(type2))


@public
def isscalar(x: Any, /) -> bool:
    """Whether ``x`` is a Python or NumPy number (an array without axes is not)."""
    return is_scalar(x) or isinstance(x, np.generic)


@public
def iscomplexobj(x: Any, /) -> bool:
    """Whether the dtype of ``x`` is complex."""
    return as_array(x).dtype.is_complex


@public
def isrealobj(x: Any, /) -> bool:
    """Whether the dtype of ``x`` is not complex."""
    return not iscomplexobj(x)

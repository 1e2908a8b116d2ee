"""Discrete Fourier transforms, with the names and conventions of the Array API's ``fft`` extension and NumPy.

``out[k] = sum_j x[j] exp(-2 pi i j k / n)`` for any length ``n``, in time ``n log n``; float32 and complex64 are
transformed in 32 bits, float64 and complex128 in 64. ``norm`` says which direction is divided by ``n``: ``"backward"``
(the inverse), ``"forward"``, or ``"ortho"`` (both by ``sqrt(n)``). With ``n`` (or ``s``) an axis is first cut, or
padded with zeros behind. All are linear and differentiable, in both modes.

>>> import rlx
>>> rlx.fft.fft(rlx.asarray([1.0, 2.0, 3.0, 4.0])).tolist()
[(10+0j), (-2+2j), (-2+0j), (-2-2j)]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, cast
from rlx.array.hooks import default_device, default_float
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.core.shape import axis_index
from rlx.ops.fft import from_real, to_complex, to_real
from rlx.ops.movement import concat, flip, iota, pad_with, slice_of

__all__ = ["fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft",
           "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn"]

Norm = str | None
_OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _norm(norm: Norm) -> str:
    name = norm or "backward"
    if name not in _OPPOSITE:
        raise ValueIssue(f"norm={norm!r}", why="a transform is scaled in one of three ways",
                         do='pass "backward", "ortho" or "forward"')
    return name


def _scaled(x: Array, n: int, norm: Norm, inverse: bool) -> Array:
    """``x`` divided by what ``norm`` asks of this direction."""
    name = _norm(norm)
    if name == "ortho":
        return x * (1.0 / sqrt(n))
    return x * (1.0 / n) if (name == "backward") == inverse else x


def _argument(x: Any, what: str) -> Array:
    """A real or complex array of 32 or 64 bits: integers as the default float, 16-bit floats as float32."""
    a = as_array(x)
    if a.ndim == 0:
        raise ShapeError(f"{what} of an array of shape ()", why="a scalar has no axis to transform", do="add an axis")
    if a.dtype.kind in "biu":
        return cast(a, default_float(a.device))
    return cast(a, dt.float32) if a.dtype.kind == "f" and a.dtype.bits == 16 else a


def _real(x: Any, what: str) -> Array:
    a = _argument(x, what)
    if a.dtype.is_complex:
        raise DTypeError(f"{what} of a {a.dtype.name} array of shape {a.shape}", why="it transforms real values",
                         do="use fft, or take rlx.real(x) first")
    return a


def _complex(x: Array) -> Array:
    return cast(x, x.dtype.complex)


def _count(n: Any, what: str) -> int:
    if not hasattr(n, "__index__"):
        raise ShapeError(f"{what} along an axis of size {n}", why="its tables are of one size",
                         do="give the size in numbers, or pass n=")
    count = int(n.__index__())
    if count < 1:
        raise ShapeError(f"{what} of {count} points", why="a transform has at least one", do="pass n of at least 1")
    return count


def _fitted(x: Array, n: int, axis: int) -> Array:
    """``x`` with the axis cut, or padded with zeros behind, to ``n``."""
    size = x.shape[axis]
    if size == n:
        return x
    if isinstance(size, int) and size < n:
        return pad_with(x, [0] * x.ndim, [n - size if i == axis else 0 for i in range(x.ndim)], 0)
    return slice_of(x, [0] * x.ndim, [n if i == axis else d for i, d in enumerate(x.shape)])


def _empty(x: Array) -> bool:
    return any(isinstance(n, int) and n == 0 for n in x.shape)


def _blank(x: Array, axis: int, n: int, dtype: dt.DType) -> Array:
    """The transform of no rows."""
    shape = tuple(n if i == axis else d for i, d in enumerate(x.shape))
    out: Array = FUNCTIONS["zeros"](shape, dtype=dtype, device=x.device)
    return out


def _transformed(x: Array, n: int | None, axis: int, norm: Norm, inverse: bool) -> Array:
    a = axis_index(axis, x.ndim)
    size = _count(x.shape[a] if n is None else n, "ifft" if inverse else "fft")
    x = _fitted(x, size, a)
    if _empty(x):
        return _blank(x, a, size, x.dtype.complex)
    if x.dtype.is_complex:
        return _scaled(to_complex(x, a, inverse), size, norm, inverse)
    half = _scaled(from_real(x, a), size, norm, inverse)
    return _mirrored(FUNCTIONS["conj"](half) if inverse else half, size, a)


def _mirrored(half: Array, n: int, axis: int) -> Array:
    """The whole spectrum of real values from its first ``n // 2 + 1``."""
    rest = n - half.shape[axis]
    if rest == 0:
        return half
    start = [1 if i == axis else 0 for i in range(half.ndim)]
    tail = slice_of(half, start, [rest if i == axis else d for i, d in enumerate(half.shape)])
    return concat([half, FUNCTIONS["conj"](flip(tail, axis=axis))], axis=axis)


def fft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The discrete Fourier transform along an axis: ``out[k] = sum_j x[j] exp(-2 pi i j k / n)``."""
    return _transformed(_argument(x, "fft"), n, axis, norm, False)


def ifft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The inverse transform along an axis: ``out[j] = sum_k x[k] exp(2 pi i j k / n) / n``."""
    return _transformed(_argument(x, "ifft"), n, axis, norm, True)


def rfft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The first ``n // 2 + 1`` values of the transform of a real array; the others are their conjugates."""
    a = _real(x, "rfft")
    at = axis_index(axis, a.ndim)
    size = _count(a.shape[at] if n is None else n, "rfft")
    a = _fitted(a, size, at)
    if _empty(a):
        return _blank(a, at, size // 2 + 1, a.dtype.complex)
    return _scaled(from_real(a, at), size, norm, False)


def irfft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """Inverse of :func:`rfft`: ``n`` real values (``2 (m - 1)`` by default) from half of their spectrum."""
    a = _complex(_argument(x, "irfft"))
    at = axis_index(axis, a.ndim)
    size = _count(2 * (a.shape[at] - 1) if n is None else n, "irfft")
    a = _fitted(a, size // 2 + 1, at)
    if _empty(a):
        return _blank(a, at, size, a.dtype.real)
    return _scaled(to_real(a, at, size), size, norm, True)


def hfft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The real transform of values whose second half is the conjugate of the first, which is all that is given."""
    return irfft(FUNCTIONS["conj"](_argument(x, "hfft")), n, axis, _OPPOSITE[_norm(norm)])


def ihfft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """Inverse of :func:`hfft`."""
    return FUNCTIONS["conj"](rfft(_real(x, "ihfft"), n, axis, _OPPOSITE[_norm(norm)]))


# Several axes

def _axes(x: Array, s: Sequence[int] | None, axes: Sequence[int] | None) -> tuple[list[int | None], list[int]]:
    """Sizes (None: as they are) and axes, the last ``len(s)`` by default."""
    at = list(range(x.ndim)) if axes is None else [axis_index(a, x.ndim) for a in axes]
    if s is None:
        return [None] * len(at), at
    if axes is None:
        if len(s) > x.ndim:
            raise ShapeError(f"{len(s)} sizes for an array of shape {x.shape}", why="there are fewer axes than sizes",
                             do="give a size for each axis of axes=")
        at = at[x.ndim - len(s):]
    if len(s) != len(at):
        raise ShapeError(f"{len(s)} sizes for {len(at)} axes", why="each axis has one size",
                         do="give s and axes of one length")
    return [None if n == -1 else n for n in s], at


def _every(x: Any, s: Sequence[int] | None, axes: Sequence[int] | None, norm: Norm, inverse: bool) -> Array:
    what = "ifftn" if inverse else "fftn"
    a = as_array(x)
    if a.ndim == 0 or (axes is not None and len(axes) == 0):
        _norm(norm)
        return _complex(a if a.dtype.is_inexact else cast(a, default_float(a.device)))
    a = _argument(a, what)
    sizes, at = _axes(a, s, axes)
    for n, i in reversed(list(zip(sizes, at, strict=True))):
        a = _transformed(a, n, i, norm, inverse)
    return a


def fftn(x: Any, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
         norm: Norm = "backward") -> Array:
    """The transform along several axes (all by default)."""
    return _every(x, s, axes, norm, False)


def ifftn(x: Any, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
          norm: Norm = "backward") -> Array:
    """Inverse of :func:`fftn`."""
    return _every(x, s, axes, norm, True)


def rfftn(x: Any, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
          norm: Norm = "backward") -> Array:
    """The transform of a real array along several axes; of the last one, the first ``n // 2 + 1`` values."""
    a = _real(x, "rfftn")
    sizes, at = _axes(a, s, axes)
    if not at:
        raise ShapeError("rfftn along no axes", why="the last axis is the real one", do="name at least one axis")
    out = rfft(a, sizes[-1], at[-1], norm)
    for n, i in zip(sizes[:-1], at[:-1], strict=True):
        out = _transformed(out, n, i, norm, False)
    return out


def irfftn(x: Any, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
           norm: Norm = "backward") -> Array:
    """Inverse of :func:`rfftn`; the last axis has ``2 (m - 1)`` values unless ``s`` says otherwise."""
    a = _complex(_argument(x, "irfftn"))
    sizes, at = _axes(a, s, axes)
    if not at:
        raise ShapeError("irfftn along no axes", why="the last axis is the real one", do="name at least one axis")
    for n, i in zip(sizes[:-1], at[:-1], strict=True):
        a = _transformed(a, n, i, norm, True)
    return irfft(a, sizes[-1], at[-1], norm)


def fft2(x: Any, /, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: Norm = "backward") -> Array:
    """:func:`fftn` along the last two axes."""
    return fftn(x, s, axes, norm)


def ifft2(x: Any, /, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: Norm = "backward") -> Array:
    """:func:`ifftn` along the last two axes."""
    return ifftn(x, s, axes, norm)


def rfft2(x: Any, /, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: Norm = "backward") -> Array:
    """:func:`rfftn` along the last two axes."""
    return rfftn(x, s, axes, norm)


def irfft2(x: Any, /, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1),
           norm: Norm = "backward") -> Array:
    """:func:`irfftn` along the last two axes."""
    return irfftn(x, s, axes, norm)


# Frequencies

def _float(dtype: Any, device: str) -> dt.DType:
    d = default_float(device) if dtype is None else dt.as_dtype(dtype)
    if not d.is_float:
        raise DTypeError(f"frequencies of {d.name}", why="they are real numbers", do="pass a floating dtype")
    return d


def fftfreq(n: int, /, d: float = 1.0, *, dtype: Any = None, device: str | None = None) -> Array:
    """The frequencies of :func:`fft`'s values, ``0, 1, ..., -2, -1`` over ``n d``, for samples ``d`` apart."""
    where = device or default_device()
    count = _count(n, "fftfreq")
    i = iota(count, dt.int64, where)
    signed = FUNCTIONS["where"](i < (count + 1) // 2, i, i - count)
    return cast(signed, _float(dtype, where)) * (1.0 / (count * d))


def rfftfreq(n: int, /, d: float = 1.0, *, dtype: Any = None, device: str | None = None) -> Array:
    """The frequencies of :func:`rfft`'s values, ``0, 1, ..., n // 2`` over ``n d``, for samples ``d`` apart."""
    where = device or default_device()
    count = _count(n, "rfftfreq")
    return cast(iota(count // 2 + 1, dt.int64, where), _float(dtype, where)) * (1.0 / (count * d))


def _rolled(x: Any, axes: int | Sequence[int] | None, by: int) -> Array:
    """Rolled along axes by half their size, rounded down (``by=1``), or back."""
    a = as_array(x)
    at = range(a.ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    places = [axis_index(i, a.ndim) for i in at]
    shifts = tuple(by * (a.shape[i] // 2) for i in places)
    out: Array = FUNCTIONS["roll"](a, shifts, axis=tuple(places)) if places else a
    return out


def fftshift(x: Any, /, axes: int | Sequence[int] | None = None) -> Array:
    """The zero frequency in the middle of these axes (all by default)."""
    return _rolled(x, axes, 1)


def ifftshift(x: Any, /, axes: int | Sequence[int] | None = None) -> Array:
    """Inverse of :func:`fftshift`."""
    return _rolled(x, axes, -1)

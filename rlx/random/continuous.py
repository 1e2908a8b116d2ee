"""Real draws: each is a smooth function of uniform bits, so that gradients reach its parameters."""

from __future__ import annotations

from math import sqrt
from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast, cast, is_scalar, literal
from rlx.array.hooks import default_float
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ShapeError
from rlx.core.shape import broadcast_shapes
from rlx.random.keys import Shape, bits, sizes

_f = FUNCTIONS


def floating(key: Any, dtype: Any, *params: Any, complexes: bool = False) -> dt.DType:
    """The dtype of a draw: as asked, else that of its array parameters, else the default float."""
    if dtype is not None:
        found = dt.as_dtype(dtype)
    else:
        own = [p.dtype for p in params if isinstance(p, Array) and p.dtype.is_float and not p._weak]
        found = own[0] if own else default_float(as_array(key).device)
        for other in own[1:]:
            found = dt.common_type(found, other)
    if not (found.is_float or (complexes and found.is_complex)):
        raise DTypeError(f"random values of {found.name}", why="the distribution is over real numbers",
                         do="pass a floating dtype, or use rlx.random.integers")
    return found


def shape_of(shape: Shape | None, *params: Any) -> tuple[int, ...]:
    """The shape asked for, which the parameters must fit; theirs if none was asked for."""
    own: Any = broadcast_shapes(*[() if is_scalar(p) else as_array(p).shape for p in params])
    if shape is None:
        return tuple(own)
    asked = sizes(shape)
    if broadcast_shapes(asked, own) != asked:
        raise ShapeError(f"random values of shape {asked} with parameters of shape {tuple(own)}",
                         why="the parameters have more elements", do="pass a shape that they broadcast to")
    return asked


def parameter(value: Any, dtype: dt.DType, like: Array) -> Array:
    """A parameter in a dtype and the shape of ``like``, on its device."""
    device = like._value.node.device
    a = literal(value, dtype, device) if is_scalar(value) else cast(as_array(value, device=device), dtype)
    return broadcast(a, like.shape)


def unit(key: Any, shape: tuple[int, ...], d: dt.DType) -> Array:
    """Uniform on [0, 1): multiples of the spacing below 1, each as probable, exact on every device."""
    kept = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}[d.name]
    width = max(d.bits, 16)
    word = bits(key, shape, dtype={16: dt.uint16, 32: dt.uint32, 64: dt.uint64}[width])
    return cast(word >> (width - kept), d) * 2.0**-kept


def symmetric(key: Any, shape: tuple[int, ...], d: dt.DType) -> Array:
    """Uniform on (-1, 1), float32 or float64: odd multiples of half a spacing, so neither 0 nor an end."""
    kept, signed = (52, dt.int64) if d.bits == 64 else (23, dt.int32)
    word = bits(key, shape, dtype=dt.uint64 if d.bits == 64 else dt.uint32)
    odd = cast(word >> (d.bits - kept), signed) * 2 + (1 - (1 << kept))
    return cast(odd, d) * 2.0**-kept


def work(d: dt.DType) -> dt.DType:
    """Where a function of uniform values is computed: 16-bit floats in float32."""
    return dt.float32 if d.bits == 16 else d


def placed(x: Array, loc: Any, scale: Any, d: dt.DType) -> Array:
    """``loc + scale * x`` in a dtype; parameters that change nothing add nothing."""
    if not (is_scalar(scale) and scale == 1):
        x = x * parameter(scale, x.dtype, x)
    if not (is_scalar(loc) and loc == 0):
        x = x + parameter(loc, x.dtype, x)
    return cast(x, d)


def uniform(key: Any, shape: Shape | None = None, low: Any = 0.0, high: Any = 1.0, *, dtype: Any = None) -> Array:
    """Uniform on ``[low, high)``; on [0, 1) the same bits on every device."""
    d = floating(key, dtype, low, high)
    u = unit(key, shape_of(shape, low, high), d)
    if is_scalar(low) and is_scalar(high) and (low, high) == (0, 1):
        return u
    a, b = parameter(low, d, u), parameter(high, d, u)
    out = a + u * (b - a)
    # Rounding may reach high itself: its neighbour, or in 16 bits low, stands for that.
    fixed = [_f["stop_gradient"](x) for x in (b, a)]
    last = _f["stop_gradient"](_f["nextafter"](*fixed)) if d.bits > 16 else fixed[1]
    return _f["where"]((out >= b) & (b > a), last, out)


def normal(key: Any, shape: Shape | None = None, loc: Any = 0.0, scale: Any = 1.0, *, dtype: Any = None) -> Array:
    """Gaussian with mean ``loc`` and standard deviation ``scale``: ``sqrt(2) erfinv(u)`` of one uniform value.

    A complex dtype gives independent parts, each with half of the variance. Values reach 5.2 standard deviations in
    float32 and 8.1 in float64.
    """
    d = floating(key, dtype, loc, scale, complexes=True)
    size = shape_of(shape, loc, scale)
    if d.is_complex:
        u = symmetric(key, (2, *size), d.real)
        parts = _f["erfinv"](u)
        return placed(_f["_complex"](parts[0], parts[1]), loc, scale, d)
    x = _f["erfinv"](symmetric(key, size, work(d))) * sqrt(2.0)
    return placed(x, loc, scale, d)


def exponential(key: Any, shape: Shape | None = None, scale: Any = 1.0, *, dtype: Any = None) -> Array:
    """Exponential with mean ``scale``: ``-log1p(-u)``."""
    d = floating(key, dtype, scale)
    u = unit(key, shape_of(shape, scale), work(d))
    return placed(-_f["log1p"](-u), 0.0, scale, d)


def gumbel(key: Any, shape: Shape | None = None, loc: Any = 0.0, scale: Any = 1.0, *, dtype: Any = None) -> Array:
    """Gumbel, the distribution of maxima: ``-log(-log(u))``."""
    d = floating(key, dtype, loc, scale)
    u = symmetric(key, shape_of(shape, loc, scale), work(d)) * 0.5 + 0.5
    return placed(-_f["log"](-_f["log"](u)), loc, scale, d)


def laplace(key: Any, shape: Shape | None = None, loc: Any = 0.0, scale: Any = 1.0, *, dtype: Any = None) -> Array:
    """Laplace (double exponential): ``-sign(u) log1p(-|u|)``."""
    d = floating(key, dtype, loc, scale)
    u = symmetric(key, shape_of(shape, loc, scale), work(d))
    return placed(-_f["sign"](u) * _f["log1p"](-_f["abs"](u)), loc, scale, d)


def logistic(key: Any, shape: Shape | None = None, loc: Any = 0.0, scale: Any = 1.0, *, dtype: Any = None) -> Array:
    """Logistic: ``log(u / (1 - u))``."""
    d = floating(key, dtype, loc, scale)
    u = symmetric(key, shape_of(shape, loc, scale), work(d))
    return placed(_f["log1p"](u) - _f["log1p"](-u), loc, scale, d)


def truncated_normal(key: Any, shape: Shape | None = None, lower: Any = -2.0, upper: Any = 2.0, loc: Any = 0.0,
                     scale: Any = 1.0, *, dtype: Any = None) -> Array:
    """Gaussian kept between ``lower`` and ``upper`` standard deviations from its mean, by its inverse distribution.

    ``sqrt(2) erfinv(v)``, ``v`` uniform between the error functions of the bounds. An interval that lies wholly beyond
    5 standard deviations (3 in float32) is resolved coarsely: there the error function rounds to 1.
    """
    d = floating(key, dtype, lower, upper, loc, scale)
    w = work(d)
    u = symmetric(key, shape_of(shape, lower, upper, loc, scale), w) * 0.5 + 0.5
    low, high = parameter(lower, w, u), parameter(upper, w, u)
    a, b = (_f["erf"](x * sqrt(0.5)) for x in (low, high))
    x = _f["erfinv"](a + u * (b - a)) * sqrt(2.0)
    return placed(_f["minimum"](_f["maximum"](x, low), high), loc, scale, d)

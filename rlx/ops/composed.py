"""Elementwise functions made of others: ``logaddexp``, ``sinc``, ``fmod``, ``gcd``, angles, tests of kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast, cast, promote
from rlx.array.define import op, public
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError
from rlx.core.shape import broadcast_shapes
from rlx.ir.op import NotDifferentiable, Sample
from rlx.ops.control import while_loop
from rlx.ops.dtypes import finfo
from rlx.ops.floating import floating

_LN2 = 0.6931471805599453


def _floats(*xs: Any) -> list[Array]:
    return [floating(a) for a in promote(*xs)]


def _where(c: Any, a: Any, b: Any) -> Array:
    return FUNCTIONS["where"](c, a, b)


def _pair(x1: Any, x2: Any) -> tuple[Array, Array]:
    """Two floating arrays of one shape."""
    x, y = _floats(x1, x2)
    shape = broadcast_shapes(x.shape, y.shape)
    return broadcast(x, shape), broadcast(y, shape)


@op
def _logaddexp(x: Array, y: Array, /) -> Array:
    """``log(exp(x) + exp(y))`` without overflow."""
    high, low = FUNCTIONS["maximum"](x, y), FUNCTIONS["minimum"](x, y)
    return _where(x == y, x + _LN2, high + FUNCTIONS["log1p"](FUNCTIONS["exp"](low - high)))


@_logaddexp.ref
def _(x: Any, y: Any) -> Any:
    return np.logaddexp(x, y)


@_logaddexp.samples
def _() -> list[Sample]:
    x = np.random.default_rng(2).uniform(-5, 5, (3, 7))
    y = np.random.default_rng(3).uniform(-5, 5, (3, 7))
    inf, nan = np.inf, np.nan
    edge = np.array([inf, -inf, inf, -inf, nan, 1000.0, -1000.0, 0.0]), np.array([inf, -inf, -inf, 1.0, 0.0, 999.0,
                                                                                  -1001.0, 0.0])
    return [Sample((x, y), name="float64"), Sample((x.astype(np.float32), y.astype(np.float32)), name="float32"),
            Sample(edge, name="edge", edge=True, grad=False)]


@public
def logaddexp(x1: Any, x2: Any, /) -> Array:
    """``log(exp(x1) + exp(x2))`` without overflow."""
    return _logaddexp(*_pair(x1, x2))


@public
def logaddexp2(x1: Any, x2: Any, /) -> Array:
    """``log2(2**x1 + 2**x2)`` without overflow."""
    x, y = _pair(x1, x2)
    return _logaddexp(x * _LN2, y * _LN2) / _LN2


@op
def _sinc(x: Array, /) -> Array:
    """``sin(pi x) / (pi x)``, 1 at 0."""
    y = _where(x == 0, 1, x) * 3.141592653589793
    return _where(x == 0, 1, FUNCTIONS["sin"](y) / y)


@_sinc.ref
def _(x: Any) -> Any:
    return np.sinc(x)


@_sinc.samples
def _() -> list[Sample]:
    x = np.random.default_rng(4).uniform(-3, 3, (4, 5))
    return [Sample((x,), name="float64"), Sample((np.array([0.0, -0.0, 0.5]),), name="zero", edge=True, grad=False)]


@public
def sinc(x: Any, /) -> Array:
    """``sin(pi x) / (pi x)``, 1 at 0."""
    return _sinc(*_floats(x))


@op
def _cbrt(x: Array, /) -> Array:
    """The real cube root: a power and one step of Newton's method, which makes exact cubes exact."""
    a = FUNCTIONS["abs"](x)
    plain = FUNCTIONS["logical_and"](a > 0, a < float("inf"))
    safe = _where(plain, a, 1)
    r = FUNCTIONS["exp2"](FUNCTIONS["log2"](safe) * (1 / 3))
    r = r - (r - safe / r / r) / 3
    return _where(plain, FUNCTIONS["copysign"](r, x), x)


@_cbrt.ref
def _(x: Any) -> Any:
    return np.cbrt(x)


@_cbrt.grad
def _(ct: Array, out: Array, x: Array) -> tuple[Array]:
    return (ct / (3 * out * out),)


@_cbrt.samples
def _() -> list[Sample]:
    x = np.random.default_rng(5).uniform(-30, 30, (4, 5))
    edge = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 27.0, -8.0, 1e300])
    return [Sample((x,), name="float64"), Sample((edge,), name="edge", edge=True, grad=False)]


@public
def cbrt(x: Any, /) -> Array:
    """The real cube root, of negative numbers too."""
    return _cbrt(*_floats(x))


@op
def _heaviside(x: Array, y: Array, /) -> Array:
    """0 below 0, ``y`` at 0, 1 above 0; NaN stays."""
    out = _where(x < 0, 0, _where(x > 0, 1, y))
    return _where(FUNCTIONS["isnan"](x), x, out)


@_heaviside.ref
def _(x: Any, y: Any) -> Any:
    return np.heaviside(x, y)


_heaviside.grad(NotDifferentiable("it is constant but for its jump"))


@_heaviside.samples
def _() -> list[Sample]:
    return [Sample((np.array([-1.0, 0.0, -0.0, 2.0, np.nan]), np.full(5, 0.5)), name="all", edge=True, grad=False)]


@public
def heaviside(x1: Any, x2: Any, /) -> Array:
    """The step function: 0 below 0, ``x2`` at 0, 1 above."""
    return _heaviside(*_pair(x1, x2))


@public
def fmax(x1: Any, x2: Any, /) -> Array:
    """The larger of two; the other where one is NaN."""
    return _ignoring_nan("maximum", x1, x2)


@public
def fmin(x1: Any, x2: Any, /) -> Array:
    """The smaller of two; the other where one is NaN."""
    return _ignoring_nan("minimum", x1, x2)


def _ignoring_nan(name: str, x1: Any, x2: Any) -> Array:
    x, y = promote(x1, x2)
    if not x.dtype.is_float:
        return FUNCTIONS[name](x, y)
    return _where(FUNCTIONS["isnan"](x), y, _where(FUNCTIONS["isnan"](y), x, FUNCTIONS[name](x, y)))


@public
def fmod(x1: Any, x2: Any, /) -> Array:
    """The remainder with the sign of ``x1`` (C's ``fmod``), where :func:`remainder` has that of ``x2``."""
    x, y = promote(x1, x2)
    if x.dtype.kind == "u":
        return FUNCTIONS["remainder"](x, y)
    r = FUNCTIONS["remainder"](FUNCTIONS["abs"](x), FUNCTIONS["abs"](y))
    return FUNCTIONS["copysign"](r, x) if x.dtype.is_float else _where(x < 0, -r, r)


@public
def divmod(x1: Any, x2: Any, /) -> tuple[Array, Array]:
    """``(x1 // x2, x1 % x2)``."""
    return FUNCTIONS["floor_divide"](x1, x2), FUNCTIONS["remainder"](x1, x2)


@public
def modf(x: Any, /) -> tuple[Array, Array]:
    """The fraction and the whole part, both with the sign of ``x``."""
    (a,) = _floats(x)
    whole = FUNCTIONS["trunc"](a)
    return FUNCTIONS["copysign"](_where(FUNCTIONS["isinf"](a), 0.0, a - whole), a), whole


@public
def ldexp(x1: Any, x2: Any, /) -> Array:
    """``x1 * 2**x2`` for integers ``x2``."""
    (x,) = _floats(x1)
    half = as_array(x2) // 2
    return x * FUNCTIONS["exp2"](cast(half, x.dtype)) * FUNCTIONS["exp2"](cast(as_array(x2) - half, x.dtype))


@public
def gcd(x1: Any, x2: Any, /) -> Array:
    """The greatest common divisor of integers, by Euclid's algorithm."""
    x, y = _integers("gcd", x1, x2)

    def step(v: tuple[Array, Array]) -> tuple[Array, Array]:
        a, b = v
        done = b == 0
        return _where(done, a, b), _where(done, b, FUNCTIONS["remainder"](a, _where(done, 1, b)))

    start = (FUNCTIONS["abs"](x), FUNCTIONS["abs"](y))
    found: Array = while_loop(lambda v: FUNCTIONS["any"](v[1] != 0), step, start)[0]
    return found


@public
def lcm(x1: Any, x2: Any, /) -> Array:
    """The least common multiple of integers; 0 if either is 0."""
    x, y = _integers("lcm", x1, x2)
    g = gcd(x, y)
    return FUNCTIONS["abs"](x // _where(g == 0, 1, g) * y)


def _integers(name: str, x1: Any, x2: Any) -> tuple[Array, Array]:
    x, y = promote(x1, x2)
    if not x.dtype.is_integer:
        raise DTypeError(f"{name}() of {x.dtype.name}", why="it takes integers", do="cast with .astype(rlx.int64)")
    shape = broadcast_shapes(x.shape, y.shape)
    return broadcast(x, shape), broadcast(y, shape)


@public
def deg2rad(x: Any, /) -> Array:
    """Degrees as radians."""
    return _floats(x)[0] * 0.017453292519943295


@public
def rad2deg(x: Any, /) -> Array:
    """Radians as degrees."""
    return _floats(x)[0] * 57.29577951308232


@public
def angle(x: Any, /, deg: bool = False) -> Array:
    """The argument of complex numbers, in radians or degrees."""
    (a,) = _floats(x)
    out = FUNCTIONS["atan2"](FUNCTIONS["imag"](a), FUNCTIONS["real"](a))
    return rad2deg(out) if deg else out


@public
def isposinf(x: Any, /) -> Array:
    """Whether each value is positive infinity."""
    (a,) = promote(x)
    return FUNCTIONS["equal"](a, float("inf")) if a.dtype.is_float else FUNCTIONS["not_equal"](a, a)


@public
def isneginf(x: Any, /) -> Array:
    """Whether each value is negative infinity."""
    (a,) = promote(x)
    return FUNCTIONS["equal"](a, float("-inf")) if a.dtype.is_float else FUNCTIONS["not_equal"](a, a)


@public
def iscomplex(x: Any, /) -> Array:
    """Whether each value has an imaginary part other than 0."""
    a = as_array(x)
    return FUNCTIONS["not_equal"](FUNCTIONS["imag"](a), 0)


@public
def isreal(x: Any, /) -> Array:
    """Whether each value has no imaginary part."""
    return FUNCTIONS["logical_not"](iscomplex(x))


@public
def float_power(x1: Any, x2: Any, /) -> Array:
    """``x1 ** x2`` in double precision at least."""
    x, y = _floats(x1, x2)
    d = dt.common_type(x.dtype, dt.float64)
    return FUNCTIONS["pow"](cast(x, d), cast(y, d))


@public
def frexp(x: Any, /) -> tuple[Array, Array]:
    """``(m, e)`` with ``x = m * 2**e`` and ``0.5 <= |m| < 1``; zeros, infinities and NaN have the exponent 0."""
    (a,) = _floats(x)
    if a.dtype.bits < 32:
        m, e = frexp(cast(a, dt.float32))
        return cast(m, a.dtype), e
    field, bias, mantissa, kind = (8, 127, 23, dt.int32) if a.dtype.bits == 32 else (11, 1023, 52, dt.int64)
    tiny = FUNCTIONS["abs"](a) < finfo(a.dtype).smallest_normal
    scaled = _where(tiny, a * 2.0**(mantissa + 2), a)
    bits = FUNCTIONS["bitcast"](scaled, kind)
    mask = (1 << field) - 1
    e = ((bits >> mantissa) & mask) - (bias - 1)
    m = FUNCTIONS["bitcast"]((bits & ~(mask << mantissa)) | ((bias - 1) << mantissa), a.dtype)
    plain = FUNCTIONS["logical_and"](FUNCTIONS["isfinite"](a), a != 0)
    e = _where(plain, e - _where(tiny, mantissa + 2, 0), 0)
    return _where(plain, m, a), cast(e, dt.int32)


@public
def spacing(x: Any, /) -> Array:
    """The distance to the next number away from 0, with the sign of ``x``."""
    (a,) = _floats(x)
    return FUNCTIONS["nextafter"](a, FUNCTIONS["copysign"](FUNCTIONS["full_like"](a, float("inf")), a)) - a


@public
def real_if_close(x: Any, /, tol: float = 100.0) -> Array:
    """The real part, if all imaginary parts (they are looked at) are within ``tol`` of 0 (above 1: epsilons)."""
    a = as_array(x)
    if not a.dtype.is_complex:
        return a
    bound = tol * finfo(a.dtype).eps if tol > 1 else tol
    return FUNCTIONS["real"](a) if bool(FUNCTIONS["all"](FUNCTIONS["abs"](FUNCTIONS["imag"](a)) < bound)) else a


@public
def sort_complex(x: Any, /) -> Array:
    """The elements as complex numbers, sorted by real and then by imaginary part along the last axis."""
    a = as_array(x)
    a = a if a.dtype.is_complex else cast(a, dt.common_type(a.dtype, dt.complex64))
    order = FUNCTIONS["lexsort"]([FUNCTIONS["imag"](a), FUNCTIONS["real"](a)], axis=-1)
    return FUNCTIONS["take_along_axis"](a, order, axis=-1)


@public
def iterable(x: Any, /) -> bool:
    """Whether ``x`` can be iterated over."""
    try:
        iter(x)
    except TypeError:
        return False
    return True

"""Elementwise ops as a table: public name, primitive, oracle, derivative, and sample domains in one row each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, overload

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast, cast, constant, emit1, is_scalar, promote
from rlx.array.define import primitive, public
from rlx.array.hooks import default_float
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ValueIssue
from rlx.core.shape import broadcast_shapes
from rlx.ir.op import NotDifferentiable
from rlx.ops.table import elementwise, infer_pointwise


def _special(name: str) -> Callable[..., Any]:
    """A SciPy oracle, imported when it is first called."""
    return lambda *a: getattr(import_module("scipy.special"), name)(*a)


def _f(name: str) -> Callable[..., Array]:
    return lambda *a: FUNCTIONS[name](*a)


_where = _f("where")


def _zero(o: Array, *args: Array) -> tuple[int, ...]:
    """Partials of a function that is constant almost everywhere."""
    return (0,) * len(args)


_int = NotDifferentiable("it is defined on integers and booleans")


def _half_at_tie(a: Array, b: Array, first: Array) -> Array:
    """1 where the first argument is chosen, 1/2 where they are equal, else 0."""
    one = _where(first, 1.0, 0.0)
    return cast(_where(FUNCTIONS["equal"](a, b), 0.5, one), a.dtype)


# Arithmetic

add = elementwise("add", "add", np.add, lambda o, x, y: (1, 1), logic="bitwise_or",
              doc="``x + y``; of booleans, whether either is true.")
subtract = elementwise("subtract", "sub", np.subtract, lambda o, x, y: (1, -1), doc="``x - y``.")
multiply = elementwise("multiply", "mul", np.multiply, lambda o, x, y: (y, x), logic="bitwise_and",
                       doc="``x * y``; of booleans, whether both are true.")
divide = elementwise("divide", "div", np.divide, lambda o, x, y: (1 / y, -o / y), floats=True, doc="``x / y``.",
                     domain="second_nonzero")
_floor_divide = elementwise("_floor_divide", "floordiv", np.floor_divide, _zero,
                            doc="``floor(x / y)``; integer division by zero gives 0.", domain="second_nonzero")
remainder = elementwise("remainder", "rem", np.remainder, lambda o, x, y: (1, -_f("floor")(x / y)),
                        doc="``x - y * floor(x / y)``, with the sign of ``y``.", domain="second_nonzero")
minimum = elementwise("minimum", "min", np.minimum,
                      lambda o, x, y: (_half_at_tie(x, y, x < y), _half_at_tie(x, y, y < x)),
                      logic="bitwise_and", doc="The smaller of two (-0 before 0); NaN if either is.")
maximum = elementwise("maximum", "max", np.maximum,
                      lambda o, x, y: (_half_at_tie(x, y, x > y), _half_at_tie(x, y, y > x)),
                      logic="bitwise_or", doc="The larger of two (0 before -0); NaN if either is.")
negative = elementwise("negative", "neg", np.negative, lambda o, x: (-1,), doc="``-x``.")
_abs_real = elementwise("_abs", "abs", np.abs, None, doc="``|x|``.")
sign = elementwise("sign", "sign", np.sign, None, doc="-1, 0 or 1 by the sign of ``x``; ``x / |x|`` if complex.")
_floor = elementwise("_floor", "floor", np.floor, _zero, doc="The largest integer not above ``x``.", floats=True)
_ceil = elementwise("_ceil", "ceil", np.ceil, _zero, doc="The smallest integer not below ``x``.", floats=True)
_trunc = elementwise("_trunc", "trunc", np.trunc, _zero, doc="``x`` without its fraction.", floats=True)
_round = elementwise("_round", "round", np.round, _zero, doc="The nearest integer, ties to even.", floats=True)
sqrt = elementwise("sqrt", "sqrt", np.sqrt, lambda o, x: (0.5 / o,), floats=True, domain="positive",
                   doc="The square root; NaN below 0.")
copysign = elementwise("copysign", "copysign", np.copysign, lambda o, x, y: (sign(x) * sign(o), 0),
                       floats=True, doc="``|x|`` with the sign of ``y``.")
nextafter = elementwise("nextafter", "nextafter", np.nextafter,
                        NotDifferentiable("it steps between representable numbers"), floats=True,
                        doc="The next representable number after ``x`` towards ``y``.")
fma = elementwise("fma", "fma", lambda x, y, z: x * y + z, lambda o, x, y, z: (y, x, 1), floats=True,
                  doc="``x * y + z`` with one rounding.")


@public
def floor_divide(x1: Any, x2: Any, /) -> Array:
    """``floor(x / y)``; integer division by zero gives 0.

    Where either is infinite it is ``x / y``, as the Array API says: infinite, a zero with its sign, or NaN.
    """
    x, y = promote(x1, x2)
    if not x.dtype.is_float:
        return _floor_divide(x, y)
    endless = bitwise_or(isinf(x), isinf(y))
    return _where(endless, FUNCTIONS["stop_gradient"](divide(x, y)), _floor_divide(x, y))


def _integral(name: str, rounded: Callable[..., Array]) -> Callable[..., Array]:
    def f(x: Any, /) -> Array:
        (a,) = promote(x)
        return a if a.dtype.kind in "biu" else rounded(a)
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"{rounded.__doc__} Integers are their own."
    return public(f)


floor, ceil, trunc = _integral("floor", _floor), _integral("ceil", _ceil), _integral("trunc", _trunc)


# Exponentials, logarithms, trigonometry

def _part(x: Array, length: Array) -> Array:
    """``x / length``, 0 where the length is 0."""
    zero = FUNCTIONS["equal"](length, 0)
    return _where(zero, 0, x / _where(zero, 1, length))


_LN2, _LN10 = 0.6931471805599453, 2.302585092994046
exp = elementwise("exp", "exp", np.exp, lambda o, x: (o,), floats=True, doc="``e ** x``.")
exp2 = elementwise("exp2", "exp2", np.exp2, lambda o, x: (o * _LN2,), floats=True, doc="``2 ** x``.")
expm1 = elementwise("expm1", "expm1", np.expm1, lambda o, x: (o + 1,), floats=True,
                    doc="``e ** x - 1``, accurate near 0.")
log = elementwise("log", "log", np.log, lambda o, x: (1 / x,), floats=True, domain="positive", doc="Natural logarithm.")
log2 = elementwise("log2", "log2", np.log2, lambda o, x: (1 / (x * _LN2),), floats=True, domain="positive",
                   doc="Logarithm to base 2.")
log10 = elementwise("log10", "log10", np.log10, lambda o, x: (1 / (x * _LN10),), floats=True, domain="positive",
                    doc="Logarithm to base 10.")
log1p = elementwise("log1p", "log1p", np.log1p, lambda o, x: (1 / (1 + x),), floats=True, domain="above_minus_one",
                    doc="``log(1 + x)``, accurate near 0.")
sin = elementwise("sin", "sin", np.sin, lambda o, x: (FUNCTIONS["cos"](x),), floats=True, doc="Sine of radians.")
cos = elementwise("cos", "cos", np.cos, lambda o, x: (-sin(x),), floats=True, doc="Cosine of radians.")
tan = elementwise("tan", "tan", np.tan, lambda o, x: (1 + o * o,), floats=True, doc="Tangent of radians.")
asin = elementwise("asin", "asin", np.arcsin, lambda o, x: (1 / sqrt((1 - x) * (1 + x)),), floats=True, domain="unit",
                   doc="Inverse sine, in radians.")
acos = elementwise("acos", "acos", np.arccos, lambda o, x: (-1 / sqrt((1 - x) * (1 + x)),), floats=True, domain="unit",
                   doc="Inverse cosine, in radians.")
atan = elementwise("atan", "atan", np.arctan, lambda o, x: (1 / (1 + x * x),), floats=True,
                   doc="Inverse tangent, in radians.")
atan2 = elementwise("atan2", "atan2", np.arctan2, lambda o, y, x: (x / (x * x + y * y), -y / (x * x + y * y)),
                    floats=True, doc="The angle of the point (x2, x1), in radians.")
hypot = elementwise("hypot", "hypot", np.hypot, lambda o, x, y: (_part(x, o), _part(y, o)), floats=True,
                    doc="``sqrt(x*x + y*y)`` without overflow.")
sinh = elementwise("sinh", "sinh", np.sinh, lambda o, x: (FUNCTIONS["cosh"](x),), floats=True, doc="Hyperbolic sine.")
cosh = elementwise("cosh", "cosh", np.cosh, lambda o, x: (sinh(x),), floats=True, doc="Hyperbolic cosine.")
tanh = elementwise("tanh", "tanh", np.tanh, lambda o, x: (1 - o * o,), floats=True, doc="Hyperbolic tangent.")
asinh = elementwise("asinh", "asinh", np.arcsinh, lambda o, x: (1 / sqrt(x * x + 1),), floats=True,
                    doc="Inverse hyperbolic sine.")
acosh = elementwise("acosh", "acosh", np.arccosh, lambda o, x: (1 / (sqrt(x - 1) * sqrt(x + 1)),), floats=True,
                    domain="above_one", doc="Inverse hyperbolic cosine.")
atanh = elementwise("atanh", "atanh", np.arctanh, lambda o, x: (1 / ((1 - x) * (1 + x)),), floats=True, domain="unit",
                    doc="Inverse hyperbolic tangent.")
_TWO_OVER_SQRT_PI = 1.1283791670955126
erf = elementwise("erf", "erf", _special("erf"), lambda o, x: (_TWO_OVER_SQRT_PI * exp(-x * x),), floats=True,
                  doc="The error function.")
erfc = elementwise("erfc", "erfc", _special("erfc"), lambda o, x: (-_TWO_OVER_SQRT_PI * exp(-x * x),), floats=True,
                   doc="``1 - erf(x)``, accurate for large ``x``.")
erfinv = elementwise("erfinv", "erfinv", _special("erfinv"), lambda o, x: (exp(o * o) / _TWO_OVER_SQRT_PI,),
                     floats=True, domain="unit", doc="The inverse of ``erf``.")


def _lgamma_ref(x: Any) -> Any:
    """SciPy's, but for minus infinity, where C's limit is infinity."""
    return np.where(np.isinf(x), np.inf, _special("gammaln")(x)).astype(x.dtype)


lgamma = elementwise("lgamma", "lgamma", _lgamma_ref, lambda o, x: (FUNCTIONS["digamma"](x),), floats=True,
                     domain="positive", doc="``log|gamma(x)|``.")
digamma = elementwise("digamma", "digamma", _special("digamma"),
                      lambda o, x: (FUNCTIONS["polygamma"](1, x),), floats=True, domain="positive",
                      doc="The derivative of ``lgamma``.")

# Comparison and logic

equal = elementwise("equal", "eq", np.equal, _int, doc="``x == y``.")
not_equal = elementwise("not_equal", "ne", np.not_equal, _int, doc="``x != y``.")
less = elementwise("less", "lt", np.less, _int, doc="``x < y``.")
less_equal = elementwise("less_equal", "le", np.less_equal, _int, doc="``x <= y``.")
greater = elementwise("greater", "gt", np.greater, _int, doc="``x > y``.")
greater_equal = elementwise("greater_equal", "ge", np.greater_equal, _int, doc="``x >= y``.")
_isnan = elementwise("_isnan", "isnan", np.isnan, _int, doc="Whether ``x`` is NaN.")
bitwise_and = elementwise("bitwise_and", "and", np.bitwise_and, _int, doc="``x & y``.")
bitwise_or = elementwise("bitwise_or", "or", np.bitwise_or, _int, doc="``x | y``.")
bitwise_xor = elementwise("bitwise_xor", "xor", np.bitwise_xor, _int, doc="``x ^ y``.")
bitwise_invert = elementwise("bitwise_invert", "not", np.invert, _int, doc="``~x``.")


def _shifted(f: Any) -> Callable[..., Any]:
    def ref(x: Any, y: Any) -> Any:
        wide = y >= x.dtype.itemsize * 8
        return np.where(wide, np.where((x < 0) & (f is np.right_shift), -1, 0).astype(x.dtype),
                        f(x, np.where(wide, 0, y)))
    return ref


bitwise_left_shift = elementwise("bitwise_left_shift", "shl", _shifted(np.left_shift), _int, domain="shift",
                                 doc="``x << y``; 0 for shifts of at least the width.")
bitwise_right_shift = elementwise("bitwise_right_shift", "shr", _shifted(np.right_shift), _int, domain="shift",
                                  doc="``x >> y``, keeping the sign.")
bit_count = elementwise("bit_count", "popcount", lambda x: np.bitwise_count(x).astype(x.dtype), _int,
                        doc="How many bits of ``|x|`` are set.", domain="nonnegative")
leading_zeros = elementwise("leading_zeros", "clz",
                            lambda x: np.array([x.dtype.itemsize * 8 - int(v).bit_length() for v in x.ravel()],
                                               x.dtype).reshape(x.shape), _int, domain="nonnegative",
                            doc="How many leading bits are zero.")


def _mulhi_ref(x: Any, y: Any) -> Any:
    bits = x.dtype.itemsize * 8
    return ((x.astype(object) * y.astype(object)) >> bits).astype(x.dtype)


mulhi = elementwise("mulhi", "mulhi", _mulhi_ref, _int, doc="The upper half of the full product of unsigned integers.")

# Complex

def _complex_ref(x: Any, y: Any) -> Any:
    """Part by part: ``x + 1j * y`` would make NaN of an infinite ``y``."""
    out = np.empty(x.shape, np.complex64 if x.dtype == np.float32 else np.complex128)
    out.real, out.imag = x, y
    return out


_complex = elementwise("_complex", "complex", _complex_ref, None, doc="``x + 1j * y`` of two real arrays.")
_real = elementwise("_real", "real", np.real, None, doc="The real part.")
_imag = elementwise("_imag", "imag", np.imag, None, doc="The imaginary part.")
_conj = elementwise("_conj", "conj", np.conj, None, doc="The complex conjugate.")

# Selection and conversion: registered here, with public functions of their own

for _name in ("select", "cast", "bitcast"):
    primitive(_name).infer(infer_pointwise(_name))


@overload
def where(condition: Any, x1: Any, x2: Any, /) -> Array: ...
@overload
def where(condition: Any, /, *, size: int | None = ...) -> tuple[Array, ...]: ...


@public
def where(condition: Any, x1: Any = None, x2: Any = None, /, *, size: int | None = None) -> Any:
    """``x1`` where the condition holds, else ``x2``; all three broadcast.

    With the condition alone, the indices where it holds: :func:`nonzero`.
    """
    c = as_array(condition)
    if x1 is None and x2 is None:
        return FUNCTIONS["nonzero"](c, size=size)
    if x1 is None or x2 is None:
        raise ValueIssue("where() with one choice", why="there are two cases", do="pass both x1 and x2, or neither")
    if c.dtype != dt.bool_:
        c = not_equal(c, 0)
    if is_scalar(x1) and is_scalar(x2):
        d = dt.default_of(x1, default_float(c.device))
        d = dt.weak_type(d, x2, default_float(c.device))
        a, b = constant(x1, d), constant(x2, d)
    else:
        a, b = promote(x1, x2)
    shape = broadcast_shapes(c.shape, a.shape, b.shape)
    return emit1("select", broadcast(c, shape), broadcast(a, shape), broadcast(b, shape))


@public
def astype(x: Array, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Array:
    """``x`` in another dtype; float to integer truncates and saturates, NaN gives 0."""
    target = dt.as_dtype(dtype)
    if x.dtype.is_complex and not target.is_complex and target != dt.bool_:
        raise DTypeError(f"cannot cast {x.dtype.name} to {target.name}", why="the imaginary part would be lost",
                         do="take rlx.real(x) or rlx.abs(x) first")
    return cast(x, target)


@public
def bitcast(x: Array, dtype: Any, /) -> Array:
    """The same bits read as another dtype of the same width."""
    target = dt.as_dtype(dtype)
    if target.bits != x.dtype.bits:
        raise DTypeError(f"cannot bitcast {x.dtype.name} to {target.name}",
                         why=f"{x.dtype.bits} against {target.bits} bits",
                         do="use a dtype of the same width")
    return x if target == x.dtype else emit1("bitcast", x, dtype=target)


@public
def positive(x: Array, /) -> Array:
    """``+x``: the same values."""
    return x


@public
def abs(x: Any, /) -> Array:
    """``|x|``; the modulus of complex values."""
    (a,) = promote(x)
    return a if a.dtype.kind in "bu" else _abs_real(a)


@public
def isnan(x: Any, /) -> Array:
    """Whether each value is NaN."""
    (a,) = promote(x)
    return _isnan(a) if a.dtype.is_inexact else not_equal(a, a)


@public
def real(x: Array, /) -> Array:
    """The real part (a real array is its own)."""
    return _real(x) if x.dtype.is_complex else x


@public
def imag(x: Array, /) -> Array:
    """The imaginary part (0 for a real array)."""
    return _imag(x) if x.dtype.is_complex else x * 0


@public
def conj(x: Array, /) -> Array:
    """The complex conjugate (a real array is its own)."""
    return _conj(x) if x.dtype.is_complex else x


@public
def logical_and(x1: Any, x2: Any, /) -> Array:
    """Whether both are true (nonzero)."""
    return bitwise_and(_truth(x1), _truth(x2))


@public
def logical_or(x1: Any, x2: Any, /) -> Array:
    """Whether either is true (nonzero)."""
    return bitwise_or(_truth(x1), _truth(x2))


@public
def logical_xor(x1: Any, x2: Any, /) -> Array:
    """Whether exactly one is true (nonzero)."""
    return bitwise_xor(_truth(x1), _truth(x2))


@public
def logical_not(x: Any, /) -> Array:
    """Whether the value is false (zero)."""
    return bitwise_invert(_truth(x))


def _truth(x: Any) -> Array:
    (a,) = promote(x)
    return a if a.dtype == dt.bool_ else not_equal(a, 0)


@public
def square(x: Any, /) -> Array:
    """``x * x``."""
    (a,) = promote(x)
    return a * a


@public
def reciprocal(x: Any, /) -> Array:
    """``1 / x``."""
    return divide(1, x)


@public
def isfinite(x: Any, /) -> Array:
    """Whether each value is neither infinite nor NaN."""
    (a,) = promote(x)
    if not a.dtype.is_inexact:
        return equal(a, a)
    if a.dtype.is_complex:
        return bitwise_and(isfinite(real(a)), isfinite(imag(a)))
    return less(abs(a), float("inf"))


@public
def isinf(x: Any, /) -> Array:
    """Whether each value is infinite."""
    (a,) = promote(x)
    if not a.dtype.is_inexact:
        return not_equal(a, a)
    if a.dtype.is_complex:
        return bitwise_or(isinf(real(a)), isinf(imag(a)))
    return equal(abs(a), float("inf"))


@public
def signbit(x: Any, /) -> Array:
    """Whether the sign bit is set (also of -0.0 and NaN)."""
    (a,) = promote(x)
    if not a.dtype.is_float:
        return less(a, 0)
    return less(bitcast(a, {16: dt.int16, 32: dt.int32, 64: dt.int64}[a.dtype.bits]), 0)


@public
def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    """``minimum(maximum(x, min), max)``, keeping the dtype of ``x``."""
    out = x
    if min is not None:
        out = cast(maximum(out, min), x.dtype)
    if max is not None:
        out = cast(minimum(out, max), x.dtype)
    return out


@public
def round(x: Any, /, decimals: int = 0) -> Array:
    """The nearest multiple of ``10 ** -decimals``, ties to even."""
    (a,) = promote(x)
    if a.dtype.is_integer or a.dtype.kind == "b":
        return a
    if a.dtype.is_complex:
        return _complex(round(real(a), decimals), round(imag(a), decimals))
    return _round(a) if decimals == 0 else _round(a * 10.0**decimals) / 10.0**decimals

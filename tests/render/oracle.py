"""Elementwise primitives in NumPy and SciPy: what each means, on which values it is tried, how exact it has to be."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.special

from rlx.core.dtype import DType, bfloat16, float16, float32, float64
from rlx.ir.prim import TRANSCENDENTAL
from tests.render.llvm_jit import plain, stored

Array = np.ndarray[Any, Any]
FLOATS = (float16, bfloat16, float32, float64)


def edge_values(d: DType) -> Array:
    """Ordinary and edge values of a dtype, as NumPy numbers."""
    if d.kind == "b":
        return np.array([False, True])
    if d.is_integer:
        top = np.iinfo(d.numpy).max
        values = [0, 1, 2, 3, 5, 7, 13, 64, top, top - 1, top // 2 + 1, top // 3]
        if d.kind == "i":
            values += [-1, -2, -3, -7, -top, -top - 1, -(top // 3)]
        return np.array(values, d.numpy)
    if d.is_complex:
        parts = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.75, 1e-3, 17.0]
        return np.array([complex(a, b) for a in parts for b in parts], d.numpy)
    info = np.finfo(np.float32 if d == bfloat16 else d.numpy)
    with np.errstate(over="ignore"):
        values = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
            3.0,
            -3.7,
            7.25,
            1e-3,
            100.3,
            -100.3,
            math.inf,
            -math.inf,
            math.nan,
            float(info.max),
            -float(info.max),
            float(info.tiny),
            -float(info.smallest_subnormal),
            float(info.smallest_subnormal) * 37,
        ]
    x = np.array(values, np.float64)
    return plain(stored(x, d), d)


def arguments(d: DType, arity: int) -> list[Array]:
    """Every combination of edge values, padded with random ordinary ones to more than a few vectors."""
    edges = edge_values(d)
    if arity == 3:
        edges = edges[:: max(1, len(edges) // 8)]
    if arity == 2 and d.is_complex:
        edges = edges[::3]
    grid = [g.ravel() for g in np.meshgrid(*[edges] * arity)]
    rng = np.random.default_rng(7)
    extra = rng.integers(0, 2, (arity, 131)) if d.kind == "b" else rng.normal(0, 3, (arity, 131))
    if d.is_complex:
        extra = extra + 1j * rng.normal(0, 3, (arity, 131))
    if d.is_integer:
        extra = np.floor(np.abs(extra)) if d.kind == "u" else np.floor(extra)
    return [np.concatenate([g, plain(stored(e, d), d)]) for g, e in zip(grid, extra)]


def _floordiv(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.floor_divide(x, y)
    safe = np.where(y == 0, np.ones_like(y), y)
    return np.where(y == 0, np.zeros_like(x), np.floor_divide(x, safe))


def _rem(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.remainder(x, y)
    safe = np.where(y == 0, np.ones_like(y), y)
    return np.where(y == 0, np.zeros_like(x), np.remainder(x, safe))


def _shift(x: Array, y: Array, left: bool) -> Array:
    bits = x.dtype.itemsize * 8
    out = []
    for a, n in zip(x.tolist(), y.tolist()):
        n = bits if n < 0 or n >= bits else n
        out.append(np.array((a << n) & ((1 << bits) - 1) if left else a >> n).astype(object))
    return np.array(
        [
            int(v) - (1 << bits) if x.dtype.kind == "i" and int(v) >> (bits - 1) == 1 else int(v)
            for v in out
        ],
        dtype=object,
    ).astype(x.dtype)


def _pow(x: Array, y: Array) -> Array:
    if x.dtype.kind != "i" and x.dtype.kind != "u":
        return np.power(x, y)
    bits = x.dtype.itemsize * 8
    out = []
    for a, n in zip(x.tolist(), y.tolist()):
        if n >= 0:
            v = pow(a, n, 1 << bits)
        else:
            v = {1: 1, -1: -1 if n & 1 else 1}.get(a, 0) % (1 << bits)
        out.append(v - (1 << bits) if x.dtype.kind == "i" and v >> (bits - 1) else v)
    return np.array(out, dtype=object).astype(x.dtype)


def _bits(f: Callable[[int, int], int]) -> Callable[[Array], Array]:
    def run(x: Array) -> Array:
        width = x.dtype.itemsize * 8
        return np.array([f(int(v) & ((1 << width) - 1), width) for v in x], x.dtype)

    return run


def _mulhi(x: Array, y: Array) -> Array:
    bits = x.dtype.itemsize * 8
    return np.array([(a * b) >> bits for a, b in zip(x.tolist(), y.tolist())], dtype=object).astype(x.dtype)


def _fma(x: Array, y: Array, z: Array) -> Array:
    """The nearest number to the exact rational value, ties to even."""
    with np.errstate(all="ignore"):
        rough = (x.astype(np.longdouble) * y + z).astype(x.dtype)
    return np.array([_nearest(r, a, b, c) for r, a, b, c in zip(rough, x, y, z)], x.dtype)


def _nearest(rough: Any, x: Any, y: Any, z: Any) -> Any:
    if not all(map(math.isfinite, (rough, x, y, z))):
        return rough
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    if exact == 0:
        return rough
    unsigned = {2: np.uint16, 4: np.uint32, 8: np.uint64}[rough.dtype.itemsize]
    near = [np.nextafter(rough, rough.dtype.type(s), dtype=rough.dtype) for s in (-np.inf, np.inf)]
    near = [v for v in (rough, *near) if np.isfinite(v)]
    return min(near, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(unsigned)) & 1))


def _sign(x: Array) -> Array:
    return np.sign(x)


def _div(x: Array, y: Array) -> Array:
    return np.divide(x, y)


def _via_double(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: f(x.astype(np.float64)).astype(x.dtype)


def _log1p(x: Array) -> Array:
    """NumPy's complex form takes the logarithm of |1 + z|: right only to the digits of the wider type."""
    return np.log1p(x.astype(np.clongdouble)).astype(x.dtype) if x.dtype.kind == "c" else np.log1p(x)


NUMPY: dict[str, Callable[..., Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": _sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "sqrt": np.sqrt,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "floordiv": _floordiv,
    "rem": _rem,
    "pow": _pow,
    "min": np.minimum,
    "max": np.maximum,
    "fma": _fma,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": _log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _via_double(scipy.special.erf),
    "erfc": _via_double(scipy.special.erfc),
    "lgamma": _via_double(scipy.special.gammaln),
    "digamma": _via_double(scipy.special.digamma),
    "erfinv": _via_double(scipy.special.erfinv),
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "isnan": np.isnan,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": lambda x, y: _shift(x, y, True),
    "shr": lambda x, y: _shift(x, y, False),
    "popcount": _bits(lambda v, _: v.bit_count()),
    "clz": _bits(lambda v, w: w - v.bit_length()),
    "mulhi": _mulhi,
    "real": np.real,
    "imag": np.imag,
    "conj": np.conj,
}

#: Largest error in units of the dtype's epsilon, against NumPy's own error; exact where absent.
ULPS = dict.fromkeys(TRANSCENDENTAL, 8.0) | {"erfc": 64.0, "lgamma": 16.0, "digamma": 64.0}
COMPLEX_ULPS = {"pow": 64.0}


def check(got: Array, want: Array, d: DType, ulps: float, context: str, floor: float = 0.0) -> None:
    """Equal, or for floats within ``ulps`` epsilons of the number's magnitude or ``floor``, the larger."""
    if d.kind in "biu":
        np.testing.assert_array_equal(got, want, context)
        return
    real = np.float32 if d == bfloat16 else d.real.numpy
    eps = 2.0**-7 if d == bfloat16 else float(np.finfo(real).eps)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want), context)
    known = ~np.isnan(want)
    got, want = got[known], want[known]
    with np.errstate(all="ignore"):
        equal = got == want
        wide: Any = np.complex128 if d.is_complex else np.float64
        error = np.abs(got.astype(wide) - want.astype(wide))
        scale = np.maximum(np.abs(want.astype(wide)), floor) * eps + float(
            np.finfo(real).smallest_subnormal
        )
        bad = ~equal & ~(error <= ulps * scale)
    assert not bad.any(), f"{context}: {got[bad][:4]} != {want[bad][:4]}"
    if ulps == 0 and d.is_float and "min" not in context and "max" not in context:
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want), context)

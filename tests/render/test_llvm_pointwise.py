"""Every elementwise primitive on every dtype it takes, compiled through LLVM, against NumPy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.special

from rlx.core.dtype import (
    ALL,
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int32,
)
from rlx.core.errors import CompileError
from rlx.ir import loop
from rlx.ir.prim import POINTWISE, TRANSCENDENTAL
from rlx.render.llvm import module
from rlx.render.pairs import pair_function
from tests.render.llvm_jit import Jitted, from_bf16, plain, pointwise, stored, to_bf16

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


def result_dtype(op: str, d: DType) -> DType:
    rule = POINTWISE[op].result
    return {"same": d, "bool": bool_, "real": d.real, "complex": d.complex}[rule]


def _has_form(op: str, d: DType) -> bool:
    try:
        module([pointwise("k", op, (d,) * POINTWISE[op].arity, result_dtype(op, d), 1)])
    except CompileError:
        return False
    return True


CASES = [
    (op, d)
    for op, p in POINTWISE.items()
    for d in ALL
    if op not in ("select", "cast", "bitcast", "complex")
    and d.kind in p.kinds
    and not (op in ("erfinv", "digamma") and not _has_form(op, d))
]


@cache
def compiled() -> Jitted:
    """All cases in one module."""
    kernels = [
        pointwise(
            f"{op}.{d.short}",
            op,
            (d,) * POINTWISE[op].arity,
            result_dtype(op, d),
            len(arguments(d, POINTWISE[op].arity)[0]),
        )
        for op, d in CASES
    ]
    return Jitted(kernels, level=2)


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


@pytest.mark.parametrize(("op", "d"), CASES, ids=lambda v: v if isinstance(v, str) else v.short)
def test_pointwise(op: str, d: DType) -> None:
    args = arguments(d, POINTWISE[op].arity)
    out_type = result_dtype(op, d)
    out = np.zeros(len(args[0]), out_type.numpy)
    compiled()(f"{op}.{d.short}", *[np.ascontiguousarray(stored(a, d)) for a in args], out)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want = np.asarray(NUMPY[op](*args))
    if op == "nextafter":  # NumPy's own float16 form keeps x where x == y; C returns y
        want = _next_bf16(*args) if d == bfloat16 else np.where(args[0] == args[1], args[1], want)
    if out_type == bfloat16:
        want = from_bf16(to_bf16(want))
    exact = op in ("add", "sub", "neg", "conj", "real", "imag")
    ulps = COMPLEX_ULPS.get(op, 16.0) if d.is_complex and not exact else ULPS.get(op, 0.0)
    got = plain(out, out_type)
    if op == "lgamma":  # poles all the way there: the expansion's own tests cover it
        got, want = got[args[0] > -1e30], want[args[0] > -1e30]
    # Near their roots these two are accurate in absolute terms.
    check(got, want, out_type, ulps, f"{op} {d.short}", floor=1.0 if op in ("lgamma", "digamma") else 0.0)


def _next_bf16(x: Array, y: Array) -> Array:
    """By walking the sorted list of all bfloat16 values."""
    every = np.unique(from_bf16(np.arange(1 << 16, dtype=np.uint16)))
    every = every[~np.isnan(every)]
    at = np.searchsorted(every, x)
    step = np.clip(at + (y > x).astype(int) - (y < x).astype(int), 0, len(every) - 1)
    return np.where(np.isnan(x) | np.isnan(y), np.float32(np.nan), np.where(x == y, y, every[step]))


CAST_CASES = [(a, b) for a in ALL for b in ALL]


@cache
def casts() -> Jitted:
    return Jitted(
        [
            pointwise(f"cast.{a.short}.{b.short}", "cast", (a,), b, len(cast_values(a)))
            for a, b in CAST_CASES
        ],
        level=1,
    )


def cast_values(a: DType) -> Array:
    edges = edge_values(a)
    if a.is_float:
        more = np.array(
            [
                255.5,
                256.5,
                65519.0,
                65520.0,
                2.0**31,
                2.0**63,
                -(2.0**63),
                2.0**64,
                1.0009765625,
                1.00048828125 + 2.0**-40,
                1.00390625 + 2.0**-45,
                3e-8 + 1e-16,
                5.9604645e-8 * 1.5,
                1e-40,
            ]
        )
        edges = np.concatenate([edges, plain(stored(more, a), a)])
    return edges


def _expected_cast(x: Array, a: DType, b: DType) -> Array:
    if a.is_complex and not b.is_complex and b.kind != "b":
        x = x.real
    if b.kind == "b":
        return x != 0
    if x.dtype.kind == "f" and b.is_integer:
        info = np.iinfo(b.numpy)
        return np.array(
            [
                0
                if math.isnan(v)
                else int(min(max(v, info.min), info.max))
                if math.isinf(v)
                else min(max(int(v), info.min), info.max)
                for v in x.tolist()
            ],
            b.numpy,
        )
    if b == bfloat16:
        if x.dtype == np.float64:
            return _round_bf16(x)
        return from_bf16(to_bf16(x.astype(np.float32)))
    return x.astype(b.numpy)


def _round_bf16(x: Array) -> Array:
    """float64 to bfloat16 in one rounding, by exact rational arithmetic over the two neighbours."""
    every = np.unique(from_bf16(np.arange(1 << 16, dtype=np.uint16)))
    every = every[np.isfinite(every)].astype(np.float64)
    out = []
    for v in x.tolist():
        if not math.isfinite(v) or abs(v) > every[-1]:
            limit = every[-1] + (every[-1] - every[-2]) / 2
            out.append(
                v if not math.isfinite(v) else math.copysign(math.inf if abs(v) >= limit else every[-1], v)
            )
            continue
        i = int(np.searchsorted(every, v))
        low, high = every[max(i - 1, 0)], every[i]
        even = low if int(to_bf16(np.array([low]))[0]) & 1 == 0 else high
        near = low if v - low < high - v else high if high - v < v - low else even
        out.append(math.copysign(near, v))
    return np.array(out, np.float32)


@pytest.mark.parametrize(("a", "b"), CAST_CASES, ids=lambda d: d.short)
def test_cast(a: DType, b: DType) -> None:
    x = cast_values(a)
    out = np.zeros(len(x), b.numpy)
    casts()(f"cast.{a.short}.{b.short}", np.ascontiguousarray(stored(x, a)), out)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want = _expected_cast(x, a, b)
    check(plain(out, b), want, b, 0.0, f"cast {a.short} to {b.short}")


def test_bitcast_and_select_and_complex() -> None:
    kernels, pairs = [], []
    reals = [d for d in ALL if d.kind in "iuf"]
    for a in reals:
        for b in reals:
            if a.bits == b.bits:
                kernels.append(
                    pointwise(f"bit.{a.short}.{b.short}", "bitcast", (a,), b, len(edge_values(a)))
                )
                pairs.append((a, b))
    kernels += [
        pointwise(f"select.{d.short}", "select", (bool_, d, d), d, len(edge_values(d))) for d in ALL
    ]
    kernels += [
        pointwise(f"complex.{d.short}", "complex", (d, d), d.complex, len(edge_values(d))) for d in FLOATS
    ]
    jitted = Jitted(kernels, level=1)
    for a, b in pairs:
        x = np.ascontiguousarray(stored(edge_values(a), a))
        out = np.zeros(len(x), b.numpy)
        jitted(f"bit.{a.short}.{b.short}", x, out)
        np.testing.assert_array_equal(out.view(np.uint8), x.view(np.uint8), f"{a.short} {b.short}")
    for d in ALL:
        x = np.ascontiguousarray(stored(edge_values(d), d))
        y, c = np.ascontiguousarray(x[::-1]), np.arange(len(x)) % 3 == 0
        out = np.zeros_like(x)
        jitted(f"select.{d.short}", c, x, y, out)
        np.testing.assert_array_equal(out.view(np.uint8), np.where(c, x, y).view(np.uint8), d.short)
    for d in FLOATS:
        x = np.ascontiguousarray(stored(edge_values(d), d))
        out = np.zeros(len(x), d.complex.numpy)
        jitted(f"complex.{d.short}", x, np.ascontiguousarray(x[::-1]), out)
        np.testing.assert_array_equal(out.real, plain(x, d))
        np.testing.assert_array_equal(out.imag, plain(x[::-1], d))


EXTREME = {complex64: 1e30, complex128: 1e300}


@pytest.mark.parametrize("d", [complex64, complex128], ids=lambda d: d.short)
def test_complex_does_not_overflow_early(d: DType) -> None:
    """Quotient, modulus, root, logarithm and hyperbolic functions of huge and tiny numbers."""
    big = EXTREME[d]
    wide = np.clongdouble
    x = np.array(
        [big + big * 1j, big - 3j, 2j * big, 1 / big + 2j / big, -big + 1j / big, 5 / big], d.numpy
    )
    y = np.array(
        [big - 2j * big, 2 * big + big * 1j, -3j * big, 3 / big - 1j / big, 1j * big, -7j / big], d.numpy
    )
    ops: list[tuple[str, Callable[..., Array], int]] = [
        ("div", np.divide, 2),
        ("abs", np.abs, 1),
        ("sqrt", np.sqrt, 1),
        ("log", np.log, 1),
        ("sign", _unit, 1),
    ]
    kernels = [pointwise(op, op, (d,) * n, result_dtype(op, d), len(x)) for op, _, n in ops]
    jitted = Jitted(kernels)
    for op, reference, n in ops:
        args = (x, y)[:n]
        out = np.zeros(len(x), result_dtype(op, d).numpy)
        jitted(op, *args, out)
        want = reference(*(a.astype(wide) for a in args))
        error = np.abs(out.astype(wide) - want) / np.abs(want)
        assert np.all(error < 8 * np.finfo(d.real.numpy).eps), (op, out, want)


def _unit(z: Array) -> Array:
    return z / np.abs(z)


def test_complex_log_near_unit_circle_keeps_its_digits() -> None:
    t = np.linspace(0.1, 6.2, 97)
    z = (np.cos(t) + 1j * np.sin(t)).astype(np.complex128)
    jitted = Jitted([pointwise("log", "log", (complex128,), complex128, len(z))])
    out = np.zeros_like(z)
    jitted("log", z, out)
    wide = np.clongdouble
    x, y = z.real.astype(wide).real, z.imag.astype(wide).real
    want = np.log1p((x - 1) * (x + 1) + y * y) / 2
    np.testing.assert_allclose(out.real, want.astype(np.float64), rtol=1e-2, atol=1e-19)


def test_functions_without_complex_formula_are_refused() -> None:
    with pytest.raises(CompileError, match="erf") as refused:
        pair_function("erf", float64)
    assert refused.value.why and refused.value.do


def test_constant_arguments_fold_as_variables_compute() -> None:
    """Division, shift and power by literals take their own paths."""
    d = int32
    x = edge_values(d)
    i = loop.var("i")
    cases = [
        ("floordiv", 7),
        ("floordiv", -3),
        ("floordiv", 0),
        ("floordiv", -1),
        ("rem", 7),
        ("rem", -3),
        ("rem", 0),
        ("rem", -1),
        ("shl", 31),
        ("shl", 32),
        ("shl", -1),
        ("shr", 5),
        ("shr", 40),
        ("pow", 0),
        ("pow", 13),
    ]
    kernels = [
        loop.Kernel(
            f"k{n}",
            (loop.Param("x", d, len(x), "r"), loop.Param("out", d, len(x), "w")),
            (
                loop.For(
                    "i",
                    loop.const(0),
                    loop.const(len(x)),
                    1,
                    loop.VECTOR,
                    (loop.Store("out", i, loop.expr(op, (loop.load("x", i, d), loop.const(c, d)), d)),),
                ),
            ),
        )
        for n, (op, c) in enumerate(cases)
    ]
    jitted = Jitted(kernels)
    for n, (op, c) in enumerate(cases):
        out = np.zeros_like(x)
        jitted(f"k{n}", x, out)
        with np.errstate(all="ignore"):
            want = NUMPY[op](x, np.full_like(x, c))
        np.testing.assert_array_equal(out, want, f"{op} {c}")

"""Floating-point primitives in what every shading language computes exactly: + - * compare, select, and bits."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.core.dtype import DType, bool_, float32, int32, uint32
from rlx.ir.expand.build import Layout, layout
from rlx.ir.loop import Assign, Expr, Let, Loop, Register, Stmt, const, expr, var
from rlx.render.portable.arith import bits, cast, f, is_nan, op, pick, test, u
from rlx.render.portable.helper import Helper

Name = Callable[[Expr], Expr]
#: Operations that every renderer spells for float32 (and float64 where it is native).
CORE = frozenset(("add", "sub", "mul", "div", "neg", "abs", "floor", "ceil", "trunc", "round", "sqrt", "eq", "ne", "lt",
                  "le", "gt", "ge", "isnan"))


def minimum(x: Expr, y: Expr, smaller: bool) -> Expr:
    """The smaller or larger number, NaN if either is NaN; of two zeros the negative or the positive one."""
    if x.op == "const" and x.value == x.value:
        x, y = y, x
    less = "lt" if smaller else "gt"
    if y.op == "const" and y.value == 0.0 and (math.copysign(1.0, y.value) < 0) != smaller:
        less = "le" if smaller else "ge"  # a zero on the left is the better one, or both are alike
    take = expr("or", (test(less, x, y), is_nan(x)), bool_)
    chosen = pick(take, x, y)
    if y.op == "const":
        return chosen
    k = layout(x.dtype)
    zero = _float(op("or" if smaller else "and", _bits(x, k), _bits(y, k)), k)
    return pick(test("eq", x, y), zero, chosen)


def sign(x: Expr) -> Expr:
    """-1, 0 or 1; NaN stays."""
    d = x.dtype
    ends = pick(test("gt", x, const(0.0, d)), const(1.0, d), x)
    below = pick(test("lt", x, const(0.0, d)), const(-1.0, d), ends)
    return pick(test("eq", x, const(0.0, d)), const(0.0, d), below)


def copysign(x: Expr, y: Expr) -> Expr:
    """The magnitude of ``x`` with the sign bit of ``y``."""
    k = layout(x.dtype)
    magnitude = op("and", _bits(x, k), const(k.sign - 1, k.unsigned))
    return _float(op("or", magnitude, op("and", _bits(y, k), const(k.sign, k.unsigned))), k)


def nextafter(name: Name, x: Expr, y: Expr) -> Expr:
    """The neighbour of x towards y: floats of one sign are ordered as their bits are."""
    k = layout(x.dtype)
    a, b = name(_bits(x, k)), name(_bits(y, k))
    zero = const(0.0, x.dtype)
    away = expr("xor", (test("lt", x, y), test("ge", a, const(k.sign, k.unsigned))), bool_)
    one, back = const(1, k.unsigned), const(2 ** k.unsigned.bits - 1, k.unsigned)
    moved = op("add", a, pick(away, one, back))
    least = op("or", op("and", b, const(k.sign, k.unsigned)), one)
    moved = pick(test("eq", x, zero), least, moved)
    moved = pick(test("eq", x, y), b, moved)
    moved = pick(is_nan(y), b, moved)
    return _float(pick(is_nan(x), a, moved), k)


def fused(d: DType) -> Helper:
    """``x*y + z`` rounded nearly once where the driver's fma rounds twice.

    The product is exact as p + e (Dekker 1971, halves cut by bits), the sum as s + t (Knuth); s + (t + e) is within
    0.50001 ulp, and exact where the result is. A product that overflows or is not finite is taken plainly.
    """
    k = layout(d)
    low = (k.mant + 2) // 2  # bits of the lower half, one of them its sign: the upper half is rounded
    keep = const((2 ** k.unsigned.bits - 1) ^ ((1 << low) - 1), k.unsigned)
    x, y, z = var("x", d), var("y", d), var("z", d)

    def upper(v: Expr) -> Expr:
        return _float(op("and", op("add", _bits(v, k), const(1 << (low - 1), k.unsigned)), keep), k)

    def v(n: str) -> Expr:
        return var(n, d)

    def add(a: Expr, b: Expr) -> Expr:
        return expr("add", (a, b), d)

    def sub(a: Expr, b: Expr) -> Expr:
        return expr("sub", (a, b), d)

    def mul(a: Expr, b: Expr) -> Expr:
        return expr("mul", (a, b), d)

    lets = {
        "p": mul(x, y),
        "xh": upper(x), "xl": sub(x, v("xh")), "yh": upper(y), "yl": sub(y, v("yh")),
        "e1": sub(mul(v("xh"), v("yh")), v("p")), "e2": add(v("e1"), mul(v("xh"), v("yl"))),
        "e3": add(v("e2"), mul(v("xl"), v("yh"))), "e": add(v("e3"), mul(v("xl"), v("yl"))),
        "s": add(v("p"), z), "b": sub(v("s"), v("p")), "a": sub(v("s"), v("b")),
        "da": sub(v("p"), v("a")), "db": sub(z, v("b")), "t": add(v("da"), v("db")),
        "c": add(v("t"), v("e")), "r": add(v("s"), v("c")),
    }
    body: tuple[Stmt, ...] = tuple([Let(n, e) for n, e in lets.items()])
    magnitude = op("and", _bits(v("r"), k), const(k.sign - 1, k.unsigned))
    infinite = const(2 * k.bias + 1 << k.mant, k.unsigned)
    return Helper(f"rlx_fma_{d.short}", (x, y, z), body, pick(test("ge", magnitude, infinite), v("s"), v("r")))


def remainder(d: DType) -> Helper:
    """C's ``fmod``, exact: subtract the largest y * 2**k that fits, until less than y is left."""
    x, y, r, s = var("x", d), var("y", d), var("r", d), var("s", d)
    bad = var("bad", bool_)
    size = var("size", d)
    infinity = const(float("inf"), d)
    lead = Let("shift", op("sub", _exponent(r), _exponent(size)))
    shift = var("shift", int32)
    half = expr("shr", (shift, const(1, int32)), int32)
    scaled = expr("mul", (expr("mul", (size, _power(half, d)), d), _power(op("sub", shift, half), d)), d)
    step = pick(test("gt", s, r), expr("mul", (s, const(0.5, d)), d), s)
    loop = Loop(test("ge", r, size), (
        lead, Assign("s", scaled), Assign("s", step), Assign("r", expr("sub", (r, s), d))))
    some = test("gt", expr("abs", (y,), d), const(0.0, d))
    ok = expr("and", (some, test("lt", expr("abs", (x,), d), infinity)), bool_)
    ok = expr("and", (ok, expr("not", (is_nan(y),), bool_)), bool_)
    body: tuple[Stmt, ...] = (
        Let("bad", expr("not", (ok,), bool_)),
        Let("size", pick(bad, const(1.0, d), expr("abs", (y,), d))),
        Register("r", pick(bad, const(0.0, d), expr("abs", (x,), d))),
        Register("s", const(0.0, d)),
        loop)
    value = pick(bad, const(float("nan"), d), copysign(r, x))
    return Helper(f"rlx_fmod_{d.short}", (x, y), body, value)


def floor_remainder(name: Name, m: Expr, x: Expr, y: Expr) -> Expr:
    """The remainder with the divisor's sign, from C's ``m``."""
    moved = pick(_off(m, y), expr("add", (m, y), m.dtype), m)
    moved = name(moved)
    return pick(test("eq", moved, const(0.0, m.dtype)), copysign(const(0.0, m.dtype), y), moved)


def floor_quotient(name: Name, m: Expr, x: Expr, y: Expr) -> Expr:
    """``floor(x / y)`` of the exact quotient: (x - m) / y is an integer up to one rounding."""
    d = m.dtype
    zero = const(0.0, d)
    q = expr("div", (expr("sub", (x, m), d), y), d)
    q = name(pick(_off(m, y), expr("sub", (q, const(1.0, d)), d), q))
    down = name(expr("floor", (q,), d))
    over = test("gt", expr("sub", (q, down), d), const(0.5, d))
    plain = name(expr("div", (x, y), d))
    whole = pick(over, expr("add", (down, const(1.0, d)), d), down)
    whole = pick(test("eq", q, zero), copysign(zero, plain), whole)
    return pick(test("eq", y, zero), plain, whole)


def _off(m: Expr, y: Expr) -> Expr:
    """Whether C's remainder is not zero and differs in sign from the divisor."""
    zero = const(0.0, m.dtype)
    signs = expr("xor", (test("lt", y, zero), test("lt", m, zero)), bool_)
    return expr("and", (signs, test("ne", m, zero)), bool_)


def _exponent(x: Expr) -> Expr:
    """floor(log2 |x|) of a positive number, denormals included, as int32."""
    k = layout(x.dtype)
    lift = 64
    small = test("lt", x, const(k.tiny, x.dtype))
    y = pick(small, expr("mul", (x, const(2.0**lift, x.dtype)), x.dtype), x)
    biased = cast(op("shr", _bits(y, k), const(k.mant, k.unsigned)), int32)
    return op("sub", biased, pick(small, const(k.bias + lift, int32), const(k.bias, int32)))


def _power(n: Expr, d: DType) -> Expr:
    """2**n for an int32 n in the range of normal numbers."""
    k = layout(d)
    return _float(op("shl", cast(op("add", n, const(k.bias, int32)), k.unsigned), const(k.mant, k.unsigned)), k)


def _bits(x: Expr, k: Layout) -> Expr:
    return expr("bitcast", (x,), k.unsigned)


def _float(b: Expr, k: Layout) -> Expr:
    return expr("bitcast", (b,), k.dtype)


# The 16-bit formats, held as float32.


def half_value(h: Expr) -> Expr:
    """float16 bits (an u32 below 2**16) as float32; no step makes a denormal."""
    sign_ = op("shl", op("and", h, u(0x8000)), u(16))
    exponent, mantissa = op("and", op("shr", h, u(10)), u(31)), op("and", h, u(0x3FF))
    normal = bits(op("add", op("shl", op("and", h, u(0x7FFF)), u(13)), u(112 << 23)), float32)
    small = expr("mul", (cast(mantissa, float32), f(2.0**-24)), float32)
    special = bits(op("or", op("shl", mantissa, u(13)), u(0x7F800000)), float32)
    magnitude = pick(test("eq", exponent, u(31)), special, pick(test("eq", exponent, u(0)), small, normal))
    return bits(op("or", bits(magnitude), sign_), float32)


def half_bits(x: Expr) -> Expr:
    """float32 to the nearest float16, ties to even, as bits."""
    b = bits(x)
    a = op("and", b, u(0x7FFFFFFF))
    rounded = op("shr", op("add", op("sub", a, u((112 << 23) - 0xFFF)), op("and", op("shr", a, u(13)), u(1))), u(13))
    scaled = expr("mul", (bits(a, float32), f(2.0**24)), float32)
    small = cast(expr("round", (pick(test("lt", a, u(113 << 23)), scaled, f(0.0)),), float32), uint32)
    value = pick(test("lt", a, u(113 << 23)), small, rounded)
    value = pick(test("ge", a, u(0x477FF000)), u(0x7C00), value)  # 65520 and more round to infinity
    value = pick(test("gt", a, u(0x7F800000)), u(0x7E00), value)
    return op("or", value, op("and", op("shr", b, u(16)), u(0x8000)))


def brain_value(h: Expr) -> Expr:
    """bfloat16 bits as float32."""
    return bits(op("shl", h, u(16)), float32)


def brain_bits(x: Expr) -> Expr:
    """float32 to the nearest bfloat16, ties to even, as bits."""
    b = bits(x)
    rounded = op("shr", op("add", op("add", b, u(0x7FFF)), op("and", op("shr", b, u(16)), u(1))), u(16))
    nan = test("gt", op("and", b, u(0x7FFFFFFF)), u(0x7F800000))
    return pick(nan, op("or", op("shr", b, u(16)), u(0x40)), rounded)


def narrow_helpers() -> dict[str, Helper]:
    """Conversions by name: ``half_value``, ``half_bits``, ``brain_value``, ``brain_bits``."""
    h, x = var("h", uint32), var("x", float32)
    return {
        "half_value": Helper("rlx_half_value", (h,), (), half_value(h)),
        "half_bits": Helper("rlx_half_bits", (x,), (), half_bits(x)),
        "brain_value": Helper("rlx_brain_value", (h,), (), brain_value(h)),
        "brain_bits": Helper("rlx_brain_bits", (x,), (), brain_bits(x)),
    }

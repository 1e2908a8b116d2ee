"""``cast`` and ``bitcast`` between all dtypes, on the parts by which the device holds them."""

from __future__ import annotations

from typing import Protocol

from rlx.core.dtype import DType, bool_, float32, float64, int32, int64, uint32, uint64
from rlx.ir.loop import Expr, const, expr, var
from rlx.render.portable import wide
from rlx.render.portable.arith import ZERO, bits, cast, i, is_nan, op, pick, test, u
from rlx.render.portable.forms import Form
from rlx.render.portable.helper import Helper

Parts = tuple[Expr, ...]
#: The helper that widens int32 to a native int64.
WIDEN = "rlx_widen"


class Context(Protocol):
    """What conversions need of the rewriter."""

    def form(self, dtype: DType) -> Form: ...
    def name(self, e: Expr) -> Expr: ...
    def helper(self, name: str, *args: Expr) -> Expr: ...
    def call(self, helper: Helper, args: tuple[Expr, ...]) -> Expr: ...


def convert(c: Context, x: Parts, src: DType, dst: DType) -> Parts:
    """The value as another dtype: float to integer truncates and saturates, complex drops its imaginary part."""
    if src == dst:
        return x
    if src.is_complex:
        return _from_complex(c, x, src, dst)
    if dst.is_complex:
        return (*convert(c, x, src, dst.real), const(0.0, dst.real))
    if dst.kind == "b":
        return (_truth(x, src),)
    if src.kind == "b":
        return _from_bool(c, x[0], dst)
    if src.is_float:
        return _from_float(c, x[0], src, dst)
    return _from_integer(c, x, src, dst)


def _from_complex(c: Context, x: Parts, src: DType, dst: DType) -> Parts:
    if dst.is_complex:
        return tuple([convert(c, (p,), src.real, dst.real)[0] for p in x])
    if dst.kind == "b":
        return (expr("or", (_truth(x[:1], src.real), _truth(x[1:], src.real)), bool_),)
    return convert(c, x[:1], src.real, dst)


def _truth(x: Parts, src: DType) -> Expr:
    if len(x) == 2:
        return test("ne", op("or", x[0], x[1]), ZERO)
    return test("ne", x[0], const(0, x[0].dtype))


def _from_bool(c: Context, x: Expr, dst: DType) -> Parts:
    form = c.form(dst)
    if form.wide:
        return cast(x, uint32), ZERO
    return (cast(x, form.parts[0]),)


def _from_float(c: Context, x: Expr, src: DType, dst: DType) -> Parts:
    form = c.form(dst)
    if dst.is_float:
        y = cast(x, form.parts[0])
        return (round_to(c, y, dst),)
    if form.wide:
        return wide.from_float(c.name, dst.kind == "i", c.name(cast(x, float32)))
    x = c.name(x)
    top = 2 ** (dst.bits - (dst.kind == "i")) - 1
    bottom = -(2 ** (dst.bits - 1)) if dst.kind == "i" else 0
    target = form.parts[0]
    # The ends are compared as powers of two, which every float holds; one above the top already saturates.
    over = test("ge", x, const(float(top + 1), x.dtype))
    under = test("lt" if bottom else "le", x, const(float(bottom), x.dtype))
    inside = c.name(expr("not", (expr("or", (expr("or", (over, under), bool_), is_nan(x)), bool_),), bool_))
    value = expr("cast", (pick(inside, x, const(0.0, x.dtype)),), target)
    value = pick(over, const(top, target), value)
    return (pick(under, const(bottom, target), value),)


def _from_integer(c: Context, x: Parts, src: DType, dst: DType) -> Parts:
    source, target = c.form(src), c.form(dst)
    if dst.is_float:
        return (round_to(c, _to_float(c, x, src, target.parts[0]), dst),)
    if source.wide:
        return x if target.wide else (wrap(_word(c, x[0], target), dst, target),)
    if target.wide:
        low = x[0] if x[0].dtype.bits == 64 else bits(x[0], uint32)
        high = bits(expr("shr", (x[0], i(31)), int32), uint32) if src.kind == "i" else ZERO
        return low, high
    d, part = x[0].dtype, target.parts[0]
    if d.bits == part.bits == 32:
        y = bits(x[0], part)
        narrower = dst.bits < src.bits or (dst.bits == src.bits < 32 and dst.kind != src.kind) or (
            dst.bits < 32 and src.kind == "i" and dst.kind == "u")
        return (wrap(y, dst, target) if narrower else y,)
    return (wrap(_resize(c, x[0], part), dst, target),)


def _widen() -> Helper:
    """int32 to int64 by words: Mesa 22.3 answers comparisons with the plain conversion wrongly."""
    x = var("x", int32)
    low, high = (expr("cast", (bits(w),), uint64) for w in (x, expr("shr", (x, i(31)), int32)))
    both = expr("or", (low, expr("shl", (high, const(32, uint64)), uint64)), uint64)
    return Helper(WIDEN, (x,), (), expr("bitcast", (both,), int64))


def _resize(c: Context, x: Expr, part: DType) -> Expr:
    """Between native integers: widen by the source's sign, or keep the low bits."""
    if x.dtype.bits == part.bits:
        return expr("bitcast", (x,), part)
    if part == int32:
        return bits(expr("cast", (x,), uint32), int32)
    if x.dtype == int32 and part.bits == 64:
        wide_ = c.call(_widen(), (x,))
        return wide_ if part == int64 else expr("bitcast", (wide_,), part)
    if x.dtype == uint32 and part == int64:
        # The direct conversion extends the sign in naga's output.
        return expr("bitcast", (expr("cast", (x,), uint64),), int64)
    return expr("cast", (x,), part)


def _word(c: Context, low: Expr, target: Form) -> Expr:
    return bits(low, target.parts[0])


def _to_float(c: Context, x: Parts, src: DType, part: DType) -> Expr:
    if len(x) == 1:
        return cast(x[0], part)
    if part == float64:
        high = bits(x[1], int32) if src.kind == "i" else x[1]
        scaled = expr("mul", (cast(high, float64), const(4294967296.0, float64)), float64)
        return expr("add", (scaled, cast(x[0], float64)), float64)
    return wide.to_float(c.name, src.kind == "i", (x[0], x[1]))


def wrap(x: Expr, dtype: DType, form: Form) -> Expr:
    """A 32-bit value modulo the width of a narrow integer, sign-extended."""
    if not form.per_word or dtype.kind not in "iu":
        return x
    if dtype.kind == "u":
        return op("and", x, u(2**dtype.bits - 1))
    by = i(32 - dtype.bits)
    return expr("shr", (expr("shl", (x, by), int32), by), int32)


def round_to(c: Context, x: Expr, dtype: DType) -> Expr:
    """A float32 rounded to the 16-bit format it stands for."""
    kind = {"float16": "half", "bfloat16": "brain"}.get(dtype.name)
    if kind is None or c.form(dtype).parts[0] == dtype:
        return x
    return c.helper(f"{kind}_value", c.helper(f"{kind}_bits", x))


def bitcast(c: Context, x: Parts, src: DType, dst: DType) -> Parts:
    """The same bits as another dtype of the same width; a bool is the byte 0 or 1."""
    source, target = c.form(src), c.form(dst)
    if "b" in (src.kind, dst.kind) or (src.is_integer and dst.is_integer and src.bits < 32):
        return convert(c, x, src, dst)
    if source.wide or target.wide:
        return x
    if src.bits == 16 and source.per_word and target.per_word:
        word = _raw(c, x[0], src)
        return (_cooked(c, word, dst, target),)
    return (bits(x[0], target.parts[0]) if src.bits == 32 else expr("bitcast", (x[0],), target.parts[0]),)


def _raw(c: Context, x: Expr, src: DType) -> Expr:
    """The 16 bits of a value, as an u32."""
    if src.is_float:
        return c.helper("half_bits" if src.name == "float16" else "brain_bits", x)
    return op("and", bits(x, uint32), u(0xFFFF))


def _cooked(c: Context, word: Expr, dst: DType, form: Form) -> Expr:
    if dst.is_float:
        return c.helper("half_value" if dst.name == "float16" else "brain_value", word)
    return wrap(bits(word, form.parts[0]), dst, form)


def unpack(c: Context, word: Expr, lane: Expr, dtype: DType) -> Expr:
    """Element ``lane`` of a word of packed elements."""
    form = c.form(dtype)
    width = 32 // form.per_word
    raw = op("and", op("shr", word, op("mul", lane, u(width))), u(2**width - 1))
    if dtype.kind == "b":
        return test("ne", raw, ZERO)
    return _cooked(c, raw, dtype, form)


def pack(c: Context, x: Expr, dtype: DType) -> Expr:
    """The bits of one element, in the low end of a word."""
    if dtype.kind == "b":
        return cast(x, uint32)
    if dtype.is_float:
        return _raw(c, x, dtype)
    return op("and", bits(x, uint32), u(2**dtype.bits - 1))

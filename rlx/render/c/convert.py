"""``cast``, ``bitcast``, ``nextafter`` of 16-bit floats, and the two 16-bit formats as bits."""

from __future__ import annotations

from rlx.core.dtype import DType, float32, float64
from rlx.render.c import floating
from rlx.render.c.dialect import register
from rlx.render.c.integer import wrap
from rlx.render.c.unit import Unit

# float32 -> float16 bits, to nearest even. 0x477ff000 is 65520, from which on it rounds to infinity; 0x33000000
# is 2**-25, half the least denormal; 0x38800000 is 2**-14, the least normal number.
_F16_BITS = """
^ $u32 rlx_f16_bits($f32 x) {
  $u32 b = #f32:u32(x), s = (b >> 16) & 0x8000u, m = b & 0x7fffffffu;
  if (m > 0x7f800000u) { return s | 0x7e00u | ((m >> 13) & 0x3ffu); }
  if (m >= 0x477ff000u) { return s | 0x7c00u; }
  if (m <= 0x33000000u) { return s; }
  if (m < 0x38800000u) {
    $u32 n = 126u - (m >> 23), f = (m & 0x7fffffu) | 0x800000u;
    $u32 q = f >> n, rest = f & ((1u << n) - 1u), tie = 1u << (n - 1u);
    return s | (q + ((rest > tie || (rest == tie && (q & 1u) != 0u)) ? 1u : 0u));
  }
  $u32 r = m - 0x38000000u;
  return s | ((r + 0xfffu + ((r >> 13) & 1u)) >> 13);
}"""
_F16_VALUE = """
^ $f32 rlx_f16_value($u32 h) {
  $u32 s = (h & 0x8000u) << 16, e = (h >> 10) & 31u, f = h & 0x3ffu;
  if (e == 31u) { return #u32:f32(s | 0x7f800000u | (f << 13)); }
  if (e == 0u) { return #u32:f32(s | #f32:u32(@f32(f) * %least%)); }
  return #u32:f32(s | ((e + 112u) << 23) | (f << 13));
}"""
_BF16_BITS = """
^ $u32 rlx_bf16_bits($f32 x) {
  $u32 b = #f32:u32(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) { return (b >> 16) | 0x40u; }
  return (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
}"""
_BF16_VALUE = "^ $f32 rlx_bf16_value($u32 h) { return #u32:f32(h << 16); }"
# Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", IEEE Trans. Computers 57 (2008).
_TO_ODD = """
^ $f32 rlx_to_odd($f64 x) {
  $f32 y = @f32(x);
  $f64 back = @f64(y);
  $u32 b = #f32:u32(y);
  if (back == x || (b & 1u) != 0u || rlx_isnan_f64(x)) { return y; }
  return #u32:f32(%abs%(back) < %abs%(x) ? b + 1u : b - 1u);
}"""
_TO_INTEGER = """
^ $%R% %name%($%T% x) {
  if (rlx_isnan_%T%(x)) { return %zero%; }
  if (x >= %above%) { return %high%; }
  if (x <= %below%) { return %low%; }
  return @%R%(x);
}"""


def bits16(u: Unit, d: DType, x: str) -> str:
    """The 16 bits of a float16 or bfloat16, in a ``u32`` register; the value may need rounding."""
    name = u.template(f"rlx_{d.short}_bits", _F16_BITS if d.short == "f16" else _BF16_BITS)
    return f"{name}({x})"


def value16(u: Unit, d: DType, bits: str) -> str:
    """The float32 value of 16 bits."""
    name = u.template(
        f"rlx_{d.short}_value", _F16_VALUE if d.short == "f16" else _BF16_VALUE, least=u.d.number(2.0**-24, "f32")
    )
    return f"{name}({bits})"


def rounded(u: Unit, d: DType, x: str) -> str:
    """A float32 register rounded to float16 or bfloat16."""
    value16(u, d, "0u")
    bits16(u, d, x)
    u.template(
        f"rlx_round_{d.short}",
        f"^ $f32 rlx_round_{d.short}($f32 x) {{ return rlx_{d.short}_value(rlx_{d.short}_bits(x)); }}",
    )
    return f"rlx_round_{d.short}({x})"


def cast(u: Unit, x: str, src: DType, dst: DType) -> str:
    """A real value as another real dtype; float to integer truncates, saturates, and sends NaN to 0."""
    if src == dst:
        return x
    if dst.kind == "b":
        return f"(!({x} == {u.d.number(0, register(src))}))"
    if src.kind == "b":
        return f"({x} ? {u.d.number(1, register(dst))} : {u.d.number(0, register(dst))})"
    if src.is_float:
        return _from_float(u, x, src, dst)
    if dst.is_float:
        y = u.d.cast(register(dst), x)
        return rounded(u, dst, y) if dst.bits == 16 else y
    return wrap(u, dst, x if register(src) == register(dst) else u.d.cast(register(dst), x))


def _from_float(u: Unit, x: str, src: DType, dst: DType) -> str:
    r = register(src)
    if dst.is_float:
        if dst.bits == 16:
            return rounded(u, dst, _to_odd(u, x) if src == float64 else x)
        return x if r == register(dst) else u.d.cast(register(dst), x)
    name = f"rlx_{r}_to_{dst.short}"
    floating.isnan(u, float64 if r == "f64" else float32, x)
    low = -(1 << (dst.bits - 1)) if dst.kind == "i" else 0
    high = (1 << (dst.bits - (dst.kind == "i"))) - 1
    to = register(dst)
    u.template(
        name,
        _TO_INTEGER,
        name=name,
        T=r,
        R=to,
        zero=u.d.number(0, to),
        low=u.d.number(low, to),
        high=u.d.number(high, to),
        below=u.d.number(float(low), r),
        above=u.d.number(float(high + 1), r),
    )
    return f"{name}({x})"


def _to_odd(u: Unit, x: str) -> str:
    floating.isnan(u, float64, x)
    return f"{u.template('rlx_to_odd', _TO_ODD, abs=u.d.math['abs', 'f64'])}({x})"


def bitcast(u: Unit, x: str, src: DType, dst: DType) -> str:
    """The same bits as another dtype of the same width; a bool is the byte 0 or 1."""
    if src == dst:
        return x
    if src.kind == "b" or dst.kind == "b":
        return cast(u, x, src, dst)
    if src.bits == 16 and src.is_float:
        return _narrowed(u, bits16(u, src, x), dst)
    if dst.bits == 16 and dst.is_float:
        return value16(u, dst, f"({u.d.cast('u32', x)} & 0xffffu)")
    return wrap(u, dst, u.d.bitcast(register(src), register(dst), x))


def _narrowed(u: Unit, bits: str, dst: DType) -> str:
    if dst.is_float:
        return value16(u, dst, bits)
    return wrap(u, dst, bits if dst.kind == "u" else u.d.cast("i32", bits))


_NEXT16 = """
^ $f32 %name%($f32 x, $f32 y) {
  if (rlx_isnan_f32(x)) { return x; }
  if (rlx_isnan_f32(y) || x == y) { return y; }
  $u32 b = %S%_bits(x);
  if (x == %zero%) { return %S%_value((%S%_bits(y) & 0x8000u) | 1u); }
  return %S%_value((x < y) == (x > %zero%) ? b + 1u : b - 1u);
}"""


def nextafter16(u: Unit, d: DType, x: str, y: str) -> str:
    """The neighbour of x towards y among the 16-bit floats of its format."""
    floating.isnan(u, float32, x)
    rounded(u, d, x)
    name = f"rlx_nextafter_{d.short}"
    return f"{u.template(name, _NEXT16, name=name, S=f'rlx_{d.short}', zero=u.d.number(0.0, 'f32'))}({x}, {y})"

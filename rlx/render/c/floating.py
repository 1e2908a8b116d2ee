"""Floating-point primitives on ``f32`` and ``f64`` registers as C expressions. NaN is known by its bits: some
drivers compile ``x != x`` to false.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx.core.dtype import DType
from rlx.core.errors import CompileError
from rlx.render.c.dialect import register
from rlx.render.c.integer import COMPARE
from rlx.render.c.unit import Unit

Rule = Callable[..., str]
_SIGN = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
#: All bits but the sign, and those of infinity.
_MASK = {"f32": ("0x7fffffff", "0x7f800000"), "f64": ("0x7fffffffffffffff", "0x7ff0000000000000")}


def words(u: Unit, r: str) -> dict[str, str]:
    """The names templates use: ``T`` the float, ``U`` and ``I`` integers as wide, and masks with their suffix."""
    w = "u" + r[1:]
    suffix = u.d.suffix[w]
    rest, inf = _MASK[r]
    top = "0x8" + "0" * (int(r[1:]) // 4 - 1)
    return {
        "T": r,
        "U": w,
        "I": "i" + r[1:],
        "rest": rest + suffix,
        "inf": inf + suffix,
        "top": top + suffix,
        "zero": u.d.number(0.0, r),
        "one": u.d.number(1.0, r),
        "half": u.d.number(0.5, r),
        "uone": u.d.number(1, w),
        "uzero": u.d.number(0, w),
    }


def _arith(op: str) -> Rule:
    return lambda u, d, x, y: f"({x} {_SIGN[op]} {y})"


def _call(op: str) -> Rule:
    def rule(u: Unit, d: DType, *args: str) -> str:
        name = u.d.math.get((op, register(d)))
        if name is None:
            raise CompileError(
                f"{u.d.name} has no {op} on {register(d)}",
                why="its language has no such function",
                do="use another dtype or another device",
            )
        return f"{name}({', '.join(args)})"

    return rule


def _compare(op: str) -> Rule:
    if op == "ne":
        return lambda u, d, x, y: f"(!({x} == {y}))"
    return lambda u, d, x, y: f"({x} {COMPARE[op]} {y})"


_ISNAN = "^ bool %name%($%T% x) { return (#%T%:%U%(x) & %rest%) > %inf%; }"
_MIN = """
^ $%T% %name%($%T% x, $%T% y) {
  if (rlx_isnan_%T%(x)) { return x; }
  if (rlx_isnan_%T%(y)) { return y; }
  if (x == y) { return #%U%:%T%(#%T%:%U%(x) %zeros% #%T%:%U%(y)); }
  return x %less% y ? x : y;
}"""
_SIGN_OF = """
^ $%T% %name%($%T% x) {
  if (x > %zero%) { return %one%; }
  if (x < %zero%) { return -%one%; }
  return x == %zero% ? %zero% : x;
}"""
_COPYSIGN = """
^ $%T% %name%($%T% x, $%T% y) { return #%U%:%T%((#%T%:%U%(x) & %rest%) | (#%T%:%U%(y) & %top%)); }"""
_REM = """
^ $%T% %name%($%T% x, $%T% y) {
  %exact%$%T% m = %fmod%(x, y);
  if (!(m == %zero%) && ((y < %zero%) != (m < %zero%))) { m = m + y; }
  return m == %zero% ? rlx_copysign_%T%(%zero%, y) : m;
}"""
_FLOORDIV = """
^ $%T% %name%($%T% x, $%T% y) {
  if (y == %zero%) { return x / y; }
  %exact%$%T% m = %fmod%(x, y);
  %exact%$%T% q = (x - m) / y;
  if (!(m == %zero%) && ((y < %zero%) != (m < %zero%))) { q = q - %one%; }
  if (q == %zero%) { return rlx_copysign_%T%(%zero%, x / y); }
  %exact%$%T% down = %floor%(q);
  return q - down > %half% ? down + %one% : down;
}"""
_NEXTAFTER = """
^ $%T% %name%($%T% x, $%T% y) {
  if (rlx_isnan_%T%(x)) { return x; }
  if (rlx_isnan_%T%(y) || x == y) { return y; }
  $%U% b = #%T%:%U%(x);
  if (x == %zero%) { return #%U%:%T%((#%T%:%U%(y) & %top%) | %uone%); }
  return #%U%:%T%((x < y) == (x > %zero%) ? b + %uone% : b - %uone%);
}"""
# The remainder by long division in binary, exact for all finite arguments, for languages whose own is not.
_FMOD = """
^ $%T% %name%($%T% x, $%T% y) {
  $%U% a = #%T%:%U%(x) & %rest%, b = #%T%:%U%(y) & %rest%, s = #%T%:%U%(x) & %top%;
  if (b == %uzero% || a >= %inf% || b > %inf%) { return #%U%:%T%(%inf% | (%inf% >> 1)); }
  if (a < b) { return x; }
  $i32 ea = @i32(a >> %m%), eb = @i32(b >> %m%);
  $%U% lead = %uone% << %m%, ma = a & (lead - %uone%), mb = b & (lead - %uone%);
  if (ea == 0) { ea = 1; } else { ma = ma | lead; }
  if (eb == 0) { eb = 1; } else { mb = mb | lead; }
  while (ma < lead) { ma = ma << 1; ea = ea - 1; }
  while (mb < lead) { mb = mb << 1; eb = eb - 1; }
  while (ea > eb) {
    if (ma >= mb) { ma = ma - mb; }
    ma = ma << 1;
    ea = ea - 1;
  }
  if (ma >= mb) { ma = ma - mb; }
  if (ma == %uzero%) { return #%U%:%T%(s); }
  while (ma < lead) { ma = ma << 1; ea = ea - 1; }
  if (ea > 0) { return #%U%:%T%(s | (ma - lead) | (@%U%(ea) << %m%)); }
  return #%U%:%T%(s | (ma >> @u32(1 - ea)));
}"""


def _simple(op: str, text: str, *needs: str) -> Rule:
    """A helper function from a template, after the helpers it calls (``needs``, all made of templates too)."""

    def rule(u: Unit, d: DType, *args: str) -> str:
        r = register(d)
        name = f"rlx_{op}_{r}"
        if not u.has(name):
            for other in needs:
                RULES[other](u, d, "x", "x")
            if op in ("min", "max") and (op, r) in u.d.support_for:
                return f"{u.template(name, u.d.support_for[op, r])}({', '.join(args)})"
            names = words(u, r) | {
                "exact": u.d.exact,
                "less": "<" if op == "min" else ">",
                "zeros": "|" if op == "min" else "&",  # of two zeros the negative one, the positive one
                "m": "23" if r == "f32" else "52",
            }
            if "%fmod%" in text:
                names["fmod"] = _fmod(u, d)
            if "%floor%" in text:
                names["floor"] = u.d.math["floor", r]
            u.template(name, text, name=name, **names)
        return f"{name}({', '.join(args[:1] if op in ('isnan', 'sign') else args)})"

    return rule


def _fmod(u: Unit, d: DType) -> str:
    """The name of the remainder function with the dividend's sign."""
    own = u.d.math.get(("fmod", register(d)))
    if own is None:
        _simple("fmod", _FMOD)(u, d, "x", "y")
        return f"rlx_fmod_{register(d)}"
    return own


def isnan(u: Unit, d: DType, x: str) -> str:
    """Whether a register is NaN."""
    return RULES["isnan"](u, d, x)


RULES: dict[str, Rule] = {
    **{op: _arith(op) for op in _SIGN},
    **{op: _compare(op) for op in COMPARE},
    **{op: _call(op) for op in ("abs", "floor", "ceil", "trunc", "round", "sqrt", "fma")},
    "neg": lambda u, d, x: f"(-{x})",
    "isnan": _simple("isnan", _ISNAN),
    "min": _simple("min", _MIN, "isnan"),
    "max": _simple("max", _MIN, "isnan"),
    "sign": _simple("sign", _SIGN_OF),
    "copysign": _simple("copysign", _COPYSIGN),
    "rem": _simple("rem", _REM, "copysign"),
    "floordiv": _simple("floordiv", _FLOORDIV, "copysign"),
    "nextafter": _simple("nextafter", _NEXTAFTER, "isnan"),
}

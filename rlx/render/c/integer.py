"""Integer and bool primitives as C expressions, with the meaning that :mod:`rlx.ir.prim` states.

Signed arithmetic that may leave its range runs on unsigned registers, where C defines it.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx.core.dtype import DType
from rlx.render.c.dialect import register
from rlx.render.c.unit import Unit

Rule = Callable[..., str]
_SIGN = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def wrap(u: Unit, d: DType, text: str) -> str:
    """A register value brought into the range of a narrow dtype; wider ones are as wide as their register."""
    if d.kind == "b" or d.bits >= 32:
        return text
    if d.kind == "u":
        return f"({text} & {(1 << d.bits) - 1}u)"
    n = 32 - d.bits
    return f"({u.d.fill(f'@i32(@u32({text}) << {n})')} >> {n})"


def unsigned(d: DType) -> str:
    """The unsigned register of the same width."""
    return "u64" if d.bits == 64 else "u32"


def _arith(op: str) -> Rule:
    def rule(u: Unit, d: DType, x: str, y: str, plain: bool = False) -> str:
        r = register(d)
        if r[0] == "u" or plain or d.bits < 32:
            return wrap(u, d, f"({x} {_SIGN[op]} {y})")
        w = unsigned(d)
        return u.d.cast(r, f"{u.d.cast(w, x)} {_SIGN[op]} {u.d.cast(w, y)}")

    return rule


def _bitwise(op: str) -> Rule:
    def rule(u: Unit, d: DType, x: str, y: str) -> str:
        if d.kind == "b":
            return f"({x} != {y})" if op == "xor" else f"({x} {'&&' if op == 'and' else '||'} {y})"
        return f"({x} {_SIGN[op]} {y})"

    return rule


def _compare(op: str) -> Rule:
    def rule(u: Unit, d: DType, x: str, y: str) -> str:
        if d.kind == "b" and op not in ("eq", "ne"):
            x, y = (f"({a} ? 1 : 0)" for a in (x, y))
        return f"({x} {COMPARE[op]} {y})"

    return rule


def _neg(u: Unit, d: DType, x: str) -> str:
    w = unsigned(d)
    zero = u.d.number(0, w)
    return wrap(u, d, u.d.cast(register(d), f"{zero} - {u.d.cast(w, x)}"))


def _one_line(op: str, body: str, arity: int = 2) -> Rule:
    """A helper of one expression in ``x`` and ``y``; ``ONE`` and ``ZERO`` are literals."""

    def rule(u: Unit, d: DType, *args: str) -> str:
        if d.kind == "b":
            return f"({args[0]} {'&&' if op == 'min' else '||'} {args[1]})"
        if d.kind == "u" and op == "abs":
            return args[0]
        r, name = register(d), f"rlx_{op}_{register(d)}"
        params = ", ".join(f"${r} {p}" for p in ("x", "y")[:arity])
        minus = u.d.fill(f"@{r}({u.d.number(0, unsigned(d))} - @{unsigned(d)}(x))")
        text = body.replace("ONE", u.d.number(1, r)).replace("ZERO", u.d.number(0, r)).replace("MINUS", minus)
        u.template(name, f"^ ${r} {name}({params}) {{ return {text}; }}")
        made = f"{name}({', '.join(args)})"
        return wrap(u, d, made) if op == "abs" else made

    return rule


def _not(u: Unit, d: DType, x: str) -> str:
    return f"(!{x})" if d.kind == "b" else wrap(u, d, f"(~{x})")


_DIVIDE = {
    ("floordiv", "i"): """
^ $%T% %name%($%T% a, $%T% b) {
  if (b == 0) { return 0; }
  if (b == -1) { return @%T%(%zero% - @%U%(a)); }
  $%T% q = a / b;
  $%T% r = a - q * b;
  return (r != 0 && ((r < 0) != (b < 0))) ? q - 1 : q;
}""",
    ("rem", "i"): """
^ $%T% %name%($%T% a, $%T% b) {
  if (b == 0 || b == -1) { return 0; }
  $%T% r = a - (a / b) * b;
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}""",
    ("floordiv", "u"): "^ $%T% %name%($%T% a, $%T% b) { return b == 0 ? %zero% : a / b; }",
    ("rem", "u"): "^ $%T% %name%($%T% a, $%T% b) { return b == 0 ? %zero% : a % b; }",
}


def _divide(op: str) -> Rule:
    def rule(u: Unit, d: DType, x: str, y: str) -> str:
        r = register(d)
        name = f"rlx_{op}_{r}"
        u.template(name, _DIVIDE[op, r[0]], T=r, U=unsigned(d), zero=u.d.number(0, unsigned(d)), name=name)
        return wrap(u, d, f"{name}({x}, {y})")

    return rule


def natural(u: Unit, op: str, x: str, y: str) -> str:
    """``floordiv`` or ``rem`` of a non-negative number by a positive constant."""
    return f"({x} {'/' if op == 'floordiv' else '%'} {y})"


_POWER = """
^ $%T% %name%($%T% x, $%T% y) {
%negative%  $%U% r = %one%;
  $%U% b = @%U%(x);
  for ($%U% e = @%U%(y); e != 0; e = e >> 1) {
    if ((e & 1) != 0) { r = r * b; }
    b = b * b;
  }
  return @%T%(r);
}"""
_NEGATIVE = """  if (y < 0) {
    if (x == 1) { return 1; }
    if (x == -1) { return (y & 1) == 0 ? 1 : -1; }
    return 0;
  }
"""


def _pow(u: Unit, d: DType, x: str, y: str) -> str:
    """Square and multiply; for exponents below zero the reciprocal, truncated."""
    r = register(d)
    name = f"rlx_pow_{r}"
    u.template(
        name,
        _POWER,
        negative=_NEGATIVE if r[0] == "i" else "",
        T=r,
        U=unsigned(d),
        one=u.d.number(1, unsigned(d)),
        name=name,
    )
    return wrap(u, d, f"{name}({x}, {y})")


def _amount(y: str, bits: int) -> str:
    """The literal shift amount below the width, as a plain number; '' for anything else."""
    digits = y.rstrip("uUlL")
    return digits if digits.isdigit() and int(digits) < bits else ""


def _shl(u: Unit, d: DType, x: str, y: str) -> str:
    r, w = register(d), unsigned(d)
    if n := _amount(y, d.bits):
        return wrap(u, d, f"({x} << {n})" if r == w else u.d.cast(r, f"{u.d.cast(w, x)} << {n}"))
    name = f"rlx_shl_{d.short}"
    u.template(
        name,
        f"""
^ ${r} {name}(${r} x, ${r} y) {{
  return (y < 0 || y >= {d.bits}) ? {u.d.number(0, r)} : @{r}(@{w}(x) << @u32(y));
}}""".replace("y < 0 || ", "" if r[0] == "u" else "y < 0 || "),
    )
    return wrap(u, d, f"{name}({x}, {y})")


def _shr(u: Unit, d: DType, x: str, y: str) -> str:
    r = register(d)
    if n := _amount(y, d.bits):
        return f"({x} >> {n})"
    name = f"rlx_shr_{d.short}"
    zero = u.d.number(0, r)
    far = f"(x < 0 ? -{u.d.number(1, r)} : {zero})" if r[0] == "i" else zero
    u.template(
        name,
        f"""
^ ${r} {name}(${r} x, ${r} y) {{
  return (y < 0 || y >= {d.bits}) ? {far} : (x >> @u32(y));
}}""".replace("y < 0 || ", "" if r[0] == "u" else "y < 0 || "),
    )
    return f"{name}({x}, {y})"


_POPCOUNT = """
^ $u32 rlx_popcount_u32($u32 x) {
  x = x - ((x >> 1) & 0x55555555u);
  x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
  x = (x + (x >> 4)) & 0x0f0f0f0fu;
  return (x * 0x01010101u) >> 24;
}"""
_CLZ = """
^ $u32 rlx_clz_u32($u32 x) {
  if (x == 0u) { return 32u; }
  $u32 n = 0u;
  if ((x & 0xffff0000u) == 0u) { n += 16u; x = x << 16; }
  if ((x & 0xff000000u) == 0u) { n += 8u; x = x << 8; }
  if ((x & 0xf0000000u) == 0u) { n += 4u; x = x << 4; }
  if ((x & 0xc0000000u) == 0u) { n += 2u; x = x << 2; }
  return (x & 0x80000000u) == 0u ? n + 1u : n;
}"""
_COUNT64 = {
    "popcount": """
^ $u32 rlx_popcount_u64($u64 x) { return rlx_popcount_u32(@u32(x)) + rlx_popcount_u32(@u32(x >> 32)); }""",
    "clz": """
^ $u32 rlx_clz_u64($u64 x) {
  $u32 high = @u32(x >> 32);
  return high == 0u ? 32u + rlx_clz_u32(@u32(x)) : rlx_clz_u32(high);
}""",
}


def _count(op: str) -> Rule:
    def rule(u: Unit, d: DType, x: str) -> str:
        u.template(f"rlx_{op}_u32", _POPCOUNT if op == "popcount" else _CLZ)
        if d.bits == 64:
            u.template(f"rlx_{op}_u64", _COUNT64[op])
        bits = u.d.cast(unsigned(d), x)
        if d.bits < 32:
            bits = f"({bits} & {(1 << d.bits) - 1}u)"
        n = f"rlx_{op}_{unsigned(d)}({bits})"
        if op == "clz" and d.bits < 32:
            n = f"({n} - {32 - d.bits}u)"
        return u.d.cast(register(d), n)

    return rule


_MULHI = """
^ $%T% %name%($%T% x, $%T% y) {
  $%T% a = x >> %h%, b = x & %mask%, c = y >> %h%, d = y & %mask%;
  $%T% low = b * d, left = a * d, right = b * c;
  $%T% middle = (low >> %h%) + (left & %mask%) + (right & %mask%);
  return a * c + (left >> %h%) + (right >> %h%) + (middle >> %h%);
}"""


def _mulhi(u: Unit, d: DType, x: str, y: str) -> str:
    if d.bits < 32:
        return f"(({x} * {y}) >> {d.bits})"
    r, name = register(d), f"rlx_mulhi_{register(d)}"
    half = d.bits // 2
    u.template(name, _MULHI, T=r, h=str(half), mask=u.d.number((1 << half) - 1, r), name=name)
    return f"{name}({x}, {y})"


RULES: dict[str, Rule] = {
    **{op: _arith(op) for op in ("add", "sub", "mul")},
    **{op: _bitwise(op) for op in ("and", "or", "xor")},
    **{op: _compare(op) for op in COMPARE},
    "min": _one_line("min", "x < y ? x : y"),
    "max": _one_line("max", "x > y ? x : y"),
    "abs": _one_line("abs", "x < ZERO ? MINUS : x", 1),
    "sign": _one_line("sign", "x > ZERO ? ONE : (x == ZERO ? ZERO : ZERO - ONE)", 1),
    **{op: _divide(op) for op in ("floordiv", "rem")},
    **{op: _count(op) for op in ("popcount", "clz")},
    "neg": _neg,
    "not": _not,
    "pow": _pow,
    "shl": _shl,
    "shr": _shr,
    "mulhi": _mulhi,
}

"""Integer and bool primitives as LLVM instructions, with the semantics stated in :mod:`rlx.ir.prim`.

Each function takes the builder, the dtype of the arguments, and their registers.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx.core.dtype import DType
from rlx.render.llvm.builder import Builder
from rlx.render.llvm.types import register_type, signed

Rule = Callable[..., str]

_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


def is_literal(x: str) -> bool:
    """Whether an integer register is a constant."""
    return x.lstrip("-").isdigit()


def _binary(instruction: str) -> Rule:
    def rule(b: Builder, d: DType, x: str, y: str) -> str:
        return b.op(f"{instruction} {register_type(d)} {x}, {y}")

    return rule


def _compare(name: str) -> Rule:
    def rule(b: Builder, d: DType, x: str, y: str) -> str:
        sign = "" if name in ("eq", "ne") else "s" if d.kind == "i" else "u"
        return b.op(f"icmp {sign}{name} {register_type(d)} {x}, {y}")

    return rule


def _neg(b: Builder, d: DType, x: str) -> str:
    return b.op(f"sub {register_type(d)} 0, {x}")


def _abs(b: Builder, d: DType, x: str) -> str:
    if d.kind == "u":
        return x
    t = register_type(d)
    b.helpers.declare(f"llvm.abs.{t}", t, (t, "i1 immarg"), "nounwind willreturn memory(none)")
    return b.call(f"llvm.abs.{t}", t, (t, x), ("i1", "false"))


def _sign(b: Builder, d: DType, x: str) -> str:
    t = register_type(d)
    if d.kind == "u":
        return b.op(f"zext i1 {b.op(f'icmp ne {t} {x}, 0')} to {t}")
    more = b.op(f"zext i1 {b.op(f'icmp sgt {t} {x}, 0')} to {t}")
    less = b.op(f"sext i1 {b.op(f'icmp slt {t} {x}, 0')} to {t}")
    return b.op(f"or {t} {more}, {less}")


def _extreme(name: str) -> Rule:
    def rule(b: Builder, d: DType, x: str, y: str) -> str:
        if d.kind == "b":
            return b.op(f"{'and' if name == 'min' else 'or'} i1 {x}, {y}")
        return b.intrinsic(f"{'s' if d.kind == 'i' else 'u'}{name}", register_type(d), x, y)

    return rule


def _safe_divisor(b: Builder, d: DType, y: str) -> tuple[str, str, str]:
    """A divisor that cannot trap, and the conditions (divisor is zero, divisor is -1); '' where excluded."""
    t = register_type(d)
    if is_literal(y) and signed(int(y), d.bits) not in (0, -1):
        return y, "", ""
    zero = b.op(f"icmp eq {t} {y}, 0")
    if d.kind == "u":
        return b.op(f"select i1 {zero}, {t} 1, {t} {y}"), zero, ""
    minus = b.op(f"icmp eq {t} {y}, -1")
    trap = b.op(f"or i1 {zero}, {minus}")
    return b.op(f"select i1 {trap}, {t} 1, {t} {y}"), zero, minus


def _floor_adjust(b: Builder, t: str, r: str, y: str) -> str:
    """Whether a truncated quotient with remainder ``r`` lies one above the floor."""
    some, signs = b.op(f"icmp ne {t} {r}, 0"), b.op(f"xor {t} {r}, {y}")
    return b.op(f"and i1 {some}, {b.op(f'icmp slt {t} {signs}, 0')}")


def _floordiv(b: Builder, d: DType, x: str, y: str) -> str:
    t = register_type(d)
    safe, zero, minus = _safe_divisor(b, d, y)
    if d.kind == "u":
        q = b.op(f"udiv {t} {x}, {safe}")
    else:
        trunc, r = b.op(f"sdiv {t} {x}, {safe}"), b.op(f"srem {t} {x}, {safe}")
        below = b.op(f"sext i1 {_floor_adjust(b, t, r, safe)} to {t}")
        q = b.op(f"add {t} {trunc}, {below}")
    if minus:
        q = b.op(f"select i1 {minus}, {t} {_neg(b, d, x)}, {t} {q}")
    return b.op(f"select i1 {zero}, {t} 0, {t} {q}") if zero else q


def _rem(b: Builder, d: DType, x: str, y: str) -> str:
    # The safe divisor 1 already gives the remainder 0 wanted for divisors 0 and -1.
    t = register_type(d)
    safe, _, _ = _safe_divisor(b, d, y)
    if d.kind == "u":
        return b.op(f"urem {t} {x}, {safe}")
    r = b.op(f"srem {t} {x}, {safe}")
    more = b.op(f"select i1 {_floor_adjust(b, t, r, safe)}, {t} {safe}, {t} 0")
    return b.op(f"add {t} {r}, {more}")


def natural_division(b: Builder, d: DType, op: str, x: str, y: str) -> str:
    """``floordiv`` or ``rem`` of a non-negative number by a positive constant."""
    return b.op(f"{'udiv' if op == 'floordiv' else 'urem'} {register_type(d)} {x}, {y}")


def _shl(b: Builder, d: DType, x: str, y: str) -> str:
    t = register_type(d)
    if is_literal(y):
        return b.op(f"shl {t} {x}, {y}") if 0 <= int(y) < d.bits else "0"
    fits = b.op(f"icmp ult {t} {y}, {d.bits}")
    return b.op(f"select i1 {fits}, {t} {b.op(f'shl {t} {x}, {y}')}, {t} 0")


def _shr(b: Builder, d: DType, x: str, y: str) -> str:
    t, how = register_type(d), "ashr" if d.kind == "i" else "lshr"
    if is_literal(y) and 0 <= int(y) < d.bits:
        return b.op(f"{how} {t} {x}, {y}")
    if d.kind == "i":
        return b.op(f"ashr {t} {x}, {b.intrinsic('umin', t, y, str(d.bits - 1))}")
    fits = b.op(f"icmp ult {t} {y}, {d.bits}")
    return b.op(f"select i1 {fits}, {t} {b.op(f'lshr {t} {x}, {y}')}, {t} 0")


def _popcount(b: Builder, d: DType, x: str) -> str:
    return b.intrinsic("ctpop", register_type(d), x)


def _clz(b: Builder, d: DType, x: str) -> str:
    t = register_type(d)
    b.helpers.declare(f"llvm.ctlz.{t}", t, (t, "i1 immarg"), "nounwind willreturn memory(none)")
    return b.call(f"llvm.ctlz.{t}", t, (t, x), ("i1", "false"))


def _mulhi(b: Builder, d: DType, x: str, y: str) -> str:
    t, wide = register_type(d), f"i{2 * d.bits}"
    product = b.op(f"mul {wide} {b.op(f'zext {t} {x} to {wide}')}, {b.op(f'zext {t} {y} to {wide}')}")
    return b.op(f"trunc {wide} {b.op(f'lshr {wide} {product}, {d.bits}')} to {t}")


def _not(b: Builder, d: DType, x: str) -> str:
    return b.op(f"xor {register_type(d)} {x}, {'true' if d.kind == 'b' else '-1'}")


def _pow(b: Builder, d: DType, x: str, y: str) -> str:
    """Power modulo 2**bits; a negative exponent gives the truncated reciprocal, 0 but for bases 1 and -1."""
    t = register_type(d)
    if is_literal(y) and 0 <= int(y) <= 64:
        return _power_chain(b, t, x, int(y))
    name = f"rlx.pow.{d.short}"
    if not b.helpers.has(name):
        b.helpers.define(name, _power_loop(name, d))
    return b.call(name, t, (t, x), (t, y))


def _power_chain(b: Builder, t: str, x: str, n: int) -> str:
    result = "1"
    while n:
        if n & 1:
            result = x if result == "1" else b.op(f"mul {t} {result}, {x}")
        n >>= 1
        if n:
            x = b.op(f"mul {t} {x}, {x}")
    return result


def _power_loop(name: str, d: DType) -> str:
    """Square and multiply over the bits of the exponent.

    For exponents below zero: 1 for base 1, ±1 by the exponent's parity for base -1, and 0 otherwise.
    """
    t = register_type(d)
    lines = [f"define internal {t} @{name}({t} %x, {t} %y) nounwind {{", "entry:"]
    if d.kind == "i":
        lines += [
            f"  %below = icmp slt {t} %y, 0",
            "  br i1 %below, label %reciprocal, label %loop",
            "reciprocal:",
            f"  %next = add {t} %x, 1",
            f"  %unit = icmp ult {t} %next, 3",
            f"  %null = icmp eq {t} %x, 0",
            f"  %odd = and {t} %y, 1",
            f"  %even = icmp eq {t} %odd, 0",
            f"  %one = select i1 %even, {t} 1, {t} %x",
            f"  %some = select i1 %unit, {t} %one, {t} 0",
            f"  %r0 = select i1 %null, {t} 0, {t} %some",
            f"  ret {t} %r0",
        ]
    else:
        lines += ["  br label %loop"]
    return "\n".join(
        [
            *lines,
            "loop:",
            f"  %r = phi {t} [ 1, %entry ], [ %r2, %loop ]",
            f"  %b = phi {t} [ %x, %entry ], [ %b2, %loop ]",
            f"  %e = phi {t} [ %y, %entry ], [ %e2, %loop ]",
            f"  %bit = trunc {t} %e to i1",
            f"  %p = mul {t} %r, %b",
            f"  %r2 = select i1 %bit, {t} %p, {t} %r",
            f"  %b2 = mul {t} %b, %b",
            f"  %e2 = lshr {t} %e, 1",
            f"  %end = icmp eq {t} %e2, 0",
            "  br i1 %end, label %done, label %loop",
            "done:",
            f"  ret {t} %r2",
            "}",
            "",
        ]
    )


RULES: dict[str, Rule] = {
    **{name: _binary(name) for name in ("add", "sub", "mul", "and", "or", "xor")},
    **{name: _compare(name) for name in _COMPARE},
    "neg": _neg,
    "abs": _abs,
    "sign": _sign,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "floordiv": _floordiv,
    "rem": _rem,
    "pow": _pow,
    "not": _not,
    "shl": _shl,
    "shr": _shr,
    "popcount": _popcount,
    "clz": _clz,
    "mulhi": _mulhi,
}

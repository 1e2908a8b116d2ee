"""Floating-point primitives on ``float`` and ``double`` registers, and the two 16-bit formats around them.

Arithmetic is strict IEEE: no flag is set but ``contract``, ``reassoc`` where a reduction asks
for it, and ``nsz`` there on minimum and maximum.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx.core.dtype import DType, float32, float64
from rlx.render.llvm.builder import Builder
from rlx.render.llvm.types import float_literal, register_type

Rule = Callable[..., str]

_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_UNARY = {
    "abs": "fabs",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "roundeven",
    "sqrt": "sqrt",
}


def _arith(instruction: str) -> Rule:
    def rule(b: Builder, d: DType, x: str, y: str, flags: str = "") -> str:
        contract = "" if instruction == "fdiv" else b.contract
        return b.op(f"{instruction} {flags}{contract}{register_type(d)} {x}, {y}")

    return rule


def _unary(name: str) -> Rule:
    def rule(b: Builder, d: DType, x: str, flags: str = "") -> str:
        return b.intrinsic(name, register_type(d), x)

    return rule


def _compare(name: str) -> Rule:
    def rule(b: Builder, d: DType, x: str, y: str, flags: str = "") -> str:
        return b.op(f"fcmp {name} {register_type(d)} {x}, {y}")

    return rule


def _neg(b: Builder, d: DType, x: str, flags: str = "") -> str:
    return b.op(f"fneg {register_type(d)} {x}")


def _extreme(name: str) -> Rule:
    def rule(b: Builder, d: DType, x: str, y: str, flags: str = "") -> str:
        # -0 comes before 0, whatever the back end does with the operands' order. As a step of a reordered reduction
        # which zero wins is open (nsz): that saves a blend on its critical path.
        return b.intrinsic(name, register_type(d), x, y, flags="nsz " if flags else "")

    return rule


def _fma(b: Builder, d: DType, x: str, y: str, z: str, flags: str = "") -> str:
    """One rounding; as a step of a reordered reduction, a product and a sum that the back end joins again.

    The loop vectoriser knows a reduction only by its sum.
    """
    if flags:
        t = register_type(d)
        return b.op(f"fadd {flags}contract {t} {b.op(f'fmul contract {t} {x}, {y}')}, {z}")
    return b.intrinsic("fma", register_type(d), x, y, z)


def _copysign(b: Builder, d: DType, x: str, y: str, flags: str = "") -> str:
    return b.intrinsic("copysign", register_type(d), x, y)


def _isnan(b: Builder, d: DType, x: str, flags: str = "") -> str:
    return b.op(f"fcmp uno {register_type(d)} {x}, {x}")


def _sign(b: Builder, d: DType, x: str, flags: str = "") -> str:
    t, zero, one = (
        register_type(d),
        float_literal(0.0, register_type(d)),
        float_literal(1.0, register_type(d)),
    )
    below = b.op(f"select i1 {b.op(f'fcmp olt {t} {x}, {zero}')}, {t} {float_literal(-1.0, t)}, {t} {x}")
    above = b.op(f"select i1 {b.op(f'fcmp ogt {t} {x}, {zero}')}, {t} {one}, {t} {below}")
    return b.op(f"select i1 {b.op(f'fcmp oeq {t} {x}, {zero}')}, {t} {zero}, {t} {above}")


def _is_off(b: Builder, t: str, m: str, y: str) -> str:
    """Whether the C remainder ``m`` is non-zero and differs in sign from the divisor."""
    zero = float_literal(0.0, t)
    signs = b.op(f"xor i1 {b.op(f'fcmp olt {t} {y}, {zero}')}, {b.op(f'fcmp olt {t} {m}, {zero}')}")
    return b.op(f"and i1 {signs}, {b.op(f'fcmp une {t} {m}, {zero}')}")


def _rem(b: Builder, d: DType, x: str, y: str, flags: str = "") -> str:
    """The remainder with the divisor's sign, exact; NaN for a zero divisor."""
    t = register_type(d)
    m = b.op(f"frem {t} {x}, {y}")
    moved = b.op(f"fadd {t} {m}, {y}")
    r = b.op(f"select i1 {_is_off(b, t, m, y)}, {t} {moved}, {t} {m}")
    null = b.op(f"fcmp oeq {t} {r}, {float_literal(0.0, t)}")
    zero = b.intrinsic("copysign", t, float_literal(0.0, t), y)
    return b.op(f"select i1 {null}, {t} {zero}, {t} {r}")


def _floordiv(b: Builder, d: DType, x: str, y: str, flags: str = "") -> str:
    """``floor(x / y)`` of the exact quotient: (x - rem) / y is an integer up to one rounding, so round it."""
    t = register_type(d)
    zero, one, half = (float_literal(v, t) for v in (0.0, 1.0, 0.5))
    m = b.op(f"frem {t} {x}, {y}")
    q = b.op(f"fdiv {t} {b.op(f'fsub {t} {x}, {m}')}, {y}")
    q = b.op(f"select i1 {_is_off(b, t, m, y)}, {t} {b.op(f'fsub {t} {q}, {one}')}, {t} {q}")
    down = b.intrinsic("floor", t, q)
    over = b.op(f"fcmp ogt {t} {b.op(f'fsub {t} {q}, {down}')}, {half}")
    whole = b.op(f"select i1 {over}, {t} {b.op(f'fadd {t} {down}, {one}')}, {t} {down}")
    plain = b.op(f"fdiv {t} {x}, {y}")
    signed_zero = b.intrinsic("copysign", t, zero, plain)
    whole = b.op(f"select i1 {b.op(f'fcmp oeq {t} {q}, {zero}')}, {t} {signed_zero}, {t} {whole}")
    return b.op(f"select i1 {b.op(f'fcmp oeq {t} {y}, {zero}')}, {t} {plain}, {t} {whole}")


RULES: dict[str, Rule] = {
    "add": _arith("fadd"),
    "sub": _arith("fsub"),
    "mul": _arith("fmul"),
    "div": _arith("fdiv"),
    "neg": _neg,
    **{name: _unary(llvm) for name, llvm in _UNARY.items()},
    **{name: _compare(llvm) for name, llvm in _COMPARE.items()},
    "min": _extreme("minimum"),
    "max": _extreme("maximum"),
    "fma": _fma,
    "copysign": _copysign,
    "isnan": _isnan,
    "sign": _sign,
    "rem": _rem,
    "floordiv": _floordiv,
}


def widen(b: Builder, d: DType, x: str) -> str:
    """A float16 or bfloat16 register as float32, exactly."""
    if d.name == "float16":
        return b.op(f"fpext half {x} to float")
    bits = b.op(f"zext i16 {x} to i32")
    return b.op(f"bitcast i32 {b.op(f'shl i32 {bits}, 16')} to float")


def narrow(b: Builder, d: DType, x: str) -> str:
    """A float32 register rounded to float16 or bfloat16, to nearest even; NaN stays NaN."""
    if d.name == "float16":
        return b.op(f"fptrunc float {x} to half")
    bits = b.op(f"bitcast float {x} to i32")
    top = b.op(f"lshr i32 {bits}, 16")
    up = b.op(f"add i32 {b.op(f'and i32 {top}, 1')}, 32767")
    rounded = b.op(f"lshr i32 {b.op(f'add i32 {bits}, {up}')}, 16")
    quiet = b.op(f"or i32 {top}, 64")
    kept = b.op(f"select i1 {b.op(f'fcmp uno float {x}, {x}')}, i32 {quiet}, i32 {rounded}")
    return b.op(f"trunc i32 {kept} to i16")


def round_to_odd(b: Builder, x: str) -> str:
    """A double as float32 rounded to odd, so that rounding it once more is the same as rounding the double.

    An inexact result with an even last bit moves one step towards the side the double lies on.
    Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", IEEE Trans. Computers 57 (2008).
    """
    near = b.op(f"fptrunc double {x} to float")
    back = b.op(f"fpext float {near} to double")
    bits = b.op(f"bitcast float {near} to i32")
    inexact = b.op(f"fcmp one double {back}, {x}")
    even = b.op(f"icmp eq i32 {b.op(f'and i32 {bits}, 1')}, 0")
    low = b.op(f"fcmp olt double {b.intrinsic('fabs', 'double', back)}, {b.intrinsic('fabs', 'double', x)}")
    moved = b.op(f"add i32 {bits}, {b.op(f'select i1 {low}, i32 1, i32 -1')}")
    move = b.op(f"and i1 {inexact}, {even}")
    return b.op(f"bitcast i32 {b.op(f'select i1 {move}, i32 {moved}, i32 {bits}')} to float")


def convert(b: Builder, x: str, src: DType, dst: DType) -> str:
    """A float register as another float dtype, rounded once."""
    if src == dst:
        return x
    if src.bits == 16:
        wide = widen(b, src, x)
        return convert(b, wide, float32, dst)
    if dst.bits == 16:
        return narrow(b, dst, round_to_odd(b, x) if src == float64 else x)
    if dst == float64:
        return b.op(f"fpext float {x} to double")
    return b.op(f"fptrunc double {x} to float")

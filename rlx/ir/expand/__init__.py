"""Standard expansions: transcendental primitives as straight-line arithmetic, one file per family.

A device that cannot spell a function accurately gets it from here, so that every device computes
the same formula. ``expansion(prim, dtype)`` is a :class:`Function` of arithmetic primitives only
(no loops, loads, or other transcendentals); a renderer emits it once as a helper. The error
bounds of ``BOUNDS`` hold over the whole range, denormals included, where the device keeps
denormals and its arithmetic is IEEE; ``python -m rlx.tools.ulp`` measures them. Zeros, infinities
and NaN follow Annex F of the C standard. float16 and bfloat16 are computed in float32.
"""

from __future__ import annotations

from functools import cache

from rlx.core.dtype import DType, float32, float64
from rlx.ir.expand import exp, gamma, hyper, log, power, special, trig
from rlx.ir.expand.function import Function, trace
from rlx.ir.expand.table import Entry

__all__ = ["BOUNDS", "FAST", "FUNCTIONS", "Entry", "Function", "expansion"]

#: primitive -> its formula
FUNCTIONS: dict[str, Entry] = {
    "exp": Entry(exp.exp),
    "exp2": Entry(exp.exp2),
    "expm1": Entry(exp.expm1),
    "log": Entry(log.log),
    "log2": Entry(log.log2),
    "log10": Entry(log.log10),
    "log1p": Entry(log.log1p),
    "sin": Entry(trig.folded(trig.sin_with), 1, trig.sin, trig.rare(trig.sin_with)),
    "cos": Entry(trig.folded(trig.cos_with), 1, trig.cos, trig.rare(trig.cos_with)),
    "tan": Entry(trig.folded(trig.tan_with), 1, trig.tan, trig.rare(trig.tan_with)),
    "asin": Entry(trig.asin),
    "acos": Entry(trig.acos),
    "atan": Entry(trig.atan),
    "atan2": Entry(trig.atan2, 2),
    "sinh": Entry(hyper.sinh),
    "cosh": Entry(hyper.cosh),
    "tanh": Entry(hyper.tanh),
    "asinh": Entry(hyper.asinh),
    "acosh": Entry(hyper.acosh),
    "atanh": Entry(hyper.atanh),
    "pow": Entry(power.pow_, 2),
    "hypot": Entry(power.hypot, 2),
    "erf": Entry(special.erf),
    "erfc": Entry(special.erfc),
    "erfinv": Entry(special.erfinv),
    "lgamma": Entry(gamma.lgamma),
    "digamma": Entry(gamma.digamma),
}

#: primitive -> the largest error in ulp, both dtypes; lgamma and digamma: in ulp of max(1,
#: |value|), for negative
#: arguments of the largest term of the reflection (lgamma(|x|), log(1 + |x|)), so absolute near
#: their roots
BOUNDS: dict[str, float] = {
    "exp": 1.0,
    "exp2": 1.2,
    "expm1": 1.5,
    "log": 1.0,
    "log2": 1.0,
    "log10": 1.0,
    "log1p": 1.0,
    "sin": 1.0,
    "cos": 1.0,
    "tan": 1.5,
    "asin": 1.5,
    "acos": 1.5,
    "atan": 1.5,
    "atan2": 2.0,
    "sinh": 2.0,
    "cosh": 1.5,
    "tanh": 1.6,
    "asinh": 1.5,
    "acosh": 2.0,
    "atanh": 1.2,
    "pow": 1.2,
    "hypot": 1.2,
    "erf": 1.6,
    "erfc": 4.0,
    "erfinv": 2.0,
    "lgamma": 4.0,
    "digamma": 5.0,
}

#: primitive -> a cheaper formula, within 16 ulp on a clamped range
FAST: dict[str, Entry] = {
    "exp": Entry(exp.exp_fast),
    "log": Entry(log.log_fast),
    "sin": Entry(trig.sin_fast),
    "cos": Entry(trig.cos_fast),
    "tanh": Entry(hyper.tanh_fast),
    "erf": Entry(special.erf_fast),
}


@cache
def expansion(
    prim: str, dtype: DType, *, fast: bool = False, branches: bool = False
) -> Function | None:
    """``prim`` on ``dtype`` (float32 or float64) in arithmetic primitives, or None where there is
    none.

    ``fast`` takes the cheaper formula where one exists. ``branches`` returns the form whose
    ``rare`` part a renderer branches to; without it the rare part is folded in with selects.
    """
    if dtype not in (float32, float64) or prim not in FUNCTIONS:
        return None
    quick = fast and prim in FAST
    entry = FAST[prim] if quick else FUNCTIONS[prim]
    name = f"rlx_{prim}_{'fast_' if quick else ''}{dtype.short}"
    if branches and entry.common is not None:
        return trace(name, entry.common, dtype, entry.arity, entry.rare)
    return trace(name, entry.formula, dtype, entry.arity)

"""How far a device may be from the oracle, by op and dtype, in units in the last place of the largest value nearby."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx.core.dtype import DType, float64
from rlx.ir.prim import CONTRACTION, TRANSCENDENTAL

#: Unit roundoff spacing at 1 of each inexact dtype (complex ones count by their parts).
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


@dataclass(frozen=True)
class Tolerance:
    """``|got - want| <= ulps * eps * (|want| + scale * max|want|)``."""

    ulps: float
    scale: float = 0.0


EXACT, ROUNDED = Tolerance(0), Tolerance(1)
#: Sums in another order: error grows with the magnitude of the terms, not of the result.
SUMMED = Tolerance(32, 1.0)
FUNCTION = Tolerance(4)
#: A product or quotient of complex numbers cancels in its parts, which are judged by the modulus.
COMPLEX = Tolerance(16)
#: The oracles of these are themselves a few units off, or the function is ill-conditioned on the samples.
TABLE: dict[str, Tolerance] = {
    "div": ROUNDED, "sqrt": ROUNDED, "fma": Tolerance(1, 1.0), "rem": Tolerance(2, 1.0),
                               "lgamma": Tolerance(16, 2.0**-4),
    "digamma": Tolerance(16, 2.0**-4), "erfinv": Tolerance(8), "erfc": Tolerance(8), "loop": SUMMED, "while": SUMMED,
    "cond": SUMMED, "abs.complex": FUNCTION, "softmax": Tolerance(16), "logsumexp": Tolerance(16, 2.0**-3),
}


def tolerance(op: str, dtype: DType, primitive: bool) -> Tolerance:
    """The entry for an op's result of this dtype: integers and booleans are exact whatever the op.

    ``name.complex`` is an op with a real result of complex arguments.
    """
    if not dtype.is_inexact:
        return EXACT
    if op in TABLE:
        return TABLE[op]
    op = op.removesuffix(".complex")
    if op in CONTRACTION and op != "sort":
        return SUMMED
    if op in TRANSCENDENTAL:
        return COMPLEX if dtype.is_complex else FUNCTION
    if not primitive:
        return SUMMED
    if dtype.is_complex:
        return COMPLEX
    return ROUNDED if dtype.bits == 16 else EXACT


def difference(op: str, got: np.ndarray, want: np.ndarray, dtype: DType, primitive: bool,
               widen: float = 1.0) -> str | None:
    """None when the arrays agree, else where they differ most. Infinities and NaN must be in the same places."""
    if got.shape != want.shape:
        return f"shape {got.shape} instead of {want.shape}"
    if not dtype.is_inexact:
        wrong = got != want
        return _show(got, want, wrong) if wrong.any() else None
    allowed = tolerance(op, dtype, primitive)
    eps = EPS[dtype.real.name]
    wide = np.complex128 if dtype.is_complex else np.float64 if dtype != float64 else np.longdouble
    a, b = np.asarray(got, wide), np.asarray(want, wide)
    with np.errstate(all="ignore"):
        finite = np.isfinite(b)
        top = float(np.abs(b[finite]).max(initial=0.0))
        bound = widen * eps * allowed.ulps * (np.abs(b) + (allowed.scale * top if allowed.scale
                                                           else 0.0)) + allowed.ulps * _tiny(dtype)
        close = np.abs(a - b) <= bound
        same = (a == b) | (_nan(a) & _nan(b)) | (_unbounded(a, dtype) & _unbounded(b, dtype))
    wrong = ~np.where(finite, close, same)
    return _show(got, want, wrong) if wrong.any() else None


def _nan(x: np.ndarray) -> np.ndarray:
    return np.isnan(x)


def _unbounded(x: np.ndarray, dtype: DType) -> np.ndarray:
    """A complex infinity has no direction."""
    return np.isinf(x) if dtype.is_complex else np.zeros(x.shape, bool)


def _tiny(dtype: DType) -> float:
    """Half a step among subnormal numbers."""
    return {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}[dtype.real.name]


def _show(got: np.ndarray, want: np.ndarray, wrong: np.ndarray) -> str:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} values differ, first at {at}: {got[at]!r} instead of {want[at]!r}"

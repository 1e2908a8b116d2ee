"""Measure the error of the standard expansions: ``python -m rlx.tools.ulp [name ...]``.

For each function and dtype the table gives the largest error in units in the last place (ulp: the
spacing of the dtype at the true value) and where it was found. References: for float32 NumPy and
SciPy in float64; for float64 the 80-bit functions of the C library (64-bit significand, so the
table is good to about 0.001 ulp) and mpmath where it has none. The code measured is compiled
from the expansion itself, without the renderers: what is tested is the formula.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlx.core.dtype import DType, as_dtype, float32, float64
from rlx.ir.expand import FAST, FUNCTIONS, expansion
from rlx.ir.expand.reduce import moderate_limit
from rlx.tools.straight import compile_function, compile_text

Floats = NDArray[Any]


@cache
def compiled(name: str, dtype: DType, fast: bool = False) -> Callable[..., Floats]:
    """The expansion of ``name`` as a function of one or two NumPy arrays."""
    f = expansion(name, dtype, fast=fast)
    assert f is not None
    return compile_function(f)


# References and samples.


def _scipy(name: str) -> Any:
    import scipy.special

    return getattr(scipy.special, name)


_NUMPY_NAMES = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "atan2": "arctan2",
    "pow": "power",
}
_SCIPY_NAMES = {
    "erf": "erf",
    "erfc": "erfc",
    "erfinv": "erfinv",
    "lgamma": "gammaln",
    "digamma": "psi",
}
_LONG = """
declare x86_fp80 @{symbol}(x86_fp80)
define void @run(ptr %out, ptr %a, ptr %b, i64 %n) {{
entry:
  br label %body
body:
  %i = phi i64 [0, %entry], [%j, %body]
  %pa = getelementptr x86_fp80, ptr %a, i64 %i
  %po = getelementptr x86_fp80, ptr %out, i64 %i
  %x = load x86_fp80, ptr %pa
  %r = call x86_fp80 @{symbol}(x86_fp80 %x)
  store x86_fp80 %r, ptr %po
  %j = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %body, label %done
done:
  ret void
}}
"""


@cache
def _long_function(symbol: str) -> Callable[[Floats], Floats]:
    """A C library function on 80-bit arrays (NumPy has no erfl, erfcl or lgammal)."""
    run = compile_text(_LONG.format(symbol=symbol))

    def call(x: Floats) -> Floats:
        out = np.empty_like(x)
        run(out.ctypes.data, x.ctypes.data, x.ctypes.data, x.size)
        return out

    return call


def _mpmath(name: str) -> Callable[[Floats], Floats]:
    mp: Any = import_module("mpmath")
    f = {"erfinv": mp.erfinv, "digamma": mp.digamma}[name]

    def one(v: float) -> np.longdouble:
        pole = abs(v) >= 1 if name == "erfinv" else v <= 0 and v % 1 == 0
        if not np.isfinite(v) or pole:
            return np.longdouble(_scipy(_SCIPY_NAMES[name])(v))
        with mp.workdps(40):
            y = f(mp.mpf(v))
            head = float(y)
            if v == 0 or np.isinf(head):
                return np.longdouble(v if v == 0 else head)
            return np.longdouble(head) + np.longdouble(float(y - head))

    return lambda x: np.array([one(float(v)) for v in x.ravel()], np.longdouble).reshape(x.shape)


def reference(name: str, x: Floats, y: Floats | None = None) -> Floats:
    """The true values, in float64 for float32 arguments and in 80 bits for float64 arguments."""
    with np.errstate(all="ignore"):
        if name in _SCIPY_NAMES:
            if x.dtype == np.float32:
                out = np.asarray(_scipy(_SCIPY_NAMES[name])(x.astype(np.float64)))
            elif name in ("erfinv", "digamma"):
                out = _mpmath(name)(x)
            else:
                out = _long_function(name + "l")(x.astype(np.longdouble))
            return _as_in_c(name, x, out)
        wide = np.float64 if x.dtype == np.float32 else np.longdouble
        f = getattr(np, _NUMPY_NAMES.get(name, name))
        return np.asarray(f(x.astype(wide)) if y is None else f(x.astype(wide), y.astype(wide)))


def _as_in_c(name: str, x: Floats, out: Floats) -> Floats:
    """SciPy's special values made those of C: erfinv(-0) = -0, lgamma(-inf) = inf."""
    if name == "erfinv":
        return np.where(x == 0, x.astype(out.dtype), out)
    return np.where(np.isinf(x), np.inf, out).astype(out.dtype) if name == "lgamma" else out


def scale_of(name: str, x: Floats, want: Floats) -> Floats:
    """The magnitude whose ulp is the unit of error: |want| for all but lgamma and digamma.

    Those are at least 1, and at least lgamma(|x|) or log(1 + |x|) for negative x: the terms of
    their formulas, which cancel near the roots.
    """
    size = np.abs(want)
    if name not in ("lgamma", "digamma"):
        return size
    a = np.where(np.isfinite(x), np.abs(x), 1).astype(np.float64)
    terms = np.abs(_scipy("gammaln")(a)) if name == "lgamma" else np.log1p(a)
    terms = np.where(np.isfinite(terms), terms, 1)
    floor = np.where(x < 0, np.maximum(terms, 1), 1).astype(want.dtype)
    return np.asarray(np.maximum(size, floor))


SPECIALS = (
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1.0,
    -1.0,
    2.0,
    -2.0,
    0.5,
    -0.5,
    3.0,
    -3.0,
    1.5,
    -2.5,
)
#: functions whose float64 reference is slow: samples are divided by this
_SLOW = {("erfinv", "float64"): 100, ("digamma", "float64"): 100}
#: where the interesting arguments are, beside all bit patterns
RANGES: dict[str, tuple[tuple[float, float], ...]] = {
    "exp": ((-750, 712), (-110, 90), (-1, 1)),
    "exp2": ((-1080, 1030), (-155, 130), (-1, 1)),
    "expm1": ((-50, 712), (-2, 2), (-0.1, 0.1)),
    "log": ((0.5, 2), (0, 100)),
    "log2": ((0.5, 2), (0, 100)),
    "log10": ((0.5, 2), (0, 100)),
    "log1p": ((-1, 1), (-0.1, 0.1), (0, 100)),
    "sin": ((-10, 10), (-1e6, 1e6), (-1e9, 1e9)),
    "cos": ((-10, 10), (-1e6, 1e6), (-1e9, 1e9)),
    "tan": ((-10, 10), (-1e6, 1e6), (-1e9, 1e9)),
    "asin": ((-1, 1),),
    "acos": ((-1, 1), (0.99, 1)),
    "atan": ((-10, 10), (-1, 1)),
    "sinh": ((-2, 2), (-90, 90), (-712, 712)),
    "cosh": ((-2, 2), (-90, 90), (-712, 712)),
    "tanh": ((-2, 2), (-25, 25)),
    "asinh": ((-3, 3), (-100, 100)),
    "acosh": ((1, 2), (1, 100)),
    "atanh": ((-1, 1),),
    "erf": ((-1.5, 1.5), (-7, 7)),
    "erfc": ((-1, 2), (-7, 30), (-4, 11)),
    "erfinv": ((-1, 1), (-0.1, 0.1), (0.99, 1)),
    "lgamma": ((-10, 10), (0.5, 3), (-40, 200)),
    "digamma": ((-10, 10), (0.5, 3), (-40, 200)),
    "pow": ((0.1, 10), (-40, 40), (0.9, 1.1)),
    "atan2": ((-2, 2),),
    "hypot": ((-2, 2),),
}


def samples(name: str, dtype: DType, count: int, seed: int = 0) -> Floats:
    """Specials, ``count`` random bit patterns, ``count`` uniform ones in each range, range ends."""
    rng = np.random.default_rng(seed)
    kind = dtype.numpy
    word = np.uint32 if kind == np.float32 else np.uint64
    patterns = rng.integers(0, np.iinfo(word).max, count, dtype=word, endpoint=True).view(kind)
    info = np.finfo(kind)
    edges = [
        info.max,
        info.tiny,
        info.smallest_subnormal,
        info.tiny - info.smallest_subnormal,
        info.eps,
    ]
    parts = [np.array(SPECIALS, kind), np.array(edges, kind), -np.array(edges, kind), patterns]
    for low, high in RANGES[name]:
        part = rng.uniform(low, high, count).astype(kind)
        parts += [
            part,
            np.nextafter(np.array([low, low, high, high], kind), np.array([9e9, -9e9] * 2, kind)),
        ]
        small = 2.0 ** rng.uniform(-40, 0, count // 4)
        parts.append((low + small * (high - low)).astype(kind))
    return np.concatenate(parts)


def errors(got: Floats, want: Floats, scale: Floats | None = None) -> Floats:
    """|got - want| in ulp of got's dtype at want (at ``scale`` if given).

    Infinite where only one of the two is NaN or infinite, or where zeros differ in sign.
    """
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        size = np.abs(want) if scale is None else scale
        exponent = np.frexp(np.where(np.isfinite(size), size, 1))[1] - 1
        unit = np.ldexp(
            np.ones_like(want), np.maximum(exponent - info.nmant, info.minexp - info.nmant)
        )
        out = np.abs(got.astype(want.dtype) - want) / unit
        # overflow is as good as rounding to infinity: compare with the next power of two
        top = np.ldexp(want.dtype.type(1), info.maxexp)
        near = np.isinf(got) & np.isfinite(want) & (np.sign(got) == np.sign(want))
        out = np.where(near, np.abs(top - np.abs(want)) / unit, out)
        same = (np.isnan(got) & np.isnan(want)) | (got == rounded)
        signs = (got == 0) & (want == 0) & (np.signbit(got) != np.signbit(want))
        out = np.where(same & (out != out), 0, out)
        out = np.where(same & np.isinf(rounded), 0, out)
        bad = (np.isnan(got) != np.isnan(want)) | signs | (out != out)
    return np.asarray(np.where(bad, np.inf, out))


def _extreme(x: Floats) -> NDArray[np.bool_]:
    """Within two binades of the ends of the finite range, where the fast variants are not accurate."""
    info = np.finfo(x.dtype if x.dtype.itemsize == 4 else np.float64)
    size = np.abs(x)
    return np.asarray((x != 0) & ((size < 4 * info.tiny) | (size > info.max / 4) & np.isfinite(x)))


@dataclass(frozen=True, slots=True)
class Measurement:
    """The largest error of one function and the arguments that show it."""

    name: str
    dtype: DType
    ulp: float
    where: tuple[float, ...]
    got: float
    want: float

    def __str__(self) -> str:
        at = ", ".join(repr(float(v)) for v in self.where)
        head = f"{self.name:9}{self.dtype.short:5}{self.ulp:9.3f}"
        return f"{head}  at ({at}): {self.got:.9g}, true {self.want:.9g}"


def measure(
    name: str, dtype: DType, count: int = 200_000, *, fast: bool = False, seed: int = 0
) -> Measurement:
    """The largest error found on the samples of ``name``."""
    count = max(count // _SLOW.get((name, dtype.name), 1), 100)
    x = samples(name, dtype, count, seed)
    y = None
    if FUNCTIONS[name].arity == 2:
        rng = np.random.default_rng(seed + 1)
        y = rng.permutation(samples(name, dtype, count, seed + 2))
        grid = np.array(SPECIALS, dtype.numpy)
        x = np.concatenate([x, np.repeat(grid, grid.size)])
        y = np.concatenate([y, np.tile(grid, grid.size)])
    got = compiled(name, dtype, fast)(x, y)
    want = reference(name, x, y)
    e = errors(got, want, scale_of(name, x, want))
    if fast:
        with np.errstate(all="ignore"):
            want = want.astype(x.dtype)
        e = np.where(_extreme(x) | _extreme(want), 0, e)
        if name in ("sin", "cos"):
            e = np.where(np.abs(x) >= moderate_limit(dtype), 0, e)
    i = int(np.argmax(e))
    at = (float(x[i]),) if y is None else (float(x[i]), float(y[i]))
    return Measurement(name, dtype, float(e[i]), at, float(got[i]), float(want[i]))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print the functions named (all by default)."""
    parser = argparse.ArgumentParser(
        prog="python -m rlx ulp", description=str(__doc__).split("\n")[0]
    )
    parser.add_argument("names", nargs="*", help="functions (default: all)")
    parser.add_argument("--fast", action="store_true", help="measure the fast variants")
    parser.add_argument("--samples", type=int, default=200_000, help="random arguments per range")
    parser.add_argument("--dtype", default="", help="only this dtype")
    options = parser.parse_args(argv)
    print("function dtype max ulp  where")
    for name in options.names or (FAST if options.fast else FUNCTIONS):
        for dtype in (float32, float64):
            if not options.dtype or as_dtype(options.dtype) == dtype:
                print(measure(name, dtype, options.samples, fast=options.fast), flush=True)


if __name__ == "__main__":
    main()

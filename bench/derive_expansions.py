"""Derive every constant of ``rlx/ir/expand/coefficients.py``: ``python bench/derive_expansions.py
> FILE``.

Polynomials are near-minimax: the truncated Chebyshev series (mpmath ``chebyfit`` at 60 digits) of
the function named beside each, on the interval beside it, with each coefficient rounded to the
dtype. The formulas keep the leading terms of a series exact, so that rounding a coefficient moves
the result by far less than an ulp. Split constants are sums of floats, the leading ones cut to
the stated number of bits so that their products with small integers are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 60
Real = Any


@dataclass(frozen=True)
class Fit:
    """``what`` fitted on [``low``, ``high``] with ``n32`` and ``n64`` coefficients."""

    name: str
    what: str
    f: Callable[[Real], Real]
    low: Real
    high: Real
    n32: int
    n64: int


def _removable(f: Callable[[Real], Real], at_zero: Real) -> Callable[[Real], Real]:
    """``f`` with its value at 0 filled in (quotients are evaluated with digits to spare)."""

    def g(z: Real) -> Real:
        if abs(z) < mp.mpf(10) ** -25:
            return mp.mpf(at_zero)
        with mp.workdps(140):
            return f(mp.mpf(z))

    return g


def _root(f: Callable[[Real], Real]) -> Callable[[Real], Real]:
    return lambda z: f(mp.sqrt(z))


def _erfcx_scaled(k: Real) -> Callable[[Real], Real]:
    """(x + k) exp(x^2) erfc(x) at x = k (1 + t)/(1 - t), t in [-1, 1] for x in [0, infinity]."""

    def g(t: Real) -> Real:
        if 1 - t < mp.mpf(10) ** -6:
            return _erfcx_large(k * (1 + t) / (1 - t), k) if t < 1 else 1 / mp.sqrt(mp.pi)
        x = k * (1 + t) / (1 - t)
        if x > 30:
            return _erfcx_large(x, k)
        return (x + k) * mp.exp(x * x) * mp.erfc(x)

    return g


def _erfcx_large(x: Real, k: Real) -> Real:
    total, term = mp.mpf(0), mp.mpf(1)
    for n in range(1, 60):
        total += term
        term *= -mp.mpf(2 * n - 1) / (2 * x * x)
        if abs(term) < mp.mpf(10) ** -58:
            break
    return total * (x + k) / (x * mp.sqrt(mp.pi))


def _erfcx_flat(k: Real) -> Callable[[Real], Real]:
    """(1 + 2x) exp(x^2) erfc(x), x as above."""
    g = _erfcx_scaled(k)

    def h(t: Real) -> Real:
        if t == 1:
            return 2 / mp.sqrt(mp.pi)
        x = k * (1 + t) / (1 - t)
        return g(t) * (1 + 2 * x) / (x + k)

    return h


def _inverse_erf_small(z: Real) -> Real:
    """erfinv(sqrt(z))/sqrt(z) - 1."""
    return _inverse_erf(-mp.log(1 - z)) - 1


def _inverse_erf(w: Real) -> Real:
    """erfinv(x)/x at w = -log(1 - x^2)."""
    if w < mp.mpf(10) ** -25:
        return mp.sqrt(mp.pi) / 2
    tail = mp.exp(-w)
    x = mp.sqrt(1 - tail)
    # 1 - x without cancellation: (1 - x^2)/(1 + x)
    y = tail / (1 + x)
    g = mp.sqrt(w) * 0.9 if w > 1 else x * 0.8862269
    if w < 3:
        return mp.findroot(lambda t: mp.erf(t) - x, g) / x
    return mp.findroot(lambda t: mp.log(mp.erfc(t)) - mp.log(y), g) / x


LN2 = mp.log(2)
S2 = (mp.sqrt(2) - 1) ** 4  # largest ((m-1)/(m+1))^2 for m in [sqrt(1/2), sqrt(2)]
K = mp.mpf("3.75")
FITS = (
    Fit(
        "exp",
        "(exp(r) - 1 - r)/r^2",
        _removable(lambda r: (mp.expm1(r) - r) / r**2, 0.5),
        -LN2 / 2,
        LN2 / 2,
        5,
        11,
    ),
    Fit(
        "exp_fast",
        "(exp(r) - 1 - r)/r^2",
        _removable(lambda r: (mp.expm1(r) - r) / r**2, 0.5),
        -LN2 / 2,
        LN2 / 2,
        4,
        9,
    ),
    Fit(
        "log_fast",
        "log(1 + f)/f",
        _removable(lambda f: mp.log1p(f) / f, 1),
        mp.sqrt(0.5) - 1,
        mp.sqrt(2) - 1,
        9,
        2,
    ),
    Fit(
        "exp2",
        "(2^r - 1)/r",
        _removable(lambda r: mp.expm1(r * mp.log(2)) / r, LN2),
        -0.5,
        0.5,
        7,
        12,
    ),
    Fit(
        "expm1",
        "(expm1(r) - r - r^2/2)/r^3",
        _removable(lambda r: (mp.expm1(r) - r - r * r / 2) / r**3, mp.mpf(1) / 6),
        -LN2 / 2,
        LN2 / 2,
        5,
        10,
    ),
    Fit(
        "log",
        "(2 atanh(s)/s - 2)/s^2 in s^2",
        _removable(_root(lambda s: (2 * mp.atanh(s) / s - 2) / s**2), mp.mpf(2) / 3),
        0,
        S2,
        4,
        8,
    ),
    Fit(
        "logtail",
        "(2 atanh(s)/s - 2 - 2 s^2/3)/s^4 in s^2",
        _removable(_root(lambda s: (2 * mp.atanh(s) / s - 2 - 2 * s * s / 3) / s**4), mp.mpf(2) / 5),
        0,
        S2,
        3,
        8,
    ),
    Fit(
        "sin",
        "(sin(x) - x)/x^3 in x^2",
        _removable(_root(lambda x: (mp.sin(x) - x) / x**3), -mp.mpf(1) / 6),
        0,
        (mp.pi / 4) ** 2,
        4,
        7,
    ),
    Fit(
        "cos",
        "(cos(x) - 1 + x^2/2)/x^4 in x^2",
        _removable(_root(lambda x: (mp.cos(x) - 1 + x * x / 2) / x**4), mp.mpf(1) / 24),
        0,
        (mp.pi / 4) ** 2,
        3,
        6,
    ),
    Fit(
        "atan",
        "(atan(x) - x)/x^3 in x^2",
        _removable(_root(lambda x: (mp.atan(x) - x) / x**3), -mp.mpf(1) / 3),
        0,
        0.25,
        8,
        18,
    ),
    Fit(
        "asin",
        "(asin(x) - x)/x^3 in x^2",
        _removable(_root(lambda x: (mp.asin(x) - x) / x**3), mp.mpf(1) / 6),
        0,
        0.25,
        7,
        16,
    ),
    Fit(
        "sinh",
        "(sinh(x) - x)/x^3 in x^2",
        _removable(_root(lambda x: (mp.sinh(x) - x) / x**3), mp.mpf(1) / 6),
        0,
        1,
        4,
        8,
    ),
    Fit(
        "erf",
        "erf(x)/x - 1 in x^2",
        _removable(_root(lambda x: mp.erf(x) / x - 1), 2 / mp.sqrt(mp.pi) - 1),
        0,
        1,
        8,
        15,
    ),
    # float32 only, which needs it to 4: there erfc is a quarter of erf's ulp.
    Fit("erf_tail", "log2(erfc(x))", lambda x: mp.log(mp.erfc(x), 2), 1, 4, 9, 2),
    Fit("erfcx", "(1 + 2x) exp(x^2) erfc(x) in (x - 3.75)/(x + 3.75)", _erfcx_flat(K), -1, 1, 12, 25),
    Fit(
        "erf_fast",
        "erf(x)/x - 1 in x^2",
        _removable(_root(lambda x: mp.erf(x) / x - 1), 2 / mp.sqrt(mp.pi) - 1),
        0,
        1,
        6,
        12,
    ),
    Fit(
        "erfcx_fast",
        "(x + 3.75) exp(x^2) erfc(x) in (x - 3.75)/(x + 3.75)",
        _erfcx_scaled(K),
        -1,
        mp.mpf("0.25"),
        8,
        20,
    ),
    Fit(
        "erfinv",
        "erfinv(x)/x - 3/2 in w - 3, w = -log(1 - x^2)",
        lambda t: _inverse_erf(t + 3) - 1.5,
        mp.mpf("-2.2"),
        3,
        11,
        25,
    ),
    Fit("erfinv_middle", "erfinv(x)/x - 1 in x^2", _inverse_erf_small, 0, mp.mpf("0.5626"), 12, 26),
    Fit(
        "erfinv_tail",
        "erfinv(x)/x - 3 in sqrt(w) - 3",
        lambda t: _inverse_erf((t + 3) ** 2) - 3,
        mp.sqrt(6) - 3,
        mp.mpf("1.2"),
        10,
        24,
    ),
    Fit(
        "erfinv_far",
        "erfinv(x)/x - 5 in sqrt(w) - 5",
        lambda t: _inverse_erf((t + 5) ** 2) - 5,
        mp.mpf("-0.85"),
        mp.mpf("1.2"),
        7,
        20,
    ),
    Fit(
        "lgamma",
        "lgamma(2 + y)/y",
        _removable(lambda y: mp.loggamma(2 + y) / y, 1 - mp.euler),
        -0.5,
        0.5,
        10,
        21,
    ),
    Fit(
        "stirling",
        "x (lgamma(x) - (x - 1/2) log(x) + x - log(2 pi)/2) in 1/x^2",
        _removable(
            _root(
                lambda u: (
                    (mp.loggamma(1 / u) - (1 / u - 0.5) * mp.log(1 / u) + 1 / u - mp.log(2 * mp.pi) / 2) / u
                )
            ),
            mp.mpf(1) / 12,
        ),
        0,
        mp.mpf(1) / 56,
        3,
        8,
    ),
    Fit("digamma2", "digamma(2 + y)", lambda y: mp.digamma(2 + y), -0.5, 0.5, 11, 22),
    Fit(
        "digamma",
        "x^2 (log(x) - 1/(2x) - digamma(x)) in 1/x^2",
        _removable(_root(lambda u: (mp.log(1 / u) - u / 2 - mp.digamma(1 / u)) / u**2), mp.mpf(1) / 12),
        0,
        mp.mpf(1) / 64,
        3,
        8,
    ),
)


def cut(value: Real, width: int) -> float:
    """The leading ``width`` bits of a number."""
    m, e = mp.frexp(value)
    return float(mp.ldexp(mp.floor(mp.ldexp(m, width)), int(e) - width))


def pieces(value: Real, dtype: type, count: int, width: int = 0) -> tuple[float, ...]:
    """``value`` as a sum of floats; all but the last cut to ``width`` bits, or rounded when it is 0."""
    out: list[float] = []
    for i in range(count):
        rest = value - mp.fsum(out)
        out.append(cut(rest, width) if width and i < count - 1 else _round(rest, dtype))
    return tuple(out)


def _round(value: Real, dtype: type) -> float:
    """To nearest in ``dtype``."""
    if dtype is np.float64 or not value:
        return float(value)
    m, e = mp.frexp(value)
    return float(mp.ldexp(mp.nint(mp.ldexp(m, 24)), int(e) - 24))


def two_over_pi(word: int, count: int, zeros: int) -> tuple[int, ...]:
    """The bits of 2/pi after ``zeros`` zero bits, in ``count`` words."""
    with mp.workdps(420):
        value = int(mp.floor(mp.ldexp(2 / mp.pi, word * count - zeros)))
    return tuple(value >> (word * (count - 1 - i)) & ((1 << word) - 1) for i in range(count))


#: name -> (value, pieces, bits of the leading pieces in f32, in f64). 0 bits: rounded to nearest.
SPLITS: dict[str, tuple[Real, int, int, int]] = {
    "ln2": (LN2, 2, 15, 40),
    "log2e": (1 / LN2, 2, 0, 0),
    "log10e": (1 / mp.log(10), 2, 0, 0),
    "log10_2": (mp.log10(2), 2, 14, 40),
    "halfpi": (mp.pi / 2, 3, 0, 0),
    "quarterpi": (mp.pi / 4, 2, 0, 0),
    "pi": (mp.pi, 2, 0, 0),
    "twooverpi": (2 / mp.pi, 1, 0, 0),
    "logsqrt2pi": (mp.log(2 * mp.pi) / 2, 1, 0, 0),
    "twothirds": (mp.mpf(2) / 3, 2, 0, 0),
}


ACCESS = '''

def polynomial(name: str, dtype: DType) -> tuple[float, ...]:
    """Coefficients of a fitted polynomial, from the constant term up."""
    return POLYNOMIALS[name][dtype.short]


def split(name: str, dtype: DType) -> tuple[float, ...]:
    """A constant as an unevaluated sum of floats, the largest first."""
    return SPLIT[name][dtype.short]'''


def main() -> None:
    print(
        '"""Polynomials and split constants of the expansions. Generated by bench/derive_expansions.py."""\n'
    )
    print("from __future__ import annotations\n")
    print("from rlx.core.dtype import DType\n")
    print("#: name -> dtype -> coefficients from the constant term up; comments name function and interval")
    print("POLYNOMIALS: dict[str, dict[str, tuple[float, ...]]] = {")
    for fit in FITS:
        print(f"    # {fit.what} on [{mp.nstr(fit.low, 6)}, {mp.nstr(fit.high, 6)}]")
        print(f'    "{fit.name}": {{')
        for short, n, dtype in (("f32", fit.n32, np.float32), ("f64", fit.n64, np.float64)):
            c, err = mp.chebyfit(fit.f, [fit.low, fit.high], n, error=True)
            print(f"        # error {mp.nstr(err, 2)}")
            _show(short, tuple(_round(v, dtype) for v in reversed(c)), 8)
        print("    },")
    print("}\n")
    print("#: name -> dtype -> floats whose sum is the constant")
    print("SPLIT: dict[str, dict[str, tuple[float, ...]]] = {")
    for name, (value, count, w32, w64) in SPLITS.items():
        print(f'    "{name}": {{')
        _show("f32", pieces(value, np.float32, count, w32), 8)
        _show("f64", pieces(value, np.float64, count, w64), 8)
        print("    },")
    print("}\n")
    print("#: dtype -> the bits of 2/pi in words, after the zeros that the smallest huge angle needs")
    print("TWO_OVER_PI: dict[str, tuple[int, ...]] = {")
    # x = 2**15 (float32) and 2**28 (float64) are m 2**e with e = -8 and -24: 2 - e zeros
    for short, word, count, zeros in (("f32", 32, 7, 10), ("f64", 64, 19, 26)):
        print(f'    "{short}": (')
        words = [f"0x{w:0{word // 4}X}" for w in two_over_pi(word, count, zeros)]
        for i in range(0, count, 4):
            print(f"        {', '.join(words[i : i + 4])},")
        print("    ),")
    print("}")
    print(ACCESS)


def _show(key: str, values: tuple[float, ...], indent: int) -> None:
    pad = " " * indent
    line = f'{pad}"{key}": ('
    for v in values:
        item = f"{v!r}, "
        if len(line) + len(item) > 98:
            print(line.rstrip())
            line = pad + "    "
        line += item
    print((line.rstrip() if len(values) == 1 else line[:-2]) + "),")


if __name__ == "__main__":
    main()

"""Complex primitives as pairs of real expressions: the same meaning in the arithmetic every device has.

A complex value is ``(re, im)``. The formulas neither overflow nor underflow where the result does not: they
scale by powers of two, or split exponentials in two halves. Branch cuts and signed zeros follow C99 Annex G.
W. Kahan, "Branch cuts for complex elementary functions" (1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from rlx.core.dtype import DType, bool_, int32, int64
from rlx.core.errors import CompileError
from rlx.ir import loop

_LOG_2 = 0.6931471805599453
_LOG2_E = 1.4426950408889634
_LOG10_E = 0.4342944819032518


@dataclass(frozen=True, slots=True, eq=False)
class R:
    """A real expression with operators, so that formulas read like mathematics."""

    e: loop.Expr

    def _of(self, op: str, *others: R | float) -> R:
        args = tuple(self.lift(o).e for o in others)
        return R(loop.expr(op, (self.e, *args), self.e.dtype))

    def _compare(self, op: str, other: R | float) -> R:
        return R(loop.expr(op, (self.e, self.lift(other).e), bool_))

    def lift(self, x: R | float) -> R:
        """A number as a constant of this dtype."""
        return x if isinstance(x, R) else R(loop.const(x, self.e.dtype))

    def __add__(self, o: R | float) -> R:
        return self._of("add", o)

    def __sub__(self, o: R | float) -> R:
        return self._of("sub", o)

    def __rsub__(self, o: float) -> R:
        return self.lift(o) - self

    def __mul__(self, o: R | float) -> R:
        return self._of("mul", o)

    def __truediv__(self, o: R | float) -> R:
        return self._of("div", o)

    def __neg__(self) -> R:
        return self._of("neg")

    def __and__(self, o: R) -> R:
        return self._of("and", o)

    def __or__(self, o: R) -> R:
        return self._of("or", o)

    def __invert__(self) -> R:
        return self._of("not")

    def __lt__(self, o: R | float) -> R:
        return self._compare("lt", o)

    def __le__(self, o: R | float) -> R:
        return self._compare("le", o)

    def __gt__(self, o: R | float) -> R:
        return self._compare("gt", o)

    def __ge__(self, o: R | float) -> R:
        return self._compare("ge", o)

    def same(self, o: R | float) -> R:
        """Equality (``==`` stays Python's)."""
        return self._compare("eq", o)

    def fn(self, name: str, *others: R | float) -> R:
        """A primitive whose first argument is this."""
        return self._of(name, *others)

    def pick(self, yes: R, no: R | float) -> R:
        """``yes`` where this condition holds, else ``no``."""
        return R(loop.expr("select", (self.e, yes.e, yes.lift(no).e), yes.e.dtype))


Pair = tuple[R, R]


def _is_finite(x: R) -> R:
    return (x - x).same(0.0)


def _is_nan(x: R) -> R:
    return ~x.same(x)


def _is_infinite(x: R) -> R:
    return x.fn("abs").same(float("inf"))


def _bigger(x: R, y: R) -> tuple[R, R]:
    """``(max, min)`` of absolute values; NaN in either makes both NaN."""
    a, b = x.fn("abs"), y.fn("abs")
    return a.fn("max", b), a.fn("min", b)


def _layout(d: DType) -> tuple[DType, int, int]:
    """Integer type, mantissa bits and exponent bias of float32 or float64."""
    return (int32, 23, 127) if d.bits == 32 else (int64, 52, 1023)


def _exponent(x: R) -> R:
    """The biased exponent of |x| as an integer, at least 1."""
    i, mantissa, _ = _layout(x.e.dtype)
    bits = R(loop.expr("bitcast", (x.e,), i))
    return bits.fn("shr", mantissa).fn("max", 1)


def _power_of_two(biased: R, d: DType) -> R:
    """``2**(biased - bias)``, the biased exponent clamped to the normal numbers."""
    _, mantissa, bias = _layout(d)
    clamped = biased.fn("max", 1).fn("min", 2 * bias)
    return R(loop.expr("bitcast", (clamped.fn("shl", mantissa).e,), d))


def mul(a: Pair, b: Pair) -> Pair:
    """``(ac - bd) + (ad + bc)i``."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def div(a: Pair, b: Pair) -> Pair:
    """Smith's quotient of operands scaled to magnitude about 1, scaled back in two exact halves."""
    d = a[0].e.dtype
    _, _, bias = _layout(d)
    ea, eb = (_exponent(_bigger(*z)[0]) for z in (a, b))
    sa, sb = (_power_of_two(2 * bias - e, d) for e in (ea, eb))
    ar, ai, br, bi = a[0] * sa, a[1] * sa, b[0] * sb, b[1] * sb
    real = br.fn("abs") >= bi.fn("abs")
    p, q = real.pick(br, bi), real.pick(bi, br)
    null = p.same(0.0)
    ratio = null.pick(p.lift(0.0), q / p)
    den = null.pick(p.fn("abs"), p + q * ratio)
    re = real.pick(ar + ai * ratio, ar * ratio + ai) / den
    im = real.pick(ai - ar * ratio, ai * ratio - ar) / den
    shift = (ea - eb).fn("max", -2 * bias + 4).fn("min", 2 * bias - 4)
    half = shift.fn("shr", 1)
    f, g = _power_of_two(half + bias, d), _power_of_two(shift - half + bias, d)
    return re * f * g, im * f * g


def absolute(a: Pair) -> R:
    """``|z|`` without overflow."""
    return a[0].fn("hypot", a[1])


def sign(a: Pair) -> Pair:
    """``z / |z|``, and 0 at 0."""
    d = a[0].e.dtype
    scale = _power_of_two(2 * _layout(d)[2] - _exponent(_bigger(*a)[0]), d)
    x, y = a[0] * scale, a[1] * scale
    r = x.fn("hypot", y)
    null = r.same(0.0)
    return null.pick(r, x / r), null.pick(r, y / r)


def sqrt(a: Pair) -> Pair:
    """The root with non-negative real part: ``t = sqrt((|x| + |z|) / 2)``, the other part ``y / 2t``."""
    x, y = a
    d = x.e.dtype
    # An even power of two brings |z| into [1, 4): the sum below can neither overflow nor lose denormal bits.
    _, _, bias = _layout(d)
    e = _exponent(_bigger(x, y)[0])
    half = (e - bias).fn("shr", 1)
    down = _power_of_two(bias - half, d)
    u, v = x * down * down, y * down * down
    t = ((u.fn("abs") + u.fn("hypot", v)) * 0.5).fn("sqrt")
    other = v.fn("abs") / (t + t)
    up = _power_of_two(half + bias, d)
    big, small = t * up, other * up
    forward = x >= 0.0
    re, im = forward.pick(big, small), forward.pick(small, big).fn("copysign", y)
    null = x.same(0.0) & y.same(0.0)
    re, im = null.pick(x.fn("abs"), re), null.pick(y, im)
    infinite_x, inf = x.fn("abs").same(float("inf")), x.lift(float("inf"))
    zero = x.lift(0.0)
    re = infinite_x.pick((x > 0.0).pick(inf, _is_finite(y).pick(zero, y.fn("abs"))), re)
    im = infinite_x.pick(
        (x > 0.0).pick(_is_finite(y).pick(zero.fn("copysign", y), y), inf.fn("copysign", y)), im
    )
    infinite_y = y.fn("abs").same(float("inf"))
    return infinite_y.pick(inf, re), infinite_y.pick(y, im)


def exp(a: Pair) -> Pair:
    """``e**x (cos y + i sin y)`` with ``e**x`` applied as two factors ``e**(x/2)``."""
    x, y = a
    h = (x * 0.5).fn("exp")
    c, s = y.fn("cos"), y.fn("sin")
    vanishes = x.same(float("-inf")) & ~_is_finite(y)
    c, s = vanishes.pick(x.lift(0.0), c), vanishes.pick(x.lift(0.0), s)
    re, im = h * c * h, h * s * h
    re = (x.same(float("inf")) & ~_is_finite(y)).pick(x, re)
    return re, y.same(0.0).pick(y, im)


def log(a: Pair) -> Pair:
    """``log|z| + i arg z``; near ``|z| = 1`` from ``|z|**2 - 1`` computed with both products exact."""
    x, y = a
    m, n = _bigger(x, y)
    ratio = n.same(m).pick(m.lift(1.0), m.same(0.0).pick(m.lift(0.0), n / m))
    far = m.fn("log") + (ratio * ratio).fn("log1p") * 0.5
    mm, nn = m * m, n * n
    excess = ((mm - 1.0) + nn) + (m.fn("fma", m, -mm) + n.fn("fma", n, -nn))
    near = excess.fn("log1p") * 0.5
    square = mm + nn
    re = ((square > 0.5) & (square < 2.0)).pick(near, far)
    infinite = x.fn("abs").same(float("inf")) | y.fn("abs").same(float("inf"))
    return infinite.pick(x.lift(float("inf")), re), y.fn("atan2", x)


def _hyperbolic(x: R, y: R) -> tuple[R, R]:
    """``cosh(x) cos(y)`` and ``sinh(x) sin(y)``; for large |x| as two factors that cannot overflow early."""
    c, s = y.fn("cos"), y.fn("sin")
    h = (x.fn("abs") * 0.5).fn("exp")
    large = x.fn("abs") > 40.0  # cosh x and |sinh x| equal e**|x| / 2 to the last bit
    re = large.pick(h * 0.5 * c * h, x.fn("cosh") * c)
    im = large.pick((h * 0.5 * s * h) * x.lift(1.0).fn("copysign", x), x.fn("sinh") * s)
    return re, im


def cosh(a: Pair) -> Pair:
    """``cosh x cos y + i sinh x sin y``."""
    x, y = a
    re, im = _hyperbolic(x, y)
    im = y.same(0.0).pick(y * x.lift(1.0).fn("copysign", x), (x.same(0.0) & ~_is_finite(y)).pick(x, im))
    return (_is_infinite(x) & ~_is_finite(y)).pick(x.fn("abs"), re), im


def sinh(a: Pair) -> Pair:
    """``sinh x cos y + i cosh x sin y``."""
    x, y = a
    c, s = y.fn("cos"), y.fn("sin")
    h = (x.fn("abs") * 0.5).fn("exp")
    large = x.fn("abs") > 40.0
    re = large.pick((h * 0.5 * c * h) * x.lift(1.0).fn("copysign", x), x.fn("sinh") * c)
    im = large.pick(h * 0.5 * s * h, x.fn("cosh") * s)
    # A zero or infinite x stays, whatever the angle is.
    re = ((_is_infinite(x) | x.same(0.0)) & ~_is_finite(y)).pick(x, re)
    return re, y.same(0.0).pick(y, im)


def tanh(a: Pair) -> Pair:
    """Kahan's quotient of ``tan y`` and ``sinh x``; beyond ``|x| = 20`` its limit and first correction."""
    x, y = a
    t, s = y.fn("tan"), x.fn("sinh")
    beta = t * t + 1.0
    rho = (s * s + 1.0).fn("sqrt")
    den = beta * s * s + 1.0
    re, im = beta * rho * s / den, t / den
    h = (-x.fn("abs")).fn("exp")
    far = x.fn("abs") > 20.0
    edge = y.fn("sin") * y.fn("cos") * 4.0 * h * h
    # An infinite x leaves a zero imaginary part, with the sign of y.
    edge = _is_infinite(x).pick(x.lift(0.0).fn("copysign", y), edge)
    re = (far & (_is_finite(y) | _is_infinite(x))).pick(x.lift(1.0).fn("copysign", x), re)
    re = (x.same(0.0) & ~_is_finite(y)).pick(x, re)
    return re, far.pick(edge, y.same(0.0).pick(y, im))


def _turned(f: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    """``f(i z) / i``: sin from sinh, tan from tanh."""

    def turned(a: Pair) -> Pair:
        re, im = f((-a[1], a[0]))
        return im, -re

    return turned


def cos(a: Pair) -> Pair:
    """``cosh(i z)``."""
    return cosh((-a[1], a[0]))


def power(a: Pair, b: Pair) -> Pair:
    """``exp(b log a)``; 1 for exponent 0; for base 0, 0 if the exponent's real part is positive, else NaN."""
    re, im = exp(mul(b, log(a)))
    one, zero, nan = re.lift(1.0), re.lift(0.0), re.lift(float("nan"))
    base = a[0].same(0.0) & a[1].same(0.0)
    limit = (b[0] > 0.0).pick(zero, nan)
    trivial = b[0].same(0.0) & b[1].same(0.0)
    return trivial.pick(one, base.pick(limit, re)), trivial.pick(zero, base.pick(limit, im))


def expm1(a: Pair) -> Pair:
    """``e**z - 1``: ``expm1(x) cos y - 2 sin(y/2)**2 + i e**x sin y``."""
    x, y = a
    s = (y * 0.5).fn("sin")
    re, im = exp(a)
    near = (x.fn("expm1") * y.fn("cos") - s * s * 2.0) + 0.0  # never -0, as exp(z) - 1 is not
    return (x.fn("abs") < 1.0).pick(near, re - 1.0), im


def log1p(a: Pair) -> Pair:
    """``log(1 + z)``; for small z from ``|1 + z|**2 - 1 = x (2 + x) + y**2``."""
    x, y = a
    re, im = log((x + 1.0, y))
    small = (x.fn("abs") < 0.5) & (y.fn("abs") < 0.5)
    return small.pick((x * (x + 2.0) + y * y).fn("log1p") * 0.5, re), im


def _roots(a: Pair) -> tuple[Pair, Pair]:
    """``sqrt(1 - z)`` and ``sqrt(1 + z)``, the zero of the imaginary part keeping its sign."""
    x, y = a
    return sqrt((1.0 - x, -y)), sqrt((x + 1.0, y))


def asin(a: Pair) -> Pair:
    """Kahan: ``atan(x / Re(sqrt(1-z) sqrt(1+z)))`` and ``asinh(Im(conj(sqrt(1-z)) sqrt(1+z)))``."""
    x, y = a
    (p, q), (r, s) = _roots(a)
    endless, inf = _is_infinite(x) | _is_infinite(y), x.lift(float("inf"))
    re = endless.pick(x.fn("atan2", y.fn("abs")), x.fn("atan2", p * r - q * s))
    im = endless.pick(inf.fn("copysign", y), (p * s - q * r).fn("asinh"))
    return (x.same(0.0) & _is_nan(y)).pick(x, re), im


def acos(a: Pair) -> Pair:
    """Kahan: ``2 atan(Re sqrt(1-z) / Re sqrt(1+z))`` and ``asinh(Im(conj(sqrt(1+z)) sqrt(1-z)))``."""
    x, y = a
    (p, q), (r, s) = _roots(a)
    endless, inf = _is_infinite(x) | _is_infinite(y), x.lift(float("inf"))
    re = endless.pick(y.fn("abs").fn("atan2", x), p.fn("atan2", r) * 2.0)
    im = endless.pick(-inf.fn("copysign", y), (r * q - s * p).fn("asinh"))
    return (x.same(0.0) & _is_nan(y)).pick(x.lift(math.pi / 2), re), im


def acosh(a: Pair) -> Pair:
    """Kahan: ``asinh(Re(conj(sqrt(z-1)) sqrt(z+1)))`` and ``2 atan(Im sqrt(z-1) / Re sqrt(z+1))``."""
    x, y = a
    (p, q), (r, s) = sqrt((x - 1.0, y)), sqrt((x + 1.0, y))
    endless = _is_infinite(x) | _is_infinite(y)
    re = endless.pick(x.lift(float("inf")), (p * r + q * s).fn("asinh"))
    im = endless.pick(y.fn("atan2", x), q.fn("atan2", r) * 2.0)
    return re, (x.same(0.0) & _is_nan(y)).pick(x.lift(math.pi / 2), im)


def atanh(a: Pair) -> Pair:
    """``log1p(4x / ((1-x)**2 + y**2)) / 4``, ``atan2(2y, (1-x)(1+x) - y**2) / 2``; the limit for huge z."""
    x, y = a
    far = (_bigger(x, y)[0] > (1e9 if x.e.dtype.bits == 32 else 1e75)) | _is_infinite(x) | _is_infinite(y)
    u, v = far.pick(x.lift(1.0), x), far.pick(x.lift(1.0), y)
    one = 1.0 - u
    re = (u.fn("abs") * 4.0 / ((1.0 - u.fn("abs")) * (1.0 - u.fn("abs")) + v * v)).fn("log1p") * 0.25
    im = (v * 2.0).fn("atan2", one * (u + 1.0) - v * v) * 0.5
    limit = _is_nan(y).pick(y, x.lift(math.pi / 2).fn("copysign", y))
    re = (x.same(0.0) & _is_nan(y)).pick(x, re)
    return far.pick(x.lift(0.0), re).fn("copysign", x), far.pick(limit, im)


def _scaled(f: Callable[[Pair], Pair], before: float, after: float) -> Callable[[Pair], Pair]:
    def scaled(a: Pair) -> Pair:
        re, im = f((a[0] * before, a[1] * before) if before != 1.0 else a)
        return (re * after, im * after) if after != 1.0 else (re, im)

    return scaled


UNARY: dict[str, Callable[[Pair], Pair]] = {
    "sign": sign, "sqrt": sqrt,
    "exp": exp, "exp2": _scaled(exp, _LOG_2, 1.0), "expm1": expm1,
    "log": log, "log2": _scaled(log, 1.0, _LOG2_E), "log10": _scaled(log, 1.0, _LOG10_E), "log1p": log1p,
    "sin": _turned(sinh), "cos": cos, "tan": _turned(tanh), "sinh": sinh, "cosh": cosh, "tanh": tanh,
    "asin": asin, "acos": acos, "atan": _turned(atanh),
    "asinh": _turned(asin), "acosh": acosh, "atanh": atanh,
}
BINARY: dict[str, Callable[[Pair, Pair], Pair]] = {"mul": mul, "div": div, "pow": power}


def has_pairs(op: str) -> bool:
    """Whether there is a formula for the complex primitive in real ones."""
    return op == "abs" or op in UNARY or op in BINARY


def pair_function(op: str, part: DType) -> tuple[tuple[loop.Expr, ...], tuple[loop.Expr, ...]]:
    """A complex primitive as (parameters, results), all real of dtype ``part``.

    Parameters are ``x_re, x_im`` and, for two arguments, ``y_re, y_im``. Raises CompileError for one without
    formula.
    """
    x, y = ((R(loop.var(f"{n}_re", part)), R(loop.var(f"{n}_im", part))) for n in "xy")
    if op == "abs":
        return (x[0].e, x[1].e), (absolute(x).e,)
    if op in UNARY:
        re, im = UNARY[op](x)
        return (x[0].e, x[1].e), (re.e, im.e)
    if op in BINARY:
        re, im = BINARY[op](x, y)
        return (x[0].e, x[1].e, y[0].e, y[1].e), (re.e, im.e)
    raise CompileError(
        f"primitive {op!r} has no complex form on this target",
        why=f"formulas on pairs exist for {', '.join(sorted((*UNARY, *BINARY, 'abs')))}",
        do="write it with those, or compute on real and imaginary parts",
    )

"""Windows of signal processing, and the Bessel function that Kaiser's is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, cast
from rlx.array.define import op, public
from rlx.array.hooks import default_float
from rlx.ir.op import Sample

_PI = 3.141592653589793


def _phase(m: int, device: str | None) -> Array:
    """``0, 1, ..., m - 1`` over ``m - 1``, in the default float."""
    i: Array = FUNCTIONS["arange"](m, dtype=default_float(device), device=device)
    return i / max(m - 1, 1)


def _cosines(m: int, device: str | None, *weights: float) -> Array:
    if m <= 1:
        return FUNCTIONS["ones"](max(m, 0), device=device)
    t = _phase(m, device)
    out = FUNCTIONS["full_like"](t, weights[0])
    for k, w in enumerate(weights[1:], 1):
        out = out + w * FUNCTIONS["cos"]((2 * _PI * k) * t)
    return out


@public
def hanning(m: int, /, *, device: str | None = None) -> Array:
    """Hann's window, ``0.5 - 0.5 cos(2 pi n / (m - 1))``."""
    return _cosines(m, device, 0.5, -0.5)


@public
def hamming(m: int, /, *, device: str | None = None) -> Array:
    """Hamming's window, ``0.54 - 0.46 cos(2 pi n / (m - 1))``."""
    return _cosines(m, device, 0.54, -0.46)


@public
def blackman(m: int, /, *, device: str | None = None) -> Array:
    """Blackman's window, ``0.42 - 0.5 cos(2 pi n / (m - 1)) + 0.08 cos(4 pi n / (m - 1))``."""
    return _cosines(m, device, 0.42, -0.5, 0.08)


@public
def bartlett(m: int, /, *, device: str | None = None) -> Array:
    """Bartlett's window: a triangle with zeros at both ends."""
    if m <= 1:
        return FUNCTIONS["ones"](max(m, 0), device=device)
    return 1 - FUNCTIONS["abs"](2 * _phase(m, device) - 1)


@public
def kaiser(m: int, beta: float, /, *, device: str | None = None) -> Array:
    """Kaiser's window, ``i0(beta sqrt(1 - (2 n / (m - 1) - 1)^2)) / i0(beta)``."""
    if m <= 1:
        return FUNCTIONS["ones"](max(m, 0), device=device)
    t = 2 * _phase(m, device) - 1
    inside = FUNCTIONS["maximum"](1 - t * t, 0)
    return i0(beta * FUNCTIONS["sqrt"](inside)) / i0(FUNCTIONS["full_like"](t, beta))


#: Chebyshev coefficients, computed to 40 digits from the definition: of ``exp(-x) I0(x)`` for ``x`` in [0, 8] over
#: ``x / 4 - 1``, and of ``sqrt(x) exp(-x) I0(x)`` for ``x`` above 8 over ``16 / x - 1``.
_NEAR = (
    0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764, 0.04930528423967071,
    -0.02373741480589947, 0.010546460394594998, -0.004324309995050576, 0.0016394756169413357,
    -0.0005763755745385824, 0.00018850288509584165, -5.754195010082104e-05, 1.6448448070728896e-05,
    -4.4167383584587505e-06, 1.1173875391201037e-06, -2.670793853940612e-07, 6.046995022541919e-08,
    -1.300025009986248e-08, 2.6598237246823866e-09, -5.189795601635263e-10, 9.675809035373237e-11,
    -1.726826291441556e-11, 2.95505266312964e-12, -4.856446783111929e-13, 7.676185498604936e-14,
    -1.1685332877993451e-14, 1.715391285555133e-15, -2.431279846547955e-16, 3.3307945188222384e-17,
    -4.4153416464793395e-18,
)
_FAR = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06,
    2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10,
    1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12,
    7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14, -4.150569347287222e-14,
    -9.554846698828307e-15, 3.8116806693526224e-15, 1.7725601330565263e-15, -3.425485619677219e-16,
    -2.8276239805165836e-16, 3.461222867697461e-17, 4.46562142029676e-17, -4.830504485944182e-18,
    -7.233180487874754e-18, 9.921475412173699e-19, 1.193650890845982e-18,
)


def _clenshaw(t: Array, coefficients: tuple[float, ...]) -> Array:
    """The sum of Chebyshev polynomials of ``t``."""
    twice = 2 * t
    a, b = FUNCTIONS["zeros_like"](t), FUNCTIONS["zeros_like"](t)
    for c in coefficients[:0:-1]:
        a, b = twice * a - b + c, a
    return t * a - b + coefficients[0]


@op
def _i0(x: Array, /) -> Array:
    """The modified Bessel function of the first kind and order 0."""
    # Beyond 2000 both factors overflow already; the bound keeps infinity from meeting a zero below.
    a = FUNCTIONS["minimum"](FUNCTIONS["abs"](x), 2000.0)
    near = _clenshaw(FUNCTIONS["minimum"](a, 8.0) / 4 - 1, _NEAR)
    wide = FUNCTIONS["maximum"](a, 8.0)
    far = _clenshaw(16 / wide - 1, _FAR) / FUNCTIONS["sqrt"](wide)
    scaled = FUNCTIONS["where"](a <= 8, near, far)
    half = FUNCTIONS["exp"](a / 2)  # in two factors: exp(a) overflows before i0 does
    return half * scaled * half


@_i0.ref
def _(x: Any) -> Any:
    from scipy.special import i0 as oracle
    return np.where(np.isinf(x), np.inf, oracle(x)).astype(x.dtype)  # SciPy's is NaN there


@_i0.samples
def _() -> list[Sample]:
    x = np.random.default_rng(7).uniform(-20, 20, (4, 5))
    edge = np.array([0.0, -0.0, 8.0, -8.0, np.inf, -np.inf, np.nan, 700.0])
    return [Sample((x,), name="float64"), Sample((x.astype(np.float32),), name="float32"),
            Sample((edge,), name="edge", edge=True, grad=False)]


@public
def i0(x: Any, /) -> Array:
    """The modified Bessel function of the first kind and order 0."""
    a = as_array(x)
    return _i0(a if a.dtype.is_float else cast(a, default_float(a.device)))

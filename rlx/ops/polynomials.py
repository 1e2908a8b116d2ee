"""Polynomials as vectors of coefficients, highest power first as in NumPy; roots and fits are in ``rlx.linalg``."""

from __future__ import annotations

import builtins
from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, cast, is_scalar, promote
from rlx.array.define import public
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError, ValueIssue
from rlx.ops.floating import floating
from rlx.ops.movement import concat, iota, pad_with


@public
def polyval(p: Any, x: Any, /) -> Array:
    """``p[0] x**(n-1) + ... + p[n-1]`` by Horner's rule."""
    c, v = promote(p, x)
    out = FUNCTIONS["zeros_like"](v)
    for i in range(c.shape[0]):
        out = out * v + c[i]
    return out


@public
def polyder(p: Any, /, m: int = 1) -> Array:
    """The coefficients of the ``m``-th derivative of a polynomial."""
    c = as_array(p)
    for _ in range(m):
        n = c.shape[0]
        c = c[:-1] * FUNCTIONS["flip"](iota(n, dt.int64, c._value.node.device))[:-1].astype(c.dtype) if n else c
    return c


@public
def polyint(p: Any, /, m: int = 1, k: Any = None) -> Array:
    """The coefficients of the ``m``-th integral of a polynomial; ``k``: the constants of integration (0)."""
    c = floating(p)
    constants = [0.0] * m if k is None else [k] * m if is_scalar(k) else list(k)
    if len(constants) != m:
        raise ValueIssue(f"{m} integrals with {len(constants)} constants", why="each integration has one constant",
                         do="pass one constant, or one for each")
    for last in constants:
        n = c.shape[0]
        powers = FUNCTIONS["flip"](iota(n, dt.int64, c._value.node.device)) + 1
        c = FUNCTIONS["append"](c / cast(powers, c.dtype), cast(as_array(last), c.dtype))
    return c


@public
def polyadd(p: Any, q: Any, /) -> Array:
    """The sum of two polynomials."""
    a, b = promote(p, q)
    n = builtins.max(a.shape[0], b.shape[0])
    return pad_with(a, (n - a.shape[0],), (0,), 0) + pad_with(b, (n - b.shape[0],), (0,), 0)


@public
def polymul(p: Any, q: Any, /) -> Array:
    """The product of two polynomials."""
    return FUNCTIONS["convolve"](p, q)


@public
def polysub(p: Any, q: Any, /) -> Array:
    """The difference of two polynomials."""
    out: Array = FUNCTIONS["polyadd"](p, FUNCTIONS["negative"](as_array(q)))
    return out


@public
def polydiv(u: Any, v: Any, /) -> tuple[Array, Array]:
    """Quotient and remainder of two polynomials.

    The remainder has one coefficient less than ``v`` (one at least): leading zeros stay, as their number depends on
    the values; :func:`trim_zeros` takes them off.
    """
    a, b = promote(floating(FUNCTIONS["atleast_1d"](u)), floating(FUNCTIONS["atleast_1d"](v)))
    m, n = a.shape[0], b.shape[0]
    if n == 0:
        raise ShapeError("division by a polynomial without coefficients", why="it is zero", do="pass one at least")
    if m < n:
        return FUNCTIONS["zeros"](1, dtype=a.dtype), a
    quotient = []
    rest, tail = a, b[1:] / b[0]
    for _ in range(m - n + 1):
        lead = rest[0]
        quotient.append(lead / b[0])
        rest = concat([rest[1:n] - lead * tail, rest[n:]]) if n > 1 else rest[1:]
    rest = rest if n > 1 else FUNCTIONS["zeros"](1, dtype=a.dtype)
    return FUNCTIONS["stack"](quotient), rest


@public
def poly(roots: Any, /) -> Array:
    """The coefficients of the monic polynomial with these roots."""
    z = floating(FUNCTIONS["atleast_1d"](roots))
    if z.ndim != 1:
        raise ShapeError(f"poly() of an array of shape {z.shape}", why="roots are a vector",
                         do="pass rlx.linalg.eigvals(x) for a characteristic polynomial")
    out = FUNCTIONS["ones"](1, dtype=z.dtype)
    for i in range(z.shape[0]):
        out = pad_with(out, (0,), (1,), 0) - pad_with(out * z[i], (1,), (0,), 0)
    return out

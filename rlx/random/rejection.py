"""Draws by rejection: a loop on the device in which each element is proposed anew until it is accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import cast, literal
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError
from rlx.ops.movement import reshape
from rlx.random.continuous import exponential, floating, normal, parameter, placed, shape_of, unit, work
from rlx.random.keys import Shape, _checked, fold_in, split

_f = FUNCTIONS
Proposal = Callable[[Array], tuple[Array, Array]]


def _two(key: Array) -> list[Array]:
    both = split(key, 2)
    return [reshape(both[i], (2,)) for i in range(2)]


def _until_accepted(key: Array, start: Array, propose: Proposal) -> Array:
    """For each element the first proposal that is accepted; proposal ``i`` is drawn with ``fold_in(key, i)``."""
    device = key._value.node.device
    done = _f["zeros"](start.shape, dtype=dt.bool_, device=key.device)

    def going(state: tuple[Array, Array, Array]) -> Array:
        out: Array = ~_f["all"](state[1])
        return out

    def again(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        i, accepted, value = state
        new, good = propose(fold_in(key, i))
        return i + 1, accepted | good, _f["where"](accepted, value, new)

    out: Array = _f["while_loop"](going, again, (literal(0, dt.int64, device), done, start))[2]
    return out


def gamma(key: Any, shape: Shape | None = None, a: Any = 1.0, scale: Any = 1.0, *, dtype: Any = None) -> Array:
    """Gamma with shape parameter ``a`` and mean ``a * scale`` (Marsaglia and Tsang 2000).

    Differentiable by ``scale``; not by ``a``, on which the acceptance of a proposal depends.
    """
    d = floating(key, dtype, a, scale)
    w, k = work(d), _checked(key)
    size = shape_of(shape, a, scale)
    k_loop, k_boost = _two(k)
    alpha = parameter(a, w, _f["zeros"](size, dtype=w, device=k.device))
    small = alpha < 1
    # a < 1 is a draw of a + 1 times u ** (1 / a).
    third = _f["where"](small, alpha + 1, alpha) - 1.0 / 3.0
    c = 1.0 / (3.0 * _f["sqrt"](third))

    def propose(key_: Array) -> tuple[Array, Array]:
        k_x, k_u = _two(key_)
        x = normal(k_x, size, dtype=w)
        v = 1.0 + c * x
        cube = v * v * v
        log_u = _f["log1p"](-unit(k_u, size, w))
        safe = _f["where"](v > 0, cube, 1.0)
        return third * cube, (v > 0) & (log_u < 0.5 * x * x + third * (1.0 - safe + _f["log"](safe)))

    drawn = _until_accepted(k_loop, alpha, propose)
    boost = _f["exp"](-exponential(k_boost, size, dtype=w) / _f["where"](small, alpha, 1.0))
    return placed(_f["where"](small, drawn * boost, drawn), 0.0, scale, d)


def poisson(key: Any, shape: Shape | None = None, lam: Any = 1.0, *, dtype: Any = dt.int64) -> Array:
    """Poisson counts with mean ``lam``: counted arrivals below 10, above it transformed rejection (Hoermann 1993).

    Means up to about 1e15, computed in float64, or in float32 (means up to 1e6) on a device that has no other.
    """
    d = dt.as_dtype(dtype)
    if not d.is_integer:
        raise DTypeError(f"Poisson counts of {d.name}", why="counts are integers", do="pass an integer dtype")
    k = _checked(key)
    w = work(floating(k, None, lam))
    size = shape_of(shape, lam)
    mean = parameter(lam, w, _f["zeros"](size, dtype=w, device=k.device))
    k_few, k_many = _two(k)
    few = _arrivals(k_few, size, _f["where"](mean < 10, mean, 0.0), w)
    many = _transformed(k_many, size, _f["where"](mean < 10, 10.0, mean), w)
    return cast(_f["where"](mean < 10, few, many), d)


def _arrivals(key: Array, size: tuple[int, ...], mean: Array, w: dt.DType) -> Array:
    """How many exponential waits fit in ``mean``."""
    device = key._value.node.device

    def going(state: tuple[Array, Array, Array]) -> Array:
        out: Array = _f["any"](state[1] < mean)
        return out

    def wait(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        i, time, n = state
        time = time + exponential(fold_in(key, i), size, dtype=w)
        return i + 1, time, n + cast(time < mean, w)

    zeros = _f["zeros"](size, dtype=w, device=key.device)
    out: Array = _f["while_loop"](going, wait, (literal(0, dt.int64, device), zeros, zeros))[2]
    return out


def _transformed(key: Array, size: tuple[int, ...], mean: Array, w: dt.DType) -> Array:
    """Algorithm PTRS of Hoermann 1993; its constants are from there."""
    b = 0.931 + 2.53 * _f["sqrt"](mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    squeeze = 0.9277 - 3.6224 / (b - 2.0)
    log_mean = _f["log"](mean)

    def propose(key_: Array) -> tuple[Array, Array]:
        k_u, k_v = _two(key_)
        u = unit(k_u, size, w) - 0.5
        v = 1.0 - unit(k_v, size, w)
        us = 0.5 - _f["abs"](u)
        positive = _f["where"](us > 0, us, 1.0)
        n = _f["floor"]((2.0 * a / positive + b) * u + mean + 0.43)
        inside = (us > 0) & (n >= 0)
        left = _f["log"](v * inverse_alpha / (a / (positive * positive) + b))
        right = n * log_mean - mean - _f["lgamma"](_f["where"](inside, n, 0.0) + 1.0)
        quick = (us >= 0.07) & (v <= squeeze)
        return n, inside & (quick | (((us >= 0.013) | (v <= us)) & (left <= right)))

    return _until_accepted(key, mean, propose)

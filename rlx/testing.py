"""Checks for people who write ops: a derivative against differences of the function's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.array.tree import flatten, unflatten
from rlx.transform.derive import jvp, vjp

#: Step of the central difference relative to the argument: near the cube root of the rounding error of float64, where
#: truncation (h^2) and cancellation (eps / h) balance; two steps are combined to cancel the h^2 term.
STEP = 2e-4


def check_grad(f: Callable[..., Any], *args: Any, modes: Sequence[str] = ("forward", "reverse"), order: int = 1,
               projections: int = 2, rtol: float = 1e-6, atol: float = 1e-8, seed: int = 0,
               step: float = STEP) -> float:
    """Compare derivatives of ``f`` at ``args`` with central differences, along random directions, in float64.

    ``<w, f(x + h v) - f(x - h v)> / 2h`` (extrapolated from two steps) is compared with ``<w, jvp(v)>`` and
    ``<vjp(w), v>``, for random ``v`` and ``w`` and the inner product ``Re sum(conj(a) b)``. Arguments that are real
    or complex arrays are differentiated, others are passed on. ``order=2`` also checks the derivative of the
    gradient. Returns the largest relative error; raises AssertionError when one is above ``rtol`` (``atol``
    absolute).

    >>> import rlx
    >>> rlx.testing.check_grad(lambda x: rlx.tanh(x) * x, rlx.asarray([0.3, -0.7])) < 1e-6
    True
    """
    leaves, structure = flatten(args)
    places = [i for i, x in enumerate(leaves) if _differentiable(x)]
    xs = [_wide(leaves[i]) for i in places]
    others = list(leaves)

    def g(*moving: Any) -> list[Array]:
        full = list(others)
        for i, x in zip(places, moving, strict=True):
            full[i] = x
        outs, _ = flatten(f(*unflatten(structure, full)))
        return [a for a in map(as_array, outs) if a.dtype.is_inexact]

    rng = np.random.default_rng(seed)
    worst = 0.0
    for k in range(projections):
        worst = max(worst, _check(g, xs, rng, modes, rtol, atol, step, f"direction {k}"))
    if order > 1 and xs:
        ws = [_direction(rng, np.asarray(y)) for y in g(*map(as_array, xs))]

        def gradient(*moving: Any) -> Any:
            return list(vjp(g, *moving)[1](list(map(as_array, ws))))
        worst = max(worst, check_grad(gradient, *xs, modes=modes, order=order - 1, projections=1, rtol=rtol * 10,
                                      atol=atol * 10, seed=seed + 1, step=step))
    return worst


def _check(g: Callable[..., list[Array]], xs: list[np.ndarray], rng: np.random.Generator, modes: Sequence[str],
           rtol: float,
           atol: float, step: float, name: str) -> float:
    vs = [_direction(rng, x) for x in xs]
    outs = g(*map(as_array, xs))
    if not xs or not outs:
        return 0.0
    ws = [_direction(rng, np.asarray(o)) for o in outs]
    expected = _difference(g, xs, vs, ws, step)
    found = {}
    if "forward" in modes:
        moved = jvp(g, list(map(as_array, xs)), list(map(as_array, vs)))[1]
        found["forward"] = _inner(ws, moved)
    if "reverse" in modes:
        back = vjp(g, *map(as_array, xs))[1]
        found["reverse"] = _inner(back(list(map(as_array, ws))), vs)
    worst = 0.0
    scale = max(abs(expected), *[abs(v) for v in found.values()], 1.0 if atol else 0.0)
    for mode, value in found.items():
        error = abs(value - expected)
        if not error <= atol + rtol * scale:
            raise AssertionError(f"{mode} derivative along {name} is {value!r}, differences give {expected!r}")
        worst = max(worst, error / scale if scale else 0.0)
    if len(found) == 2 and not abs(found["forward"] - found["reverse"]) <= atol + 1e-3 * rtol * scale:
        raise AssertionError(f"forward and reverse derivatives along {name} differ: {found['forward']!r} and "
                             f"{found['reverse']!r}")
    return worst


def _differentiable(x: Any) -> bool:
    return bool(np.issubdtype(np.asarray(x).dtype, np.inexact)) if not isinstance(x, (str, bytes)) else False


def _wide(x: Any) -> np.ndarray:
    host = np.asarray(x)
    return host.astype(np.complex128 if host.dtype.kind == "c" else np.float64)


def _direction(rng: np.random.Generator, like: np.ndarray) -> np.ndarray:
    v = rng.standard_normal(like.shape)
    if like.dtype.kind == "c":
        v = v + 1j * rng.standard_normal(like.shape)
    return v.astype(like.dtype)


def _inner(a: Sequence[Any], b: Sequence[Any]) -> float:
    return float(sum(np.sum(np.conj(np.asarray(x)) * np.asarray(y)).real for x, y in zip(a, b, strict=True)))


def _difference(g: Callable[..., list[Array]], xs: list[np.ndarray], vs: list[np.ndarray], ws: list[np.ndarray],
                step: float) -> float:
    """The central difference along v, projected on w, with Richardson extrapolation from steps h and h/2."""
    def at(h: float) -> float:
        up = g(*[as_array(x + h * v) for x, v in zip(xs, vs, strict=True)])
        down = g(*[as_array(x - h * v) for x, v in zip(xs, vs, strict=True)])
        return _inner(ws, [np.asarray(a) - np.asarray(b) for a, b in zip(up, down, strict=True)]) / (2 * h)
    return (4 * at(step / 2) - at(step)) / 3


__all__ = ["check_grad"]

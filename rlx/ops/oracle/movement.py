"""Oracles and samples of the movement primitives and iota."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from rlx.core import dtype as dt
from rlx.ir.op import REGISTRY, Sample
from rlx.ops.oracle.data import DTYPES, FEW, values

Ints = tuple[int, ...]
iota, reshape, permute, broadcast = (REGISTRY[n] for n in ("iota", "reshape", "permute", "broadcast"))
cut, pad, flip, concat, window = (REGISTRY[n] for n in ("slice", "pad", "flip", "concat", "window"))


def _samples(shape: Ints, attrs: dict[str, Any], also: Sequence[tuple[str, Ints, dict[str, Any]]]) -> list[Sample]:
    """One sample of every dtype, and further shapes of one dtype (the empty ones are edges)."""
    out = [Sample((values(shape, d, 1),), attrs, d) for d in DTYPES]
    for name, s, a in also:
        out.append(Sample((values(s, "float64", 2),), a, name, edge=0 in s, grad=0 not in s))
    return out


@iota.ref
def _(*, dtype: dt.DType, size: int) -> Any:
    return np.array(list(range(size)), dtype.numpy)


@iota.samples
def _() -> list[Sample]:
    return [Sample((), {"dtype": dt.as_dtype(d), "size": n}, f"{d}-{n}", edge=n == 0, grad=False)
            for d in DTYPES if d != "bool" for n in (0, 1, 7)]


@reshape.ref
def _(x: Any, *, shape: Ints) -> Any:
    return np.array(x.ravel().tolist(), x.dtype).reshape(shape)


@reshape.samples
def _() -> list[Sample]:
    return _samples((3, 4), {"shape": (2, 6)}, [
        ("merge", (2, 3, 4), {"shape": (24,)}), ("split", (24,), {"shape": (3, 2, 4)}),
                                                ("ones", (1, 5, 1), {"shape": (5, 1)}),
        ("scalar", (1, 1), {"shape": ()}), ("to one", (), {"shape": (1, 1)}), ("empty", (3, 0), {"shape": (0, 7)}),
        ("mixed", (4, 6), {"shape": (3, 8)})])


@permute.ref
def _(x: Any, *, axes: Ints) -> Any:
    out = np.empty([x.shape[a] for a in axes], x.dtype)
    for i in np.ndindex(*out.shape):
        out[i] = x[tuple(i[axes.index(a)] for a in range(x.ndim))]
    return out


@permute.samples
def _() -> list[Sample]:
    return _samples((3, 4), {"axes": (1, 0)}, [
        ("cycle", (2, 3, 4), {"axes": (2, 0, 1)}), ("four", (2, 3, 4, 5), {"axes": (3, 1, 0, 2)}),
        ("ones", (1, 4, 1), {"axes": (2, 0, 1)}), ("empty", (2, 0, 3), {"axes": (1, 2, 0)}),
        ("identity", (2, 3), {"axes": (0, 1)})])


@broadcast.ref
def _(x: Any, *, shape: Ints) -> Any:
    return np.zeros(shape, x.dtype) + x if x.dtype.kind != "b" else np.zeros(shape, bool) | x


@broadcast.samples
def _() -> list[Sample]:
    return _samples((1, 4), {"shape": (3, 4)}, [
        ("lead", (4,), {"shape": (2, 3, 4)}), ("both", (3, 1), {"shape": (2, 3, 5)}), ("scalar", (), {"shape": (2, 3)}),
        ("ones", (1, 1), {"shape": (1, 1, 1)}), ("empty", (1, 3), {"shape": (0, 3)}), ("to scalar", (), {"shape": ()}),
        ("middle", (2, 1, 3), {"shape": (2, 4, 3)})])


@cut.ref
def _(x: Any, *, start: Ints, size: Ints, step: Ints) -> Any:
    for axis, (b, n, s) in enumerate(zip(start, size, step, strict=True)):
        x = np.take(x, [b + k * s for k in range(n)], axis=axis)
    return x


@cut.samples
def _() -> list[Sample]:
    def at(start: Ints, size: Ints, step: Ints) -> dict[str, Any]:
        return {"start": start, "size": size, "step": step}
    return _samples((5, 6), at((1, 0), (3, 3), (1, 2)), [
        ("steps", (11, 7), at((2, 1), (3, 2), (4, 5))), ("whole", (3, 4), at((0, 0), (3, 4), (1, 1))),
        ("one", (3, 4), at((2, 3), (1, 1), (1, 1))), ("nothing", (3, 4), at((0, 1), (0, 2), (1, 1))),
        ("empty", (0, 4), at((0, 1), (0, 2), (1, 2))), ("scalar", (), at((), (), ()))])


@pad.ref
def _(x: Any, value: Any, *, low: Ints, high: Ints) -> Any:
    out = np.full([n + a + b for n, a, b in zip(x.shape, low, high, strict=True)], value)
    for i in np.ndindex(*out.shape):
        source = tuple(k - a for k, a in zip(i, low, strict=True))
        if all(0 <= k < n for k, n in zip(source, x.shape, strict=True)):
            out[i] = x[source]
    return out


@pad.samples
def _() -> list[Sample]:
    shapes: list[tuple[str, Ints, Ints, Ints]] = [
        ("three", (2, 3, 4), (1, 0, 2), (0, 2, 1)), ("nothing", (2, 3), (0, 0), (0, 0)),
                                                  ("of empty", (0, 3), (2, 0), (1, 1)),
        ("one", (1,), (0,), (6,)), ("scalar", (), (), ())]
    out = [Sample((values((2, 3), d, 1), values((), d, 2)), {"low": (1, 0), "high": (0, 2)}, d) for d in DTYPES]
    return out + [Sample((values(s, "float64", 3), np.array(7.5)), {"low": a, "high": b}, n, edge=0 in s,
                         grad=0 not in s) for n, s, a, b in shapes]


@flip.ref
def _(x: Any, *, axes: Ints) -> Any:
    for a in axes:
        x = np.take(x, list(range(x.shape[a] - 1, -1, -1)), axis=a)
    return x


@flip.samples
def _() -> list[Sample]:
    return _samples((3, 4), {"axes": (1,)}, [
        ("both", (3, 4), {"axes": (0, 1)}), ("middle", (2, 3, 4), {"axes": (1,)}), ("one", (1, 4), {"axes": (0,)}),
        ("empty", (0, 4), {"axes": (0, 1)}), ("none", (3,), {"axes": ()})])


@concat.ref
def _(*xs: Any, axis: int) -> Any:
    n = sum(x.shape[axis] for x in xs)
    out = np.empty([n if a == axis else d for a, d in enumerate(xs[0].shape)], xs[0].dtype)
    at = 0
    for x in xs:
        for k in range(x.shape[axis]):
            np.moveaxis(out, axis, 0)[at + k] = np.moveaxis(x, axis, 0)[k]
        at += x.shape[axis]
    return out


@concat.samples
def _() -> list[Sample]:
    out = [Sample((values((2, 3), d, 1), values((2, 2), d, 2)), {"axis": 1}, d) for d in DTYPES]
    for name, axis, shapes in (("first axis", 0, [(2, 3), (1, 3), (4, 3)]), ("middle", 1, [(2, 1, 3), (2, 4, 3)]),
                               ("with empty", 0, [(0, 3), (2, 3), (0, 3)]), ("all empty", 0, [(0,), (0,)]),
                               ("many", 0, [(k % 3 + 1,) for k in range(9)]), ("single", 0, [(3,)])):
        out.append(Sample(tuple(values(s, "float64", k) for k, s in enumerate(shapes)), {"axis": axis}, name,
                          edge=any(0 in s for s in shapes), grad=not any(0 in s for s in shapes)))
    return out


@window.ref
def _(x: Any, *, axes: Ints, size: Ints, step: Ints, dilation: Ints) -> Any:
    counts = list(x.shape)
    for a, k, s, d in zip(axes, size, step, dilation, strict=True):
        counts[a] = (x.shape[a] - d * (k - 1) - 1) // s + 1
    out = np.empty((*counts, *size), x.dtype)
    for at in np.ndindex(*counts):
        for offset in product(*map(range, size)):
            i = list(at)
            for a, o, s, d in zip(axes, offset, step, dilation, strict=True):
                i[a] = at[a] * s + o * d
            out[(*at, *offset)] = x[tuple(i)]
    return out


@window.samples
def _() -> list[Sample]:
    def of(axes: Ints, size: Ints, step: Ints, dilation: Ints) -> dict[str, Any]:
        return {"axes": axes, "size": size, "step": step, "dilation": dilation}
    out = [Sample((values((7,), d, 1),), of((0,), (3,), (2,), (1,)), d) for d in FEW]
    for name, shape, attrs in (("two axes", (2, 6, 7), of((1, 2), (2, 3), (1, 2), (1, 1))),
                               ("dilated", (9,), of((0,), (3,), (1,), (3,))),
                               ("whole", (4,), of((0,), (4,), (1,), (1,))),
                               ("one", (5,), of((0,), (1,), (2,), (1,))), ("gaps", (10,), of((0,), (2,), (4,), (1,))),
                               ("order", (5, 6), of((1, 0), (2, 3), (1, 1), (2, 1)))):
        out.append(Sample((values(shape, "float64", 2),), attrs, name))
    return out

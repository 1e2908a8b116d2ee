"""Casts between all dtypes, bit casts, selections and complex parts, compiled through LLVM, against NumPy."""

from __future__ import annotations

import math
import warnings
from functools import cache

import numpy as np
import pytest

from rlx.core.dtype import ALL, DType, bfloat16, bool_
from tests.render.llvm_jit import Jitted, from_bf16, plain, pointwise, stored, to_bf16
from tests.render.oracle import FLOATS, Array, check, edge_values

CAST_CASES = [(a, b) for a in ALL for b in ALL]


@cache
def casts() -> Jitted:
    return Jitted(
        [
            pointwise(f"cast.{a.short}.{b.short}", "cast", (a,), b, len(cast_values(a)))
            for a, b in CAST_CASES
        ],
        level=1,
    )


def cast_values(a: DType) -> Array:
    edges = edge_values(a)
    if a.is_float:
        more = np.array(
            [
                255.5,
                256.5,
                65519.0,
                65520.0,
                2.0**31,
                2.0**63,
                -(2.0**63),
                2.0**64,
                1.0009765625,
                1.00048828125 + 2.0**-40,
                1.00390625 + 2.0**-45,
                3e-8 + 1e-16,
                5.9604645e-8 * 1.5,
                1e-40,
            ]
        )
        edges = np.concatenate([edges, plain(stored(more, a), a)])
    return edges


def _expected_cast(x: Array, a: DType, b: DType) -> Array:
    if a.is_complex and not b.is_complex and b.kind != "b":
        x = x.real
    if b.kind == "b":
        return x != 0
    if x.dtype.kind == "f" and b.is_integer:
        info = np.iinfo(b.numpy)
        return np.array(
            [
                0
                if math.isnan(v)
                else int(min(max(v, info.min), info.max))
                if math.isinf(v)
                else min(max(int(v), info.min), info.max)
                for v in x.tolist()
            ],
            b.numpy,
        )
    if b == bfloat16:
        if x.dtype == np.float64:
            return _round_bf16(x)
        return from_bf16(to_bf16(x.astype(np.float32)))
    return x.astype(b.numpy)


def _round_bf16(x: Array) -> Array:
    """float64 to bfloat16 in one rounding, by exact rational arithmetic over the two neighbours."""
    every = np.unique(from_bf16(np.arange(1 << 16, dtype=np.uint16)))
    every = every[np.isfinite(every)].astype(np.float64)
    out = []
    for v in x.tolist():
        if not math.isfinite(v) or abs(v) > every[-1]:
            limit = every[-1] + (every[-1] - every[-2]) / 2
            out.append(
                v if not math.isfinite(v) else math.copysign(math.inf if abs(v) >= limit else every[-1], v)
            )
            continue
        i = int(np.searchsorted(every, v))
        low, high = every[max(i - 1, 0)], every[i]
        even = low if int(to_bf16(np.array([low]))[0]) & 1 == 0 else high
        near = low if v - low < high - v else high if high - v < v - low else even
        out.append(math.copysign(near, v))
    return np.array(out, np.float32)


@pytest.mark.parametrize(("a", "b"), CAST_CASES, ids=lambda d: d.short)
def test_cast(a: DType, b: DType) -> None:
    x = cast_values(a)
    out = np.zeros(len(x), b.numpy)
    casts()(f"cast.{a.short}.{b.short}", np.ascontiguousarray(stored(x, a)), out)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want = _expected_cast(x, a, b)
    check(plain(out, b), want, b, 0.0, f"cast {a.short} to {b.short}")


def test_bitcast_and_select_and_complex() -> None:
    kernels, pairs = [], []
    reals = [d for d in ALL if d.kind in "iuf"]
    for a in reals:
        for b in reals:
            if a.bits == b.bits:
                kernels.append(
                    pointwise(f"bit.{a.short}.{b.short}", "bitcast", (a,), b, len(edge_values(a)))
                )
                pairs.append((a, b))
    kernels += [
        pointwise(f"select.{d.short}", "select", (bool_, d, d), d, len(edge_values(d))) for d in ALL
    ]
    kernels += [
        pointwise(f"complex.{d.short}", "complex", (d, d), d.complex, len(edge_values(d))) for d in FLOATS
    ]
    jitted = Jitted(kernels, level=1)
    for a, b in pairs:
        x = np.ascontiguousarray(stored(edge_values(a), a))
        out = np.zeros(len(x), b.numpy)
        jitted(f"bit.{a.short}.{b.short}", x, out)
        np.testing.assert_array_equal(out.view(np.uint8), x.view(np.uint8), f"{a.short} {b.short}")
    for d in ALL:
        x = np.ascontiguousarray(stored(edge_values(d), d))
        y, c = np.ascontiguousarray(x[::-1]), np.arange(len(x)) % 3 == 0
        out = np.zeros_like(x)
        jitted(f"select.{d.short}", c, x, y, out)
        np.testing.assert_array_equal(out.view(np.uint8), np.where(c, x, y).view(np.uint8), d.short)
    for d in FLOATS:
        x = np.ascontiguousarray(stored(edge_values(d), d))
        out = np.zeros(len(x), d.complex.numpy)
        jitted(f"complex.{d.short}", x, np.ascontiguousarray(x[::-1]), out)
        np.testing.assert_array_equal(out.real, plain(x, d))
        np.testing.assert_array_equal(out.imag, plain(x[::-1], d))

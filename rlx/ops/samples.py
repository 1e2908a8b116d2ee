"""Sample inputs of elementwise ops, from the dtypes a primitive takes and the domain it is defined on."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.op import Sample
from rlx.ir.prim import Pointwise

_DTYPES = {"b": ["bool"], "i": ["int8", "int32", "int64"], "u": ["uint8", "uint32", "uint64"],
           "f": ["float32", "float64"], "c": ["complex64", "complex128"]}


def pointwise_samples(row: Pointwise, domain: str) -> list[Sample]:
    """One ordinary sample for every dtype, and edge samples of special values for floats and integers."""
    out: list[Sample] = []
    for kind in row.kinds:
        for name in _DTYPES[kind]:
            rng = np.random.default_rng(7)
            args = tuple(_values(rng, kind, name, domain, i) for i in range(row.arity))
            out.append(Sample(args, name=name))
    if "f" in row.kinds and domain != "shift":
        for name in _DTYPES["f"]:
            out.append(Sample(_edge_floats(row.arity, name), name=f"{name}-edge", edge=True, grad=False))
    if "i" in row.kinds and domain not in ("shift", "nonnegative"):
        out.append(Sample(_edge_ints(row.arity, domain), name="int32-edge", edge=True, grad=False))
    return out


def _values(rng: np.random.Generator, kind: str, dtype: str, domain: str, position: int) -> Any:
    shape = (3, 5)
    if kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        high = 7 if domain == "shift" and position == 1 else 50
        low = 0 if kind == "u" or domain in ("shift", "nonnegative", "positive") else -50
        n = rng.integers(low, 4 if domain == "positive" else high, shape)
        if domain == "second_nonzero" and position == 1:
            n = np.where(n == 0, 3, n)
        return n.astype(dtype)
    x = rng.uniform(*{"positive": (0.1, 4.0), "unit": (-0.9, 0.9), "above_one": (1.1, 5.0),
                      "above_minus_one": (-0.9, 3.0)}.get(domain, (-3.0, 3.0)), shape)
    if domain == "second_nonzero" and position == 1:
        x = np.where(np.abs(x) < 0.2, 1.5, x)
    if kind == "c":
        x = x + 1j * rng.uniform(0.1, 2.0, shape)
    return x.astype(dtype)


def _edge_floats(arity: int, dtype: str) -> tuple[Any, ...]:
    info = np.finfo(dtype)
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, info.max, info.tiny, 0.5, -2.5, 1e4], dtype)
    if arity == 1:
        return (special,)
    grids = np.meshgrid(*[special] * arity, indexing="ij") if arity == 2 else [special] * arity
    return tuple(np.ascontiguousarray(g) for g in grids)


def _edge_ints(arity: int, domain: str) -> tuple[Any, ...]:
    info = np.iinfo(np.int32)
    x = np.array([0, 1, -1, info.max, info.min, 7, -7], np.int32)
    if arity == 1:
        return (x,)
    y = np.array([3, -3, 1, 2, 5, -2, 7], np.int32)
    return (x, y) if arity == 2 else (x, y, x)

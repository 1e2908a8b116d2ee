"""Oracles and samples of select, cast and bitcast."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.core import dtype as dt
from rlx.ir.op import REGISTRY, Sample
from rlx.ops.oracle.data import DTYPES, values

select, cast, bitcast = REGISTRY["select"], REGISTRY["cast"], REGISTRY["bitcast"]


@select.ref
def _(c: Any, x: Any, y: Any) -> Any:
    out = y.copy()
    out[c] = x[c]
    return out


@select.samples
def _() -> list[Sample]:
    c = values((3, 5), "bool", 1)
    return [Sample((c, values((3, 5), d, 2), values((3, 5), d, 3)), name=d) for d in DTYPES] + [
        Sample((c[:0], values((0, 5), "float64"), values((0, 5), "float64")), name="empty", edge=True, grad=False)]


@cast.ref
def _(x: Any, *, dtype: dt.DType) -> Any:
    target = dtype.numpy
    if x.dtype.kind == "f" and dtype.is_integer:
        info = np.iinfo(target)
        return np.array([0 if v != v else info.max if v >= info.max else info.min if v <= info.min else int(v)
                         for v in x.ravel().astype(np.longdouble)], target).reshape(x.shape)
    with np.errstate(all="ignore"):
        return x.astype(target)


def _edges(dtype: str) -> Any:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.array([False, True])
    if kind in "iu":
        info = np.iinfo(dtype)
        return np.array([info.min, info.max, 0, 1, info.max // 2, info.max - 1], dtype)
    special = np.array([0.0, -0.0, 1.5, -1.5, 2.5, np.inf, -np.inf, np.nan, 127.9, 128.0, -128.9, -129.0, 255.5, 6e4,
                        -6e4, 1e-6, 0.9999], dtype)
    if kind == "f" and dtype != "float16":
        special = np.concatenate([special, np.array([2.0**31, -2.0**31, 2.0**32, 2.0**63, -2.0**63, 2.0**64, 1e30,
                                                     -1e30, 1e-40], dtype)])
    return special + np.array(1j, dtype) if kind == "c" else special


@cast.samples
def _() -> list[Sample]:
    out = []
    for source in DTYPES:
        for target in DTYPES:
            if np.dtype(source).kind == "c" and np.dtype(target).kind not in "bc":
                continue
            out.append(Sample((_edges(source),), {"dtype": dt.as_dtype(target)}, f"{source}-{target}", True, False))
    return out


@bitcast.ref
def _(x: Any, *, dtype: dt.DType) -> Any:
    return np.frombuffer(np.ascontiguousarray(x).tobytes(), dtype.numpy).reshape(x.shape)


@bitcast.samples
def _() -> list[Sample]:
    pairs = (("float32", "int32"), ("int32", "float32"), ("float64", "uint64"), ("uint64", "float64"),
             ("int8", "uint8"),
             ("float16", "uint16"), ("int16", "float16"), ("int64", "uint64"))
    return [Sample((values((3, 4), a, 5),), {"dtype": dt.as_dtype(b)}, f"{a}-{b}", grad=False) for a, b in pairs]

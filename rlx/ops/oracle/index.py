"""Oracles and samples of gather and scatter."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.op import REGISTRY, Sample
from rlx.ops.oracle.data import DTYPES, NUMBERS, REALS, values

gather, scatter = REGISTRY["gather"], REGISTRY["scatter"]


@gather.ref
def _(x: Any, *index: Any, mode: str = "clip") -> Any:
    out = np.empty((*index[0].shape, *x.shape[len(index):]), x.dtype)
    for at in np.ndindex(*index[0].shape):
        where = [min(max(int(i[at]), 0), n - 1) for i, n in zip(index, x.shape, strict=False)]
        out[at] = x[tuple(where)] if all(n > 0 for n in x.shape[:len(index)]) else 0
    return out


def _picks(shape: Any, high: int, dtype: str = "int64", seed: int = 3) -> Any:
    return np.random.default_rng(seed).integers(0, high, shape).astype(dtype)


@gather.samples
def _() -> list[Sample]:
    clip = {"mode": "clip"}
    out = [Sample((values((4, 3), d, 1), np.array([2, 0, 2, 3])), clip, d) for d in DTYPES]
    out += [Sample((values((4, 3), "float64", 1), _picks(5, 4, d)), clip, f"index-{d}")
            for d in ("int8", "int32", "uint8", "uint32", "uint64")]
    x = values((4, 3, 5), "float64", 2)
    out += [Sample((x, _picks((2, 3), 4), _picks((2, 3), 3)), clip, "two axes"),
            Sample((x, _picks(6, 4), _picks(6, 3), _picks(6, 5)), {"mode": "promise"}, "all axes"),
            Sample((x, np.array(2)), clip, "scalar index"),
            Sample((x, np.array([9, -1, 4, -100])), clip, "clamped", True, False),
            Sample((x, np.zeros((0, 2), np.int64)), clip, "no index", True, False),
            Sample((values((0, 3), "float64"), np.array([0, 1])), clip, "of empty", True, False),
            Sample((values((4, 0), "float64"), np.array([0, 1])), clip, "of empty rows", True, False)]
    return out


_COMBINE: dict[str, Any] = {"set": lambda a, b: b, "add": lambda a, b: a + b, "mul": lambda a, b: a * b,
                            "min": np.minimum, "max": np.maximum}


@scatter.ref
def _(x: Any, update: Any, *index: Any, kind: str) -> Any:
    out, f = x.copy(), _COMBINE[kind]
    with np.errstate(all="ignore"):
        for at in np.ndindex(*index[0].shape):
            where = tuple(int(i[at]) for i in index)
            if all(0 <= k < n for k, n in zip(where, x.shape, strict=False)):
                out[where] = f(out[where], update[at])
    return out


@scatter.samples
def _() -> list[Sample]:
    twice = np.array([1, 3, 1, 0])
    out = []
    for kind in ("set", "add", "mul", "min", "max"):
        for d in DTYPES if kind == "set" else REALS if kind in ("min", "max") else NUMBERS:
            if d == "bool" and kind != "set":
                continue
            out.append(Sample((values((5,), d, 1, -3, 4), values((4,), d, 2, -3, 4), twice), {"kind": kind},
                              f"{kind}-{d}"))
    x = values((4, 3, 5), "float64", 3)
    i, j = _picks((2, 3), 4), _picks((2, 3), 3)
    out += [Sample((x, values((2, 3, 5), "float64", 4), i, j), {"kind": "add"}, "rows"),
            Sample((x, values((6,), "float64", 4), _picks(6, 4), _picks(6, 3), _picks(6, 5)), {"kind": "set"},
                   "elements"),
            Sample((x, values((3, 5), "float64", 5), np.array(2)), {"kind": "set"}, "one"),
            Sample((x, values((4, 3, 5), "float64", 6), np.array([-1, 2, 4, 99])), {"kind": "add"}, "dropped", True,
                   False),
            Sample((x, values((0, 3, 5), "float64"), np.zeros(0, np.int64)), {"kind": "set"}, "nothing", True, False),
            Sample((values((0, 3), "float64"), values((2, 3), "float64"), np.array([0, 1])), {"kind": "add"},
                   "into empty",
                   True, False),
            Sample((values((6,), "float64", 1), values((4,), "float64", 2), np.array([1, 3, 1, 0], np.uint8)),
                   {"kind": "set"}, "index-uint8")]
    return out

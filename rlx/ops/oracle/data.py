"""Small arrays of every dtype for samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Every dtype that NumPy has too; tests derive the bfloat16 samples from the float32 ones.
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "float32", "float64", "complex64", "complex128")
REALS = tuple(d for d in DTYPES if not d.startswith("complex"))
NUMBERS = tuple(d for d in DTYPES if d != "bool")
#: One of each kind, for samples whose point is not the dtype.
FEW = ("bool", "int32", "uint8", "float32", "complex128")


def values(shape: int | Sequence[int], dtype: str, seed: int = 0, low: int = -9, high: int = 10) -> Any:
    """Deterministic values: integers in [low, high), floats of that size, either boolean."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        return rng.integers(0 if kind == "u" else low, high, shape).astype(dtype)
    x = rng.uniform(low, high, shape)
    return np.asarray(x + 1j * rng.uniform(low, high, shape) if kind == "c" else x).astype(dtype)

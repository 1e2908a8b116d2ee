"""NumPy data in the storage of a dtype, and back."""

from __future__ import annotations

import numpy as np

from rlx.core import dtype as dt


def to_host(host: np.ndarray, dtype: dt.DType) -> np.ndarray:
    """NumPy data in the storage of ``dtype`` (bfloat16 as its raw bits, rounded to nearest even)."""
    if dtype is not dt.bfloat16:
        return host.astype(dtype.numpy)
    if host.dtype.name == "bfloat16":
        return host.view(np.uint16)
    bits = np.ascontiguousarray(host, dtype=np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
    return np.where(np.isnan(host), np.uint16(0x7FC0), rounded.astype(np.uint16)).reshape(host.shape)


def from_host(raw: np.ndarray, dtype: dt.DType) -> np.ndarray:
    """The inverse of :func:`to_host`; bfloat16 comes back as float32 (NumPy has no such type)."""
    if dtype is not dt.bfloat16:
        return raw
    # asarray: NumPy's operators give a scalar for an array without axes.
    return np.asarray(raw.astype(np.uint32) << np.uint32(16)).view(np.float32)

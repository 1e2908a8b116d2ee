"""Buffers of the cpu device: NumPy arrays with their address read once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, final

import numpy as np

from rlx.core.dtype import DType
from rlx.core.errors import ShapeError

#: Bytes to which fresh memory is aligned: a cache line, and the widest vector register.
ALIGN = 64


@final
class Storage:
    """A buffer. ``array`` holds the memory, contiguous and in native byte order; ``address`` is where it
    starts.

    Memory made by :func:`empty` is 64-byte aligned; borrowed memory only to its element.
    """

    __slots__ = ("__weakref__", "address", "array")
    array: np.ndarray[Any, Any]
    address: int

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.address = array.__array_interface__["data"][0]


def empty(dtype: DType, shape: Sequence[int]) -> Storage:
    """Uninitialised, aligned storage of that shape."""
    return Storage(aligned(dtype.numpy, tuple(shape)))


def together(types: Sequence[tuple[DType, int]]) -> list[Storage]:
    """Uninitialised, aligned storages of (dtype, size), one after the other in one piece of memory."""
    ends = list(accumulate((-(-max(size * t.itemsize, 1) // ALIGN) * ALIGN for t, size in types), initial=0))
    memory = aligned(np.dtype(np.uint8), (ends[-1],))
    pieces = zip(ends, types, strict=False)
    return [Storage(memory[at:at + size * t.itemsize].view(t.numpy)) for at, (t, size) in pieces]


def aligned(dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """An uninitialised array whose memory starts at a multiple of ``ALIGN``."""
    nbytes = math.prod(shape) * dtype.itemsize
    raw = np.empty(nbytes + ALIGN, np.uint8)
    skip = -raw.__array_interface__["data"][0] % ALIGN
    return raw[skip:skip + nbytes].view(dtype).reshape(shape)


def borrow(array: np.ndarray[Any, Any]) -> Storage:
    """The array's own memory where kernels can use it as it is, else an aligned copy."""
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype.isnative:
        return Storage(array)
    fresh = aligned(array.dtype.newbyteorder("="), array.shape)
    fresh[...] = array
    return Storage(fresh)


def view(storage: Storage, dtype: DType, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """The memory as an array of that dtype and shape, without a copy.

    Raises ShapeError when the storage is smaller.
    """
    array = storage.array
    if array.shape == shape and array.dtype == dtype.numpy:
        return array
    wanted = math.prod(shape) * dtype.itemsize
    if array.nbytes < wanted:
        raise ShapeError(f"a storage of {array.nbytes} bytes holds no {dtype.short}{list(shape)}",
                         why=f"that needs {wanted} bytes", do="download with the shape it was made with")
    return array.reshape(-1).view(np.uint8)[:wanted].view(dtype.numpy).reshape(tuple(shape))

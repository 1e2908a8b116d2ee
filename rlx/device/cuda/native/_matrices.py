"""What the claims on cuSOLVER share: buffers as CuPy arrays, conditions, failed items as NaN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from rlx.core.dtype import DType, complex64, complex128, float32, float64
from rlx.device.cuda import driver
from rlx.device.cuda.program import Library
from rlx.ir.claim import Call
from rlx.ir.loop import Native

#: Sizes below which generated code, which needs no call for each matrix, is not slower.
SMALL = 64
#: Matrices of a batch up to which one call each is faster than generated code for all of them.
CALLS = 64
_DTYPES = (float32, float64, complex64, complex128)


def accepts(call: Call) -> str | None:
    """None for matrices large enough of a dtype that cuSOLVER has; else the reason."""
    dtype, shape = call.inputs[0]
    if dtype not in _DTYPES:
        return f"needs float32, float64, complex64 or complex128, got {dtype.name}"
    if min(shape[-2:]) < SMALL:
        return f"is slower than generated code at {shape[-2]}x{shape[-1]}"
    return "a batch is empty" if any(0 in s for _, s in call.inputs) else None


def accepts_few(call: Call) -> str | None:
    """As :func:`accepts`, for routines that take a call for each matrix of the batch."""
    batch = prod(call.inputs[0][1][:-2])
    return accepts(call) or (f"takes a call for each of {batch} matrices" if batch > CALLS else None)


def view(address: int, dtype: DType, shape: Sequence[int]) -> Any:
    """A row-major CuPy array of that type at an address; it owns nothing."""
    cp = driver.cupy()
    memory = cp.cuda.UnownedMemory(address, max(prod(shape) * dtype.itemsize, 1), None)
    return cp.ndarray(tuple(shape), dtype.numpy, cp.cuda.MemoryPointer(memory, 0))


def library(native: Native, work: Callable[..., Sequence[Any]]) -> Library:
    """``work(inputs..) -> outputs`` on CuPy arrays, copied into the buffers; it cannot be recorded."""
    types, inputs = native.types, native.inputs

    def run(stream: int, addresses: Sequence[int]) -> None:
        cp = driver.cupy()
        with cp.cuda.Stream.from_external(_Given(stream)):
            views = [view(a, d, s) for a, (d, s) in zip(addresses, types, strict=True)]
            for out, made in zip(views[inputs:], work(*views[:inputs]), strict=True):
                out[...] = made

    return Library(run)


class _Given:
    """A stream by its address, in the protocol that CuPy asks for."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


def spoiled(bad: Any, *results: Any) -> list[Any]:
    """The results with NaN in the items that failed."""
    cp = driver.cupy()
    return [cp.where(bad.reshape(bad.shape + (1,) * (r.ndim - bad.ndim)), cp.nan, r) for r in results]


def unfit(a: Any) -> Any:
    """Which matrices have a NaN or an infinity."""
    return ~driver.cupy().isfinite(a).all(axis=(-2, -1))


def each(a: Any, work: Callable[[Any], Sequence[Any]]) -> list[Any]:
    """``work`` on every matrix of a batch; its results stacked, with the batch's axes."""
    cp = driver.cupy()
    made = [work(x) for x in a.reshape((-1, *a.shape[-2:]))]
    return [cp.stack(parts).reshape((*a.shape[:-2], *parts[0].shape)) for parts in zip(*made, strict=True)]

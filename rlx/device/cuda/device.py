"""The cuda device: memory from CuPy's pool, one stream, programs replayed as CUDA graphs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, final

import numpy as np

from rlx.core.dtype import DType
from rlx.core.errors import DeviceError
from rlx.device.base import Device, Executable, refuse_form
from rlx.device.cuda import driver, native
from rlx.device.cuda.driver import absent
from rlx.device.cuda.program import Home, Loaded
from rlx.ir.claim import Claim
from rlx.ir.loop import Program


def open() -> Device:
    """The cuda device of this process: CuPy's current GPU."""
    return CudaDevice()


@dataclass(slots=True, eq=False)
class Storage:
    """Memory on the GPU: its address, and what keeps it alive."""

    ptr: int
    owner: Any


@final
class CudaDevice(Device):
    """Runs programs asynchronously; an error of a kernel appears where its results are looked at.

    The stream waits for the default stream of other libraries and they for it, so arrays that CuPy or PyTorch
    compute there can be shared without further ado.
    """

    def __init__(self) -> None:
        cp, d = driver.cupy(), driver.api()
        self.name = "cuda"
        self.index = int(cp.cuda.Device().id)
        self.dlpack = (2, self.index)
        cp.cuda.runtime.free(0)  # makes the context that CuPy uses current
        self._context = driver.told("find its context", d.cuCtxGetCurrent())
        self.caps = driver.read_caps(self.index)
        self.claims: Mapping[str, tuple[Claim, ...]] = native.claims()
        self._stream = driver.told("make a stream", d.cuStreamCreate(d.CUstream_flags.CU_STREAM_DEFAULT))
        lower = {c.name: c.lower for found in self.claims.values() for c in found}
        self._home = Home(self._context, self._stream, driver.architecture(self.index), self.caps, self.allocate,
                          lower)
        self._enter = _Entry(self._context)

    def allocate(self, nbytes: int) -> Any:
        """A block of CuPy's pool. One that was freed may be handed out at once: work runs in order."""
        cp = driver.cupy()
        try:
            return cp.cuda.alloc(max(nbytes, 1))
        except cp.cuda.memory.OutOfMemoryError:
            gc.collect()  # arrays that nobody can reach any more may still wait in reference cycles
        try:
            return cp.cuda.alloc(max(nbytes, 1))
        except cp.cuda.memory.OutOfMemoryError as e:
            raise DeviceError(f"cuda could not allocate {nbytes} bytes", why=str(e),
                              do="free arrays, or work in smaller pieces") from e

    def empty(self, dtype: DType, shape: Sequence[int]) -> Storage:
        block = self.allocate(prod(shape) * dtype.itemsize)
        return Storage(block.ptr, block)

    def upload(self, array: np.ndarray[Any, Any]) -> Storage:
        self._enter()
        host = np.ascontiguousarray(array)
        if host.dtype.byteorder == ">":
            host = host.astype(host.dtype.newbyteorder("="))
        block = self.allocate(host.nbytes)
        if host.nbytes:
            # Pageable memory is staged before the call returns, so the array may change afterwards.
            driver.told("copy to the GPU", driver.api().cuMemcpyHtoDAsync(
                block.ptr, host.ctypes.data, host.nbytes, self._stream))
        return Storage(block.ptr, block)

    def download(self, storage: Storage, dtype: DType, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        self._enter()
        out = np.empty(tuple(shape), dtype.numpy)
        if out.size:
            driver.told("copy from the GPU", driver.api().cuMemcpyDtoHAsync(
                out.ctypes.data, storage.ptr, out.nbytes, self._stream))
        self.synchronize()
        return out

    def take(self, foreign: Any) -> tuple[Storage, str, tuple[int, ...]] | None:
        cp = driver.cupy()
        array = cp.from_dlpack(foreign) if hasattr(foreign, "__dlpack__") else cp.asarray(foreign)
        if array.device.id != self.index:
            return None
        array = cp.ascontiguousarray(array)
        return Storage(array.data.ptr, array), array.dtype.name, tuple(array.shape)

    def give(self, storage: Storage, dtype: DType, shape: Sequence[int]) -> Any:
        cp = driver.cupy()
        nbytes = max(prod(shape) * dtype.itemsize, 1)
        memory = cp.cuda.UnownedMemory(storage.ptr, nbytes, storage, self.index)
        return cp.ndarray(tuple(shape), dtype.numpy, cp.cuda.MemoryPointer(memory, 0))

    def load(self, program: Program) -> Executable:
        self._enter()
        return CudaExecutable(Loaded(self._home, program), self._enter)

    def load_graph(self, graph: Any) -> Executable:
        refuse_form(self, "graph")

    def synchronize(self) -> None:
        self._enter()
        driver.told("finish its work", driver.api().cuStreamSynchronize(self._stream))


class _Entry:
    """Makes the device's context current in the calling thread."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._set = driver.api().cuCtxSetCurrent

    def __call__(self) -> None:
        self._set(self._context)


@final
class CudaExecutable(Executable):
    """A loaded program."""

    def __init__(self, loaded: Loaded, enter: Callable[[], None]) -> None:
        self.loaded = loaded
        self._enter = enter

    @property
    def text(self) -> str:
        """The CUDA C++ source."""
        return self.loaded.source

    def run(self, inputs: Sequence[Storage], outputs: Sequence[Storage]) -> None:
        self._enter()
        self.loaded.run([s.ptr for s in inputs], [s.ptr for s in outputs])


__all__ = ["CudaDevice", "absent", "open"]

"""The opencl device: buffers from a pool, one in-order queue, programs enqueued as a whole."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, final

import numpy as np

from rlx.core.dtype import DType
from rlx.core.errors import DeviceError
from rlx.device.base import Device, Executable, refuse_form
from rlx.device.opencl import driver
from rlx.device.opencl.driver import absent
from rlx.device.opencl.program import Loaded
from rlx.ir.claim import Claim
from rlx.ir.loop import Program

#: Bytes of the smallest buffer: OpenCL has none of size zero.
LEAST_BYTES = 16


def open() -> Device:
    """The opencl device of this process."""
    return OpenclDevice()


@dataclass(slots=True, eq=False)
class Storage:
    """A buffer on the device; ``upload`` is the transfer that fills it, kept until it is done."""

    buffer: Any
    upload: Any = None


@final
class OpenclDevice(Device):
    """Runs programs asynchronously; errors of a kernel appear where its results are looked at."""

    def __init__(self) -> None:
        cl = driver.pyopencl()
        self.name = "opencl"
        self.cl_device = driver.choose()
        self.caps = driver.read_caps(self.cl_device)
        self.claims: Mapping[str, tuple[Claim, ...]] = {}
        with driver.told("open the device"):
            self.context = cl.Context([self.cl_device])
            self.queue = cl.CommandQueue(self.context, self.cl_device)
            tools = __import__("pyopencl.tools", fromlist=["MemoryPool"])
            self._crowded = int(self.cl_device.global_mem_size) // 2
            self._pool = tools.MemoryPool(tools.ImmediateAllocator(self.queue))

    def allocate(self, nbytes: int) -> Any:
        """A buffer from the pool. One that was freed may be handed out at once: the queue runs in order."""
        if nbytes > self.caps.max_binding_bytes:
            raise DeviceError(
                f"a buffer of {nbytes} bytes is too large for opencl",
                why=f"{self.cl_device.name.strip()} takes at most {self.caps.max_binding_bytes} bytes",
                do="split the array",
            )
        if self._pool.active_bytes + nbytes > self._crowded:
            gc.collect()  # arrays that nobody can reach any more may still wait in reference cycles
        with driver.told(f"allocate {nbytes} bytes"):
            return self._pool.allocate(max(nbytes, LEAST_BYTES))

    def empty(self, dtype: DType, shape: Sequence[int]) -> Storage:
        return Storage(self.allocate(prod(shape) * dtype.itemsize))

    def upload(self, array: np.ndarray[Any, Any]) -> Storage:
        cl = driver.pyopencl()
        host = np.ascontiguousarray(array)
        if host.dtype.byteorder == ">":
            host = host.astype(host.dtype.newbyteorder("="))
        buffer = self.allocate(host.nbytes)
        if host.nbytes == 0:
            return Storage(buffer)
        with driver.told("copy to the device"):
            return Storage(buffer, cl.enqueue_copy(self.queue, buffer, host, is_blocking=False))

    def download(self, storage: Storage, dtype: DType, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        cl = driver.pyopencl()
        out = np.empty(tuple(shape), dtype.numpy)
        if out.size:
            with driver.told("copy from the device"):
                cl.enqueue_copy(self.queue, out, storage.buffer)
        return out

    def load(self, program: Program) -> Executable:
        return OpenclExecutable(Loaded(driver.Handles(self.cl_device, self.context, self.queue), program))

    def load_graph(self, graph: Any) -> Executable:
        refuse_form(self, "graph")

    def synchronize(self) -> None:
        with driver.told("finish its work"):
            self.queue.finish()


@final
class OpenclExecutable(Executable):
    """A loaded program."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded

    @property
    def text(self) -> str:
        """The OpenCL C source."""
        return self.loaded.source

    def run(self, inputs: Sequence[Storage], outputs: Sequence[Storage]) -> None:
        self.loaded.run([s.buffer for s in inputs], [s.buffer for s in outputs])


__all__ = ["OpenclDevice", "absent", "open"]

"""vulkan: kernels as SPIR-V, written by rlx itself and run through the plain Vulkan interface."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, final

import numpy as np

from rlx.core.caps import Caps
from rlx.core.dtype import ALL, DType, float32, float64, int32, int64, uint32, uint64
from rlx.device.base import Device, Executable, refuse_form
from rlx.device.vulkan import api, context, execute
from rlx.device.vulkan.context import Context
from rlx.device.vulkan.memory import Pool, Storage
from rlx.device.vulkan.queue import Pipeline, Queue
from rlx.ir import loop as L
from rlx.ir.loop import Kernel, Program
from rlx.render.commands import plan
from rlx.render.portable import Portable, make_portable, rewrites
from rlx.render.portable.spelling import spells
from rlx.render.spirv import Binary, render_kernel


def absent() -> str | None:
    """Why there is no Vulkan device, or None."""
    return context.absent()


def open() -> Device:
    """The best physical device."""
    return VulkanDevice()


@final
class VulkanDevice(Device):
    """One logical device and one queue; work is submitted in order."""

    def __init__(self) -> None:
        self.name = "vulkan"
        self.context = Context()
        self.native = _native_types(self.context)
        self.caps = _read_caps(self.context, self.native)
        self.claims = {}
        self.pool, self.host = Pool(self.context), Pool(self.context, host=True)
        self.queue = Queue(self.context)
        self._pipelines: dict[bytes, Pipeline] = {}
        self._lock = threading.Lock()
        twice = {f"fma-{d.short}" for d in (float32, float64) if d in self.native and not self._fuses(d)}
        self.caps = replace(self.caps, features=self.caps.features - twice)

    def _fuses(self, d: DType) -> bool:
        """Whether ``fma`` rounds once here: ``(1 + e)**2 - (1 + 2 e)`` keeps its last term, ``e**2``.

        The standard leaves that open, and expansions that may rely on it are much shorter.
        """
        zero, e = L.const(0, int32), 2.0**-12 if d is float32 else 2.0**-27
        x, y, z = (L.load(b, zero, d) for b in ("b0", "b1", "b2"))
        params = (*[L.Param(f"b{k}", d, 1, "r") for k in range(3)], L.Param("b3", d, 1, "w"))
        kernel = L.Kernel(f"probe_{d.short}", params, (L.Store("b3", zero, L.expr("fma", (x, y, z), d)),))
        names = ("x", "y", "z", "r")
        buffers = [L.Buffer(n, d, 1, "input", k) for k, n in enumerate(names[:3])]
        program = L.Program("probe", (*buffers, L.Buffer("r", d, 1, "output", 0)), (L.Launch(kernel, names),))
        given = [self.upload(np.full(1, v, d.numpy)) for v in (1 + e, 1 + e, -1 - 2 * e)]
        out = self.empty(d, (1,))
        self.load(program).run(given, [out])
        return bool(self.download(out, d, (1,))[0] == e * e)

    def empty(self, dtype: DType, shape: Sequence[int]) -> Storage:
        """A range from the pool."""
        return self.pool.take(prod(shape) * dtype.itemsize)

    def upload(self, array: np.ndarray[Any, Any]) -> Storage:
        """A range with a copy of the array."""
        return execute.upload(self.pool, self.host, self.queue, array)

    def download(self, storage: Storage, dtype: DType, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """A copy of the content, after everything submitted before."""
        data = execute.download(self.host, self.queue, storage, prod(shape) * dtype.itemsize)
        return data.view(dtype.numpy).reshape(tuple(shape))

    def binary(self, kernel: Kernel) -> tuple[Portable, Binary]:
        """A kernel in this device's types, and its SPIR-V."""
        portable = make_portable(kernel, self.native, self.caps.features)
        return portable, render_kernel(portable, self.context.physical.promises)

    def load(self, program: Program) -> Executable:
        """Plan, render and compile the program."""
        made = plan(program)
        kernels = []
        for k in made.kernels:
            portable, binary = self.binary(k)
            params = portable.kernel.params
            kernels.append((binary, self._pipeline(binary.words, len(params)),
                            tuple([q.access != "r" for q in params])))
        return execute.VulkanExecutable(program, made, kernels, self.queue, self.pool, self.host)

    def _pipeline(self, words: bytes, bindings: int) -> Pipeline:
        with self._lock:
            if words not in self._pipelines:
                self._pipelines[words] = Pipeline(self.context, words, bindings)
            return self._pipelines[words]

    def load_graph(self, graph: Any) -> Executable:
        """Refuses: this device loads programs."""
        refuse_form(self, "graph")

    def synchronize(self) -> None:
        """Wait for the queue."""
        self.queue.wait()


def _native_types(c: Context) -> frozenset[DType]:
    """Types that shaders compute in; float64 counts only with 64-bit integers, which hold its bits."""
    wide = c.has(api.INT64)
    out = {int32, uint32, float32} | ({int64, uint64} if wide else set())
    return frozenset(out | ({float64} if wide and c.has(api.FLOAT64) else set()))


def _read_caps(c: Context, native: frozenset[DType]) -> Caps:
    p = c.physical
    wide = float64 in native
    dtypes = frozenset(d for d in ALL if wide or d.real != float64)
    features = {f"atomic-{k}-{t}" for k in ("add", "min", "max") for t in ("i32", "u32", "f32")}
    features |= {"fma-f32", "fma-f64"} | (set() if p.kind == context.CPU_TYPE else {"overlap"})
    return Caps(
        name="vulkan", dtypes=dtypes, schedule="grid", default_float=float64 if wide else float32, index_bits=32,
        spells=spells(dtypes), rewrites=rewrites(native, dtypes), vector_bytes=16,
        cores=(os.cpu_count() or 1) if p.kind == context.CPU_TYPE else 64,
        max_workgroup=min(p.max_invocations, p.max_size), shared_bytes=p.shared_bytes,
        max_binding_bytes=p.max_range, max_buffers=p.max_buffers, features=frozenset(features))


__all__ = ["VulkanDevice", "absent", "open"]

"""The device class that the devices on wgpu instantiate."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, final

import numpy as np

from rlx.core.dtype import DType
from rlx.device._wgpu import adapter as adapters
from rlx.device._wgpu.execute import Pipelines, WgpuExecutable
from rlx.device._wgpu.memory import Pool, Storage
from rlx.device.base import Device, Executable, refuse_form
from rlx.ir.loop import Kernel, Program
from rlx.render.commands import plan
from rlx.render.portable import Portable, make_portable
from rlx.render.wgsl import Shader, render_kernel


@final
class WgpuDevice(Device):
    """Kernels as WGSL. ``features`` asks for what the adapter has beyond the portable language; ``backend`` for one
    interface beneath."""

    def __init__(self, name: str, features: bool, backend: str | None = None) -> None:
        self.name = name
        self.adapter, self.logical = adapters.open_logical(features, backend)
        self.native = adapters.native_types(self.logical)
        self.caps = adapters.read_caps(name, self.adapter, self.logical)
        self.claims = {}
        self._pool = Pool(self.logical, min(self.logical.limits["max-buffer-size"], self.caps.max_binding_bytes))
        self._pipelines = Pipelines(self.logical)

    def empty(self, dtype: DType, shape: Sequence[int]) -> Storage:
        """A buffer from the pool."""
        return self._pool.take(prod(shape) * dtype.itemsize)

    def upload(self, array: np.ndarray[Any, Any]) -> Storage:
        """A buffer with a copy of the array."""
        return self._pool.upload(array)

    def download(self, storage: Storage, dtype: DType, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """A copy of the content, after everything submitted before."""
        data = self._pool.download(storage, prod(shape) * dtype.itemsize)
        return data.view(dtype.numpy).reshape(tuple(shape))

    def shader(self, kernel: Kernel) -> tuple[Portable, Shader]:
        """A kernel in this device's types, and its text."""
        portable = make_portable(kernel, self.native, self.caps.features)
        return portable, render_kernel(portable)

    def load(self, program: Program) -> Executable:
        """Plan, render and compile the program."""
        made = plan(program)
        shaders = []
        for k in made.kernels:
            portable, shader = self.shader(k)
            shaders.append((shader, tuple([q.access != "r" for q in portable.kernel.params])))
        return WgpuExecutable(program, made, shaders, self._pipelines, self._pool)

    def load_graph(self, graph: Any) -> Executable:
        """Refuses: this device loads programs."""
        refuse_form(self, "graph")

    def synchronize(self) -> None:
        """Wait for the queue."""
        self.logical.queue.on_submitted_work_done_sync()

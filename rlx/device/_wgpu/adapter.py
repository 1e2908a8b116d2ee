"""Choosing an adapter, and what the logical device on it can do."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np

from rlx.core.caps import Caps
from rlx.core.dtype import ALL, DType, float32, float64, int32, int64, uint32, uint64
from rlx.render.portable.forms import rewrites
from rlx.render.portable.spelling import spells

#: Best first; ``CPU`` adapters are software drivers.
_KINDS = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "CPU", "Unknown")
#: OpenGL last: it lacks features that the same hardware has elsewhere.
_BACKENDS = ("Vulkan", "Metal", "D3D12", "OpenGL")
#: Limits taken from the adapter: the defaults are those of the weakest phone.
_LIMITS = ("max-storage-buffers-per-shader-stage", "max-storage-buffer-binding-size", "max-buffer-size",
           "max-compute-workgroup-storage-size", "max-compute-invocations-per-workgroup",
           "max-compute-workgroup-size-x")
#: Buffers that schedules add to what a fused kernel reads and writes (partial results).
_SCRATCH = 2
INSTALL = ("pip install wgpu, and a Vulkan driver "
           "(on Debian without a GPU: apt-get install mesa-vulkan-drivers libvulkan1)")


def absent(backend: str | None = None) -> str | None:
    """Why no adapter (of one backend) can be opened, or None."""
    try:
        found = adapters(backend)
    except ImportError as e:
        return f"{e} ({INSTALL})"
    except Exception as e:  # the native library reports a missing loader in its own ways
        return f"wgpu found no adapter: {e} ({INSTALL})"
    return None if found else f"wgpu found no {backend + ' ' if backend else ''}adapter ({INSTALL})"


@cache
def adapters(backend: str | None = None) -> tuple[Any, ...]:
    """Every adapter (of one backend), the best first."""
    # The GL probe of the native library complains on stderr without it.
    os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")
    import wgpu
    found = [a for a in wgpu.gpu.enumerate_adapters_sync() if backend in (None, a.info["backend_type"])]
    return tuple(sorted(found, key=_rank))


def _rank(adapter: Any) -> tuple[int, int]:
    info = adapter.info
    kind, backend = info["adapter_type"], info["backend_type"]
    return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS),
            _BACKENDS.index(backend) if backend in _BACKENDS else len(_BACKENDS))


def open_logical(features: bool, backend: str | None = None) -> tuple[Any, Any]:
    """(adapter, logical device); with ``features`` 64-bit types are enabled where the adapter has them."""
    adapter = adapters(backend)[0]
    wanted = [f for f in ("shader-int64", "shader-f64") if f in adapter.features] if features else []
    limits = {k: adapter.limits[k] for k in _LIMITS}
    return adapter, adapter.request_device_sync(required_features=wanted, required_limits=limits)


def native_types(device: Any) -> frozenset[DType]:
    """Types the shading language computes in; float64 counts only with 64-bit integers, which hold its bits."""
    wide = "shader-int64" in device.features
    out = {int32, uint32, float32} | ({int64, uint64} if wide else set())
    return frozenset(out | ({float64} if wide and "shader-f64" in device.features else set()))


def read_caps(name: str, adapter: Any, device: Any) -> Caps:
    """The device's capabilities from its limits and features, and from a trial of its fma."""
    native = native_types(device)
    wide = float64 in native
    dtypes = frozenset(d for d in ALL if wide or d.real != float64)
    limits = device.limits
    software = adapter.info["adapter_type"] == "CPU"
    features = {f"atomic-{k}-{t}" for k in ("add", "min", "max") for t in ("i32", "u32", "f32")}
    features |= {f"fma-{d.short}" for d in (float32, float64) if d in native and fma_rounds_once(device, d)}
    return Caps(
        name=name, dtypes=dtypes, schedule="grid", default_float=float64 if wide else float32, index_bits=32,
        spells=spells(dtypes), rewrites=rewrites(native, dtypes), vector_bytes=16,
        cores=(os.cpu_count() or 1) if software else 64,
        max_workgroup=min(limits["max-compute-invocations-per-workgroup"], limits["max-compute-workgroup-size-x"]),
        shared_bytes=limits["max-compute-workgroup-storage-size"],
        max_binding_bytes=limits["max-storage-buffer-binding-size"],
        max_buffers=limits["max-storage-buffers-per-shader-stage"] - _SCRATCH,
        features=frozenset(features | (set() if software else {"overlap"})))


_PROBE = """@group(0) @binding(0) var<storage, read_write> b: array<TYPE>;
@compute @workgroup_size(1) fn main() { b[3] = fma(b[0], b[1], b[2]); }
"""


def fma_rounds_once(device: Any, dtype: DType) -> bool:
    """Whether ``(1 + e)**2 - (1 + 2 e)`` keeps its last term, ``e**2``: it is lost when the product is rounded."""
    import wgpu
    e = 2.0**-12 if dtype is float32 else 2.0**-27
    x = np.array([1 + e, 1 + e, -(1 + 2 * e), 0], dtype.numpy)
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    buffer = device.create_buffer_with_data(data=x, usage=usage)
    module = device.create_shader_module(code=_PROBE.replace("TYPE", dtype.short))
    pipeline = device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=[
        {"binding": 0, "resource": {"buffer": buffer, "offset": 0, "size": x.nbytes}}])
    encoder = device.create_command_encoder()
    run = encoder.begin_compute_pass()
    run.set_pipeline(pipeline)
    run.set_bind_group(0, group)
    run.dispatch_workgroups(1, 1, 1)
    run.end()
    device.queue.submit([encoder.finish()])
    return bool(np.frombuffer(device.queue.read_buffer(buffer), dtype.numpy)[3] == e * e)

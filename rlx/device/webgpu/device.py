"""webgpu: the portable feature subset of WGSL, the same text that a browser runs. float32 and smaller."""

from __future__ import annotations

from rlx.device._wgpu import adapter
from rlx.device._wgpu.device import WgpuDevice
from rlx.device.base import Device


def absent() -> str | None:
    """Why there is no adapter, or None."""
    return adapter.absent()


def open() -> Device:
    """The best adapter, without any optional feature."""
    return WgpuDevice("webgpu", features=False)

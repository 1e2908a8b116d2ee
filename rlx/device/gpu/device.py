"""gpu: the best adapter with every feature that helps, such as 64-bit integers and floats in shaders."""

from __future__ import annotations

from rlx.device._wgpu import adapter
from rlx.device._wgpu.device import WgpuDevice
from rlx.device.base import Device


def absent() -> str | None:
    """Why there is no adapter, or None."""
    return adapter.absent()


def open() -> Device:
    """The best adapter with its features."""
    return WgpuDevice("gpu", features=True)

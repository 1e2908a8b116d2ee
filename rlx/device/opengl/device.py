"""opengl: compute shaders through wgpu's OpenGL backend, which opens a context without a display (EGL).

The kernels are the WGSL of the portable subset, which wgpu's compiler prints as GLSL: 32-bit types only.
"""

from __future__ import annotations

from rlx.device._wgpu import adapter
from rlx.device._wgpu.device import WgpuDevice
from rlx.device.base import Device

_BACKEND = "OpenGL"
INSTALL = "on Debian without a GPU: apt-get install libegl1 libegl-mesa0 libgl1 libgl1-mesa-dri"


def absent() -> str | None:
    """Why there is no OpenGL adapter, or None."""
    reason = adapter.absent(_BACKEND)
    return None if reason is None else f"{reason}; {INSTALL}"


def open() -> Device:
    """The best OpenGL adapter."""
    return WgpuDevice("opengl", features=False, backend=_BACKEND)

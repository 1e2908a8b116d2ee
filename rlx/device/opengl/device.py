"""opengl: compute shaders through wgpu's OpenGL backend, which opens a context without a display (EGL).

The kernels are the WGSL of the portable subset, which wgpu's compiler prints as GLSL: 32-bit types only.
"""

from __future__ import annotations

from functools import cache

from rlx.device._wgpu import adapter
from rlx.device._wgpu.device import WgpuDevice
from rlx.device.base import Device

_BACKEND = "OpenGL"
INSTALL = "on Debian without a GPU: apt-get install libegl1 libegl-mesa0 libgl1 libgl1-mesa-dri"


def absent() -> str | None:
    """Why there is no OpenGL adapter, or None."""
    reason = adapter.absent(_BACKEND) or _refusal()
    return None if reason is None else f"{reason}; {INSTALL}"


@cache
def _refusal() -> str | None:
    """Why the adapter there is opens no device, or None: a context of OpenGL 3.3, as some drivers give, has no
    compute shaders, which shows only here."""
    try:
        adapter.open_logical(False, _BACKEND)
    except Exception as e:  # the native library reports it in its own ways
        return f"the OpenGL adapter opens no device ({str(e).splitlines()[0]})"
    return None


def open() -> Device:
    """The best OpenGL adapter."""
    return WgpuDevice("opengl", features=False, backend=_BACKEND)

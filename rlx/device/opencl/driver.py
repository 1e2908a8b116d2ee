"""The OpenCL driver: which device is used, what it can do, and how its errors are told."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rlx.core.caps import Caps
from rlx.core.dtype import ALL, DType, float32, float64
from rlx.core.errors import DeviceError
from rlx.render.c import spells

_INSTALL = (
    "a GPU driver with OpenCL, or a CPU one: apt install pocl-opencl-icd, or pip install pocl-binary-distribution"
)


def pyopencl() -> Any:
    """The pyopencl module."""
    return importlib.import_module("pyopencl")


def absent() -> str | None:
    """Why there is no OpenCL device here, or None."""
    if importlib.util.find_spec("pyopencl") is None:
        return "pyopencl is not installed (pip install 'rlx[opencl]')"
    try:
        found = _devices()
    except Exception as e:
        return f"the OpenCL loader failed: {type(e).__name__}: {e}; it needs {_INSTALL}"
    return None if found else f"no OpenCL driver is installed; it needs {_INSTALL}"


def _devices() -> list[Any]:
    cl = pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.LogicError as e:
        if "PLATFORM_NOT_FOUND" in str(e):
            return []
        raise
    found = []
    for p in platforms:
        try:
            found.extend(p.get_devices())
        except cl.RuntimeError:  # a platform without devices
            continue
    return [d for d in found if d.available and d.compiler_available and d.endian_little]


def choose() -> Any:
    """The device used: a GPU before a CPU, one with float64 before one without, then the newest driver."""
    cl = pyopencl()

    def rank(d: Any) -> tuple[Any, ...]:
        return (bool(d.type & cl.device_type.GPU), bool(d.double_fp_config), _version(d.platform.version))

    return max(_devices(), key=rank)


def _version(text: str) -> tuple[int, ...]:
    """Numbers in a version string, in order: what decides between two drivers of one vendor."""
    digits = "".join(c if c.isdigit() else " " for c in text)
    return tuple(int(n) for n in digits.split())


def read_caps(d: Any) -> Caps:
    """Capabilities as the driver reports them."""
    wide = bool(d.double_fp_config)
    dtypes = frozenset(t for t in ALL if wide or t.real != float64)
    return Caps(
        name="opencl",
        dtypes=dtypes,
        schedule="grid",
        default_float=float64 if wide else float32,
        index_bits=32,
        spells=spells(dtypes),
        cores=int(d.max_compute_units),
        max_workgroup=int(d.max_work_group_size),
        shared_bytes=int(d.local_mem_size),
        max_binding_bytes=int(d.max_mem_alloc_size),
        features=frozenset(_features(d, dtypes)),
    )


def _features(d: Any, dtypes: frozenset[DType]) -> Iterator[str]:
    if d.type & pyopencl().device_type.GPU:
        yield "overlap"
    yield from d.extensions.split()
    wide = "cl_khr_int64_base_atomics" in d.extensions and "cl_khr_int64_extended_atomics" in d.extensions
    for kind in ("add", "min", "max"):
        for short in ("i32", "u32", "f32", *(("i64", "u64") if wide else ())):
            yield f"atomic-{kind}-{short}"
        if wide and float64 in dtypes:
            yield f"atomic-{kind}-f64"


@dataclass(frozen=True, slots=True)
class Handles:
    """An opened device: its context, and the one queue on which everything runs in order."""

    device: Any
    context: Any
    queue: Any


@contextmanager
def told(action: str) -> Iterator[None]:
    """Driver errors as DeviceError."""
    cl = pyopencl()
    try:
        yield
    except cl.MemoryError as e:
        raise DeviceError(
            f"opencl could not {action}",
            why=f"the device is out of memory: {e}",
            do="free arrays, or work in smaller pieces",
        ) from e
    except cl.Error as e:
        raise DeviceError(
            f"opencl could not {action}",
            why=str(e),
            do="see what the driver says above; python -m rlx doctor lists the devices",
        ) from e

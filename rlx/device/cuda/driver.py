"""The CUDA driver: is it there, what can the GPU do, and how its errors are told."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from typing import Any

from rlx.core.caps import Caps
from rlx.core.dtype import ALL, float64
from rlx.core.errors import DeviceError
from rlx.render.c import spells

_INSTALL = "pip install 'rlx[cuda]'"
#: Oldest driver (CUDA 12.8) whose graphs have conditional nodes with an else branch.
OLDEST = 12_080
#: Shared memory a kernel may declare statically, on every architecture.
STATIC_SHARED = 48 * 1024


def absent() -> str | None:
    """Why there is no CUDA device here, or None."""
    for module in ("cupy", "cuda.bindings"):
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return f"{module} is not installed ({_INSTALL})"
    try:
        error, count = api().cuInit(0)[0], 0
        if not error:
            error, count = api().cuDeviceGetCount()
    except Exception as e:  # the loader raises what it likes when libcuda is missing
        return f"there is no NVIDIA driver here ({type(e).__name__}: {e})"
    if error or not count:
        return f"the NVIDIA driver finds no GPU ({error.name})"
    version = api().cuDriverGetVersion()[1]
    if version < OLDEST:
        return f"the NVIDIA driver is for CUDA {version // 1000}.{version % 1000 // 10}; it needs 12.8 or newer"
    return None


@cache
def api() -> Any:
    """CUDA's driver interface."""
    return importlib.import_module("cuda.bindings.driver")


@cache
def cupy() -> Any:
    """The cupy module."""
    return importlib.import_module("cupy")


def told(action: str, result: tuple[Any, ...]) -> Any:
    """What a driver call gave, without its status. Raises DeviceError when that is an error."""
    if result[0]:
        fail(action, result[0])
    if len(result) == 2:
        return result[1]
    return result[1:]


def launch_early(function: Any, shape: tuple[int, ...], stream: Any, parameters: int) -> None:
    """Launch a kernel that may be set up while the one before it on the stream runs: it waits for that by itself."""
    d = api()
    attribute = d.CUlaunchAttribute()
    attribute.id = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config = d.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ, config.blockDimX, config.blockDimY, config.blockDimZ = shape
    config.hStream, config.attrs, config.numAttrs = stream, [attribute], 1
    told("launch a kernel", d.cuLaunchKernelEx(config, function, parameters, 0))


def fail(action: str, error: Any) -> None:
    """Raise the DeviceError of a driver status."""
    _, text = api().cuGetErrorString(error)
    said = text.decode() if isinstance(text, bytes) else str(text)
    memory = error.name == "CUDA_ERROR_OUT_OF_MEMORY"
    raise DeviceError(
        f"cuda could not {action}",
        why=f"{error.name}: {said}",
        do="free arrays, or work in smaller pieces" if memory
        else "an earlier kernel may be the cause; run with CUDA_LAUNCH_BLOCKING=1 to see which",
    )


def read_caps(index: int) -> Caps:
    """Capabilities as the driver reports them."""
    d = api()
    attribute = d.CUdevice_attribute

    def read(name: str) -> int:
        key = getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(told("read the GPU's attributes", d.cuDeviceGetAttribute(key, index)))

    memory = int(told("read its memory", d.cuDeviceTotalMem(index)))
    lanes, shared = read("MAX_THREADS_PER_BLOCK"), read("MAX_SHARED_MEMORY_PER_BLOCK")
    return caps(read("MULTIPROCESSOR_COUNT"), lanes, shared, memory)


def caps(cores: int, lanes: int, shared: int, memory: int) -> Caps:
    """Capabilities of a GPU with so many multiprocessors, lanes in a workgroup, and bytes of memory."""
    dtypes = frozenset(ALL)
    return Caps(
        name="cuda",
        dtypes=dtypes,
        schedule="grid",
        default_float=float64,
        index_bits=32,
        spells=spells(dtypes),
        vector_bytes=16,
        cores=cores,
        max_workgroup=lanes,
        shared_bytes=min(shared, STATIC_SHARED),
        subgroup=32,
        max_binding_bytes=memory,
        features=frozenset(_features()),
    )


def architecture(index: int) -> str:
    """The real architecture of a GPU, as the compiler spells it: ``sm_90``."""
    d = api()
    a = d.CUdevice_attribute
    major, minor = (
        told("read the GPU's attributes", d.cuDeviceGetAttribute(getattr(a, f"{_CC}_{part}"), index))
        for part in ("MAJOR", "MINOR")
    )
    return f"sm_{major}{minor}"


_CC = "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY"


def _features() -> Iterator[str]:
    for kind in ("add", "min", "max"):
        for short in ("i32", "u32", "f32", "i64", "u64", "f64"):
            yield f"atomic-{kind}-{short}"
    yield "exchange"

"""The part of the Vulkan 1.1 interface that computing needs, as ctypes structures over the loader library.

Structure types, field orders and flag values are those of the Vulkan specification (vulkan_core.h).
"""

from __future__ import annotations

import ctypes as C
from functools import cache
from typing import Any

from rlx.core.errors import DeviceError

_u32, _u64, _ptr = C.c_uint32, C.c_uint64, C.c_void_p
_LIBRARIES = ("libvulkan.so.1", "libvulkan.so", "vulkan-1.dll", "libvulkan.1.dylib", "libMoltenVK.dylib")
#: VkPhysicalDeviceFeatures is 55 booleans; the ones that matter here by position.
FEATURES, ROBUST_ACCESS, FLOAT64, INT64 = 55, 0, 39, 40
#: VkBufferUsageFlags: transfer source and destination, storage, indirect arguments.
USAGE = 0x1 | 0x2 | 0x20 | 0x100
DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT = 1, 2, 4


def _struct(name: str, *fields: tuple[str, Any]) -> Any:
    return type(name, (C.Structure,), {"_fields_": list(fields)})


def _typed(name: str, *fields: tuple[str, Any]) -> Any:
    return _struct(name, ("sType", _u32), ("pNext", _ptr), *fields)


ApplicationInfo = _typed("ApplicationInfo", ("name", C.c_char_p), ("version", _u32), ("engine", C.c_char_p),
                         ("engine_version", _u32), ("api", _u32))
InstanceInfo = _typed("InstanceInfo", ("flags", _u32), ("app", _ptr), ("layers", _u32), ("layer_names", _ptr),
                      ("extensions", _u32), ("extension_names", _ptr))
QueueInfo = _typed("QueueInfo", ("flags", _u32), ("family", _u32), ("count", _u32), ("priorities", _ptr))
DeviceInfo = _typed("DeviceInfo", ("flags", _u32), ("queues", _u32), ("queue_infos", _ptr), ("layers", _u32),
                    ("layer_names", _ptr), ("extensions", _u32), ("extension_names", _ptr), ("features", _ptr))
FloatControls = _typed("FloatControls", ("denormal_independence", _u32), ("rounding_independence", _u32),
                       ("kept", _u32 * 15))
BufferInfo = _typed("BufferInfo", ("flags", _u32), ("size", _u64), ("usage", _u32), ("sharing", _u32), ("queues", _u32),
                    ("queue_ids", _ptr))
Requirements = _struct("Requirements", ("size", _u64), ("align", _u64), ("types", _u32))
AllocateInfo = _typed("AllocateInfo", ("size", _u64), ("type", _u32))
ShaderInfo = _typed("ShaderInfo", ("flags", _u32), ("size", C.c_size_t), ("code", _ptr))
LayoutBinding = _struct("LayoutBinding", ("binding", _u32), ("type", _u32), ("count", _u32), ("stages", _u32),
                        ("samplers", _ptr))
SetLayoutInfo = _typed("SetLayoutInfo", ("flags", _u32), ("count", _u32), ("bindings", _ptr))
PipelineLayoutInfo = _typed("PipelineLayoutInfo", ("flags", _u32), ("count", _u32), ("layouts", _ptr),
                            ("ranges", _u32), ("range_data", _ptr))
StageInfo = _typed("StageInfo", ("flags", _u32), ("stage", _u32), ("module", _u64), ("name", C.c_char_p),
                   ("special", _ptr))
PipelineInfo = _typed("PipelineInfo", ("flags", _u32), ("stage", StageInfo), ("layout", _u64), ("base", _u64),
                      ("index", C.c_int32))
PoolSize = _struct("PoolSize", ("type", _u32), ("count", _u32))
DescriptorPoolInfo = _typed("DescriptorPoolInfo", ("flags", _u32), ("sets", _u32), ("count", _u32), ("sizes", _ptr))
SetInfo = _typed("SetInfo", ("pool", _u64), ("count", _u32), ("layouts", _ptr))
BufferRange = _struct("BufferRange", ("buffer", _u64), ("offset", _u64), ("range", _u64))
WriteSet = _typed("WriteSet", ("set", _u64), ("binding", _u32), ("element", _u32), ("count", _u32), ("type", _u32),
                  ("images", _ptr), ("buffers", _ptr), ("texels", _ptr))
CommandPoolInfo = _typed("CommandPoolInfo", ("flags", _u32), ("family", _u32))
CommandInfo = _typed("CommandInfo", ("pool", _u64), ("level", _u32), ("count", _u32))
BeginInfo = _typed("BeginInfo", ("flags", _u32), ("inheritance", _ptr))
SubmitInfo = _typed("SubmitInfo", ("waits", _u32), ("wait", _ptr), ("stages", _ptr), ("count", _u32),
                    ("commands", _ptr), ("signals", _u32), ("signal", _ptr))
MemoryBarrier = _typed("MemoryBarrier", ("source", _u32), ("target", _u32))
CopyRegion = _struct("CopyRegion", ("source", _u64), ("target", _u64), ("size", _u64))
QueueFamily = _struct("QueueFamily", ("flags", _u32), ("count", _u32), ("bits", _u32), ("w", _u32), ("h", _u32),
                      ("d", _u32))
MemoryType = _struct("MemoryType", ("flags", _u32), ("heap", _u32))
MemoryHeap = _struct("MemoryHeap", ("size", _u64), ("flags", _u32))
MemoryProperties = _struct("MemoryProperties", ("types", _u32), ("type", MemoryType * 32), ("heaps", _u32),
                           ("heap", MemoryHeap * 16))
#: Beginning of VkPhysicalDeviceProperties; the limits follow at byte 296.
PROPERTIES_BYTES, LIMITS_AT = 2048, 296


@cache
def library() -> Any:
    """The loader, or an OSError."""
    for name in _LIBRARIES:
        try:
            return C.CDLL(name)
        except OSError:
            continue
    raise OSError("no Vulkan loader (libvulkan.so.1) was found")


#: VkResult values that a person may meet.
_RESULTS = {-1: "out of host memory", -2: "out of device memory", -3: "initialization failed", -4: "device lost",
            -7: "an extension is missing", -8: "a feature is missing", -9: "the driver is incompatible"}


def check(result: int, what: str) -> None:
    """Raise a DeviceError for a VkResult that is an error."""
    if result < 0:
        raise DeviceError(f"Vulkan failed to {what}", why=_RESULTS.get(result, f"VkResult {result}"),
                          do="use smaller arrays if memory ran out; else check the driver (vulkaninfo)")


def ref(x: Any) -> Any:
    """The address of a structure, which must outlive the call."""
    return C.cast(C.pointer(x), _ptr)


def call(name: str, *args: Any) -> int:
    """Call a function of the loader by name."""
    return int(getattr(library(), name)(*args))

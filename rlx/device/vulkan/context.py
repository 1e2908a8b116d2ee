"""Instance, physical device, logical device, queue, and what the driver says about them."""

from __future__ import annotations

import ctypes as C
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlx.core.errors import RlxError
from rlx.device.vulkan import api as V

#: VkPhysicalDeviceType, best first: discrete, integrated, virtual, CPU, other.
_ORDER = (2, 1, 3, 4, 0)
CPU_TYPE = 4
INSTALL = "install a Vulkan driver and loader (on Debian without a GPU: apt-get install mesa-vulkan-drivers libvulkan1)"


@dataclass(frozen=True, slots=True)
class Physical:
    """A physical device: handle, name, type, feature words, and the limits used here."""

    handle: int
    name: str
    kind: int
    features: tuple[int, ...]
    max_range: int
    shared_bytes: int
    max_invocations: int
    max_size: int
    offset_align: int
    max_buffers: int
    #: What it can promise about floats, as :data:`rlx.render.spirv.PROMISES` names it, by width.
    promises: frozenset[tuple[str, int]]


@cache
def instance() -> Any:
    """The process's VkInstance (Vulkan 1.1)."""
    app = V.ApplicationInfo(sType=0, api=(1 << 22) | (1 << 12))
    out = C.c_void_p()
    V.check(V.call("vkCreateInstance", C.byref(V.InstanceInfo(sType=1, app=V.ref(app))), None, C.byref(out)),
            "create an instance")
    return out


@cache
def physical_devices() -> tuple[Physical, ...]:
    """Every physical device, the best first."""
    n = C.c_uint32()
    V.call("vkEnumeratePhysicalDevices", instance(), C.byref(n), None)
    handles = (C.c_void_p * n.value)()
    V.call("vkEnumeratePhysicalDevices", instance(), C.byref(n), handles)
    found = [_describe(int(h)) for h in handles if h]
    return tuple(sorted(found, key=lambda p: _ORDER.index(p.kind) if p.kind in _ORDER else len(_ORDER)))


def _describe(handle: int) -> Physical:
    raw = (C.c_char * V.PROPERTIES_BYTES)()
    library = V.library()
    library.vkGetPhysicalDeviceProperties.restype = None
    library.vkGetPhysicalDeviceProperties(C.c_void_p(handle), raw)
    data = bytes(raw)
    kind = struct.unpack_from("<I", data, 16)[0]
    name = data[20:276].split(b"\0")[0].decode(errors="replace")
    features = (C.c_uint32 * V.FEATURES)()
    library.vkGetPhysicalDeviceFeatures.restype = None
    library.vkGetPhysicalDeviceFeatures(C.c_void_p(handle), features)
    limits = _Limits.from_buffer_copy(data, V.LIMITS_AT)
    return Physical(handle, name, kind, tuple(features), limits.maxStorageBufferRange,
                    limits.maxComputeSharedMemorySize, limits.maxComputeWorkGroupInvocations,
                    limits.maxComputeWorkGroupSize[0], int(limits.minStorageBufferOffsetAlignment),
                    limits.descriptor3, _promises(handle))


#: VkPhysicalDeviceFloatControlsProperties after its header: two independences, then 16, 32 and 64 bits of each.
_CONTROLS = ("nan", "denormals")
FLOAT_CONTROLS = b"VK_KHR_shader_float_controls"


def _promises(handle: int) -> frozenset[tuple[str, int]]:
    """What the driver can keep of float32 and float64; nothing where it lacks the extension."""
    if FLOAT_CONTROLS not in _extensions(handle):
        return frozenset()
    floats = V.FloatControls(sType=1000197000)
    # The properties of Vulkan 1.0 follow the header: their space is not read here.
    whole = (C.c_uint64 * (2 + V.PROPERTIES_BYTES // 8))(1000059001, C.addressof(floats))
    get = V.library().vkGetPhysicalDeviceProperties2
    get.restype = None
    get(C.c_void_p(handle), whole)
    return frozenset((name, bits) for k, name in enumerate(_CONTROLS) for j, bits in enumerate((16, 32, 64))
                     if floats.kept[3 * k + j] and bits != 16)


def _extensions(handle: int) -> set[bytes]:
    """Names of the device's extensions: VkExtensionProperties is a name of 256 bytes and a version."""
    n = C.c_uint32()
    count = V.library().vkEnumerateDeviceExtensionProperties
    count(C.c_void_p(handle), None, C.byref(n), None)
    raw = C.create_string_buffer(260 * max(n.value, 1))
    count(C.c_void_p(handle), None, C.byref(n), raw)
    return {raw.raw[260 * k:260 * k + 256].split(b"\0")[0] for k in range(n.value)}


_U, _U64, _F = C.c_uint32, C.c_uint64, C.c_float
#: VkPhysicalDeviceLimits up to minStorageBufferOffsetAlignment: (names in runs of one type).
_FIELDS: list[tuple[str, Any]] = [
    *[(f"dim{k}", _U) for k in range(5)], ("texel", _U), ("maxUniformBufferRange", _U), ("maxStorageBufferRange", _U),
    ("push", _U), ("allocations", _U), ("samplers", _U), ("granularity", _U64), ("sparse", _U64),
    *[(f"descriptor{k}", _U) for k in range(16)], *[(f"vertex{k}", _U) for k in range(5)],
    *[(f"tessellation{k}", _U) for k in range(8)], *[(f"geometry{k}", _U) for k in range(5)],
    *[(f"fragment{k}", _U) for k in range(4)], ("maxComputeSharedMemorySize", _U), ("maxComputeWorkGroupCount", _U * 3),
    ("maxComputeWorkGroupInvocations", _U), ("maxComputeWorkGroupSize", _U * 3),
    *[(f"precision{k}", _U) for k in range(3)], ("drawIndex", _U), ("drawCount", _U), ("lod", _F), ("anisotropy", _F),
    ("viewports", _U), ("viewport", _U * 2), ("bounds", _F * 2), ("viewportBits", _U), ("mapAlign", C.c_size_t),
    ("texelAlign", _U64), ("uniformAlign", _U64), ("minStorageBufferOffsetAlignment", _U64),
]
_Limits: Any = type("Limits", (C.Structure,), {"_fields_": _FIELDS})


def absent() -> str | None:
    """Why there is no Vulkan device, or None."""
    try:
        found = physical_devices()
    except Exception as e:  # the loader and the drivers each have their own ways to fail
        said = f"{e.what}: {e.why}" if isinstance(e, RlxError) else str(e)
        return f"{said}; {INSTALL}"
    return None if found else f"no Vulkan driver was found; {INSTALL}"


class Context:
    """A logical device with one compute queue."""

    def __init__(self) -> None:
        self.physical = physical_devices()[0]
        self._handle = C.c_void_p(self.physical.handle)
        self.family = self._compute_family()
        self.device = self._create()
        self.queue = C.c_void_p()
        library = V.library()
        library.vkGetDeviceQueue.restype = None
        library.vkGetDeviceQueue(self.device, self.family, 0, C.byref(self.queue))
        self.memory = V.MemoryProperties()
        library.vkGetPhysicalDeviceMemoryProperties.restype = None
        library.vkGetPhysicalDeviceMemoryProperties(self._handle, C.byref(self.memory))
        self.pool = C.c_uint64()
        info = V.CommandPoolInfo(sType=39, flags=2, family=self.family)
        V.check(V.call("vkCreateCommandPool", self.device, C.byref(info), None, C.byref(self.pool)),
                "create a command pool")

    def has(self, feature: int) -> bool:
        """Whether the physical device has a feature, which is then enabled."""
        return bool(self.physical.features[feature])

    @property
    def unified(self) -> bool:
        """Whether device memory is host memory: software and integrated devices."""
        return self.physical.kind in (CPU_TYPE, 1)

    def memory_type(self, bits: int, wanted: int, avoided: int = 0) -> int | None:
        """A memory type among ``bits`` with all ``wanted`` flags; without ``avoided`` ones where possible."""
        fits = [k for k in range(self.memory.types) if bits >> k & 1 and self.memory.type[k].flags & wanted == wanted]
        return min(fits, key=lambda k: bool(self.memory.type[k].flags & avoided), default=None)

    def flags_of(self, memory_type: int) -> int:
        """The property flags of a memory type."""
        return int(self.memory.type[memory_type].flags)

    def _compute_family(self) -> int:
        n = C.c_uint32()
        get = V.library().vkGetPhysicalDeviceQueueFamilyProperties
        get.restype = None
        get(self._handle, C.byref(n), None)
        families = (V.QueueFamily * n.value)()
        get(self._handle, C.byref(n), families)
        return next(k for k, f in enumerate(families) if f.flags & 2)

    def _create(self) -> Any:
        enabled = (C.c_uint32 * V.FEATURES)()
        for feature in (V.ROBUST_ACCESS, V.FLOAT64, V.INT64):
            enabled[feature] = self.physical.features[feature]
        priority = C.c_float(1.0)
        queue = V.QueueInfo(sType=2, family=self.family, count=1, priorities=V.ref(priority))
        names = (C.c_char_p * 1)(FLOAT_CONTROLS)
        info = V.DeviceInfo(sType=3, queues=1, queue_infos=V.ref(queue), features=V.ref(enabled),
                            extensions=int(bool(self.physical.promises)), extension_names=V.ref(names))
        out = C.c_void_p()
        V.check(V.call("vkCreateDevice", self._handle, C.byref(info), None, C.byref(out)), "create a device")
        return out

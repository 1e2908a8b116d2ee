"""Storage: ranges of large buffers; mapped where the driver's memory is the host's, else copied through staging."""

from __future__ import annotations

import ctypes as C
import threading
from typing import Any

import numpy as np

from rlx.core.errors import DeviceError
from rlx.device.vulkan import api as V
from rlx.device.vulkan.context import Context

#: Bytes of a chunk from which small storages are cut, and the largest that is "small".
CHUNK, SMALL = 16 << 20, 1 << 20
#: Every storage starts on this boundary: at least every driver's offset alignment.
ALIGN = 256


class Chunk:
    """One VkBuffer with its memory; ``address`` is where the host sees it, or None."""

    def __init__(self, context: Context, size: int, host: bool) -> None:
        self.size = size
        buffer, memory = C.c_uint64(), C.c_uint64()
        info = V.BufferInfo(sType=12, size=size, usage=V.USAGE)
        V.check(V.call("vkCreateBuffer", context.device, C.byref(info), None, C.byref(buffer)), "create a buffer")
        need = V.Requirements()
        V.call("vkGetBufferMemoryRequirements", context.device, buffer, C.byref(need))
        visible = V.HOST_VISIBLE | V.HOST_COHERENT
        kind = context.memory_type(need.types, visible, V.DEVICE_LOCAL) if host else (
            context.memory_type(need.types, V.DEVICE_LOCAL))
        if kind is None:
            kind = context.memory_type(need.types, visible)
        assert kind is not None, "a driver has a host-visible memory type for every buffer"
        # A GPU's window on its memory is small and slow to read; only memory that is all the host's is mapped.
        mapped = host or (context.flags_of(kind) & visible == visible and context.unified)
        allocate = V.AllocateInfo(sType=5, size=need.size, type=kind)
        V.check(V.call("vkAllocateMemory", context.device, C.byref(allocate), None, C.byref(memory)),
                f"allocate {size} bytes")
        V.check(V.call("vkBindBufferMemory", context.device, buffer, memory, C.c_uint64(0)), "bind memory")
        self.buffer, self.memory = buffer.value, memory
        self.address: int | None = None
        if mapped:
            at = C.c_void_p()
            V.check(V.call("vkMapMemory", context.device, memory, C.c_uint64(0), C.c_uint64(2**64 - 1), 0, C.byref(at)),
                    "map memory")
            self.address = at.value

    def view(self, offset: int, nbytes: int) -> np.ndarray[Any, Any]:
        """The bytes as the host sees them."""
        assert self.address is not None
        return np.ctypeslib.as_array(C.cast(self.address + offset, C.POINTER(C.c_uint8)), (nbytes,))


class Storage:
    """A range of a chunk. Returns to the pool when nobody holds it."""

    __slots__ = ("chunk", "offset", "nbytes", "capacity", "_pool", "__weakref__")

    def __init__(self, chunk: Chunk, offset: int, nbytes: int, capacity: int, pool: Pool) -> None:
        self.chunk, self.offset, self.nbytes, self.capacity, self._pool = chunk, offset, nbytes, capacity, pool

    @property
    def key(self) -> tuple[int, int]:
        """What tells two storages apart."""
        return self.chunk.buffer, self.offset

    def __del__(self) -> None:
        self._pool.give(self.chunk, self.offset, self.capacity)


class Pool:
    """Makes storages of one kind of memory; freed ranges are handed out again in queue order."""

    def __init__(self, context: Context, host: bool = False) -> None:
        self.context, self.host = context, host
        self._free: dict[int, list[tuple[Chunk, int]]] = {}
        self._open: Chunk | None = None
        self._used = 0
        self._lock = threading.RLock()  # a collection inside a call gives storage back

    def take(self, nbytes: int) -> Storage:
        """Storage of at least that many bytes, uninitialised."""
        limit = self.context.physical.max_range
        if nbytes > limit:
            raise DeviceError(f"an array of {nbytes} bytes does not fit in one buffer",
                              why=f"the driver binds at most {limit} bytes",
                              do="compute in pieces, use a smaller dtype, or use a device with larger bindings")
        capacity = size_class(nbytes)
        with self._lock:
            found = self._free.get(capacity)
            chunk, offset = found.pop() if found else self._cut(capacity)
        return Storage(chunk, offset, nbytes, capacity, self)

    def _cut(self, capacity: int) -> tuple[Chunk, int]:
        if capacity > SMALL:
            return Chunk(self.context, capacity, self.host), 0
        if self._open is None or self._used + capacity > CHUNK:
            self._open, self._used = Chunk(self.context, CHUNK, self.host), 0
        offset = self._used
        self._used += capacity
        return self._open, offset

    def give(self, chunk: Chunk, offset: int, capacity: int) -> None:
        """Take a range back."""
        with self._lock:
            self._free.setdefault(capacity, []).append((chunk, offset))


def size_class(nbytes: int) -> int:
    """Capacities: multiples of an eighth of the power of two below, so at most an eighth is wasted."""
    n = max(nbytes, ALIGN)
    step = max(1 << max(n.bit_length() - 4, 0), ALIGN)
    return -(-n // step) * step

"""Buffers of a wgpu device, pooled by size: freed storage is handed out again, in queue order."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from rlx.core.errors import DeviceError

#: Bytes that the pool keeps at most; what is beyond is given back to the driver.
KEEP = 1 << 30


class Storage:
    """A buffer on the device and the bytes of it in use. Returns to the pool when nobody holds it."""

    __slots__ = ("buffer", "nbytes", "capacity", "_pool", "__weakref__")

    def __init__(self, buffer: Any, nbytes: int, capacity: int, pool: Pool) -> None:
        self.buffer, self.nbytes, self.capacity, self._pool = buffer, nbytes, capacity, pool

    def __del__(self) -> None:
        self._pool.give(self.capacity, self.buffer)


class Pool:
    """Makes storages."""

    def __init__(self, device: Any, limit: int) -> None:
        import wgpu
        u = wgpu.BufferUsage
        self.device, self.limit = device, limit
        self.usage = u.STORAGE | u.COPY_SRC | u.COPY_DST | u.INDIRECT
        self._free: dict[int, list[Any]] = {}
        self._kept, self._keep = 0, KEEP  # bound here: a storage may outlive the module's names
        # Every buffer is held here: a collector that finds a storage in a cycle must not finalize its buffer too.
        self._held: dict[int, Any] = {}
        self._lock = threading.RLock()  # a collection inside a call gives storage back

    def take(self, nbytes: int) -> Storage:
        """Storage of at least that many bytes, uninitialised."""
        capacity = size_class(nbytes)
        if capacity > self.limit:
            raise DeviceError(f"an array of {nbytes} bytes does not fit in one buffer",
                              why=f"the driver binds at most {self.limit} bytes",
                              do="compute in pieces, use a smaller dtype, or use a device with larger bindings")
        with self._lock:
            found = self._free.get(capacity)
            if found:
                self._kept -= capacity
                return Storage(found.pop(), nbytes, capacity, self)
            buffer = self.device.create_buffer(size=capacity, usage=self.usage)
            self._held[id(buffer)] = buffer
        return Storage(buffer, nbytes, capacity, self)

    def give(self, capacity: int, buffer: Any) -> None:
        """Take a buffer back."""
        with self._lock:
            if self._kept + capacity <= self._keep:
                self._kept += capacity
                self._free.setdefault(capacity, []).append(buffer)
            else:
                del self._held[id(buffer)]

    def upload(self, array: np.ndarray[Any, Any]) -> Storage:
        """Storage with the array's bytes, row-major."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        storage = self.take(data.nbytes)
        if data.nbytes:
            if data.nbytes % 4:
                data = np.concatenate([data, np.zeros(-data.nbytes % 4, np.uint8)])
            self.device.queue.write_buffer(storage.buffer, 0, data)
        return storage

    def download(self, storage: Storage, nbytes: int) -> np.ndarray[Any, Any]:
        """The first bytes of a storage."""
        if not nbytes:
            return np.empty(0, np.uint8)
        found = self.device.queue.read_buffer(storage.buffer, 0, -(-nbytes // 4) * 4)
        return np.frombuffer(found, np.uint8)[:nbytes]


def size_class(nbytes: int) -> int:
    """Capacities: multiples of an eighth of the power of two below, so at most an eighth is wasted."""
    n = max(nbytes, 64)
    step = max(1 << max(n.bit_length() - 4, 0), 64)
    return -(-n // step) * step

"""What every device is: storage, copies to and from NumPy, and loading of what the compiler made for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rlx.core.caps import Caps
from rlx.core.dtype import DType
from rlx.core.errors import DeviceError
from rlx.ir.claim import Claim

if TYPE_CHECKING:  # the kernels' IR is read when something compiles, not at import
    from rlx.ir.loop import Program

#: A buffer on a device. Only the device that made it looks inside.
Storage = Any


class Executable(ABC):
    """A loaded program. ``run`` may be called from several threads at once."""

    @abstractmethod
    def run(self, inputs: Sequence[Storage], outputs: Sequence[Storage]) -> None:
        """Execute over storages in slot order, filling ``outputs``, which ``Device.empty`` made.

        A device may return before the work is done; :meth:`Device.synchronize` waits.
        """


class Device(ABC):
    """One opened device: its capabilities as data, its claims, and its memory."""

    name: str
    caps: Caps
    #: The claims for each op, in order of preference.
    claims: Mapping[str, tuple[Claim, ...]]
    #: DLPack device type and index of its memory: (1, 0) is the host's, (12, 0) one that DLPack does not name.
    dlpack: tuple[int, int] = (12, 0)

    @abstractmethod
    def empty(self, dtype: DType, shape: Sequence[int]) -> Storage:
        """Uninitialised storage for prod(shape) elements, row-major."""

    def empty_together(self, types: Sequence[tuple[DType, int]]) -> list[Storage]:
        """Uninitialised storages of (dtype, size) that are used together: next to each other where the device can."""
        return [self.empty(dtype, (size,)) for dtype, size in types]

    @abstractmethod
    def upload(self, array: np.ndarray[Any, Any]) -> Storage:
        """Storage with the array's elements, row-major. May borrow its memory: do not write to it."""

    @abstractmethod
    def download(self, storage: Storage, dtype: DType, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """The content as an array. May be a view of the storage: do not write to it."""

    def take(self, foreign: Any) -> tuple[Storage, str, tuple[int, ...]] | None:
        """(storage, dtype name, shape) over the memory of another library's array on this device, which must not change
        while it is in use; None where the device cannot use it.
        """
        return None

    def give(self, storage: Storage, dtype: DType, shape: Sequence[int]) -> Any:
        """The content as an array of a library of this device's, with ``__dlpack__``, over the same memory; or None."""
        return None

    @abstractmethod
    def load(self, program: Program) -> Executable:
        """Make a loop program executable. A device that takes graphs refuses with a DeviceError."""

    @abstractmethod
    def load_graph(self, graph: Any) -> Executable:
        """Make a graph of primitives executable. A device that takes programs refuses with a DeviceError."""

    def native_calls(self) -> Any:
        """What calls programs of this device natively (``runner``, ``specialized``, ``table_of`` and ``install``, as
        :mod:`rlx.device.cpu.entry` has them); None where they are called from Python.
        """
        return None

    def native_calls_absent(self) -> str:
        """Why a device that can have native calls has none here; empty otherwise."""
        return ""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until everything started on this device is done."""


def refuse_form(device: Device, form: str) -> NoReturn:
    """Raise the error for a program form (``graph`` or ``program``) that the device does not take."""
    raise DeviceError(f"device {device.name!r} does not load a {form}",
                      why=f"its schedule is {device.caps.schedule!r}",
                      do="compile for this device's capabilities and load what that gives")

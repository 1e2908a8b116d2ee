"""The upward calls of this floor: an Array must execute, and must know its device. The runtime installs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.core import dtype as dt
from rlx.core import flags

if TYPE_CHECKING:
    from rlx.core.where import Where
    from rlx.ir.graph import Graph, Value


class Hooks:
    """What the runtime provides. Before it is imported, arrays can be built but not run."""

    evaluate: Callable[[Sequence[Value]], None]
    #: Call a step's function on values, with its nodes at that line.
    make: Callable[[Any, Sequence[Value], Where], Value]
    #: Run the pending work of light records.
    run: Callable[[Sequence[Any]], None]
    upload: Callable[[np.ndarray, str, dt.DType], Any]
    #: Storage over the host's memory itself, where the device can use it.
    adopt: Callable[[np.ndarray, str, dt.DType], Any]
    #: A value's array in a library of its device, over the same memory; or None.
    give: Callable[[Any], Any]
    #: (device, storage, dtype name, shape) over another library's memory on a device of that DLPack kind; or None.
    take: Callable[[Any, tuple[int, int]], Any]
    #: The DLPack (type, index) of a device by name.
    dlpack_device: Callable[[str], tuple[int, int]]
    #: The module of public names, for a version of the standard.
    namespace: Callable[[str | None], Any]
    download: Callable[[Any], np.ndarray]
    #: The content of a storage of that dtype, shape and device, in host memory and read-only.
    fetch: Callable[[Any, dt.DType, Any, str], np.ndarray]
    #: The same, perhaps writable: for readers that do not hand it on.
    peek: Callable[[Any, dt.DType, Any, str], np.ndarray]
    #: Wait for all work on a device.
    wait: Callable[[str], None]
    default_float: Callable[[str], dt.DType]
    compile: Callable[..., Any]
    #: What calls programs of a device natively; None where they are called from Python.
    calls: Callable[[str], Any]
    #: A graph with what may fail in it as further outputs, and the watches on them.
    watch: Callable[[Graph], tuple[Graph, tuple[Any, ...]]]
    #: Raise the error of the first watch whose storage is not zero.
    raise_failure: Callable[[Sequence[Any], Sequence[Any], str], None]


hooks = Hooks()


def default_device() -> str:
    """The device used when none is named (flag ``device``)."""
    return flags.snapshot().device


def default_float(device: str | None = None) -> dt.DType:
    """The default floating type of a device: f64 where it has it, as in NumPy."""
    return hooks.default_float(device or default_device())

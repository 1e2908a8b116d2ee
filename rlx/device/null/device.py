"""Takes any program and runs none of it: results are zeros. Compiling needs no hardware and no toolchain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.core import dtype as dt
from rlx.core.caps import Caps
from rlx.device.base import Device, Executable, refuse_form
from rlx.ir.loop import Program
from rlx.ir.prim import POINTWISE

Arr = np.ndarray[Any, Any]


def absent() -> str | None:
    """It is always there."""
    return None


def open() -> Device:
    """The device that does nothing."""
    return NullDevice()


class NullDevice(Device):
    """Every dtype, no claims, no work."""

    def __init__(self) -> None:
        self.name = "null"
        self.caps = Caps(name="null", dtypes=frozenset(dt.ALL),
                         spells={p: frozenset(d for d in dt.ALL if d.kind in row.kinds)
                                 for p, row in POINTWISE.items()})
        self.claims = {}

    def empty(self, dtype: dt.DType, shape: Sequence[int]) -> Arr:
        return np.zeros(tuple(shape), dtype.numpy)

    def upload(self, array: Arr) -> Arr:
        return np.array(array)

    def download(self, storage: Arr, dtype: dt.DType, shape: Sequence[int]) -> Arr:
        return storage.reshape(tuple(shape))

    def load(self, program: Program) -> Executable:
        return Nothing()

    def load_graph(self, graph: Any) -> Executable:
        refuse_form(self, "graph")

    def synchronize(self) -> None:
        return None


class Nothing(Executable):
    """Fills outputs with zeros."""

    def run(self, inputs: Sequence[Arr], outputs: Sequence[Arr]) -> None:
        for o in outputs:
            o[...] = 0

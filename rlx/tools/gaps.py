"""Known gaps, as data: what a device does not do, for which dtype, and why; for the tests and the coverage table."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

import numpy as np

from rlx import device as devices
from rlx.core.dtype import DType
from rlx.ops.creation import asarray


@dataclass(frozen=True, slots=True)
class Gap:
    """An op (a pattern) on a device (a pattern) for a dtype (short name, or ``*``) that is known not to work."""

    op: str
    device: str
    dtype: str
    reason: str
    #: Whether asking for it is a CompileError (a gap that is not refused gives wrong values, and is a bug to fix).
    refused: bool = True

    def covers(self, op: str, device: str, dtype: DType) -> bool:
        """Whether this gap is about that combination."""
        return (fnmatchcase(op, self.op) and fnmatchcase(device, self.device)
                and self.dtype in ("*", dtype.short))


GAPS: tuple[Gap, ...] = (
    Gap("splat.spherical_harmonics", "opengl", "*", "one expression of 17 buffers; OpenGL drivers bind 16",
        refused=False),
)


def known(op: str, device: str, dtype: DType) -> Gap | None:
    """The gap that covers this combination, if one does; a dtype that the device's driver lacks is one."""
    found = next((g for g in GAPS if g.covers(op, device, dtype)), None)
    if found is None and not devices.find(device).caps.stores(dtype):
        return Gap("*", device, dtype.short, f"{device} has no {dtype.name} here")
    return found


@cache
def flushes(device: str) -> bool:
    """Whether a device takes subnormal float32 numbers for zero: some drivers cannot be told not to.

    On such a device ``2**-140`` is 0, in and out of every operation; all else is as on the others.
    """
    x, two = (asarray(np.full(1, v, np.float32), device=device) for v in (2.0**-140, 2.0))
    return not bool(np.asarray(x * two)[0])

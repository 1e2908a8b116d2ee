"""The diagonals of matrices."""

from __future__ import annotations

from typing import Any

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.core import dtype as dt
from rlx.linalg.errors import matrix
from rlx.ops.index import gather
from rlx.ops.movement import iota


def diagonal(x: Any, /, *, offset: int = 0) -> Array:
    """The diagonal ``x[..., i, i + offset]`` of the last two axes."""
    a = matrix(as_array(x), "diagonal")
    m, n = a.shape[-2:]
    low, high = max(-offset, 0), max(offset, 0)
    count = max(min(m - low, n - high), 0)
    i = iota(count, dt.int64, a._value.node.device)
    lead = tuple(range(a.ndim - 2))
    picked = gather(a.transpose(a.ndim - 2, a.ndim - 1, *lead), i + low, i + high, mode="promise")
    return picked.transpose(*range(1, a.ndim - 1), 0) if lead else picked

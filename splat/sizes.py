"""Sizes of concrete axes as ints."""

from __future__ import annotations

from rlx.array.array import Array
from rlx.core.shape import count


def length(x: Array, axis: int = 0) -> int:
    """How many elements an axis has; ShapeError when that is symbolic."""
    return count((x.shape[axis],))

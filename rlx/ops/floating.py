"""What functions of real and complex numbers do with integers and booleans: they take them as floats."""

from __future__ import annotations

from typing import Any

from rlx.array.array import Array
from rlx.array.build import as_array, cast
from rlx.array.hooks import default_float


def floating(x: Any) -> Array:
    """``x`` as it is when it is real or complex, else in the default float of its device."""
    a = as_array(x)
    return a if a.dtype.is_inexact else cast(a, default_float(a.device))

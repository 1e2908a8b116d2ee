"""NumPy's other names of functions, so that NumPy programs and NumPy's own calls find them."""

from __future__ import annotations

from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array
from rlx.array.define import public
from rlx.core.shape import axis_index

#: NumPy's name of each function that the standard names otherwise.
ALIASES: dict[str, str] = {
    "absolute": "abs", "fabs": "abs", "power": "pow", "true_divide": "divide", "mod": "remainder",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "invert": "bitwise_invert", "bitwise_not": "bitwise_invert", "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift", "conjugate": "conj", "concatenate": "concat", "row_stack": "vstack",
    "amax": "max", "amin": "min", "rint": "round",
    "around": "round", "fix": "trunc", "bitwise_count": "bit_count", "array": "asarray", "ascontiguousarray": "asarray",
    "asanyarray": "asarray", "asfortranarray": "asarray",
    "dot": "_numpy_dot", "degrees": "rad2deg", "radians": "deg2rad",
}


@public
def _numpy_dot(x1: Any, x2: Any, /) -> Array:
    """NumPy's ``dot``: a product with scalars, else sums over the last axis of x1 and the last but one of x2."""
    x, y = as_array(x1), as_array(x2)
    if x.ndim == 0 or y.ndim == 0:
        return FUNCTIONS["multiply"](x, y)
    if x.ndim <= 2 and y.ndim <= 2:
        return FUNCTIONS["matmul"](x, y)
    return FUNCTIONS["tensordot"](x, y, axes=((x.ndim - 1,), (max(y.ndim - 2, 0),)))


@public
def cumsum(x: Any, /, axis: int | None = None, dtype: Any = None) -> Array:
    """Running sum along an axis, or of the flattened array."""
    a = as_array(x)
    return FUNCTIONS["cumulative_sum"](FUNCTIONS["ravel"](a) if axis is None else a, axis=axis, dtype=dtype)


@public
def cumprod(x: Any, /, axis: int | None = None, dtype: Any = None) -> Array:
    """Running product along an axis, or of the flattened array."""
    a = as_array(x)
    return FUNCTIONS["cumulative_prod"](FUNCTIONS["ravel"](a) if axis is None else a, axis=axis, dtype=dtype)


@public
def shape(x: Any, /) -> tuple[Any, ...]:
    """The sizes of the axes."""
    return as_array(x).shape


@public
def ndim(x: Any, /) -> int:
    """The number of axes."""
    return as_array(x).ndim


@public
def size(x: Any, /, axis: int | None = None) -> Any:
    """The number of elements, or the size of an axis."""
    return as_array(x).size if axis is None else as_array(x).shape[axis_index(axis, as_array(x).ndim)]


@public
def copy(x: Any, /) -> Array:
    """The same value in an array of its own."""
    return as_array(x).copy()


for _new, _name in ALIASES.items():
    if _name in FUNCTIONS:
        FUNCTIONS.setdefault(_new, FUNCTIONS[_name])

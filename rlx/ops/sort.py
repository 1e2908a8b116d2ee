"""Sorting along an axis: keys with payloads, stable, NaN last."""

from __future__ import annotations

from typing import Any

from rlx.array.array import Array
from rlx.array.build import as_array, broadcast, emit
from rlx.array.define import primitive, public
from rlx.core.errors import DTypeError
from rlx.core.shape import axis_index
from rlx.ir.graph import Type
from rlx.ops.index import take_along_axis
from rlx.ops.movement import positions

_sort = primitive("sort")
_sort.doc = "Stable sort of keys with payloads."


@_sort.infer
def _(*xs: Type, axis: int, descending: bool) -> tuple[Type, ...]:
    return xs


@_sort.grad
def _(ct: Any, out: Any, *xs: Array, axis: int, descending: bool) -> tuple[Array | None, ...]:
    cts = ct if isinstance(ct, (tuple, list)) else (ct,)
    order = order_of(xs[0], axis, descending)
    back = order_of(order, axis, False)
    return tuple(None if c is None else take_along_axis(c, back, axis=axis) for c in cts)


def sort_with(keys: Array, payload: tuple[Array, ...], axis: int, descending: bool = False) -> tuple[Array, ...]:
    """Keys sorted (stable, NaN last) along an axis, and the payloads moved with them."""
    if keys.dtype.is_complex:
        raise DTypeError(f"sorting a {keys.dtype.name} array of shape {keys.shape}",
                         why="complex numbers have no order",
                         do="sort rlx.abs(x) or rlx.real(x), or use rlx.sort_complex")
    return emit("sort", (keys, *payload), {"axis": axis, "descending": descending})


def order_of(x: Array, axis: int, descending: bool) -> Array:
    """The indices that sort ``x`` along an axis (stable)."""
    return sort_with(x, (broadcast(positions(x, axis), x.shape),), axis, descending)[1]


@public
def sort(x: Any, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Array:
    """The values in order along an axis; NaN last."""
    a = as_array(x)
    return sort_with(a, (), axis_index(axis, a.ndim), descending)[0]


@public
def argsort(x: Any, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Array:
    """The indices that sort ``x`` along an axis (stable)."""
    a = as_array(x)
    return order_of(a, axis_index(axis, a.ndim), descending)

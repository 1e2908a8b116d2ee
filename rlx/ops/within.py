"""NumPy's functions that write into their first argument: it keeps its name, shape and dtype, and gets a new value.

What they write is seen through this same object, and through no other array (see :class:`rlx.Array`).
"""

from __future__ import annotations

from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast, cast
from rlx.array.define import public
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.core.shape import axis_index
from rlx.ops.index import inside
from rlx.ops.movement import iota, reshape


def _target(x: Any, name: str) -> Array:
    if not isinstance(x, Array):
        raise DTypeError(f"{name}() into a {type(x).__name__}", why="it writes into an rlx array",
                         do=f"use numpy.{name} for others")
    return x


@public
def copyto(dst: Any, src: Any, /, *, where: Any = True) -> None:
    """Write ``src``, broadcast, into ``dst`` (where a mask holds)."""
    x = _target(dst, "copyto")
    new = as_array(src)
    if FUNCTIONS["result_type"](x.dtype, new.dtype) != x.dtype and not (new.dtype.kind == x.dtype.kind):
        raise DTypeError(f"copyto from {new.dtype.name} into {x.dtype.name}", why="values would be lost",
                         do="cast the source with .astype(...)")
    new = broadcast(cast(new, x.dtype), x.shape)
    x._value = (new if where is True else FUNCTIONS["where"](where, new, x))._value


@public
def putmask(x: Any, mask: Any, values: Any, /) -> None:
    """Write ``values`` where the mask holds: element ``i`` gets ``values[i % n]`` of the flattened values."""
    a = _target(x, "putmask")
    v = FUNCTIONS["ravel"](as_array(values))
    if v.shape[0] == 0:
        return
    new = v[0] if v.shape[0] == 1 else FUNCTIONS["resize"](v, a.shape)
    a._value = FUNCTIONS["where"](broadcast(as_array(mask), a.shape), cast(new, a.dtype), a)._value


@public
def place(x: Any, mask: Any, values: Any, /) -> None:
    """Write the first ``n`` of ``values`` (repeated as needed) into the ``n`` elements where the mask holds."""
    a = _target(x, "place")
    m, v = FUNCTIONS["ravel"](as_array(mask)), FUNCTIONS["ravel"](as_array(values))
    if m.shape[0] != a.size:
        raise ShapeError(f"place() with a mask of shape {as_array(mask).shape} in an array of shape {a.shape}",
                         why="each element has one condition", do="build the mask from the array")
    if v.shape[0] == 0:
        raise ValueIssue("place() of no values", why="there is nothing to write", do="pass at least one value")
    if m.shape[0] == 0:
        return
    turn = FUNCTIONS["cumulative_sum"](cast(m, dt.int64), axis=0) - 1
    new = cast(FUNCTIONS["take"](v, turn % v.shape[0], axis=0), a.dtype)
    a._value = reshape(FUNCTIONS["where"](m, new, FUNCTIONS["ravel"](a)), a.shape)._value


@public
def put(x: Any, indices: Any, values: Any, /, mode: str = "raise") -> None:
    """Write ``values`` (repeated as needed) at indices of the flattened array."""
    a = _target(x, "put")
    i, v = FUNCTIONS["ravel"](as_array(indices)), FUNCTIONS["ravel"](as_array(values))
    if i.shape[0] == 0:
        return
    if v.shape[0] == 0:
        raise ValueIssue("put() of no values", why="there is nothing to write", do="pass at least one value")
    new = v if v.shape[0] == 1 else FUNCTIONS["resize"](v, (i.shape[0],))
    flat = FUNCTIONS["ravel"](a)
    flat[inside(i, a.size, mode)] = new
    a._value = reshape(flat, a.shape)._value


@public
def put_along_axis(x: Any, indices: Any, values: Any, /, axis: int | None = -1) -> None:
    """Write ``values`` at the places along an axis that :func:`take_along_axis` reads."""
    a = _target(x, "put_along_axis")
    if axis is None:
        flat = FUNCTIONS["ravel"](a)
        flat[as_array(indices)] = values
        a._value = reshape(flat, a.shape)._value
        return
    i, k = as_array(indices), axis_index(axis, a.ndim)
    dev = a._value.node.device
    grid = [reshape(iota(i.shape[d] if d == k else n, dt.int64, dev),
                    tuple(-1 if j == d else 1 for j in range(a.ndim))) for d, n in enumerate(a.shape)]
    a[tuple([i if d == k else g for d, g in enumerate(grid)])] = values


@public
def fill_diagonal(x: Any, value: Any, /, *, wrap: bool = False) -> None:
    """Write a value, or a vector of them, on the main diagonal; with ``wrap`` again after each ``n`` rows of ``n``."""
    a = _target(x, "fill_diagonal")
    if a.ndim < 2 or (a.ndim > 2 and len(set(a.shape)) != 1):
        raise ShapeError(f"fill_diagonal() of an array of shape {a.shape}",
                         why="it takes a matrix, or axes of one size", do="use x[i, j, ...] = value")
    if a.ndim == 2:
        step = a.shape[1] + 1
        end = a.size if wrap else min(a.size, a.shape[1] * a.shape[1])
    else:
        step, end = sum(a.shape[0]**k for k in range(a.ndim)), a.size
    flat = FUNCTIONS["ravel"](a)
    n = len(range(0, end, step))
    v = as_array(value)
    flat[:end:step] = v if v.ndim == 0 else FUNCTIONS["resize"](v, (n,))
    a._value = reshape(flat, a.shape)._value

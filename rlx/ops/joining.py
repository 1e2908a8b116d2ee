"""NumPy's further ways to stack, split, nest, cut and repeat arrays."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array
from rlx.array.define import public
from rlx.core.errors import ShapeError, ValueIssue
from rlx.core.shape import axis_index
from rlx.ops.manipulate import atleast_nd, ravel, split
from rlx.ops.movement import concat, iota, permute_dims, reshape


@public
def atleast_3d(x: Any, /) -> Array:
    """``x`` with at least three axes: vectors become ``(1, n, 1)``, matrices ``(m, n, 1)``."""
    x = as_array(x)
    return x if x.ndim >= 3 else reshape(x, [(1, 1, 1), (1, *x.shape, 1), (*x.shape, 1)][x.ndim])


@public
def dstack(arrays: Sequence[Any], /) -> Array:
    """The arrays behind one another, along the third axis."""
    return concat([atleast_3d(x) for x in arrays], axis=2)


def _splitter(name: str, axis: int, least: int) -> Callable[..., list[Array]]:
    def f(x: Any, indices_or_sections: Any, /) -> list[Array]:
        a = as_array(x)
        if a.ndim < least:
            raise ShapeError(f"{name}() of an array of shape {a.shape}", why=f"it needs {least} axes or more",
                             do="use rlx.split with an axis")
        return split(a, indices_or_sections, 0 if a.ndim == 1 else axis)
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"Parts along axis {axis}: see :func:`split`."
    return public(f)


hsplit, vsplit, dsplit = _splitter("hsplit", 1, 1), _splitter("vsplit", 0, 2), _splitter("dsplit", 2, 3)


@public
def rollaxis(x: Any, axis: int, start: int = 0, /) -> Array:
    """``x`` with an axis moved before the axis that is now at ``start``."""
    x = as_array(x)
    a = axis_index(axis, x.ndim)
    s = start + x.ndim if start < 0 else start
    if not 0 <= s <= x.ndim:
        raise ShapeError(f"rollaxis to {start} in an array of {x.ndim} axes", why="there is no such place",
                         do="use rlx.moveaxis")
    order = [i for i in range(x.ndim) if i != a]
    order.insert(s - (a < s), a)
    return permute_dims(x, order)


@public
def resize(x: Any, new_shape: int | Sequence[int], /) -> Array:
    """The elements of ``x``, repeated from the first as often as needed, in another shape."""
    x = ravel(x)
    shape = (new_shape,) if isinstance(new_shape, int) else tuple(new_shape)
    n, m = x.shape[0], int(np.prod(shape))
    if m == 0 or n == 0:
        return FUNCTIONS["zeros"](shape, dtype=x.dtype, device=x._value.node.device)
    copies = -(-m // n)
    long = FUNCTIONS["tile"](x, copies) if copies > 1 else x
    return reshape(long[:m], shape)


@public
def block(arrays: Any, /) -> Array:
    """One array from nested lists of them: the innermost lists along the last axis, the next along the one before."""
    depth = _depth(arrays)
    rank = builtins.max(depth, _rank(arrays))
    return _joined(arrays, depth, rank)


def _depth(a: Any) -> int:
    if not isinstance(a, list):
        return 0
    if not a:
        raise ValueIssue("block() of an empty list", why="it has no shape", do="leave it out")
    depths = {_depth(v) for v in a}
    if len(depths) != 1:
        raise ShapeError("block() of lists of different depths", why="each level of nesting is one axis",
                         do="nest all arrays alike")
    return 1 + depths.pop()


def _rank(a: Any) -> int:
    return builtins.max(_rank(v) for v in a) if isinstance(a, list) else as_array(a).ndim


def _joined(a: Any, depth: int, rank: int) -> Array:
    if not isinstance(a, list):
        return atleast_nd(a, rank)
    return concat([_joined(v, depth - 1, rank) for v in a], axis=-depth)


@public
def compress(condition: Any, x: Any, /, axis: int | None = None) -> Array:
    """The slices along an axis (of the flattened array by default) where a vector of conditions holds."""
    x = as_array(x)
    x, a = (ravel(x), 0) if axis is None else (x, axis_index(axis, x.ndim))
    c = as_array(condition)
    if c.ndim != 1:
        raise ShapeError(f"compress() with a condition of shape {c.shape}", why="each slice has one condition",
                         do="pass a vector")
    found: Any = FUNCTIONS["nonzero"](c)
    return FUNCTIONS["take"](x, found[0], axis=a)


@public
def trim_zeros(x: Any, /, trim: str = "fb") -> Array:
    """A vector without its leading (``"f"``) and trailing (``"b"``) zeros; how many there are is looked at."""
    a = as_array(x)
    if a.ndim != 1:
        raise ShapeError(f"trim_zeros() of an array of shape {a.shape}", why="it takes a vector", do="flatten it first")
    at = np.asarray(FUNCTIONS["flatnonzero"](a))
    if not at.size:
        return a[:0]
    low, high = int(at[0]) if "f" in trim.lower() else 0, int(at[-1]) + 1 if "b" in trim.lower() else a.shape[0]
    return a[low:high]


@public
def apply_over_axes(func: Callable[..., Any], x: Any, axes: int | Sequence[int], /) -> Array:
    """``func(x, axis)`` for each of the axes in turn, which stay with size 1."""
    out = as_array(x)
    for axis in (axes,) if isinstance(axes, int) else axes:
        a = axis_index(axis, out.ndim)
        got = as_array(func(out, a))
        out = got if got.ndim == out.ndim else FUNCTIONS["expand_dims"](got, axis=a)
    return out


@public
def ediff1d(x: Any, /, to_end: Any = None, to_begin: Any = None) -> Array:
    """Differences of the flattened array, with values put before and after them."""
    x = ravel(x)
    parts = [FUNCTIONS["diff"](x)]
    if to_begin is not None:
        parts.insert(0, ravel(to_begin).astype(x.dtype))
    if to_end is not None:
        parts.append(ravel(to_end).astype(x.dtype))
    return concat(parts) if len(parts) > 1 else parts[0]


@public
def packbits(x: Any, /, axis: int | None = None, bitorder: str = "big") -> Array:
    """Eight truth values along an axis in each byte (the last padded with zeros)."""
    a, k = _bit_axis(as_array(x), axis)
    n = -(-a.shape[-1] // 8)
    bits = FUNCTIONS["pad"](FUNCTIONS["not_equal"](a, 0), [(0, 0)] * (a.ndim - 1) + [(0, 8 * n - a.shape[-1])])
    parts = reshape(bits, (*a.shape[:-1], n, 8)).astype("uint8") << _shifts(bitorder, a)
    return FUNCTIONS["moveaxis"](FUNCTIONS["sum"](parts, axis=-1, dtype="uint8"), -1, k)


@public
def unpackbits(x: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Array:
    """The bits of bytes, eight along the axis for each; ``count`` of them (all but the last, if it is negative)."""
    x = as_array(x)
    if x.dtype.name != "uint8":
        raise ValueIssue(f"unpackbits of {x.dtype.name}", why="it takes bytes", do="cast them with .astype(rlx.uint8)")
    a, k = _bit_axis(x, axis)
    bits = (reshape(a, (*a.shape, 1)) >> _shifts(bitorder, a)) & 1
    flat = reshape(bits, (*a.shape[:-1], a.shape[-1] * 8))
    if count is not None:
        more = count - flat.shape[-1]
        flat = FUNCTIONS["pad"](flat, [(0, 0)] * (a.ndim - 1) + [(0, more)]) if more > 0 else flat[..., :count]
    return FUNCTIONS["moveaxis"](flat, -1, k)


def _bit_axis(x: Array, axis: int | None) -> tuple[Array, int]:
    """The axis of bits moved to the end, and where it was."""
    if axis is None:
        return ravel(x), 0
    k = axis_index(axis, x.ndim)
    return FUNCTIONS["moveaxis"](x, k, -1), k


def _shifts(order: str, x: Array) -> Array:
    if order not in ("big", "little"):
        raise ValueIssue(f"bit order {order!r}", why="the first bit is the highest ('big') or the lowest ('little')",
                         do="pass one of them")
    i = iota(8, x.dtype if x.dtype.name == "uint8" else as_array(np.uint8(0)).dtype, x._value.node.device)
    return 7 - i if order == "big" else i

"""Movement: the same elements in other places. Each is a primitive with a linear gradient."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from rlx.array.array import Array
from rlx.array.build import as_array, broadcast, cast, constant, emit, emit1, promote
from rlx.array.define import primitive, public
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError, ValueIssue
from rlx.core.shape import Shape, axes_tuple, axis_index, numel
from rlx.core.shape import broadcast_shapes as _broadcast_shapes
from rlx.ir.graph import Type

_reshape = primitive("reshape")
_permute = primitive("permute")
_broadcast = primitive("broadcast")
_slice = primitive("slice")
_pad = primitive("pad")
_flip = primitive("flip")
_concat = primitive("concat")
_window = primitive("window")


@_reshape.infer
def _(x: Type, *, shape: Shape) -> Type:
    return Type(x.dtype, shape)


@_permute.infer
def _(x: Type, *, axes: tuple[int, ...]) -> Type:
    return Type(x.dtype, tuple(x.shape[a] for a in axes))


@_broadcast.infer
def _(x: Type, *, shape: Shape) -> Type:
    if _broadcast_shapes(x.shape, shape) != shape:
        raise ShapeError(f"cannot broadcast {x.shape} to {shape}", why="an axis would shrink",
                         do="pass a shape that every axis of the array fits")
    return Type(x.dtype, shape)


@_slice.infer
def _(x: Type, *, start: tuple[int, ...], size: Shape, step: tuple[int, ...]) -> Type:
    return Type(x.dtype, size)


@_pad.infer
def _(x: Type, value: Type, *, low: tuple[int, ...], high: tuple[int, ...]) -> Type:
    return Type(x.dtype, tuple(n + a + b for n, a, b in zip(x.shape, low, high, strict=True)))


@_flip.infer
def _(x: Type, *, axes: tuple[int, ...]) -> Type:
    return x


@_concat.infer
def _(*xs: Type, axis: int) -> Type:
    shape = list(xs[0].shape)
    for x in xs[1:]:
        shape[axis] = shape[axis] + x.shape[axis]
    return Type(xs[0].dtype, tuple(shape))


@_window.infer
def _(x: Type, *, axes: tuple[int, ...], size: tuple[int, ...], step: tuple[int, ...],
      dilation: tuple[int, ...]) -> Type:
    shape = list(x.shape)
    for a, k, s, d in zip(axes, size, step, dilation, strict=True):
        shape[a] = (shape[a] - d * (k - 1) - 1) // s + 1
    return Type(x.dtype, (*shape, *size))


# Gradients: each is linear, so the cotangent moves back.

@_reshape.grad
def _(ct: Array, out: Array, x: Array, *, shape: Shape) -> tuple[Array]:
    return (reshape(ct, x.shape),)


@_permute.grad
def _(ct: Array, out: Array, x: Array, *, axes: tuple[int, ...]) -> tuple[Array]:
    return (permute_dims(ct, tuple(axes.index(i) for i in range(len(axes)))),)


@_broadcast.grad
def _(ct: Array, out: Array, x: Array, *, shape: Shape) -> tuple[Array]:
    from rlx.array.define import function
    lead = len(shape) - x.ndim
    axes = (*range(lead), *(lead + i for i, n in enumerate(x.shape) if n == 1 and shape[lead + i] != 1))
    summed = function("sum")(ct, axis=axes) if axes else ct
    return (reshape(summed, x.shape),)


@_slice.grad
def _(ct: Array, out: Array, x: Array, *, start: tuple[int, ...], size: Shape, step: tuple[int, ...]) -> tuple[Array]:
    if all(s == 1 for s in step):
        high = tuple(n - b - m for n, b, m in zip(x.shape, start, size, strict=True))
        return (pad_with(ct, start, high, 0),)
    out_ct = ct
    for axis, (n, b, m, s) in enumerate(zip(x.shape, start, size, step, strict=True)):
        if s != 1:
            out_ct = _dilate(out_ct, axis, s)
            m = (m - 1) * s + 1 if m else 0
        low, high2 = [0] * x.ndim, [0] * x.ndim
        low[axis], high2[axis] = b, n - b - m
        out_ct = pad_with(out_ct, tuple(low), tuple(high2), 0)
    return (out_ct,)


def _dilate(x: Array, axis: int, step: int) -> Array:
    """Put ``step - 1`` zeros between the elements along an axis."""
    shape = x.shape
    y = reshape(x, (*shape[:axis + 1], 1, *shape[axis + 1:]))
    low, high = [0] * y.ndim, [0] * y.ndim
    high[axis + 1] = step - 1
    y = pad_with(y, tuple(low), tuple(high), 0)
    y = reshape(y, (*shape[:axis], shape[axis] * step, *shape[axis + 1:]))
    n = (shape[axis] - 1) * step + 1 if shape[axis] else 0
    return _take_slice(y, axis, n)


def _take_slice(x: Array, axis: int, n: int) -> Array:
    size = tuple(n if i == axis else d for i, d in enumerate(x.shape))
    return slice_of(x, (0,) * x.ndim, size)


@_pad.grad
def _(ct: Array, out: Array, x: Array, value: Array, *, low: tuple[int, ...], high: tuple[int, ...]) -> tuple[Array,
                                                                                                              Array]:
    from rlx.array.define import function
    inner = slice_of(ct, low, x.shape)
    total = function("sum")
    return inner, total(ct) - total(inner)


@_flip.grad
def _(ct: Array, out: Array, x: Array, *, axes: tuple[int, ...]) -> tuple[Array]:
    return (emit1("flip", ct, axes=axes),)


@_concat.grad
def _(ct: Array, out: Array, *xs: Array, axis: int) -> tuple[Array, ...]:
    parts, at = [], 0
    for x in xs:
        start = tuple(at if i == axis else 0 for i in range(x.ndim))
        parts.append(slice_of(ct, start, x.shape))
        at += x.shape[axis]
    return tuple(parts)


# Public functions

@public
def reshape(x: Array, /, shape: int | Sequence[int], order: str = "C", *, copy: bool | None = None) -> Array:
    """The elements of ``x`` with another shape; one size may be -1. ``order``: by rows ("C", "A") or columns ("F").

    Arrays are values: ``copy=False`` never fails, and the result is always an array of its own.
    """
    if order == "F":
        back = permute_dims(x, tuple(reversed(range(x.ndim))))
        sizes = [shape] if isinstance(shape, int) else list(shape)
        out = reshape(back, sizes[::-1])
        return permute_dims(out, tuple(reversed(range(out.ndim))))
    if order not in ("C", "A"):
        raise ValueIssue(f"reshape with order {order!r}", why="elements are taken by rows ('C') or by columns ('F')",
                         do="pass one of them")
    sizes = [shape] if isinstance(shape, int) else [s if not hasattr(s, "__index__") else int(s) for s in shape]
    total = x.size
    if -1 in sizes:
        known = prod(s for s in sizes if s != -1)
        if sizes.count(-1) > 1 or (isinstance(total, int) and (known == 0 or total % known)):
            raise ShapeError(f"cannot reshape {x.shape} to {tuple(sizes)}",
                             why=f"{total} elements do not divide into the given sizes",
                             do="give sizes whose product is the number of elements, with at most one -1")
        sizes[sizes.index(-1)] = total // known
    if numel(sizes) != total:
        raise ShapeError(f"cannot reshape {x.shape} to {tuple(sizes)}",
                         why=f"the array has {total} elements and the new shape {numel(sizes)}",
                         do="give sizes whose product is the number of elements")
    new = tuple(sizes)
    return x if new == x.shape else emit1("reshape", x, shape=new)


@public
def permute_dims(x: Array, /, axes: Sequence[int]) -> Array:
    """The axes of ``x`` in another order: axis ``i`` of the result is axis ``axes[i]`` of ``x``."""
    order = tuple(axis_index(int(a), x.ndim) for a in axes)
    if sorted(order) != list(range(x.ndim)):
        raise ShapeError(f"axes {tuple(axes)} do not permute an array of {x.ndim} dimensions",
                         why="each axis must occur once", do=f"pass a permutation of 0..{x.ndim - 1}")
    return x if order == tuple(range(x.ndim)) else emit1("permute", x, axes=order)


@public
def matrix_transpose(x: Array, /) -> Array:
    """The last two axes exchanged."""
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose of an array of shape {x.shape}", why="it needs two axes",
                         do="add an axis with x[:, None]")
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@public
def broadcast_to(x: Any, /, shape: Sequence[int]) -> Array:
    """``x`` repeated along missing and size-1 axes to this shape."""
    return broadcast(as_array(x), tuple(shape))


@public
def expand_dims(x: Array, /, axis: int | Sequence[int] = 0) -> Array:
    """``x`` with axes of size 1 put at these places of the result."""
    many = (axis,) if isinstance(axis, int) else tuple(axis)
    rank = x.ndim + len(many)
    places = {axis_index(a, rank) for a in many}
    if len(places) != len(many):
        raise ShapeError(f"expand_dims axes {many} repeat", why="each place can be named once",
                         do="remove the duplicate")
    it = iter(x.shape)
    return reshape(x, tuple(1 if i in places else next(it) for i in range(rank)))


@public
def squeeze(x: Array, /, axis: int | Sequence[int] | None = None) -> Array:
    """``x`` without these axes of size 1."""
    axes = tuple(i for i, n in enumerate(x.shape) if n == 1) if axis is None else axes_tuple(axis, x.ndim)
    for a in axes:
        if x.shape[a] != 1:
            raise ShapeError(f"cannot squeeze axis {a} of shape {x.shape}", why=f"its size is {x.shape[a]}, not 1",
                             do="squeeze only axes of size 1")
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in axes))


@public
def flip(x: Array, /, axis: int | Sequence[int] | None = None) -> Array:
    """The elements in reverse order along these axes."""
    axes = axes_tuple(axis, x.ndim)
    return emit1("flip", x, axes=axes) if axes else x


@public
def concat(arrays: Sequence[Any], /, axis: int | None = 0) -> Array:
    """The arrays one after another along an axis (flattened first when ``axis`` is None)."""
    xs = promote(*arrays)
    if axis is None:
        xs, axis = [reshape(x, (-1,)) for x in xs], 0
    a = axis_index(axis, xs[0].ndim)
    for x in xs[1:]:
        if x.ndim != xs[0].ndim or any(m != n for i,
                                       (m, n) in enumerate(zip(x.shape, xs[0].shape, strict=False)) if i != a):
            raise ShapeError(f"cannot concatenate shapes {', '.join(str(v.shape) for v in xs)} along axis {a}",
                             why="all other axes must be equal", do="reshape or pad the arrays first")
    some = [x for x in xs if x.shape[a] != 0] or xs[:1]
    return some[0] if len(some) == 1 else emit1("concat", *some, axis=a)


@public
def stack(arrays: Sequence[Any], /, axis: int = 0) -> Array:
    """The arrays side by side along a new axis."""
    xs = promote(*arrays)
    return concat([expand_dims(x, axis=axis_index(axis, xs[0].ndim + 1)) for x in xs],
                  axis=axis_index(axis, xs[0].ndim + 1))


def pad_with(x: Array, low: Sequence[int], high: Sequence[int], value: Any) -> Array:
    """``x`` with ``low`` and ``high`` elements of ``value`` before and after each axis."""
    if not any(low) and not any(high):
        return x
    fill = cast(value, x.dtype) if isinstance(value, Array) else constant(value, x.dtype, x._value.node.device)
    return emit("pad", (x, fill), {"low": tuple(low), "high": tuple(high)})[0]


def slice_of(x: Array, start: Sequence[int], size: Sequence[Any], step: Sequence[int] | None = None) -> Array:
    """``size`` elements from ``start`` with positive ``step`` along each axis."""
    steps = tuple(step) if step is not None else (1,) * x.ndim
    if not any(start) and tuple(size) == x.shape and all(s == 1 for s in steps):
        return x
    return emit1("slice", x, start=tuple(start), size=tuple(size), step=steps)


def windows(x: Array, axes: Sequence[int], size: Sequence[int], step: Sequence[int], dilation: Sequence[int]) -> Array:
    """Sliding windows along axes: the window's elements are new trailing axes."""
    return emit1("window", x, axes=tuple(axes), size=tuple(size), step=tuple(step), dilation=tuple(dilation))


@_window.grad
def _(ct: Array, out: Array, x: Array, *, axes: tuple[int, ...], size: tuple[int, ...], step: tuple[int, ...],
      dilation: tuple[int, ...]) -> tuple[Array]:
    from itertools import product
    total: Array | None = None
    for offset in product(*[range(k) for k in size]):
        part = slice_of(ct, (*(0,) * x.ndim, *offset), (*ct.shape[:x.ndim], *(1,) * len(size)))
        part = reshape(part, ct.shape[:x.ndim])
        for a, s in zip(axes, step, strict=True):
            part = _dilate(part, a, s) if s > 1 else part
        low = [0] * x.ndim
        for a, o, d in zip(axes, offset, dilation, strict=True):
            low[a] = o * d
        high = [n - b - m for n, b, m in zip(x.shape, low, part.shape, strict=True)]
        part = pad_with(part, low, high, 0)
        total = part if total is None else total + part
    assert total is not None
    return (total,)


def iota(n: int, dtype: dt.DType = dt.int64, device: str | None = None) -> Array:
    """``0, 1, ..., n-1``."""
    return emit("iota", (), {"dtype": dtype, "size": n}, device=device)[0]


_iota = primitive("iota")


@_iota.infer
def _(*, dtype: dt.DType, size: int) -> Type:
    return Type(dtype, (size,))


def as_axis(v: Array, axis: int, rank: int) -> Array:
    """A vector laid along one axis of an array of ``rank`` axes, the others of size 1."""
    return reshape(v, tuple([v.shape[0] if i == axis else 1 for i in range(rank)]))


def positions(x: Array, axis: int) -> Array:
    """``0, 1, ...`` along one axis of ``x``, the other axes of size 1 (int64)."""
    return as_axis(iota(x.shape[axis], dt.int64, x._value.node.device), axis, x.ndim)


def coordinates(shape: Sequence[int], device: str | None = None) -> list[Array]:
    """For each axis, the index along it at every place of the shape (int64)."""
    return [broadcast(as_axis(iota(n, dt.int64, device), i, len(shape)), tuple(shape)) for i, n in enumerate(shape)]

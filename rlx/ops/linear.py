"""Contractions: ``dot`` and the products made of it, segmented reduction, associative scan, sort."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast, cast, constant, emit, emit1, promote
from rlx.array.define import primitive, public
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ShapeError
from rlx.core.shape import axis_index, broadcast_shapes
from rlx.ir.graph import Type
from rlx.ir.op import NotDifferentiable
from rlx.ops.movement import flip, iota, matrix_transpose, permute_dims, reshape

Axes = tuple[tuple[int, ...], tuple[int, ...]]
_dot = primitive("dot")
_segment = primitive("segment_reduce")
_scan = primitive("scan")
_sort = primitive("sort")


def _free(rank: int, *used: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(i for i in range(rank) if not any(i in u for u in used))


@_dot.infer
def _(x: Type, y: Type, *, contract: Axes, batch: Axes) -> Type:
    for i, j in zip(contract[0] + batch[0], contract[1] + batch[1], strict=True):
        if x.shape[i] != y.shape[j]:
            raise ShapeError(f"cannot contract shapes {x.shape} and {y.shape}",
                             why=f"axis {i} has size {x.shape[i]} and axis {j} size {y.shape[j]}",
                             do="contracted axes must have equal sizes; transpose one of the arrays")
    shape = tuple(x.shape[i] for i in batch[0])
    shape += tuple(x.shape[i] for i in _free(len(x.shape), contract[0], batch[0]))
    shape += tuple(y.shape[i] for i in _free(len(y.shape), contract[1], batch[1]))
    return Type(x.dtype, shape)


@_dot.grad
def _(ct: Array, out: Array, x: Array, y: Array, *, contract: Axes, batch: Axes) -> tuple[Array, Array]:
    xf, yf = _free(x.ndim, contract[0], batch[0]), _free(y.ndim, contract[1], batch[1])
    nb = len(batch[0])
    ct_b, ct_x = tuple(range(nb)), tuple(range(nb, nb + len(xf)))
    ct_y = tuple(range(nb + len(xf), ct.ndim))
    # What is left of each: the free axes of one argument, and the contracted ones in the other's order.
    xcon = tuple(contract[0][contract[1].index(c)] for c in sorted(contract[1]))
    ycon = tuple(contract[1][contract[0].index(c)] for c in sorted(contract[0]))
    conj = FUNCTIONS["conj"]
    return (_laid_out((ct, ct_y, ct_b, xf), (conj(y), yf, batch[1], xcon), batch[0]),
            _laid_out((ct, ct_x, ct_b, yf), (conj(x), xf, batch[0], ycon), batch[1]))


_Side = tuple[Array, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _laid_out(a: _Side, b: _Side, batch: tuple[int, ...]) -> Array:
    """The contraction of two sides (array, contracted axes, batch axes, where the free axes belong), axes in place.

    The factors stand in the order that needs no transposition, where there is one.
    """
    for p, q in ((a, b), (b, a)):
        layout = (*batch, *p[3], *q[3])
        if layout == tuple(range(len(layout))):
            return dot(p[0], q[0], (p[1], q[1]), (p[2], q[2]))
    layout = (*batch, *a[3], *b[3])
    return permute_dims(dot(a[0], b[0], (a[1], b[1]), (a[2], b[2])), [layout.index(i) for i in range(len(layout))])


def dot(x: Array, y: Array, contract: Axes, batch: Axes = ((), ())) -> Array:
    """Sum of products over contracted axes. The result's axes: batch, the rest of x, the rest of y."""
    return emit1("dot", x, y, contract=tuple(map(tuple, contract)), batch=tuple(map(tuple, batch)))


@public
def matmul(x1: Any, x2: Any, /) -> Array:
    """The matrix product ``out[..., i, j] = sum_k x1[..., i, k] x2[..., k, j]``; 1-D arguments are vectors.

    Leading axes broadcast. f32 is IEEE f32 on every device unless ``precision=`` asks otherwise.
    """
    x, y = promote(x1, x2)
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeError(f"matmul of shapes {x.shape} and {y.shape}", why="a scalar has no axis to contract",
                         do="use * to scale an array")
    if x.dtype.kind == "b":
        x, y = cast(x, dt.int64), cast(y, dt.int64)
        return FUNCTIONS["not_equal"](matmul(x, y), 0)
    inner_x, inner_y = x.ndim - 1, max(y.ndim - 2, 0)
    if x.shape[inner_x] != y.shape[inner_y]:
        raise ShapeError(f"matmul of shapes {x.shape} and {y.shape}",
                         why=f"the contracted sizes {x.shape[inner_x]} and {y.shape[inner_y]} differ",
                         do="the last axis of the first must equal the second-to-last of the second")
    if x.ndim <= 2 and y.ndim <= 2:
        return dot(x, y, ((inner_x,), (inner_y,)))
    lead = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    if y.ndim <= 2 or all(n == 1 for n in y.shape[:-2]):
        y2 = y if y.ndim <= 2 else reshape(y, y.shape[-2:])
        if y.ndim <= 2 or x.shape[:-2] == lead:
            return dot(x, y2, ((inner_x,), (max(y2.ndim - 2, 0),)))
    vector_x, vector_y = x.ndim == 1, y.ndim == 1
    x = reshape(x, (1, *x.shape)) if vector_x else x
    y = reshape(y, (*y.shape, 1)) if vector_y else y
    x, y = broadcast(x, (*lead, *x.shape[-2:])), broadcast(y, (*lead, *y.shape[-2:]))
    b = tuple(range(len(lead)))
    out = dot(x, y, ((len(lead) + 1,), (len(lead),)), (b, b))
    if vector_x:
        out = reshape(out, (*out.shape[:-2], out.shape[-1]))
    return reshape(out, out.shape[:-1]) if vector_y else out


@public
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """``sum(conj(x1) * x2)`` along an axis that both have with one size; other axes broadcast, the dtype stays."""
    x, y = promote(x1, x2)
    a, b = axis_index(axis, x.ndim), axis_index(axis, y.ndim)
    if x.shape[a] != y.shape[b]:
        raise ShapeError(f"vecdot along axis {axis} of shapes {x.shape} and {y.shape}",
                         why=f"vectors of {x.shape[a]} and {y.shape[b]} components have no product",
                         do="name an axis that has the same size in both")
    x, y = FUNCTIONS["moveaxis"](x, a, -1), FUNCTIONS["moveaxis"](y, b, -1)
    products = FUNCTIONS["conj"](x) * y
    return FUNCTIONS["any"](products, axis=-1) if x.dtype == dt.bool_ else FUNCTIONS["sum"](
        products, axis=-1, dtype=x.dtype)


@public
def tensordot(x1: Any, x2: Any, /, axes: Any = 2) -> Array:
    """Sum of products over the last ``axes`` axes of x1 and the first of x2, or over two lists of axes."""
    x, y = promote(x1, x2)
    if isinstance(axes, int):
        pair: Axes = (tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes)))
    else:
        first, second = ((a,) if isinstance(a, int) else tuple(a) for a in axes)
        pair = (tuple(axis_index(a, x.ndim) for a in first), tuple(axis_index(a, y.ndim) for a in second))
    return dot(x, y, pair)


@public
def outer(x1: Any, x2: Any, /) -> Array:
    """``out[i, j] = x1[i] * x2[j]`` of flattened arguments."""
    x, y = promote(x1, x2)
    return reshape(x, (-1, 1)) * reshape(y, (1, -1))


# Segmented reduction: the primitive under CSR products

@_segment.infer
def _(values: Type, offsets: Type, *, kind: str) -> Type:
    return Type(values.dtype, (offsets.shape[0] - 1, *values.shape[1:]))


@_segment.grad
def _(ct: Array, out: Array, values: Array, offsets: Array, *, kind: str) -> tuple[Array | None, None]:
    rows = segment_of(offsets, values.shape[0])
    if kind == "prod":
        return ct_rows(ct, rows) * FUNCTIONS["conj"](_others_of_segment(values, offsets, rows)), None
    if kind != "sum":
        hit = cast(FUNCTIONS["equal"](values, ct_rows(out, rows)), values.dtype)
        n = segment_reduce(hit, offsets)
        return hit * ct_rows(ct / FUNCTIONS["where"](FUNCTIONS["equal"](n, 0), 1, n), rows), None
    return ct_rows(ct, rows), None


def _others_of_segment(values: Array, offsets: Array, rows: Array) -> Array:
    """For each element, the product of the others of its segment; right where elements are zero."""
    where, equal = FUNCTIONS["where"], FUNCTIONS["equal"]
    zero = equal(values, 0)
    zeros = ct_rows(segment_reduce(cast(zero, dt.int64), offsets), rows)
    safe = where(zero, 1, values)
    nonzero = ct_rows(segment_reduce(safe, offsets, "prod"), rows)
    alone = where(zero, where(equal(zeros, 1), nonzero, 0), where(equal(zeros, 0), nonzero / safe, 0))
    return cast(alone, values.dtype)


def ct_rows(x: Array, rows: Array) -> Array:
    """Row ``rows[k]`` of ``x`` for each k."""
    return emit1("gather", x, rows)


def segment_of(offsets: Array, n: int) -> Array:
    """The segment each of ``n`` elements lies in, for offsets ``0 = o[0] <= ... <= o[m] = n``."""
    m = offsets.shape[0] - 1
    zero = FUNCTIONS["zeros"]((n + 1,), dtype=dt.int64, device=offsets._value.node.device)
    one = broadcast(FUNCTIONS["ones"]((), dtype=dt.int64, device=offsets._value.node.device), (m,))
    starts = emit1("scatter", zero, one, cast(offsets[:-1], dt.int64), kind="add")
    return scan(starts, "add", 0)[:n] - 1


def segment_reduce(values: Array, offsets: Array, kind: str = "sum") -> Array:
    """``out[i] = reduce(values[offsets[i]:offsets[i+1]])``; ``kind``: sum prod min max; the identity if empty."""
    if not offsets.dtype.is_integer:
        raise DTypeError(f"segment offsets of {offsets.dtype.name}", why="offsets are integers",
                         do="cast them to int32 or int64")
    return emit1("segment_reduce", values, offsets, kind=kind)


# Associative scan

@_scan.infer
def _(x: Type, *, kind: str, axis: int, reverse: bool) -> Type:
    return x


@_scan.grad
def _(ct: Array, out: Array, x: Array, *, kind: str, axis: int, reverse: bool) -> tuple[Array | None]:
    if kind == "add":
        return (scan(ct, "add", axis, not reverse),)
    if kind == "mul":
        safe = FUNCTIONS["where"](FUNCTIONS["equal"](x, 0), 1, x)
        conj = FUNCTIONS["conj"]
        return (scan(ct * conj(out), "add", axis, not reverse) / conj(safe),)
    n = x.shape[axis]
    index = reshape(iota(n, dt.int64, x._value.node.device), tuple(n if i == axis else 1 for i in range(x.ndim)))
    fresh = FUNCTIONS["equal"](x, out)
    source = scan(FUNCTIONS["where"](fresh, index, n if reverse else -1), "min" if reverse else "max", axis, reverse)
    grids = [broadcast(reshape(iota(d, dt.int64, x._value.node.device),
                               tuple(d if j == i else 1 for j in range(x.ndim))), x.shape) for i,
             d in enumerate(x.shape)]
    grids[axis] = source
    zero = broadcast(constant(0, x.dtype, x._value.node.device), x.shape)
    return (emit1("scatter", zero, ct, *grids, kind="add"),)


def scan(x: Array, kind: str, axis: int, reverse: bool = False) -> Array:
    """Running ``kind`` (add mul min max) along an axis, inclusive."""
    return emit1("scan", x, kind=kind, axis=axis, reverse=reverse)


@public
def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """Running sum along an axis; with ``include_initial`` it starts with a 0."""
    return _cumulative(as_array(x), "add", axis, dtype, include_initial)


@public
def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """Running product along an axis; with ``include_initial`` it starts with a 1."""
    return _cumulative(as_array(x), "mul", axis, dtype, include_initial)


def _cumulative(x: Array, kind: str, axis: int | None, dtype: Any, initial: bool) -> Array:
    from rlx.ops.movement import pad_with
    from rlx.ops.reduce import _accumulator
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(f"cumulative operation on an array of shape {x.shape} without an axis",
                             why="the axis is ambiguous", do="pass axis=")
        axis = 0
    a = axis_index(axis, x.ndim)
    out = scan(_accumulator(x, dtype), kind, a)
    if initial:
        low = [1 if i == a else 0 for i in range(x.ndim)]
        out = pad_with(out, low, [0] * x.ndim, 0 if kind == "add" else 1)
    return out


# Sort: keys with payloads, stable

@_sort.infer
def _(*xs: Type, axis: int, descending: bool) -> tuple[Type, ...]:
    return xs


@_sort.grad
def _(ct: Any, out: Any, *xs: Array, axis: int, descending: bool) -> tuple[Array | None, ...]:
    cts = ct if isinstance(ct, (tuple, list)) else (ct,)
    order = _order(xs[0], axis, descending)
    back = _order(order, axis, False)
    return tuple(None if c is None else take_along_axis(c, back, axis=axis) for c in cts)


def sort_with(keys: Array, payload: tuple[Array, ...], axis: int, descending: bool = False) -> tuple[Array, ...]:
    """Keys sorted (stable, NaN last) along an axis, and the payloads moved with them."""
    return emit("sort", (keys, *payload), {"axis": axis, "descending": descending})


def _order(x: Array, axis: int, descending: bool) -> Array:
    n = x.shape[axis]
    index = broadcast(reshape(iota(n, dt.int64, x._value.node.device),
                              tuple(n if i == axis else 1 for i in range(x.ndim))),
                      x.shape)
    return sort_with(x, (index,), axis, descending)[1]


@public
def sort(x: Any, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Array:
    """The values in order along an axis; NaN last."""
    a = as_array(x)
    return sort_with(a, (), axis_index(axis, a.ndim), descending)[0]


@public
def argsort(x: Any, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Array:
    """The indices that sort ``x`` along an axis (stable)."""
    a = as_array(x)
    return _order(a, axis_index(axis, a.ndim), descending)


@public
def take_along_axis(x: Array, indices: Array, /, axis: int = -1) -> Array:
    """``out[..., j, ...] = x[..., indices[..., j, ...], ...]`` along an axis."""
    from rlx.ops.index import gather, wrap
    a = axis_index(axis, x.ndim)
    other = tuple(n for i, n in enumerate(x.shape) if i != a)
    lead = broadcast_shapes(other, tuple(n for i, n in enumerate(indices.shape) if i != a))
    shape = (*lead[:a], indices.shape[a], *lead[a:])
    x = broadcast(x, (*lead[:a], x.shape[a], *lead[a:]))
    grids = [broadcast(reshape(iota(d, dt.int64, x._value.node.device),
                               tuple(d if j == i else 1 for j in range(x.ndim))), shape) for i, d in enumerate(shape)]
    grids[a] = broadcast(wrap(indices, x.shape[a]), shape)
    return gather(x, *grids)


for _op in (_sort,):
    _op.doc = "Stable sort of keys with payloads."
NOT_SMOOTH = NotDifferentiable("indices do not vary smoothly")
__all__ = ["NOT_SMOOTH", "dot", "flip", "matmul", "matrix_transpose", "np", "scan", "segment_reduce", "sort_with"]

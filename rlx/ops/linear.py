"""Contractions: ``dot`` and the products made of it."""

from __future__ import annotations

from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import broadcast, cast, emit1, promote
from rlx.array.define import primitive, public
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError
from rlx.core.shape import axis_index, broadcast_shapes
from rlx.ir.graph import Type
from rlx.ops.movement import permute_dims, reshape

Axes = tuple[tuple[int, ...], tuple[int, ...]]
_dot = primitive("dot")


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


@public
def matvec(x1: Any, x2: Any, /) -> Array:
    """Matrices times vectors: ``out[..., i] = sum_j x1[..., i, j] x2[..., j]``."""
    x, y = promote(x1, x2)
    return FUNCTIONS["matmul"](x, reshape(y, (*y.shape, 1)))[..., 0]


@public
def vecmat(x1: Any, x2: Any, /) -> Array:
    """Conjugated vectors times matrices: ``out[..., j] = sum_i conj(x1[..., i]) x2[..., i, j]``."""
    x, y = promote(x1, x2)
    return FUNCTIONS["matmul"](FUNCTIONS["conj"](reshape(x, (*x.shape[:-1], 1, x.shape[-1]))), y)[..., 0, :]

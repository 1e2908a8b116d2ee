"""Products of vectors and matrices, diagonals and traces, powers and exponentials."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import rlx
from rlx.array.array import Array
from rlx.array.build import as_array, promote
from rlx.core.errors import ShapeError, ValueIssue
from rlx.core.shape import axis_index, broadcast_shapes
from rlx.linalg.arguments import floats
from rlx.linalg.diagonals import diagonal
from rlx.linalg.errors import MatrixShapeError, square
from rlx.linalg.factor import identity_like
from rlx.linalg.ops.expm import expm as _expm
from rlx.linalg.solvers import inv

matmul = rlx.matmul
matrix_transpose = rlx.matrix_transpose
tensordot = rlx.tensordot
vecdot = rlx.vecdot


def outer(x1: Any, x2: Any, /) -> Array:
    """``out[i, j] = x1[i] * x2[j]`` of two vectors."""
    x, y = promote(x1, x2)
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(f"outer() of shapes {x.shape} and {y.shape}", why="it takes vectors",
                         do="use rlx.outer, which flattens, or x[..., None] * y[..., None, :]")
    return rlx.outer(x, y)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """The vector product along an axis of size 3; the other axes broadcast."""
    x, y = promote(x1, x2)
    a = axis_index(axis, min(x.ndim, y.ndim)) if axis >= 0 else axis
    if x.shape[a] != 3 or y.shape[a] != 3:
        raise ShapeError(f"cross() of shapes {x.shape} and {y.shape} along axis {axis}",
                         why="only vectors of three elements have one", do="pass an axis of size 3")
    shape: tuple[Any, ...] = broadcast_shapes(x.shape, y.shape)
    x, y = rlx.broadcast_to(x, shape), rlx.broadcast_to(y, shape)
    place = axis_index(axis, len(shape))
    x0, x1_, x2_ = (x[(*(slice(None),) * place, i)] for i in range(3))
    y0, y1, y2 = (y[(*(slice(None),) * place, i)] for i in range(3))
    return rlx.stack([x1_ * y2 - x2_ * y1, x2_ * y0 - x0 * y2, x0 * y1 - x1_ * y0], axis=place)


def kron(a: Any, b: Any, /) -> Array:
    """The Kronecker product: blocks ``a[i, j] * b``, over any number of axes."""
    x, y = promote(a, b)
    rank = max(x.ndim, y.ndim)
    xs, ys = (1,) * (rank - x.ndim) + x.shape, (1,) * (rank - y.ndim) + y.shape
    left = x.reshape(tuple(n for s in xs for n in (s, 1)))
    right = y.reshape(tuple(n for s in ys for n in (1, s)))
    return (left * right).reshape(tuple(m * n for m, n in zip(xs, ys, strict=True)))


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sum along a diagonal of the last two axes; small integers are summed in 64 bits."""
    return rlx.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def matrix_power(x: Any, n: int, /) -> Array:
    """``A`` times itself n times, by repeated squaring; the inverse for negative n."""
    a = square(as_array(x), "matrix_power")
    n = index(n)
    if n == 0:
        return identity_like(a)
    if n < 0:
        a, n = inv(a), -n
    out: Array | None = None
    while n:
        if n & 1:
            out = a if out is None else rlx.matmul(out, a)
        n >>= 1
        if n:
            a = rlx.matmul(a, a)
    assert out is not None
    return out


def expm(x: Any, /) -> Array:
    """The exponential ``sum A^k / k!`` of ``(..., n, n)``, by scaling, a rational approximation, and squaring."""
    (a,) = floats("expm", x)
    return _expm(square(a, "expm"))


def multi_dot(arrays: Sequence[Any], /) -> Array:
    """The product of a chain of matrices in the order that costs least; the first and last may be vectors."""
    if len(arrays) < 2:
        raise ValueIssue(f"multi_dot() of {len(arrays)} arrays", why="a product needs two", do="pass two or more")
    xs = promote(*arrays)
    first, last = xs[0].ndim == 1, xs[-1].ndim == 1
    xs[0] = xs[0][None, :] if first else xs[0]
    xs[-1] = xs[-1][:, None] if last else xs[-1]
    for x in xs:
        if x.ndim != 2:
            raise MatrixShapeError(f"multi_dot() with an array of shape {x.shape}", why="it multiplies matrices",
                                   do="use rlx.matmul for batches")
    out = _chain(xs, _order([*(x.shape[0] for x in xs), xs[-1].shape[1]]), 0, len(xs) - 1)
    out = out[0] if first else out
    return out[..., 0] if last else out


def _order(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to split each range of the chain: the textbook dynamic program."""
    n = len(sizes) - 1
    cost: dict[tuple[int, int], float] = {(i, i): 0.0 for i in range(n)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            best = min(range(i, j), key=lambda k: cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1])
            split[i, j] = best
            cost[i, j] = cost[i, best] + cost[best + 1, j] + sizes[i] * sizes[best + 1] * sizes[j + 1]
    return split


def _chain(xs: list[Array], split: dict[tuple[int, int], int], i: int, j: int) -> Array:
    if i == j:
        return xs[i]
    k = split[i, j]
    return rlx.matmul(_chain(xs, split, i, k), _chain(xs, split, k + 1, j))


__all__ = ["cross", "diagonal", "expm", "kron", "matmul", "matrix_power", "matrix_transpose", "multi_dot", "outer",
           "tensordot", "trace", "vecdot"]

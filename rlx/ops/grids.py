"""Indices as arrays: grids by slicing (``mgrid``, ``ogrid``), open meshes, flat indices, and joining by ``[]``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, cast
from rlx.array.define import public
from rlx.core import dtype as dt
from rlx.core.errors import IndexOutOfBounds, ShapeError, ValueIssue
from rlx.ops.dtypes import result_type
from rlx.ops.index import inside
from rlx.ops.movement import as_axis, reshape


class Grid:
    """``mgrid[a:b:step, ...]``: the coordinates of a grid; with an imaginary step that many points, ends included."""

    def __init__(self, sparse: bool) -> None:
        self._sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        axes = [_ranged(s) for s in (key if isinstance(key, tuple) else (key,))]
        if not isinstance(key, tuple):
            return axes[0]
        kind = result_type(*axes)
        parts = FUNCTIONS["meshgrid"](*[cast(a, kind) for a in axes], indexing="ij", sparse=self._sparse)
        return parts if self._sparse else FUNCTIONS["stack"](parts)


def _ranged(s: Any) -> Array:
    """The values a slice stands for."""
    if not isinstance(s, slice) or s.stop is None:
        raise ValueIssue(f"a grid along {s!r}", why="an axis of a grid is a slice with an end",
                         do="use start:stop:step")
    start, step = 0 if s.start is None else s.start, 1 if s.step is None else s.step
    if isinstance(step, complex):
        out: Array = FUNCTIONS["linspace"](start, s.stop, int(abs(step)))
        return out
    return FUNCTIONS["arange"](start, s.stop, step)


class Join:
    """``r_[1, 2:5, x]``: arrays, numbers and slices joined along an axis; ``c_`` makes vectors columns first."""

    def __init__(self, columns: bool) -> None:
        self._columns = columns

    def __getitem__(self, key: Any) -> Array:
        keys = key if isinstance(key, tuple) else (key,)
        parts = [_ranged(k) if isinstance(k, slice) else as_array(k) for k in keys]
        parts = [FUNCTIONS["atleast_1d"](p) for p in parts]
        if self._columns:
            return FUNCTIONS["concat"]([reshape(p, (-1, 1)) if p.ndim == 1 else p for p in parts], axis=-1)
        return FUNCTIONS["concat"](parts, axis=0)


class Key:
    """``s_[1:3, ::2]``: what is between the brackets, as an index to keep and use later."""

    def __getitem__(self, key: Any) -> Any:
        return key


mgrid, ogrid = Grid(False), Grid(True)
r_, c_ = Join(False), Join(True)
s_ = index_exp = Key()
#: Names that are no functions, public beside them.
BRACKETS: dict[str, Any] = {"mgrid": mgrid, "ogrid": ogrid, "r_": r_, "c_": c_, "s_": s_, "index_exp": index_exp}


@public
def ix_(*vectors: Any) -> tuple[Array, ...]:
    """Index vectors shaped to select the rows, columns, ... of their product: ``x[ix_([0, 2], [1, 3])]``."""
    xs = [as_array(v) for v in vectors]
    for v in xs:
        if v.ndim != 1:
            raise ShapeError(f"ix_() of an array of shape {v.shape}", why="each axis has a vector of indices",
                             do="flatten it first")
    xs = [FUNCTIONS["nonzero"](v)[0] if v.dtype == dt.bool_ else v for v in xs]
    return tuple([as_axis(v, i, len(xs)) for i, v in enumerate(xs)])


@public
def unravel_index(indices: Any, shape: int | Sequence[int], /) -> tuple[Array, ...]:
    """The index along each axis of elements numbered in row-major order."""
    i = as_array(indices)
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    _check_range(i, int(np.prod(sizes)), "flat")
    outs = []
    for n in reversed(sizes):
        outs.append(i % n)
        i = i // n
    return tuple(reversed(outs))


@public
def ravel_multi_index(multi_index: Sequence[Any], dims: Sequence[int], /, *, mode: str = "raise") -> Array:
    """The number of an element in row-major order, from its index along each axis."""
    parts = [as_array(i) for i in multi_index]
    if len(parts) != len(dims):
        raise ShapeError(f"{len(parts)} indices for {len(dims)} axes", why="each axis has one index",
                         do="pass an index array for each axis")
    out = as_array(0)
    for axis, (i, n) in enumerate(zip(parts, dims, strict=True)):
        if mode == "raise":
            _check_range(i, n, f"axis {axis}")
        out = out * n + inside(i, n, mode)
    return out


def _check_range(i: Array, n: int, what: str) -> None:
    """Raise for known numbers outside ``[0, n)``; traced ones are not looked at."""
    if i.is_traced or not i.size:
        return
    host = np.asarray(i)
    if host.min() < 0 or host.max() >= n:
        bad = int(host.min()) if host.min() < 0 else int(host.max())
        raise IndexOutOfBounds(f"{what} index {bad} is out of bounds for size {n}",
                               why=f"valid indices are 0 to {n - 1}",
                               do="check the index, or choose mode='clip' or 'wrap' where there is a mode")


@public
def diag_indices(n: int, /, ndim: int = 2) -> tuple[Array, ...]:
    """The indices of the main diagonal of an array with ``ndim`` axes of size ``n``."""
    return tuple([FUNCTIONS["arange"](n) for _ in range(ndim)])


@public
def diag_indices_from(x: Any, /) -> tuple[Array, ...]:
    """The indices of the main diagonal of ``x``, whose axes have one size."""
    x = as_array(x)
    if x.ndim < 2 or len(set(x.shape)) != 1:
        raise ShapeError(f"diag_indices_from() of an array of shape {x.shape}", why="all axes have one size",
                         do="use rlx.diag_indices with the smaller size")
    return diag_indices(x.shape[0], x.ndim)


@public
def tril_indices_from(x: Any, /, k: int = 0) -> tuple[Array, ...]:
    """Row and column indices of the lower triangle of a matrix."""
    m, n = as_array(x).shape
    found: Any = FUNCTIONS["tril_indices"](m, k, n)
    return tuple(found)


@public
def triu_indices_from(x: Any, /, k: int = 0) -> tuple[Array, ...]:
    """Row and column indices of the upper triangle of a matrix."""
    m, n = as_array(x).shape
    found: Any = FUNCTIONS["triu_indices"](m, k, n)
    return tuple(found)


@public
def mask_indices(n: int, mask_func: Callable[..., Any], k: int = 0, /) -> tuple[Array, ...]:
    """The indices that a function such as :func:`triu` keeps of an ``n`` by ``n`` matrix."""
    found: Any = FUNCTIONS["nonzero"](mask_func(FUNCTIONS["ones"]((n, n), dtype=dt.int64), k))
    return tuple(found)


@public
def fromfunction(function: Callable[..., Any], shape: int | Sequence[int], /, *, dtype: Any = None,
                 **kwargs: Any) -> Any:
    """``function`` called with the index along each axis of an array of this shape."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    grids = FUNCTIONS["indices"](sizes, dtype=dtype or FUNCTIONS["ones"](0).dtype)
    return function(*[grids[i] for i in range(len(sizes))], **kwargs)


@public
def ndindex(*shape: Any) -> Iterator[tuple[int, ...]]:
    """The indices of an array of this shape, in row-major order, as tuples of integers."""
    return iter(np.ndindex(*shape))


@public
def ndenumerate(x: Any, /) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Pairs of index and value of each element, looked at once."""
    return iter(np.ndenumerate(np.asarray(as_array(x))))

"""Finding: indices of true elements, sorted search, and selection by conditions.

Where the size of a result depends on the data, the eager form looks at the count; under ``jit`` the same functions
take ``size=``, and give exactly that many, padded with ``fill_value``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.array.array import FUNCTIONS, Array, eval_arrays
from rlx.array.build import as_array, broadcast, cast, from_numpy, is_scalar, promote
from rlx.array.define import public
from rlx.array.hooks import hooks
from rlx.array.host import from_host
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError, TraceError, ValueIssue
from rlx.ops.control import fori_loop
from rlx.ops.index import gather, scatter
from rlx.ops.manipulate import ravel
from rlx.ops.movement import coordinates, reshape


def truth(x: Array) -> Array:
    """``x`` as booleans: what is not zero."""
    return x if x.dtype == dt.bool_ else FUNCTIONS["not_equal"](x, 0)


def full_like_scalar(value: Any, shape: tuple[Any, ...], x: Array) -> Array:
    """One value in a shape, with the dtype and device of ``x``."""
    return FUNCTIONS["full"](shape, value, dtype=x.dtype, device=x._value.node.device)


def need_size(what: str, *arrays: Array) -> None:
    """Raise for traced arrays where the size of the result depends on their values."""
    for x in arrays:
        if x.is_traced:
            raise TraceError(f"{what} of a traced array of shape {x.shape}",
                             why="the size of the result depends on values that are not known while tracing",
                             do="pass size=, how many elements the result has, or call it outside the traced function")


def compress(mask: Array, size: int | None, fills: Sequence[Any], columns: Sequence[Array], what: str) -> tuple[Array,
                                                                                                                ...]:
    """The elements of one-dimensional ``columns`` where ``mask`` holds, in order.

    With ``size`` there are exactly that many (padded, or cut); without, the count is looked at.
    """
    if size is not None:
        return tuple([_packed(mask, size, f, c) for f, c in zip(fills, columns, strict=True)])
    need_size(what, mask)
    n = mask.shape[0]
    outs = [_packed(mask, n, f, c) for f, c in zip(fills, columns, strict=True)]
    total = FUNCTIONS["sum"](cast(mask, dt.int64))
    eval_arrays(total, *outs)
    count = int(total)
    return tuple([head(o, count) for o in outs])


def _packed(mask: Array, size: int, fill: Any, column: Array) -> Array:
    place = FUNCTIONS["where"](mask, FUNCTIONS["cumulative_sum"](cast(mask, dt.int64), axis=0) - 1, size)
    if mask.shape[0] == 0 or size == 0:
        return full_like_scalar(fill, (size,), column)
    return scatter(full_like_scalar(fill, (size,), column), column, (place,), "set")


def head(x: Array, count: int) -> Array:
    """The first ``count`` elements of an evaluated array, cut on the host so that no program is made for each size."""
    if x.shape[0] == count:
        return x
    return from_numpy(from_host(hooks.download(x._value)[:count], x.dtype), x.dtype, x.device)


@public
def count_nonzero(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Array:
    """How many elements are not zero, over axes (all by default)."""
    return FUNCTIONS["sum"](cast(truth(as_array(x)), dt.int64), axis=axis, keepdims=keepdims)


@public
def nonzero(x: Any, /, *, size: int | None = None, fill_value: int = 0) -> tuple[Array, ...]:
    """The indices of the elements that are not zero, one array for each axis.

    Under ``jit`` pass ``size``: exactly that many indices, padded with ``fill_value``.

    >>> import rlx
    >>> rlx.nonzero(rlx.asarray([0, 3, 0, 5]))
    (Array([1, 3], int64[2] on cpu),)
    """
    x = as_array(x)
    if x.ndim == 0:
        raise ShapeError("nonzero() of an array without axes", why="it has no index", do="use rlx.atleast_1d first")
    columns = [ravel(c) for c in coordinates(x.shape, x._value.node.device)]
    return compress(truth(ravel(x)), size, [fill_value] * x.ndim, columns, "nonzero()")


@public
def flatnonzero(x: Any, /, *, size: int | None = None, fill_value: int = 0) -> Array:
    """The indices of the nonzero elements of the flattened array."""
    return nonzero(ravel(x), size=size, fill_value=fill_value)[0]


@public
def argwhere(x: Any, /, *, size: int | None = None, fill_value: int = 0) -> Array:
    """The indices of the nonzero elements, one row for each."""
    return FUNCTIONS["stack"](nonzero(x, size=size, fill_value=fill_value), axis=-1)


@public
def extract(condition: Any, x: Any, /, *, size: int | None = None, fill_value: Any = 0) -> Array:
    """The elements of ``x`` where the condition holds, flattened."""
    x = as_array(x)
    c = truth(as_array(condition))
    if c.size != x.size:
        raise ShapeError(f"extract() with a condition of shape {c.shape} from an array of shape {x.shape}",
                         why="each element needs one condition", do="build the condition from the array")
    return compress(ravel(c), size, [fill_value], [ravel(x)], "extract()")[0]


@public
def searchsorted(x1: Any, x2: Any, /, side: str = "left", sorter: Any = None) -> Array:
    """Where to insert ``x2`` into the sorted vector ``x1`` to keep it sorted (NaN last), by bisection.

    ``left``: ``x1[i-1] < v <= x1[i]``; ``right``: ``x1[i-1] <= v < x1[i]``.
    """
    if side not in ("left", "right"):
        raise ValueIssue(f"searchsorted with side {side!r}", why="it is 'left' or 'right'", do="pass one of them")
    x, v = promote(x1, x2)
    if x.ndim != 1:
        raise ShapeError(f"searchsorted in an array of shape {x.shape}", why="it searches a sorted vector",
                         do="pass one dimension")
    if sorter is not None:
        x = gather(x, cast(as_array(sorter), dt.int64))
    n = x.shape[0]
    low = FUNCTIONS["zeros"](v.shape, dtype=dt.int64, device=v._value.node.device or x._value.node.device)
    if n == 0:
        return low

    def halve(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        lo, hi = state
        mid = (lo + hi) // 2
        at = gather(x, mid)
        after = _before(at, v) if side == "left" else FUNCTIONS["logical_not"](_before(v, at))
        open_ = lo < hi
        return (FUNCTIONS["where"](FUNCTIONS["logical_and"](open_, after), mid + 1, lo),
                FUNCTIONS["where"](FUNCTIONS["logical_and"](open_, FUNCTIONS["logical_not"](after)), mid, hi))

    found: Array = fori_loop(0, int(n).bit_length(), halve, (low, low + n))[0]
    return found


def _before(a: Array, b: Array) -> Array:
    """Whether ``a`` sorts before ``b``; NaN is after everything."""
    if not a.dtype.is_inexact:
        return a < b
    if a.dtype.is_complex:
        re, im = FUNCTIONS["real"], FUNCTIONS["imag"]
        same = FUNCTIONS["logical_and"](re(a) == re(b), im(a) < im(b))
        return FUNCTIONS["logical_or"](re(a) < re(b), same)
    nan = FUNCTIONS["isnan"]
    return FUNCTIONS["logical_or"](a < b, FUNCTIONS["logical_and"](nan(b), FUNCTIONS["logical_not"](nan(a))))


@public
def digitize(x: Any, bins: Any, /, right: bool = False) -> Array:
    """The index of the bin each value lies in: ``bins[i-1] <= x < bins[i]`` (bounds exchanged with ``right``).

    ``bins`` is monotonic; increasing or decreasing is decided on the device.
    """
    b = as_array(bins)
    v = as_array(x)
    if b.ndim != 1:
        raise ShapeError(f"digitize with bins of shape {b.shape}", why="bins are a vector", do="flatten them")
    up = searchsorted(b, v, side="left" if right else "right")
    if b.shape[0] < 2:
        return up
    down = b.shape[0] - searchsorted(FUNCTIONS["flip"](b), v, side="right" if right else "left")
    return FUNCTIONS["where"](b[0] <= b[-1], up, down)


@public
def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Array:
    """Whether each element of ``x1`` is among those of ``x2`` (NaN is in nothing)."""
    x, y = promote(x1, x2)
    y = ravel(y)
    if y.shape[0] == 0:
        found = FUNCTIONS["zeros"](x.shape, dtype=dt.bool_, device=x._value.node.device)
    elif y.shape[0] <= 16 or x.dtype.is_complex:
        found = FUNCTIONS["any"](reshape(x, (*x.shape, 1)) == y, axis=-1)
    else:
        order = FUNCTIONS["sort"](y)
        at = FUNCTIONS["clip"](searchsorted(order, x), 0, y.shape[0] - 1)
        found = gather(order, at) == x
    return FUNCTIONS["logical_not"](found) if invert else found


@public
def select(condlist: Sequence[Any], choicelist: Sequence[Any], /, default: Any = 0) -> Array:
    """The element of the first choice whose condition holds, else ``default``."""
    if len(condlist) != len(choicelist):
        raise ValueIssue(f"select with {len(condlist)} conditions and {len(choicelist)} choices",
                         why="each condition has one choice", do="pass lists of equal length")
    out = default
    for c, x in zip(reversed(condlist), reversed(choicelist), strict=True):
        out = FUNCTIONS["where"](c, x, out)
    return as_array(out)


@public
def piecewise(x: Any, condlist: Sequence[Any], funclist: Sequence[Any], /, *args: Any, **kwargs: Any) -> Array:
    """A function given by pieces: ``funclist[i](x)`` where the ``i``-th condition is the last that holds.

    A number stands for a constant function; one more function than conditions is the default. Every piece is
    evaluated everywhere, in the dtype of ``x``.
    """
    x = as_array(x)
    if len(funclist) not in (len(condlist), len(condlist) + 1):
        raise ValueIssue(f"piecewise with {len(condlist)} conditions and {len(funclist)} functions",
                         why="each condition has one function, and one more may be the default", do="correct the lists")

    def piece(f: Callable[..., Any] | Any) -> Array:
        y = f(x, *args, **kwargs) if callable(f) else f
        return full_like_scalar(y, x.shape, x) if is_scalar(y) else broadcast(cast(as_array(y), x.dtype), x.shape)

    out = piece(funclist[-1] if len(funclist) > len(condlist) else 0)
    for c, f in zip(condlist, funclist, strict=False):
        out = FUNCTIONS["where"](c, piece(f), out)
    return out


@public
def choose(indices: Any, choices: Sequence[Any], /, *, mode: str = "clip") -> Array:
    """``choices[indices[i]][i]`` elementwise; indices past the ends are clipped, or wrapped with ``mode="wrap"``."""
    if mode not in ("clip", "wrap"):
        raise ValueIssue(f"choose with mode {mode!r}", why="it is 'clip' or 'wrap'", do="pass one of them")
    n = len(choices)
    i = as_array(indices)
    i = FUNCTIONS["clip"](i, 0, n - 1) if mode == "clip" else i % n
    return select([i == k for k in range(n - 1)], list(choices[:-1]), choices[-1])


@public
def argpartition(x: Any, kth: int, /, axis: int = -1) -> Array:
    """Indices that put the ``kth`` smallest in its place, smaller ones before (here: all of them in order)."""
    return FUNCTIONS["argsort"](x, axis=axis)


@public
def partition(x: Any, kth: int, /, axis: int = -1) -> Array:
    """The values with the ``kth`` smallest in its place, smaller ones before (here: all of them in order)."""
    return FUNCTIONS["sort"](x, axis=axis)


@public
def lexsort(keys: Sequence[Any], /, axis: int = -1) -> Array:
    """Indices that sort by the last key, ties by the one before it, and so on."""
    ks = [as_array(k) for k in keys]
    order = FUNCTIONS["argsort"](ks[0], axis=axis)
    for k in ks[1:]:
        step = FUNCTIONS["argsort"](FUNCTIONS["take_along_axis"](k, order, axis=axis), axis=axis)
        order = FUNCTIONS["take_along_axis"](order, step, axis=axis)
    return order


@public
def top_k(x: Any, k: int, /, *, axis: int = -1) -> tuple[Array, Array]:
    """The ``k`` largest along an axis, in decreasing order, and their indices."""
    x = as_array(x)
    order = FUNCTIONS["argsort"](x, axis=axis, descending=True)
    cut = tuple(slice(None) if i != axis % x.ndim else slice(0, k) for i in range(x.ndim))
    return FUNCTIONS["take_along_axis"](x, order[cut], axis=axis), order[cut]


"""Boolean masks as indices: what they select, and assignment through them without knowing how many are true."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast, cast, constant, is_scalar
from rlx.array.define import op_named
from rlx.core import dtype as dt
from rlx.core.errors import IndexOutOfBounds, ShapeError, TraceError
from rlx.core.where import Where
from rlx.ir.op import Sample
from rlx.ops.movement import reshape

_COMBINE = {"add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}


@op_named("mask.counted")
def _counted(x: Array, wrong: Array, /, *, given: int) -> Array:
    """``x``, unless ``wrong``: the mask selects another number of elements than the ``given`` values."""
    return x


@_counted.ref
def _(x: Any, wrong: Any, *, given: int) -> Any:
    return x


@_counted.grad
def _(ct: Array, out: Array, x: Array, wrong: Array, *, given: int) -> tuple[Array, None]:
    return ct, None


@_counted.samples
def _() -> list[Sample]:
    return [Sample((np.ones(3), np.zeros((), np.int64)), {"given": 3})]


def _error(info: Any, where: Where, *, given: int) -> ShapeError:
    return ShapeError(f"cannot assign {given} values where a mask selects another number of elements",
                      where=where.short,
                      why=f"the difference is {abs(int(np.sum(info)))}",
                      do="pass one value for each true element, or one for all")


_counted.rules["check"] = _error
_counted.rules["check_compiled"] = True


def as_mask(key: Any, x: Array) -> Array | None:
    """The key as a boolean array, where it is one."""
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    if isinstance(key, (bool, np.bool_)):
        return as_array(np.asarray(key), device=x._value.node.device)
    if isinstance(key, (list, np.ndarray)):
        host = np.asarray(key) if not any(isinstance(k, Array) for k in key) else None
        if host is None or host.dtype != np.bool_:
            return None
        key = as_array(host, device=x._value.node.device)
    return key if isinstance(key, Array) and key.dtype == dt.bool_ else None


def check_mask(mask: Array, shape: tuple[Any, ...]) -> None:
    """Raise unless the mask has the sizes of the axes it covers."""
    if mask.shape != shape[:mask.ndim]:
        raise IndexOutOfBounds(f"a mask of shape {mask.shape} on axes of shape {shape}",
                               why="a mask has the sizes of the axes it covers", do="build the mask from the array")


def mask_indices(mask: Array) -> list[Array]:
    """A boolean index as integer arrays: its shape depends on the data, so the mask is looked at."""
    if mask.is_traced:
        raise TraceError(f"indexing with a traced mask of shape {mask.shape}", where=mask._value.node.where,
                         why="the size of the result depends on values that are not known while tracing",
                         do="use rlx.where(mask, x, 0), or rlx.extract(mask, x, size=n) for exactly n elements")
    return [as_array(np.ascontiguousarray(i), device=mask._value.node.device) for i in np.nonzero(np.asarray(mask))]


def masked(x: Array, mask: Array) -> Array:
    """``x[mask]``."""
    check_mask(mask, x.shape)
    if mask.ndim == 0:
        if mask.is_traced:
            mask_indices(mask)
        whole = reshape(x, (1, *x.shape))
        return whole if bool(mask) else whole[:0]
    if mask.ndim == x.ndim and not mask.is_traced:
        return FUNCTIONS["extract"](mask, x)
    return FUNCTIONS["_getitem"](x, tuple(mask_indices(mask)))


def put_masked(x: Array, mask: Array, value: Any, kind: str) -> Array:
    """``x`` with ``x[mask]`` set to, or combined with, ``value``: one value, one row, or one for each true element."""
    check_mask(mask, x.shape)
    rest = x.shape[mask.ndim:]
    if is_scalar(value):
        new = constant(value, x.dtype, x._value.node.device)
    else:
        new = as_array(value, device=x._value.node.device)
        new = new if new.dtype == x.dtype else FUNCTIONS["astype"](new, x.dtype)
    wide = reshape(mask, (*mask.shape, *(1,) * len(rest)))
    if new.ndim > len(rest):
        new = _spread(mask, new, rest)
    if kind != "set":
        new = FUNCTIONS[_COMBINE[kind]](x, new)
    return FUNCTIONS["where"](wide, broadcast(new, x.shape), x)


def traced_mask_at(key: Any) -> int | None:
    """Where a tuple of slices, integers and new axes has its one traced mask; None for other keys."""
    if not isinstance(key, tuple):
        return None
    masks = [i for i, k in enumerate(key) if isinstance(k, Array) and k.dtype == dt.bool_ and k.is_traced]
    others = [k for i, k in enumerate(key) if i not in masks]
    plain = all(k is None or k is Ellipsis or isinstance(k, (slice, int, np.integer)) for k in others)
    return masks[0] if len(masks) == 1 and plain and key[masks[0]].ndim else None


def put_mixed(x: Array, key: tuple[Any, ...], at: int, value: Any, kind: str) -> Array:
    """``x`` with ``x[..., mask, ...]`` set or combined, for a traced mask among slices and integers.

    What the other keys select is taken with the mask's axes whole, written through the mask, and put back.
    """
    mask = key[at]
    whole = (*key[:at], *(slice(None),) * mask.ndim, *key[at + 1:])
    part = FUNCTIONS["_getitem"](x, whole)
    after = [k for k in key[at + 1:] if k is None or isinstance(k, slice)]
    if Ellipsis in [k if k is Ellipsis else None for k in key[:at]]:
        place = part.ndim - len(after) - mask.ndim
    else:
        place = len([k for k in key[:at] if k is None or isinstance(k, slice)])
    axes = tuple(range(place, place + mask.ndim))
    front = FUNCTIONS["moveaxis"](part, axes, tuple(range(mask.ndim)))
    if not is_scalar(value):
        value = as_array(value, device=x._value.node.device)
        rest = front.shape[mask.ndim:]
        if value.ndim:
            wide = reshape(value, (*(1,) * (1 + len(rest) - value.ndim), *value.shape))
            value = FUNCTIONS["moveaxis"](wide, 0 if _apart(key, at) else place, 0)
            value = broadcast(value, (value.shape[0], *rest))
    done = FUNCTIONS["moveaxis"](put_masked(front, mask, value, kind), tuple(range(mask.ndim)), axes)
    return FUNCTIONS["_setitem"](x, whole, done)


def _apart(key: tuple[Any, ...], at: int) -> bool:
    """Whether the mask and the integers are not side by side: NumPy then puts the selected axis first."""
    spots = [i for i, k in enumerate(key) if i == at or isinstance(k, (int, np.integer))]
    return spots != list(range(spots[0], spots[-1] + 1))


def _spread(mask: Array, values: Array, rest: tuple[Any, ...]) -> Array:
    """Row ``k`` of the values at the ``k``-th true element."""
    n = values.shape[0]
    if values.ndim > len(rest) + 1:
        raise ShapeError(f"cannot assign values of shape {values.shape} through a mask of shape {mask.shape}",
                         why="the selected elements are one axis", do="flatten the values")
    if n == 1:
        return reshape(values, values.shape[1:])
    flat = cast(reshape(mask, (-1,)) if mask.size else reshape(mask, (0,)), dt.int64)
    count = FUNCTIONS["sum"](flat)
    if not count.is_traced and int(count) != n:
        raise ShapeError(f"cannot assign {n} values where a mask selects {int(count)} elements",
                         why="the numbers differ",
                         do="pass one value for each true element, or one for all")
    if n == 0 or flat.shape[0] == 0:
        return FUNCTIONS["zeros"]((*mask.shape, *rest), dtype=values.dtype, device=values._value.node.device)
    if count.is_traced:
        values = _counted(values, count - n, given=n)
    place = FUNCTIONS["clip"](FUNCTIONS["cumulative_sum"](flat, axis=0) - 1, 0, n - 1)
    picked = FUNCTIONS["take"](broadcast(values, (n, *rest)), place, axis=0)
    return reshape(picked, (*mask.shape, *rest))

"""Gather, scatter, and NumPy indexing made of them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, PROTOCOLS, Array
from rlx.array.build import as_array, broadcast, cast, constant, emit1, is_scalar
from rlx.array.define import primitive, public
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, IndexOutOfBounds, ValueIssue
from rlx.core.shape import axis_index, broadcast_shapes, smallest
from rlx.ir.graph import Type
from rlx.ops.bounds import proven, watch_bounds
from rlx.ops.mask import as_mask, check_mask, mask_indices, masked, put_masked, put_mixed, traced_mask_at
from rlx.ops.movement import coordinates, flip, iota, permute_dims, reshape, slice_of

_gather = primitive("gather")
_scatter = primitive("scatter")


@_gather.infer
def _(x: Type, *index: Type, mode: str = "clip") -> Type:
    return Type(x.dtype, (*index[0].shape, *x.shape[len(index):]))


@_gather.grad
def _(ct: Array, out: Array, x: Array, *index: Array, mode: str = "clip") -> tuple[Array | None, ...]:
    if mode != "promise":
        index = tuple([FUNCTIONS["clip"](i, 0, n - 1) for i, n in zip(index, x.shape, strict=False)])
    return (scatter(_zeros(x), ct, index, "add"), *[None] * len(index))


@_scatter.infer
def _(x: Type, update: Type, *index: Type, kind: str) -> Type:
    return x


@_scatter.grad
def _(ct: Array, out: Array, x: Array, update: Array, *index: Array, kind: str) -> tuple[Array | None, ...]:
    none = [None] * len(index)
    if kind == "add":
        return (ct, gather(ct, *index), *none)
    if kind == "set" and index[0].shape == ():
        return (scatter(ct, _zeros(update), index, "set"), gather(ct, *index), *none)
    if kind == "set":
        n = iota(_count(update.shape), dt.int64, ct._value.node.device).reshape(update.shape)
        last = scatter(_minus_one_like(x), n, index, "set")
        won = FUNCTIONS["equal"](gather(last, *index), n)
        zero = constant(0, ct.dtype, ct._value.node.device)
        return (scatter(ct, broadcast(zero, update.shape), index, "set"),
                FUNCTIONS["where"](won, gather(ct, *index), 0),
                *none)
    if kind in ("min", "max"):
        hit = cast(FUNCTIONS["equal"](update, gather(out, *index)), ct.dtype)
        kept = cast(FUNCTIONS["equal"](x, out), ct.dtype)
        ties = scatter(kept, hit, index, "add")
        share = ct / ties
        return (share * kept, gather(share, *index) * hit, *none)
    others = scatter(x, update, index, "mul")
    conj = FUNCTIONS["conj"]
    return (ct * conj(others / x), gather(ct * conj(others), *index) / conj(update), *none)


def _zeros(x: Array) -> Array:
    return broadcast(constant(0, x.dtype, x._value.node.device), x.shape)


def _minus_one_like(x: Array) -> Array:
    return broadcast(constant(-1, dt.int64, x._value.node.device), x.shape)


def _count(shape: tuple[Any, ...]) -> int:
    n = 1
    for d in shape:
        n *= d
    return n


def gather(x: Array, *index: Array, mode: str = "clip") -> Array:
    """``x[i0, i1, ..., :]`` for non-negative index arrays of one shape; trailing axes are kept whole.

    Indices past the end read the last element; with ``mode="promise"`` the caller has checked them all.
    """
    return emit1("gather", x, *index, mode=mode)


def scatter(x: Array, update: Array, index: tuple[Array, ...], kind: str) -> Array:
    """``x`` with ``x[i0, ..., :]`` set to, or combined with, ``update``; ``kind``: set add mul min max.

    Duplicate indices combine in order; with ``set`` the last wins. Indices out of bounds are dropped.
    """
    return emit1("scatter", x, update, *index, kind=kind)


def wrap(i: Array, size: int) -> Array:
    """Indices with negative values counted from the end, as 64-bit integers."""
    if i.dtype.kind == "u":
        return cast(i, dt.int64)
    i = cast(i, dt.int64)
    return FUNCTIONS["where"](i < 0, i + size, i)


def check_bounds(i: Any, size: int, axis: int) -> None:
    """Raise for concrete indices out of bounds."""
    host = np.asarray(i)
    if host.size and (host.min() < -size or host.max() >= size):
        bad = int(host.min()) if host.min() < -size else int(host.max())
        raise IndexOutOfBounds(f"index {bad} is out of bounds for axis {axis} of size {size}",
                               why=f"valid indices are {-size} to {size - 1}", do="check the index, or clip it first")


@public
def take(x: Array, indices: Any, /, axis: int | None = None, *, mode: str = "raise") -> Array:
    """``x[..., indices, ...]`` along an axis (of the flattened array by default).

    Indices out of bounds are an error, or with ``mode`` clipped (``"clip"``) or taken modulo the size (``"wrap"``).
    """
    x = as_array(x)
    x, a = (reshape(x, (x.size,)), 0) if axis is None else (x, axis_index(axis, x.ndim))
    return _getitem(x, (*(slice(None),) * a, inside(as_array(indices), x.shape[a], mode)))


def inside(i: Array, size: Any, mode: str) -> Array:
    """Indices put in bounds in one of NumPy's ways; ``"raise"`` leaves them as they are."""
    if mode not in ("raise", "clip", "wrap"):
        raise ValueIssue(f"indices with mode {mode!r}", why="it is 'raise', 'clip' or 'wrap'", do="pass one of them")
    if mode == "raise":
        return i
    return FUNCTIONS["clip"](i, 0, size - 1) if mode == "clip" else FUNCTIONS["remainder"](i, size)


# NumPy indexing

class _Parsed:
    """An index split into basic slicing, inserted axes, and integer arrays on some axes."""

    def __init__(self, x: Array, key: Any) -> None:
        self.slices: list[tuple[int, Any, int, bool]] = []
        self.arrays: dict[int, Array] = {}
        self.result: list[Any] = []
        items = self._expand(x, key if isinstance(key, tuple) else (key,))
        axis = 0
        for item in items:
            if item is None:
                self.result.append("new")
                continue
            n = x.shape[axis]
            if isinstance(item, slice):
                self.slices.append(_slice_parts(item, n))
                self.result.append(axis)
            elif isinstance(item, Array):
                self.slices.append((0, n, 1, False))
                if item.is_traced:
                    item = watch_bounds(item, n, axis)
                elif not proven(item, n):
                    check_bounds(item, n, axis)
                self.arrays[axis] = wrap(item, n)
                self.result.append(("array", axis))
            else:
                i = _position(item)
                if not -n <= i < n:
                    raise IndexOutOfBounds(f"index {i} is out of bounds for axis {axis} of size {n}",
                                           why=f"valid indices are {-n} to {n - 1}", do="check the index")
                self.slices.append((i % n, 1, 1, False))
                self.result.append("drop")
            axis += 1

    @staticmethod
    def _expand(x: Array, key: tuple[Any, ...]) -> list[Any]:
        items: list[Any] = []
        masks: list[tuple[list[Array], Array]] = []
        for k in key:
            if isinstance(k, (list, np.ndarray)) or (isinstance(k, np.generic) and not isinstance(k, np.integer)):
                k = as_array(np.asarray(k), device=x._value.node.device)
            if isinstance(k, bool):
                k = as_array(np.asarray(k), device=x._value.node.device)
            if isinstance(k, Array) and k.dtype == dt.bool_:
                found = mask_indices(k)
                masks.append((found, k))
                items.extend(found)
            elif isinstance(k, Array) and k.ndim == 0 and not k.is_traced and k.is_evaluated:
                items.append(int(k))
            elif isinstance(k, Array) and not k.dtype.is_integer:
                raise IndexOutOfBounds(f"a {k.dtype.name} array is not an index",
                                       why="indices are integers or booleans",
                                       do="cast it with .astype(rlx.int64)")
            else:
                items.append(k)
        used = len([k for k in items if k is not None and k is not Ellipsis])
        if used > x.ndim:
            raise IndexOutOfBounds(f"{used} indices for an array of {x.ndim} dimensions", why=f"its shape is {x.shape}",
                                   do="pass at most one index for each axis")
        dots = [i for i, k in enumerate(items) if k is Ellipsis]
        if len(dots) > 1:
            raise IndexOutOfBounds("an index has two ellipses", why="only one can stand for the missing axes",
                                   do="keep one of them")
        fill: list[Any] = [slice(None)] * (x.ndim - used)
        at = dots[0] if dots else len(items)
        items = items[:at] + fill + items[at + len(dots):]
        axes = [k for k in items if k is not None]
        for found, mask in masks:
            first = next(i for i, k in enumerate(axes) if k is found[0])
            check_mask(mask, x.shape[first:first + mask.ndim])
        return items


def _symbolic_slice(s: slice, n: Any) -> tuple[Any, Any, int, bool]:
    """A slice on an axis of unknown size: forward, with bounds that stay inside every size the axis may have."""
    step = 1 if s.step is None else int(s.step)
    start = 0 if s.start is None else s.start if not isinstance(s.start, int) or s.start >= 0 else n + s.start
    stop = n if s.stop is None else smallest(s.stop, n) if not isinstance(s.stop, int) or s.stop >= 0 else n + s.stop
    if step < 1 and (s.start, s.stop, step) == (None, None, -1):
        return 0, n, 1, True
    if step < 1:
        raise IndexOutOfBounds(f"a slice with step {step} on an axis of size {n}",
                               why="where it ends depends on the size",
                               do="flip the axis first, then slice forward")
    count = stop - start
    return start, count if step == 1 else (count + (step - 1)) // step, step, False


def _slice_parts(s: slice, n: int) -> tuple[int, int, int, bool]:
    """(start, count, positive step, reversed) of a slice on an axis of size n."""
    if not isinstance(n, int):
        return _symbolic_slice(s, n)
    start, stop, step = s.indices(n)
    count = len(range(start, stop, step))
    if step > 0:
        return (start if count else 0), count, step, False
    return (start + (count - 1) * step if count else 0), count, -step, True


def _basic(x: Array, p: _Parsed) -> Array:
    """Slicing and reversal; axes keep their places."""
    out = slice_of(x, [s[0] for s in p.slices], [s[1] for s in p.slices], [s[2] for s in p.slices])
    back = [i for i, s in enumerate(p.slices) if s[3]]
    return flip(out, axis=back) if back else out


@public
def _getitem(x: Array, key: Any) -> Array:
    """``x[key]`` with NumPy's rules."""
    mask = as_mask(key, x)
    if mask is not None:
        return masked(x, mask)
    p = _Parsed(x, key)
    out = _basic(x, p)
    if not p.arrays:
        shape = [1 if r == "new" else out.shape[r] for r in p.result if r != "drop"]
        return reshape(out, tuple(shape))
    axes = list(p.arrays)
    index, batch = _aligned(p)
    order = (*axes, *(i for i in range(x.ndim) if i not in p.arrays))
    picked = gather(permute_dims(out, order), *index)
    return _place(picked, p, len(batch), order[len(axes):])


def _aligned(p: _Parsed) -> tuple[list[Array], tuple[Any, ...]]:
    shape = broadcast_shapes(*[a.shape for a in p.arrays.values()])
    return [broadcast(a, shape) for a in p.arrays.values()], shape


def _place(picked: Array, p: _Parsed, rank: int, kept: tuple[int, ...]) -> Array:
    """Move the index axes to where NumPy puts them, drop integer axes, insert new ones."""
    spots = [i for i, r in enumerate(p.result) if isinstance(r, tuple) or r == "drop"]
    together = spots == list(range(spots[0], spots[-1] + 1)) if spots else True
    first = next(i for i, r in enumerate(p.result) if isinstance(r, tuple)) if together else 0
    before = [r for r in p.result[:first] if r != "drop" and not isinstance(r, tuple)]
    after = [r for r in p.result[first:] if r != "drop" and not isinstance(r, tuple)]
    where = {axis: rank + i for i, axis in enumerate(kept)}
    live = [r for r in (*before, *after) if r != "new"]
    order = [where[r] for r in before if r != "new"] + list(range(rank)) + [where[r] for r in after if r != "new"]
    order += [where[a] for a in kept if a not in live]
    moved = permute_dims(picked, order)
    shape: list[Any] = [1 if r == "new" else picked.shape[where[r]] for r in before]
    shape += picked.shape[:rank]
    shape += [1 if r == "new" else picked.shape[where[r]] for r in after]
    return reshape(moved, tuple(shape))


def _position(item: Any) -> int:
    try:
        return operator.index(item)
    except TypeError:
        raise IndexOutOfBounds(f"an array indexed by {item!r}",
                               why="an index is an integer, a slice, None, ..., a mask or an integer array",
                               do="round it to an integer first") from None


@public
def _setitem(x: Array, key: Any, value: Any) -> Array:
    """A new array equal to ``x`` but for ``x[key] = value``."""
    return update(x, key, value, "set")


def update(x: Array, key: Any, value: Any, kind: str) -> Array:
    """``x`` with ``x[key]`` set to or combined with ``value`` (NumPy's broadcasting rules)."""
    dev = x._value.node.device
    if not is_scalar(value):
        value = as_array(value, device=dev)
        if value.dtype.is_complex and not x.dtype.is_complex:
            raise DTypeError(f"{value.dtype.name} values put into a {x.dtype.name} array",
                             why="the imaginary part would be lost", do="take rlx.real(...) or rlx.abs(...) first")
    mask = as_mask(key, x)
    if mask is not None:
        return put_masked(x, mask, value, kind)
    at = traced_mask_at(key)
    if at is not None:
        return put_mixed(x, key, at, value, kind)
    p = _Parsed(x, key)
    new = constant(value, x.dtype, dev) if is_scalar(value) else cast(value, x.dtype)
    target = _getitem(x, key)
    extra = new.ndim - target.ndim
    if extra > 0 and new.shape[:extra] == (1,) * extra:
        new = reshape(new, new.shape[extra:])           # NumPy's assignment drops leading axes of size 1
    new = broadcast(new, target.shape)
    if p.arrays and p.result == [("array", k) if k in p.arrays else k for k in range(x.ndim)] and max(p.arrays) < len(
            p.arrays) and all(c == (0, n, 1, False) for c, n in zip(p.slices, x.shape, strict=True)):
        # Whole slices at indices of the leading axes: no index for each element.
        return scatter(x, new, tuple(_aligned(p)[0]), kind)
    full = _indices(x, p)
    if all(s == (0, n, 1, False) for s, n in zip(p.slices, x.shape, strict=True)) and not p.arrays and kind == "set":
        return reshape(new, x.shape)
    shape = target.shape
    return scatter(x, new, tuple([broadcast(i, shape) for i in full]), kind)


def _indices(x: Array, p: _Parsed) -> list[Array]:
    """An index array for every axis, laid out to broadcast to the shape of ``x[key]``."""
    grid: list[Array] = []
    for axis in range(x.ndim):
        if axis in p.arrays:
            grid.append(p.arrays[axis])
            continue
        start, count, step, back = p.slices[axis]
        i = iota(count, dt.int64, x._value.node.device) * step + start
        grid.append(flip(i, axis=0) if back else i)
    return _spread(x, p, grid)


def _spread(x: Array, p: _Parsed, grid: list[Array]) -> list[Array]:
    batch = broadcast_shapes(*[a.shape for a in p.arrays.values()]) if p.arrays else ()
    spots = [i for i, r in enumerate(p.result) if isinstance(r, tuple) or r == "drop"]
    together = spots == list(range(spots[0], spots[-1] + 1)) if spots else True
    layout: list[Any] = []
    placed = not p.arrays
    if not together and not placed:
        layout += ["batch"] * len(batch)
        placed = True
    for r in p.result:
        if isinstance(r, tuple):
            if not placed:
                layout += ["batch"] * len(batch)
                placed = True
        elif r != "drop":
            layout.append(r)
    first = layout.index("batch") if "batch" in layout else 0
    out = []
    for axis in range(x.ndim):
        i = grid[axis]
        shape = [1] * len(layout)
        if axis in p.arrays:
            for k, n in enumerate((*(1,) * (len(batch) - i.ndim), *i.shape)):
                shape[first + k] = n
        elif axis in layout:
            shape[layout.index(axis)] = i.shape[0]
        out.append(reshape(i, tuple(shape)))
    return out


class _At:
    """``x.at[key].set(v)`` and its relatives."""

    def __init__(self, x: Array, key: Any = None) -> None:
        self._x, self._key = x, key

    def __getitem__(self, key: Any) -> _At:
        return _At(self._x, key)

    def set(self, value: Any) -> Array:
        """``x`` with ``x[key] = value``."""
        return update(self._x, self._key, value, "set")

    def add(self, value: Any) -> Array:
        """``x`` with ``value`` added at the key; duplicates accumulate."""
        return update(self._x, self._key, value, "add")

    def multiply(self, value: Any) -> Array:
        """``x`` multiplied by ``value`` at the key."""
        return update(self._x, self._key, value, "mul")

    def min(self, value: Any) -> Array:
        """``x`` with the smaller of it and ``value`` at the key."""
        return update(self._x, self._key, value, "min")

    def max(self, value: Any) -> Array:
        """``x`` with the larger of it and ``value`` at the key."""
        return update(self._x, self._key, value, "max")


PROTOCOLS["at"] = _At


@public
def take_along_axis(x: Array, indices: Array, /, axis: int = -1) -> Array:
    """``out[..., j, ...] = x[..., indices[..., j, ...], ...]`` along an axis."""
    a = axis_index(axis, x.ndim)
    other = tuple(n for i, n in enumerate(x.shape) if i != a)
    lead = broadcast_shapes(other, tuple(n for i, n in enumerate(indices.shape) if i != a))
    shape = (*lead[:a], indices.shape[a], *lead[a:])
    x = broadcast(x, (*lead[:a], x.shape[a], *lead[a:]))
    places = coordinates(shape, x._value.node.device)
    places[a] = broadcast(wrap(indices, x.shape[a]), shape)
    return gather(x, *places)

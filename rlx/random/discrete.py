"""Integers, choices and orders: exact in integer arithmetic, so the same on every device."""

from __future__ import annotations

from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast, cast, is_scalar, literal
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.core.shape import axis_index, broadcast_shapes
from rlx.ops.movement import iota, permute_dims, reshape
from rlx.ops.sort import sort_with
from rlx.random.continuous import gumbel, shape_of, unit
from rlx.random.keys import Shape, bits, sizes

_f = FUNCTIONS
_WORD = 1 << 32


def integers(key: Any, shape: Shape | None = None, low: Any = 0, high: Any = None, *, dtype: Any = dt.int64,
             endpoint: bool = False) -> Array:
    """Integers of ``[low, high)``, or ``[low, high]`` with ``endpoint``; ``[0, low)`` if only ``low`` is given.

    The upper half of a random number times the length of the interval: of 64 bits for lengths up to ``2**32`` (no
    value is more probable than another by more than one part in ``2**32``), of 128 for longer ones and for arrays.
    """
    if high is None:
        low, high = 0, low
    d = dt.as_dtype(dtype)
    if not d.is_integer:
        raise DTypeError(f"random integers of {d.name}", why="it is no integer type",
                         do="pass an integer dtype, or use rlx.random.uniform")
    size = shape_of(shape, low, high)
    if isinstance(low, int) and isinstance(high, int):
        return _between(key, size, low, high + endpoint, d)
    device = as_array(key)._value.node.device
    a, b = (_word(v, d, size, device) for v in (low, high))
    return cast(_scaled(key, size, b - a + 1 if endpoint else b - a) + a, d)


def _word(value: Any, d: dt.DType, size: tuple[int, ...], device: str | None) -> Array:
    """An integer bound as 64 bits that wrap: the length of an interval comes out right whatever the signs."""
    a = as_array(value, device=device)
    if not a.dtype.is_integer:
        raise DTypeError(f"a bound of random integers is {a.dtype.name}", why="bounds are integers", do="cast it first")
    return broadcast(cast(cast(a, dt.uint64 if a.dtype.kind == "u" else dt.int64), dt.uint64), size)


def _between(key: Any, size: tuple[int, ...], low: int, high: int, d: dt.DType) -> Array:
    least, most = (-(1 << (d.bits - 1)), 1 << (d.bits - 1)) if d.kind == "i" else (0, 1 << d.bits)
    if not least <= low < high <= most:
        raise ValueIssue(f"random integers of {d.name} from {low} up to {high}",
                         why="the interval is empty" if low >= high else f"{d.name} holds {least} to {most - 1}",
                         do="pass low < high, within the dtype")
    device, length = as_array(key)._value.node.device, high - low
    if length == 1 << 64:
        drawn = bits(key, size, dtype=dt.uint64)
    elif length <= _WORD:
        drawn = _f["mulhi"](bits(key, size, dtype=dt.uint64), broadcast(literal(length, dt.uint64, device), size))
    else:
        drawn = _scaled(key, size, broadcast(literal(length, dt.uint64, device), size))
    return cast(drawn + literal(low % (1 << 64), dt.uint64, device) if low else drawn, d)


def _scaled(key: Any, size: tuple[int, ...], length: Array) -> Array:
    """``floor(r * length / 2**128)`` of a random number ``r`` of 128 bits, in two words."""
    word = bits(key, (2, *size), dtype=dt.uint64)
    low = _f["mulhi"](word[1], length)
    carry = (word[0] * length + low) < low
    out: Array = _f["mulhi"](word[0], length) + cast(carry, dt.uint64)
    return out


def bernoulli(key: Any, shape: Shape | None = None, p: Any = 0.5) -> Array:
    """True with probability ``p``."""
    d = p.dtype if isinstance(p, Array) and p.dtype.is_float else dt.float32
    size = shape_of(shape, p)
    chance = literal(p, d, as_array(key)._value.node.device) if is_scalar(p) else cast(as_array(p), d)
    return unit(key, size, d) < chance


def permutation(key: Any, x: Any, *, axis: int = 0, independent: bool = False) -> Array:
    """``x`` in a random order along an axis (``0 .. x-1`` if it is an integer); each row in its own if independent.

    The order in which random numbers of 64 bits sort.
    """
    if isinstance(x, int):
        a = iota(x, dt.int64, as_array(key)._value.node.device)
    else:
        a = as_array(x)
    at = axis_index(axis, a.ndim)
    if independent:
        return sort_with(bits(key, a.shape, dtype=dt.uint64), (a,), at)[1]
    n = a.shape[at]
    order = sort_with(bits(key, (n,), dtype=dt.uint64), (iota(n, dt.int64, a._value.node.device),), 0)[1]
    taken: Array = order if isinstance(x, int) else _f["take"](a, order, axis=at)
    return taken


def choice(key: Any, a: Any, shape: Shape = (), *, replace: bool = True, p: Any = None, axis: int = 0) -> Array:
    """Elements of ``a`` along an axis (of ``0 .. a-1`` if it is an integer), with probabilities ``p``.

    ``p`` need not sum to 1. Without replacement the elements are in the order in which they were drawn.
    """
    number = isinstance(a, int)
    x = iota(a, dt.int64, as_array(key)._value.node.device) if number else as_array(a)
    at = axis_index(axis, x.ndim)
    n, size = x.shape[at], sizes(shape)
    total = 1
    for s in size:
        total *= s
    if (n == 0 and total) or (not replace and total > n):
        raise ValueIssue(f"choice of {total} among {n}", why="there are too few to choose from",
                         do="choose fewer, or with replace=True")
    if p is not None and as_array(p).shape != (n,):
        raise ShapeError(f"choice among {n} with probabilities of shape {as_array(p).shape}",
                         why="each element has one", do=f"pass p of shape ({n},)")
    index = _with_replacement(key, n, size, p) if replace else _without(key, n, size, total, p)
    if number:
        return index
    out: Array = _f["take"](x, reshape(index, (total,)), axis=at)
    return reshape(out, (*x.shape[:at], *size, *x.shape[at + 1:]))


def _with_replacement(key: Any, n: int, size: tuple[int, ...], p: Any) -> Array:
    if p is None:
        return integers(key, size, 0, n)
    sums = _f["cumulative_sum"](_weights(p))
    # Drawn up to the last sum itself: what rounding puts there belongs to the last element that has a chance.
    u = unit(key, size, sums.dtype) * sums[n - 1]
    found = _f["searchsorted"](sums, reshape(u, (-1,)), side="right")
    last = _f["searchsorted"](sums, reshape(sums[n - 1], (1,)), side="left")
    return reshape(_f["minimum"](found, last), size)


def _without(key: Any, n: int, size: tuple[int, ...], total: int, p: Any) -> Array:
    """The first of a random order; with weights, of the order of perturbed logarithms (Efraimidis, Spirakis 2006)."""
    if p is None:
        order = permutation(key, n)
    else:
        weights = _weights(p)
        order = _f["argsort"](_f["log"](weights) + gumbel(key, (n,), dtype=weights.dtype), descending=True)
    return reshape(order[:total], size)


def _weights(p: Any) -> Array:
    w = as_array(p)
    return w if w.dtype.is_float and w.dtype.bits > 16 else cast(w, dt.float32)


def categorical(key: Any, logits: Any, shape: Shape | None = None, *, axis: int = -1) -> Array:
    """An index along an axis with probability ``softmax(logits)``: the largest of the logits plus Gumbel noise.

    ``shape`` is that of the result: the other axes of the logits broadcast to it.
    """
    x = as_array(logits)
    x = x if x.dtype.is_float and x.dtype.bits > 16 else cast(x, dt.float32)
    at = axis_index(axis, x.ndim)
    n = x.shape[at]
    x = permute_dims(x, (*[i for i in range(x.ndim) if i != at], at))
    size = x.shape[:-1] if shape is None else sizes(shape)
    if broadcast_shapes(size, x.shape[:-1]) != size:
        raise ShapeError(f"categorical draws of shape {size} from logits of shape {as_array(logits).shape}",
                         why="the logits have more rows", do="pass a shape that their other axes broadcast to")
    noise = gumbel(key, (*size, n), dtype=x.dtype)
    out: Array = _f["argmax"](broadcast(x, (*size, n)) + noise, axis=-1)
    return out

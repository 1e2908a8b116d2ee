"""Keys, and random bits from them: a counter under a key, so that every value is a function of the key alone.

A draw, ``split`` and ``fold_in`` count in ranges of their own, so that no child key is also a value that was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array, broadcast, cast, constant, literal
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ShapeError
from rlx.ops.movement import iota, reshape, stack
from rlx.ops.threefry import threefry

Shape = int | Sequence[int]
_WORD = 1 << 32
#: The highest bits of the counter tell what it counts: values (0), children of split, or data folded in.
CHILDREN, FOLDED = 1 << 31, 3 << 30


def key(seed: Any, *, device: str | None = None) -> Array:
    """A key from a seed: an integer, or an integer array without axes. Two words, uint32 of shape (2,).

    >>> import rlx
    >>> rlx.random.integers(rlx.random.key(0), (3,), 0, 10).shape
    (3,)
    """
    if isinstance(seed, (int, np.integer)):
        bits_ = int(seed) & (_WORD * _WORD - 1)
        return as_array(np.array([bits_ // _WORD, bits_ % _WORD], np.uint32), device=device)
    high, low = _halves(as_array(seed, device=device), "a seed")
    return stack([high, low])


def _halves(x: Array, what: str) -> tuple[Array, Array]:
    """The upper and lower words of an integer without axes."""
    if not x.dtype.is_integer or x.shape != ():
        raise DTypeError(f"{what} is a {x.dtype.name} array of shape {x.shape}", why="it is one integer",
                         do="pass an integer; use rlx.vmap for many")
    wide = cast(x, dt.uint64 if x.dtype.kind == "u" else dt.int64)
    return cast(wide >> 32, dt.uint32), cast(wide & (_WORD - 1), dt.uint32)


def _checked(k: Any) -> Array:
    a = as_array(k)
    if a.dtype != dt.uint32 or a.shape != (2,):
        raise DTypeError(f"a key is a {a.dtype.name} array of shape {a.shape}", why="a key is two words of uint32",
                         do="make one with rlx.random.key(seed); for an array of keys use rlx.vmap")
    return a


def sizes(shape: Shape) -> tuple[int, ...]:
    """A shape as a tuple of integers."""
    try:
        out = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(index(n) for n in shape)
    except TypeError:
        raise ShapeError(f"a random array of shape {shape!r}", why="a shape is an integer or a tuple of integers",
                         do="the arguments of every distribution are a key, a shape, then its parameters") from None
    if any(n < 0 for n in out):
        raise ShapeError(f"a random array of shape {out}", why="a size is negative", do="pass sizes of at least 0")
    return out


def _words(k: Array, n: int, range_: int = 0) -> tuple[Array, Array]:
    """Two words for each of ``n`` counters in a range."""
    device = k._value.node.device
    if n <= _WORD:
        high, low = broadcast(literal(range_, dt.uint32, device), (n,)), iota(n, dt.uint32, device)
    else:
        i = iota(n, dt.int64, device)
        high, low = cast(i >> 32, dt.uint32) + literal(range_, dt.uint32, device), cast(i & (_WORD - 1), dt.uint32)
    a, b = threefry(k, high, low)
    return a, b


def bits(key: Any, shape: Shape = (), *, dtype: Any = dt.uint32) -> Array:
    """Uniformly random bits as unsigned integers; element ``i`` (row-major) is the same in every shape."""
    d, size, k = dt.as_dtype(dtype), sizes(shape), _checked(key)
    if d.kind != "u":
        raise DTypeError(f"random bits of {d.name}", why="bits are unsigned integers", do="pass an unsigned dtype")
    a, b = _words(k, prod(size))
    if d.bits < 64:
        return reshape(cast(a ^ b, d), size)
    return reshape((cast(a, d) << 32) | cast(b, d), size)


def split(key: Any, num: Shape = 2) -> Array:
    """Independent keys, of shape ``(num, 2)`` or ``(*num, 2)``; the key itself is then not to be used again."""
    shape = sizes(num)
    a, b = _words(_checked(key), prod(shape), CHILDREN)
    return reshape(stack([a, b], axis=1), (*shape, 2))


def fold_in(key: Any, data: Any) -> Array:
    """A key from a key and an integer: a stream for each step, device or example."""
    k = _checked(key)
    device = k._value.node.device
    if isinstance(data, (int, np.integer)):
        number = int(data) & (_WORD * _WORD - 1)
        high, low = (constant(w, dt.uint32, device) for w in divmod(number, _WORD))
    else:
        high, low = _halves(as_array(data, device=device), "data folded into a key")
    inner = stack(list(threefry(k, literal(FOLDED, dt.uint32, device), literal(0, dt.uint32, device))))
    return stack(list(threefry(inner, high, low)))

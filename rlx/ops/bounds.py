"""Indices that are known to lie within their axis, and a watch on those that are not.

Of an index in a traced function the values are not known where it is used: :func:`watch_bounds` proves from the
expression that it is in bounds, or watches it. A watch costs one count in the program; where it is not zero, the
call of the compiled function raises :class:`IndexOutOfBounds` at the line of the index. In the body of a loop on a
device nobody can be told, and indices are clamped (reads) or dropped (writes).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import cast
from rlx.array.define import op_named
from rlx.core import dtype as dt
from rlx.core.errors import IndexOutOfBounds
from rlx.core.where import Where
from rlx.ir.graph import Value
from rlx.ir.op import NotDifferentiable, Sample

Interval = tuple[int, int]
#: How many nodes deep a proof looks; what is not proven is watched.
_DEPTH = 16
#: Sums and products of bounds beyond this could wrap around in 64 bits.
_SAFE = 1 << 62
#: Primitives whose result holds elements of their first operand only.
_MOVES = frozenset(("reshape", "broadcast", "permute", "slice", "flip", "gather", "window"))


@op_named("index.watched")
def _watched(i: Array, bad: Array, /, *, size: int, axis: int) -> Array:
    """``i``, of which ``bad`` elements are out of bounds for an axis of that size."""
    return i


@_watched.ref
def _(i: Any, bad: Any, *, size: int, axis: int) -> Any:
    return i


_watched.grad(NotDifferentiable("indices do not vary smoothly"))


@_watched.samples
def _() -> list[Sample]:
    return [Sample((np.array([0, 2]), np.zeros((), np.int64)), {"size": 3, "axis": 0}, grad=False)]


def _error(info: Any, where: Where, *, size: int, axis: int) -> IndexOutOfBounds:
    return IndexOutOfBounds(f"{int(np.sum(info))} indices are out of bounds for axis {axis} of size {size}",
                            where=where.short,
                            why=f"valid indices are {-size} to {size - 1}", do="check the index, or clip it first")


_watched.rules["check"] = _error
#: Raised by the caller of a compiled function too, not only by whoever looks at a lazy array.
_watched.rules["check_compiled"] = True


def proven(i: Array, size: Any) -> bool:
    """Whether the expression of ``i`` shows that it lies in ``-size .. size - 1``."""
    found = interval(i._value) if isinstance(size, int) else None
    return found is not None and -size <= found[0] and found[1] < size


def watch_bounds(i: Array, size: Any, axis: int) -> Array:
    """``i``, proven to lie in ``-size .. size - 1``, or watched."""
    if not isinstance(size, int) or proven(i, size):
        return i
    wide = i if i.dtype.kind == "u" else cast(i, dt.int64)
    bad = wide >= size if i.dtype.kind == "u" else FUNCTIONS["logical_or"](wide < -size, wide >= size)
    return _watched(i, FUNCTIONS["sum"](cast(bad, dt.int64)), size=size, axis=axis)


def interval(v: Value, depth: int = _DEPTH) -> Interval | None:
    """The smallest and largest element an integer value can have, or None where the expression does not tell."""
    n = v.node
    if depth == 0 or not (v.dtype.is_integer or v.dtype.kind == "b"):
        return None
    if n.op == "const":
        c = int(n.attr("value"))
        return c, c
    if n.op == "scalar":
        return int(n.payload), int(n.payload)
    if n.op == "iota":
        size = n.attr("size")
        return (0, max(size - 1, 0)) if isinstance(size, int) else None
    if n.op in _MOVES or (n.op == "reduce" and n.attr("kind") in ("min", "max")):
        return interval(n.args[0], depth - 1)
    if n.op == "sort":
        return interval(n.args[v.index], depth - 1)
    if n.op in ("concat", "select"):
        return _union([interval(a, depth - 1) for a in (n.args if n.op == "concat" else n.args[1:])])
    if n.op == "cast":
        return _narrowed(interval(n.args[0], depth - 1), v.dtype)
    if n.op in _ARITHMETIC:
        found = _ARITHMETIC[n.op](*[interval(x, depth - 1) for x in n.args])
        return found if n.op in ("min", "max") else _narrowed(found, v.dtype)
    return None


def _union(parts: list[Interval | None]) -> Interval | None:
    known = [p for p in parts if p is not None]
    return (min(p[0] for p in known), max(p[1] for p in known)) if len(known) == len(parts) and known else None


def _narrowed(x: Interval | None, dtype: dt.DType) -> Interval | None:
    """The interval where the dtype holds all of it without wrapping."""
    if x is None or dtype.kind == "b":
        return x
    info = np.iinfo(dtype.numpy)
    return x if max(info.min, -_SAFE) <= x[0] and x[1] <= min(int(info.max), _SAFE) else None


def _sum(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else (a[0] + b[0], a[1] + b[1])


def _difference(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else (a[0] - b[1], a[1] - b[0])


def _product(a: Interval | None, b: Interval | None) -> Interval | None:
    if a is None or b is None:
        return None
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _floordiv(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None or b[0] <= 0 else (min(a[0] // b[0], a[0] // b[1]),
                                                             max(a[1] // b[0], a[1] // b[1]))


def _rem(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if b is None or b[0] <= 0 else (0, b[1] - 1)


#: Of ``min(max(x, 0), n)`` the bounds are known though nothing is of x.
_ANYTHING = (-_SAFE, _SAFE)


def _min(a: Interval | None, b: Interval | None) -> Interval:
    x, y = a or _ANYTHING, b or _ANYTHING
    return min(x[0], y[0]), min(x[1], y[1])


def _max(a: Interval | None, b: Interval | None) -> Interval:
    x, y = a or _ANYTHING, b or _ANYTHING
    return max(x[0], y[0]), max(x[1], y[1])


_ARITHMETIC: dict[str, Callable[[Interval | None, Interval | None], Interval | None]] = {
    "add": _sum, "sub": _difference, "mul": _product, "floordiv": _floordiv, "rem": _rem, "min": _min, "max": _max}

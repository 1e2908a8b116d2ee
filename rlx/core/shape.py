"""Shapes: tuples of ints or symbolic dimensions with arithmetic and bounds, and the rules that combine them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from rlx.core.errors import ShapeError


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named unknown size with inclusive bounds."""

    name: str
    low: int = 0
    high: float = inf


@dataclass(frozen=True, slots=True)
class Apply:
    """``floordiv``, ``mod``, ``max`` or ``min`` of two dimensions that has no simpler form."""

    kind: str
    a: Dim
    b: Dim


Atom = Symbol | Apply
Monomial = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Dim:
    """A polynomial with integer coefficients over atoms, in normal form, so equal sizes are equal objects.

    >>> n = dim("n", low=1)
    >>> (n + 1) * 2 == 2 * n + 2
    True
    """

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Dim | int) -> Dim | int:
        merged = dict(self.terms)
        for m, c in _dim(other).terms:
            merged[m] = merged.get(m, 0) + c
        return _pack(merged)

    def __mul__(self, other: Dim | int) -> Dim | int:
        product: dict[Monomial, int] = {}
        for m1, c1 in self.terms:
            for m2, c2 in _dim(other).terms:
                m = tuple(sorted(m1 + m2, key=repr))
                product[m] = product.get(m, 0) + c1 * c2
        return _pack(product)

    def __neg__(self) -> Dim | int:
        return self * -1

    def __sub__(self, other: Dim | int) -> Dim | int:
        return self + (_dim(other) * -1)

    def __rsub__(self, other: int) -> Dim | int:
        return _dim(other) - self

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Dim | int) -> Dim | int:
        if isinstance(other, int) and other > 0 and all(c % other == 0 for _, c in self.terms):
            return _pack({m: c // other for m, c in self.terms})
        if other == self:
            return 1
        return _atom(Apply("floordiv", self, _dim(other)))

    def __mod__(self, other: Dim | int) -> Dim | int:
        if isinstance(other, int) and other > 0:
            rest = {m: c % other for m, c in self.terms}
            if all(m == () or c == 0 for m, c in rest.items()):
                return _pack(rest)
        return _atom(Apply("mod", self, _dim(other)))

    def bounds(self) -> tuple[float, float]:
        """Inclusive (low, high)."""
        low: float = 0
        high: float = 0
        for m, c in self.terms:
            lo, hi = _product_bounds(m)
            low += c * (lo if c > 0 else hi)
            high += c * (hi if c > 0 else lo)
        return low, high

    def bind(self, sizes: Mapping[str, int]) -> Dim | int:
        """Replace symbols by the sizes given."""
        total: Dim | int = 0
        for m, c in self.terms:
            value: Dim | int = c
            for atom in m:
                value = value * _bind_atom(atom, sizes)
            total = total + value
        return total

    def __repr__(self) -> str:
        parts = []
        for m, c in self.terms:
            body = "*".join(_atom_text(a) for a in m)
            parts.append(str(c) if not m else body if c == 1 else f"{c}*{body}")
        return " + ".join(parts) or "0"

    __str__ = __repr__


Size = int | Dim
Shape = tuple[Size, ...]


def dim(name: str, low: int = 0, high: float = inf) -> Dim:
    """A new symbolic dimension."""
    return _atom(Symbol(name, low, high))


def _atom(a: Atom) -> Dim:
    return Dim((((a,), 1),))


def _dim(x: Dim | int) -> Dim:
    return x if isinstance(x, Dim) else Dim((((), int(x)),)) if x else Dim(())


def _pack(terms: dict[Monomial, int]) -> Dim | int:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if set(kept) == {()}:
        return kept[()]
    return Dim(tuple(sorted(kept.items(), key=lambda t: (len(t[0]), repr(t[0])))))


def _atom_text(a: Atom) -> str:
    return a.name if isinstance(a, Symbol) else f"{a.kind}({a.a}, {a.b})"


def _atom_bounds(a: Atom) -> tuple[float, float]:
    if isinstance(a, Symbol):
        return a.low, a.high
    (alo, ahi), (blo, bhi) = a.a.bounds(), a.b.bounds()
    if a.kind == "mod":
        return 0, max(bhi - 1, 0)
    if a.kind == "max":
        return max(alo, blo), max(ahi, bhi)
    if a.kind == "min":
        return min(alo, blo), min(ahi, bhi)
    return (alo // bhi if bhi not in (0, inf) else 0), (ahi // blo if blo > 0 else ahi)


def _product_bounds(m: Monomial) -> tuple[float, float]:
    low: float = 1
    high: float = 1
    for a in m:
        lo, hi = _atom_bounds(a)
        low, high = low * lo, (high * hi if high and hi else 0)  # 0 * inf is 0 here
    return low, high


def _bind_atom(a: Atom, sizes: Mapping[str, int]) -> Dim | int:
    if isinstance(a, Symbol):
        if a.name not in sizes:
            return _atom(a)
        n = sizes[a.name]
        if not a.low <= n <= a.high:
            raise ShapeError(f"dimension {a.name} = {n} is out of its bounds", why=f"{a.low} <= {a.name} <= {a.high}",
                             do="pass an array of a size within the bounds, or widen them")
        return n
    x, y = a.a.bind(sizes), a.b.bind(sizes)
    if isinstance(x, int) and isinstance(y, int):
        return {"floordiv": x // y if y else 0, "mod": x % y if y else 0, "max": max(x, y), "min": min(x, y)}[a.kind]
    return _atom(Apply(a.kind, _dim(x), _dim(y)))


def largest(a: Size, b: Size) -> Size:
    """max of two sizes; decided by bounds where they decide it."""
    return _extreme("max", a, b)


def smallest(a: Size, b: Size) -> Size:
    """min of two sizes; decided by bounds where they decide it."""
    return _extreme("min", a, b)


def _extreme(kind: str, a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b) if kind == "max" else min(a, b)
    (alo, ahi), (blo, bhi) = _dim(a).bounds(), _dim(b).bounds()
    if alo >= bhi:
        return a if kind == "max" else b
    if blo >= ahi:
        return b if kind == "max" else a
    return _atom(Apply(kind, _dim(a), _dim(b)))


def bind(shape: Iterable[Size], sizes: Mapping[str, int]) -> Shape:
    """A shape with its symbols replaced."""
    return tuple(d.bind(sizes) if isinstance(d, Dim) else d for d in shape)


def is_static(shape: Iterable[Size]) -> bool:
    """Whether every dimension is a number."""
    return all(isinstance(d, int) for d in shape)


def numel(shape: Iterable[Size]) -> Size:
    """Number of elements (product of the dimensions)."""
    n: Size = 1
    for d in shape:
        n = n * d
    return n


def count(shape: Iterable[Size]) -> int:
    """Number of elements of a static shape."""
    n = numel(shape)
    if not isinstance(n, int):
        raise ShapeError(f"shape {tuple(shape)} is not known yet", why="it has symbolic dimensions",
                         do="bind the dimensions to sizes first")
    return n


def broadcast_shapes(*shapes: Sequence[Size]) -> Shape:
    """The shape that all broadcast to (NumPy's rule): sizes equal, or 1."""
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return tuple(shapes[0])
    rank = max((len(s) for s in shapes), default=0)
    out: list[Size] = []
    for axis in range(-rank, 0):
        size: Size = 1
        for s in shapes:
            if len(s) < -axis or s[axis] == 1:
                continue
            if size not in (1, s[axis]):
                raise ShapeError(f"shapes {' and '.join(map(str, map(tuple, shapes)))} do not broadcast",
                                 why=f"axis {axis} has sizes {size} and {s[axis]}",
                                 do="sizes must be equal or 1; reshape or add an axis with x[:, None]")
            size = s[axis]
        out.append(size)
    return tuple(out)


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    out: list[int] = []
    step = 1
    for d in reversed(shape):
        out.append(step)
        step *= d
    return tuple(reversed(out))


def axis_index(axis: int, rank: int, what: str = "axis") -> int:
    """A checked axis in ``range(rank)``; negative axes count from the end."""
    if not -rank <= axis < rank:
        raise ShapeError(f"{what} {axis} is out of range for an array of {rank} dimensions",
                         why=f"valid values are {-rank} to {rank - 1}", do="pass an axis that the array has")
    return axis % rank


def axes_tuple(axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Checked, sorted axes; ``None`` is all of them."""
    if axis is None:
        return tuple(range(rank))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    out = sorted(axis_index(int(a), rank) for a in axes)
    if len(set(out)) != len(out):
        raise ShapeError(f"axes {axes} repeat", why="each axis can be named once", do="remove the duplicate")
    return tuple(out)

"""Index arithmetic in normal form: sums of integer multiples of atoms, so that layouts meet and loops collapse.

``(i*4 + j) // 4`` -> ``i`` and ``(o // 4)*4 + o % 4`` -> ``o``, given the ranges of the loop variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd

from rlx.core.dtype import DType, int64
from rlx.core.shape import strides
from rlx.ir import loop as L
from rlx.ir.graph import Value
from rlx.ir.loop import Expr, Stmt
from rlx.ir.walk import expressions, inside, statements

Terms = dict[Expr, int]
Sizes = tuple[int, ...]


def sizes(v: Value) -> Sizes:
    """The static shape of a value."""
    return tuple([int(s) for s in v.shape])  # type: ignore[arg-type]


class Indexer:
    """Builds index expressions of one integer type, knowing the range ``[0, extent)`` of every loop variable."""

    def __init__(self, dtype: DType = int64) -> None:
        self.dtype = dtype
        self.extent: dict[str, int] = {}
        #: Where a variable starts, in the inner part of a loop that was split; 0 elsewhere.
        self.low: dict[str, int] = {}

    def var(self, name: str, extent: int) -> Expr:
        """A loop variable; 0 when its loop runs once."""
        if extent == 1:
            return self.const(0)
        self.extent[name] = extent
        return L.var(name, self.dtype)

    def const(self, n: int) -> Expr:
        return L.const(n, self.dtype)

    # Normal form

    def terms(self, e: Expr) -> tuple[Terms, int]:
        """``e`` as (atom -> coefficient, constant)."""
        if e.op == "const" and not isinstance(e.value, bool):
            return {}, int(e.value)
        if e.op in ("add", "sub") and e.dtype == self.dtype:
            a, ca = self.terms(e.args[0])
            b, cb = self.terms(e.args[1])
            sign = 1 if e.op == "add" else -1
            out = dict(a)
            for k, v in b.items():
                out[k] = out.get(k, 0) + sign * v
            return {k: v for k, v in out.items() if v}, ca + sign * cb
        if e.op == "mul" and e.args[1].op == "const" and e.dtype == self.dtype:
            a, ca = self.terms(e.args[0])
            c = int(e.args[1].value)
            return {k: v * c for k, v in a.items() if v * c}, ca * c
        return {e: 1}, 0

    def build(self, terms: Terms, constant: int) -> Expr:
        """The expression of a normal form, after joining divisions with their remainders."""
        constant += self._join(terms)
        out: Expr | None = None
        for atom, c in terms.items():
            part = L.mul(atom, self.const(c))
            out = part if out is None else L.add(out, part)
        if out is None:
            return self.const(constant)
        return L.add(out, self.const(constant)) if constant else out

    def _join(self, terms: Terms) -> int:
        """``(a // m)*m*k + (a % m)*k`` -> ``a*k``; returns the constant that comes with the ``a``'s."""
        changed, constant = True, 0
        while changed:
            changed = False
            for atom in list(terms):
                if atom.op != "rem" or atom not in terms:
                    continue
                a, m = atom.args[0], int(atom.args[1].value)
                k = terms[atom]
                quotient = self.div(a, m)
                if terms.get(quotient) == k * m and quotient.op != "const":
                    del terms[quotient], terms[atom]
                    inner, c = self.terms(a)
                    constant += c * k
                    for t, v in inner.items():
                        terms[t] = terms.get(t, 0) + v * k
                    changed = True
        return constant

    # Arithmetic

    def add(self, a: Expr, b: Expr) -> Expr:
        ta, ca = self.terms(a)
        tb, cb = self.terms(b)
        out = dict(ta)
        for k, v in tb.items():
            out[k] = out.get(k, 0) + v
        return self.build({k: v for k, v in out.items() if v}, ca + cb)

    def scale(self, a: Expr, n: int) -> Expr:
        ta, ca = self.terms(a)
        return self.build({k: v * n for k, v in ta.items() if v * n}, ca * n)

    def offset(self, a: Expr, n: int) -> Expr:
        return self.add(a, self.const(n)) if n else a

    def div(self, a: Expr, n: int) -> Expr:
        """``a // n`` for a non-negative ``a``."""
        if n == 1:
            return a
        terms, c = self.terms(a)
        whole, rest, c_rest = self._divide(terms, c, n)
        if self._within(dict(rest), c_rest, n):
            return self.build(*whole)
        if (not whole[0] and whole[1] == 0) or not self._nonnegative(rest, c_rest):
            return self._quotient(a, n)
        return self.add(self.build(*whole), self._quotient(self.build(rest, c_rest), n))

    def mod(self, a: Expr, n: int) -> Expr:
        """``a % n`` for a non-negative ``a``."""
        if n == 1:
            return self.const(0)
        terms, c = self.terms(a)
        _, rest, c_rest = self._divide(terms, c, n)
        if self._within(rest, c_rest, n):
            return self.build(rest, c_rest)
        if not self._nonnegative(rest, c_rest):
            return L.mod(a, n)
        reduced = self.build(rest, c_rest)
        if reduced.op == "rem" and int(reduced.args[1].value) % n == 0:
            return self.mod(reduced.args[0], n)
        return L.mod(reduced, n)

    def _quotient(self, a: Expr, n: int) -> Expr:
        """``a // n``; ``(t*64 + o) // 768`` -> ``t // 12`` for o in [0, 64)."""
        terms, c = self.terms(a)
        for g in sorted({gcd(v, n) for v in terms.values()} - {1}, reverse=True):
            if self._within({k: v for k, v in terms.items() if v % g}, c % g, g):
                return self.div(self.build({k: v // g for k, v in terms.items() if v % g == 0}, c // g), n // g)
        if a.op == "floordiv" and a.args[1].op == "const":
            return L.div(a.args[0], int(a.args[1].value) * n)
        return L.div(a, n)

    @staticmethod
    def _divide(terms: Terms, c: int, n: int) -> tuple[tuple[Terms, int], Terms, int]:
        whole = {k: v // n for k, v in terms.items() if v % n == 0}
        rest = {k: v for k, v in terms.items() if v % n}
        return (whole, c // n), rest, c % n

    def _within(self, terms: Terms, c: int, n: int) -> bool:
        low, high = self._range(terms, c)
        return low is not None and high is not None and low >= 0 and high < n

    def _nonnegative(self, terms: Terms, c: int) -> bool:
        low, _ = self._range(terms, c)
        return low is not None and low >= 0

    def _range(self, terms: Terms, c: int) -> tuple[int | None, int | None]:
        low: int | None = c
        high: int | None = c
        for atom, k in terms.items():
            lo, hi = self.atom_range(atom)
            a, b = (lo, hi) if k > 0 else (hi, lo)
            low = None if low is None or a is None else low + a * k
            high = None if high is None or b is None else high + b * k
        return low, high

    def atom_range(self, e: Expr) -> tuple[int | None, int | None]:
        """Inclusive bounds of an atom, None where unknown."""
        if e.op == "var" and e.value in self.extent:
            return self.low.get(e.value, 0), self.extent[e.value] - 1
        if e.op == "rem" and e.args[1].op == "const":
            return 0, int(e.args[1].value) - 1
        if e.op == "floordiv" and e.args[1].op == "const":
            lo, hi = self._range(*self.terms(e.args[0]))
            n = int(e.args[1].value)
            return (None if lo is None else lo // n), (None if hi is None else hi // n)
        return None, None

    def range(self, e: Expr) -> tuple[int | None, int | None]:
        """Inclusive bounds of an index expression, None where unknown."""
        return self._range(*self.terms(e))

    # Layouts

    def linear(self, index: Sequence[Expr], shape: Sequence[int]) -> Expr:
        """The row-major position of a multi-index."""
        out = self.const(0)
        for i, s in zip(index, strides(shape), strict=True):
            out = self.add(out, self.scale(i, s))
        return out

    def split(self, position: Expr, shape: Sequence[int]) -> tuple[Expr, ...]:
        """The multi-index of a row-major position."""
        out: list[Expr] = []
        for n, s in zip(shape, strides(shape), strict=True):
            q = self.div(position, s)
            out.append(self.const(0) if n == 1 else self.mod(q, n) if out or self._may_wrap(q, n) else q)
        return tuple(out)

    def _may_wrap(self, q: Expr, n: int) -> bool:
        _, high = self.range(q)
        return high is not None and high >= n


def has_division(e: Expr) -> bool:
    """Whether an index expression divides."""
    return e.op in ("floordiv", "rem") or any(has_division(a) for a in e.args if a.op != "load")


def divides(body: Iterable[Stmt]) -> bool:
    """Whether the statements load or store anywhere at an index that divides."""
    for s in statements(body):
        held = expressions(s)
        if isinstance(s, L.Store | L.Atomic) and has_division(s.index):
            return True
        if any(e.op == "load" and has_division(e.args[0]) for e in inside(*held)):
            return True
    return False

"""Keeps drivers from "simplifying" floating-point arithmetic, which WGSL has no word to forbid.

A driver that rewrites ``(a + b) - a`` to ``b``, ``x - x`` to 0 or ``x * 0`` to 0 breaks compensated sums, rounding by
addition, and NaN tests; one that makes ``x > b ? b : x`` a minimum loses NaN. Where an operation has such a shape, an
operand is passed through integer bits that are exclusive-ored with a zero the driver cannot know (``rlx_zero``).
"""

from __future__ import annotations

from rlx.core.dtype import uint64
from rlx.ir.loop import Expr


class Guard:
    """Finds the operands of one kernel or helper that need protection. ``lets`` are the values of its names."""

    def __init__(self) -> None:
        self.lets: dict[str, Expr] = {}

    def needed(self, e: Expr) -> tuple[bool, ...]:
        """For each argument of a float operation, whether it must be opaque."""
        if e.op == "select" and e.dtype.is_float:
            return False, self._extreme(*map(self._behind, e.args)), False
        if len(e.args) != 2 or not e.args[0].dtype.is_float:
            return (False,) * len(e.args)
        x, y = (self._plain(a) for a in e.args)
        if e.op == "mul":
            return _constant_factor(x, y), _constant_factor(y, x)
        if e.op == "sub" and x == y:
            return True, False
        if e.op in ("add", "sub", "lt", "le", "gt", "ge", "eq", "ne"):
            return self._cancels(x, y), self._cancels(y, x) or (x.op == y.op == "mul" and self._share(x, y))
        return False, False

    def _extreme(self, c: Expr, a: Expr, b: Expr) -> bool:
        """Whether a select is a minimum or maximum to a driver, whose own loses NaN."""
        return c.op in ("lt", "le", "gt", "ge") and {self._behind(x) for x in c.args} == {a, b}

    def _behind(self, e: Expr) -> Expr:
        """The expression behind a name."""
        while e.op == "var" and e.value in self.lets:
            e = self.lets[e.value]
        return e

    def _cancels(self, x: Expr, y: Expr) -> bool:
        """Whether ``x`` is a sum with ``y``, or with a term of ``y``, in it: the shape of a cancellation."""
        if x.op not in ("add", "sub"):
            return False
        terms = [self._plain(a) for a in x.args]
        if y in terms or (y.op == "const" and any(t.op == "const" for t in terms)):
            return True
        return y.op in ("add", "sub") and self._share(x, y)

    def _share(self, x: Expr, y: Expr) -> bool:
        return bool({self._plain(a) for a in x.args} & {self._plain(a) for a in y.args})

    def _plain(self, e: Expr) -> Expr:
        """The expression behind names and signs."""
        while True:
            if e.op == "var" and e.value in self.lets:
                e = self.lets[e.value]
            elif e.op == "neg":
                e = e.args[0]
            else:
                return e


def _constant_factor(x: Expr, y: Expr) -> bool:
    """``x`` in ``x * y``: a zero, or a product with a constant that would be merged with the constant ``y``."""
    if x.op == "const" and x.value == 0:
        return True
    return y.op == "const" and x.op == "mul" and any(a.op == "const" for a in x.args)


def opaque(text: str, e: Expr) -> str:
    """The same float, by a way the driver cannot see through."""
    if e.dtype.bits == 64:
        return f"bitcast<f64>(bitcast<{uint64.short}>({text}) ^ u64(rlx_zero))"
    return f"bitcast<f32>(bitcast<u32>({text}) ^ rlx_zero)"

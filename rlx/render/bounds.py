"""Interval arithmetic over index expressions: the values an index can take, by the loop variables' ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.ir import loop
from rlx.ir.walk import bottom_up

#: Inclusive lowest and highest value.
Interval = tuple[int, int]

_MAX_DEPTH = 100


def interval(
    e: loop.Expr, ranges: dict[str, Interval], known: dict[int, Interval], depth: int = 0
) -> Interval:
    """The values an integer or bool expression can take; its dtype's whole range where no better is known.

    ``ranges`` are those of variables; ``known`` remembers results by identity within one call.
    """
    found = known.get(id(e))
    if found is None:
        full = _full(e)
        found = _derive(e, ranges, known, depth) if depth < _MAX_DEPTH and e.dtype.kind in "iu" else full
        if found[0] < full[0] or found[1] > full[1]:
            found = full  # it may wrap around
        known[id(e)] = found
    return found


def _full(e: loop.Expr) -> Interval:
    d = e.dtype
    if d.kind == "b":
        return (0, 1)
    return (0, (1 << d.bits) - 1) if d.kind == "u" else (-(1 << (d.bits - 1)), (1 << (d.bits - 1)) - 1)


def _derive(e: loop.Expr, ranges: dict[str, Interval], known: dict[int, Interval], depth: int) -> Interval:
    if e.op == "const":
        return (int(e.value), int(e.value))
    if e.op == "var":
        return ranges.get(e.value, _full(e))
    if e.op == "cast" and e.args[0].dtype.kind in "biu":
        return interval(e.args[0], ranges, known, depth + 1)
    if e.op not in ("add", "sub", "mul", "neg", "min", "max", "floordiv", "rem", "select", "and"):
        return _full(e)
    args = [interval(a, ranges, known, depth + 1) for a in e.args]
    return _combine(e, args)


def _combine(e: loop.Expr, args: list[Interval]) -> Interval:
    (a, b), (c, d) = args[0], args[-1]
    if e.op == "add":
        return (a + c, b + d)
    if e.op == "sub":
        return (a - d, b - c)
    if e.op == "neg":
        return (-b, -a)
    if e.op == "mul":
        products = (a * c, a * d, b * c, b * d)
        return (min(products), max(products))
    if e.op == "min":
        return (min(a, c), min(b, d))
    if e.op == "max":
        return (max(a, c), max(b, d))
    if e.op == "select":
        (a, b) = args[1]
        return (min(a, c), max(b, d))
    if e.op == "and":
        return (0, d) if c >= 0 else (0, b) if a >= 0 else _full(e)
    if c <= 0:
        return _full(e)
    if e.op == "floordiv":
        return (min(a // c, a // d), max(b // c, b // d))
    return (a, b) if a >= 0 and b < c else (0, d - 1)


def find_risky(roots: Sequence[loop.Expr], range_of: Callable[[loop.Expr], Interval],
               size_of: Callable[[str], int]) -> set[int]:
    """Expressions that contain a load not provably inside its buffer (by identity)."""
    risky: set[int] = set()
    done: set[int] = set()
    for e in bottom_up(roots, done):
        done.add(id(e))
        bad = any(id(a) in risky for a in e.args)
        if e.op == "load" and not bad:
            low, high = range_of(e.args[0])
            bad = low < 0 or high >= size_of(e.value)
        if bad:
            risky.add(id(e))
    return risky


def is_lazy(e: loop.Expr, risky: set[int]) -> bool:
    """Whether some arguments must be evaluated only where they count: they load from places that may not exist."""
    if e.op == "select" or (e.op in ("and", "or") and e.dtype.kind == "b"):
        return any(id(a) in risky for a in e.args[1:])
    return False

"""From a formula to a :class:`Function`: run it on variables, name what is shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx.core.dtype import DType
from rlx.ir.expand.build import E
from rlx.ir.loop import Expr, expr, var


@dataclass(frozen=True, slots=True)
class Function:
    """A straight-line scalar function: ``lets`` in order, then ``result``; both may name
    ``params`` and earlier lets.

    ``rare`` is ``(condition, other)``: where the condition (over params and lets) holds, the
    value is that of ``other`` on the same arguments and ``result`` means nothing. It is None
    unless branches were asked for.
    """

    name: str
    params: tuple[Expr, ...]
    lets: tuple[tuple[str, Expr], ...]
    result: Expr
    rare: tuple[Expr, Function] | None = None


def trace(
    name: str,
    formula: Callable[..., E],
    dtype: DType,
    arity: int = 1,
    rare: Callable[..., tuple[E, Callable[..., E]]] | None = None,
) -> Function:
    """Run ``formula`` on ``arity`` variables; name every subexpression used twice.

    ``rare(*args)`` gives a condition and the formula that replaces ``formula`` where it holds.
    """
    params = [E(var(n, dtype)) for n in ("x", "y")[:arity]]
    roots = [formula(*params).x]
    other = None
    if rare is not None:
        condition, slow = rare(*params)
        roots.append(condition.x)
        other = trace(name + "_rare", slow, dtype, arity)
    lets, roots = _name_shared(roots)
    guard = None if other is None else (roots[1], other)
    return Function(name, tuple(p.x for p in params), lets, roots[0], guard)


def _name_shared(roots: list[Expr]) -> tuple[tuple[tuple[str, Expr], ...], list[Expr]]:
    """Merge equal subexpressions, then name each one used more than once, in evaluation order."""
    canonical: dict[int, Expr] = {}
    known: dict[tuple[object, ...], Expr] = {}
    uses: dict[int, int] = {}
    keep: list[Expr] = list(roots)

    def merge(e: Expr) -> Expr:
        if id(e) in canonical:
            return canonical[id(e)]
        args = tuple(merge(a) for a in e.args)
        key = (e.op, tuple(map(id, args)), e.dtype.name, repr(e.value))
        if key not in known:
            known[key] = expr(e.op, args, e.dtype, e.value)
            for a in args:
                uses[id(a)] = uses.get(id(a), 0) + 1
        canonical[id(e)] = known[key]
        keep.append(e)
        return known[key]

    lets: list[tuple[str, Expr]] = []
    done: dict[int, Expr] = {}

    def rebuild(e: Expr) -> Expr:
        if not e.args:
            return e
        if id(e) not in done:
            new = expr(e.op, tuple(rebuild(a) for a in e.args), e.dtype, e.value)
            if uses.get(id(e), 0) > 1:
                lets.append((f"t{len(lets)}", new))
                new = var(lets[-1][0], e.dtype)
            done[id(e)] = new
        return done[id(e)]

    merged = [merge(r) for r in roots]
    for r in merged:
        uses[id(r)] = uses.get(id(r), 0) + 1
    results = [rebuild(r) for r in merged]
    return tuple(lets), results

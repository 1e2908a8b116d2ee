"""Several points a lane: the body of a pointwise kernel, repeated for positions a workgroup apart, its loads first."""

from __future__ import annotations

from rlx.compile.index import Indexer
from rlx.ir import loop as L
from rlx.ir.loop import Expr, Stmt


def several(body: tuple[Stmt, ...], count: int, step: int, ix: Indexer) -> tuple[Stmt, ...]:
    """The body for ``o, o + step, ..``, loads first: they overlap, whatever branches the arithmetic has."""
    stored = {s.buffer for s in body if isinstance(s, L.Store)}
    copies = [_renamed(body, k, k * step, ix) for k in range(count)]
    early: list[Stmt] = []
    late: list[Stmt] = []
    known: set[str] = set()
    names = {s.name for c in copies for s in c if isinstance(s, L.Let)}
    for s in (s for c in copies for s in c):
        if isinstance(s, L.Let) and _is_early(s.value, stored, names, known):
            known.add(s.name)
            early.append(s)
        else:
            late.append(s)
    return (*early, *late)


def _is_early(e: Expr, stored: set[str], names: set[str], known: set[str]) -> bool:
    """Whether a value is the position, or a load that no store of the kernel can change."""
    if e.op == "load":
        return e.value not in stored and _is_early(e.args[0], stored, names, known)
    if e.op == "var":
        return e.value not in names or e.value in known
    return e.op in ("const", "add", "mul", "rem", "floordiv") and e.dtype.is_integer and all(
        _is_early(a, stored, names, known) for a in e.args)


def _renamed(body: tuple[Stmt, ...], k: int, offset: int, ix: Indexer) -> tuple[Stmt, ...]:
    """The body at ``o + offset``, its names numbered."""
    memo: dict[Expr, Expr] = {}
    own = {s.name for s in body if isinstance(s, L.Let)}

    def e(x: Expr) -> Expr:
        if x not in memo:
            if x.op == "var":
                memo[x] = L.var(f"{x.value}_{k}", x.dtype) if x.value in own or x.value == "o" else x
            else:
                memo[x] = L.expr(x.op, tuple([e(a) for a in x.args]), x.dtype, x.value)
        return memo[x]

    out: list[Stmt] = [L.Let(f"o_{k}", L.add(L.var("o", ix.dtype), ix.const(offset)))]
    for s in body:
        match s:
            case L.Let():
                out.append(L.Let(f"{s.name}_{k}", e(s.value)))
            case L.Store():
                out.append(L.Store(s.buffer, e(s.index), e(s.value)))
            case _:
                raise AssertionError("points are values and stores")
    return tuple(out)

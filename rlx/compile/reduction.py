"""What reductions and contractions have in common: how they combine, from which value, and what they read a step."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from rlx.compile.emit import Index
from rlx.core.dtype import DType, bool_
from rlx.ir import loop as L
from rlx.ir.graph import Node, Value
from rlx.ir.loop import Expr


def identity(kind: str, dtype: DType) -> Expr:
    """The value that changes nothing in a reduction of this kind."""
    if kind in ("sum", "add", "or", "xor"):
        return L.const(0, dtype)
    if kind in ("prod", "mul"):
        return L.const(1, dtype)
    if kind == "and":
        return L.const(True, dtype) if dtype == bool_ else L.const(-1 if dtype.kind == "i" else 2**dtype.bits - 1,
                                                                   dtype)
    if dtype.is_float:
        return L.const(inf if kind == "min" else -inf, dtype)
    if dtype == bool_:
        return L.const(kind == "min", dtype)
    top = 2 ** (dtype.bits - (dtype.kind == "i")) - 1
    bottom = -(2 ** (dtype.bits - 1)) if dtype.kind == "i" else 0
    return L.const(top if kind == "min" else bottom, dtype)


def reduce_kind(n: Node) -> str:
    """``sum`` for a contraction, else the reduction's kind."""
    return "sum" if n.op == "dot" else str(n.attr("kind"))


def reduce_index(n: Node, outer: Sequence[Expr], inner: Sequence[Expr]) -> list[tuple[Value, Index]]:
    """What a reduction or contraction reads at one step: (operand, index) pairs."""
    if n.op == "reduce":
        axes, x = n.attr("axes"), n.args[0]
        o, i = iter(outer), iter(inner)
        return [(x, tuple([next(i) if a in axes else next(o) for a in range(len(x.shape))]))]
    contract, batch = n.attr("contract"), n.attr("batch")
    nb = len(batch[0])
    taken = nb
    out: list[tuple[Value, Index]] = []
    for k in (0, 1):
        x = n.args[k]
        index: list[Expr] = []
        for a in range(len(x.shape)):
            if a in contract[k]:
                index.append(inner[contract[k].index(a)])
            elif a in batch[k]:
                index.append(outer[batch[k].index(a)])
            else:
                index.append(outer[taken])
                taken += 1
        out.append((x, tuple(index)))
    return out

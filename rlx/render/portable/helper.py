"""Functions that rewritten kernels call, and the call itself: an expression with op ``call``."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.ir.loop import Expr, Stmt, expr


@dataclass(frozen=True, slots=True)
class Helper:
    """A pure scalar function: statements over the parameters, then the result."""

    name: str
    params: tuple[Expr, ...]
    body: tuple[Stmt, ...]
    result: Expr


def invoke(helper: Helper, args: tuple[Expr, ...]) -> Expr:
    """A call of the helper; renderers find its text by name."""
    return expr("call", args, helper.result.dtype, helper.name)

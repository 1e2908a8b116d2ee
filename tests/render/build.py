"""Short spellings for the kernels of tests."""

from __future__ import annotations

from rlx.core.dtype import DType
from rlx.ir import loop
from rlx.ir.loop import For, const, expr, var

I, J, K = var("i"), var("j"), var("k")


def op(name: str, *args: loop.Expr, dtype: DType | None = None) -> loop.Expr:
    return expr(name, args, dtype or args[-1].dtype)


def loop_over(
    name: str,
    stop: int | loop.Expr,
    *body: loop.Stmt,
    kind: str = loop.SERIAL,
    start: int = 0,
    step: int = 1,
) -> For:
    return For(name, const(start), const(stop) if isinstance(stop, int) else stop, step, kind, body)

"""Straight-line functions over real expressions, as internal LLVM functions that are always inlined."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.core.dtype import DType
from rlx.ir import loop
from rlx.ir.walk import bottom_up
from rlx.render.llvm.builder import Builder
from rlx.render.llvm.helpers import Helpers
from rlx.render.llvm.types import Value, label, literal, register_type

#: Emits one real primitive: (builder, op, argument dtype, result dtype, registers) -> register.
Emit = Callable[[Builder, str, DType, DType, list[str]], str]

ATTRIBUTES = "alwaysinline nounwind willreturn memory(none)"


def define(
    helpers: Helpers,
    name: str,
    params: Sequence[loop.Expr],
    lets: Sequence[tuple[str, loop.Expr]],
    results: Sequence[loop.Expr],
    emit: Emit,
) -> None:
    """Define ``name`` once: one result, or two returned as a pair. Its arithmetic is not contracted."""
    if helpers.has(name):
        return
    helpers.define(name, "")
    b = Builder(helpers, contract=False)
    names = {p.value: f"%{label(p.value)}.{i}" for i, p in enumerate(params)}
    memo: dict[int, str] = {}
    for let, value in lets:
        names[let] = evaluate(b, value, names, memo, emit)
    values = [evaluate(b, r, names, memo, emit) for r in results]
    t = register_type(results[0].dtype)
    if len(values) == 1:
        returns = t
        b.do(f"ret {t} {values[0]}")
    else:
        returns = f"{{ {t}, {t} }}"
        first = b.op(f"insertvalue {returns} poison, {t} {values[0]}, 0")
        b.do(f"ret {returns} {b.op(f'insertvalue {returns} {first}, {t} {values[1]}, 1')}")
    args = ", ".join(f"{register_type(p.dtype)} {names[p.value]}" for p in params)
    helpers.define(name, b.text(f"define internal {returns} @{name}({args}) {ATTRIBUTES}"))


def evaluate(b: Builder, root: loop.Expr, names: dict[str, str], memo: dict[int, str], emit: Emit) -> str:
    """The register of a real expression without loads; shared objects are evaluated once a ``memo``."""
    for e in bottom_up((root,), memo):
        memo[id(e)] = _node(b, e, names, memo, emit)
    return memo[id(root)]


def _node(b: Builder, e: loop.Expr, names: dict[str, str], memo: dict[int, str], emit: Emit) -> str:
    if e.op == "const":
        value: Value = literal(e.value, e.dtype)
        assert isinstance(value, str)
        return value
    if e.op == "var":
        return names[e.value]
    return emit(b, e.op, e.args[-1].dtype, e.dtype, [memo[id(a)] for a in e.args])

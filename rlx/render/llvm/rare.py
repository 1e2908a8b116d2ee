"""Which loops get a version without the rare, expensive case of a function (the sine of a huge number).

    for i vector: y[i] = sin(x[i])
->  flag = any over i of is_huge(x[i])              reads only, so it may run before an in-place update
    if flag: the loop with the complete function    else: the loop with the common case alone

A branch inside the loop would do for scalars, but the loop vectoriser turns it into computing both cases.
"""

from __future__ import annotations

from rlx.core.dtype import DType, float32
from rlx.ir import loop
from rlx.ir.expand import expansion
from rlx.ir.prim import TRANSCENDENTAL
from rlx.render.llvm.types import is_narrow


def is_worth_versions(s: loop.For) -> bool:
    """Whether a vector loop of plain statements calls a function that has a rare case."""
    if s.kind != loop.VECTOR:
        return False
    roots: list[loop.Expr] = []
    for t in s.body:
        if isinstance(t, loop.Store):
            roots += (t.index, t.value)
        elif isinstance(t, loop.Let) or (isinstance(t, loop.Assign) and t.reassoc):
            roots.append(t.value)
        else:
            return False
    return _calls_rare(roots)


def _calls_rare(roots: list[loop.Expr]) -> bool:
    seen: set[int] = set()
    while roots:
        e = roots.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        if e.op in TRANSCENDENTAL and e.dtype.is_float and _has_rare(e.op, e.dtype):
            return True
        roots.extend(e.args)
    return False


def _has_rare(op: str, d: DType) -> bool:
    function = expansion(op, float32 if is_narrow(d) else d, branches=True)
    return function is not None and function.rare is not None

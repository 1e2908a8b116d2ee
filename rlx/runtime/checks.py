"""Results that name their own failure: checked when somebody looks at what depends on them.

An op with a ``check`` rule ``f(info, where, **attrs) -> error`` takes an array of zeros for success as its second
operand, such as the info of a factorization. A program that computes such a node gives that operand as an extra
output; where it is not all zero, the rule makes the error that is raised, at the line that made the node. In a compiled
function the op means its first operand, unless it has a ``check_compiled`` rule too: then the call raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.core.where import Where
from rlx.ir.graph import Value, postorder
from rlx.ir.op import REGISTRY


@dataclass(frozen=True, slots=True)
class Watch:
    """A pending node with a check rule: what the rule is told, and the value that says whether it failed."""

    op: str
    attrs: tuple[tuple[str, Any], ...]
    where: Where
    info: Value


def watched(values: Sequence[Value], compiled: bool = False) -> list[Watch]:
    """Every such node that the values need, in a deterministic order.

    In a compiled function (``compiled``) only those whose op says, with a ``check_compiled`` rule, that its caller is
    told.
    """
    rule = "check_compiled" if compiled else "check"
    found = []
    for n in postorder(values):
        op = REGISTRY.get(n.op)
        if op is not None and rule in op.rules:
            found.append(Watch(n.op, n.attrs, n.where, n.args[1]))
    return found


def raise_failure(watches: Sequence[Watch], infos: Sequence[np.ndarray[Any, Any]]) -> None:
    """Raise the error of the first that failed."""
    for w, info in zip(watches, infos, strict=True):
        if np.any(info):
            raise REGISTRY[w.op].rules["check"](info, w.where, **dict(w.attrs))

"""One row of the table of expansions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx.ir.expand.build import E

Formula = Callable[..., E]


@dataclass(frozen=True, slots=True)
class Entry:
    """A formula for every argument of a function of ``arity`` arguments.

    A function with a rare, costly case also has the form of it with a branch: ``common`` holds
    except where the condition of ``rare(*args)`` does, and there the formula that ``rare``
    returns beside it holds.
    """

    formula: Formula
    arity: int = 1
    common: Formula | None = None
    rare: Callable[..., tuple[E, Formula]] | None = None

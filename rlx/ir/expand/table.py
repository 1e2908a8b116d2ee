"""One row of the table of expansions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx.ir.expand.build import E, where


@dataclass(frozen=True, slots=True)
class Entry:
    """A formula; ``rare(*args)`` gives the condition under which it does not hold, and the formula that then does."""

    formula: Callable[..., E]
    arity: int = 1
    rare: Callable[..., tuple[E, Callable[..., E]]] | None = None

    def folded(self, *args: E) -> E:
        """The value for every argument: both formulas and a select."""
        value = self.formula(*args)
        if self.rare is None:
            return value
        condition, other = self.rare(*args)
        return where(condition, other(*args), value)

"""The dispatch report: where every node went, by whom, and which claims declined, and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rlx.core.where import Where

NATIVE, COMMON, REWRITTEN, FREE = "native", "common", "rewritten", "free"


@dataclass(frozen=True, slots=True)
class Row:
    """One node of the program as written, and its placement.

    ``path`` is native, common or rewritten; ``free`` marks inputs, constants and movement that cost no kernel of
    their own. ``by`` names the claim and library symbol, the decomposition, or the rule. ``depth`` counts the
    decompositions and sub-graphs around it.
    """

    op: str
    types: str
    path: str
    by: str
    where: Where
    declined: tuple[tuple[str, str], ...] = ()
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """The placement of a whole program on one device under one policy."""

    device: str
    policy: str
    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def paths(self) -> dict[str, int]:
        """How many nodes took each path, free ones left out."""
        found = Counter(r.path for r in self.rows if r.path != FREE)
        return {p: found[p] for p in (NATIVE, COMMON, REWRITTEN) if found[p]}

    def table(self, *, free: bool = False) -> str:
        """The report as text, one line a node (equal lines are counted)."""
        shown: Counter[tuple[str, ...]] = Counter()
        for r in self.rows:
            if r.path == FREE and not free:
                continue
            declined = "; ".join(f"{c} declined: {why}" for c, why in r.declined)
            shown[("  " * r.depth + r.op, _brief(r.types), r.path, r.by, r.where.short, declined)] += 1
        head = ("op", "type", "path", "by", "line")
        rows = [(k[0] + (f" x{n}" if n > 1 else ""), *k[1:]) for k, n in shown.items()]
        width = [max(len(h), *(len(r[i]) for r in rows), 0) if rows else len(h) for i, h in enumerate(head)]
        lines = [self._head()]
        lines.append("  ".join(h.ljust(w) for h, w in zip(head, width, strict=True)).rstrip())
        for cells in rows:
            lines.append("  ".join(c.ljust(w) for c, w in zip(cells, width, strict=False)).rstrip())
            if cells[5]:
                lines.append(f"{'':{width[0]}}  ({cells[5]})")
        return "\n".join(lines)

    def brief(self) -> str:
        """The report folded: one line for each path and who took it, with the ops and how many of each."""
        groups: dict[tuple[str, str], Counter[str]] = {}
        for r in self.rows:
            if r.path != FREE:
                groups.setdefault((r.path, r.by), Counter())[r.op] += 1
        lines = [self._head()]
        for path in (NATIVE, COMMON, REWRITTEN):
            for (_, by), ops in [(k, v) for k, v in groups.items() if k[0] == path]:
                shown = ", ".join(op + (f" x{n}" if n > 1 else "") for op, n in ops.most_common(6))
                rest = f", {len(ops) - 6} more" if len(ops) > 6 else ""
                lines.append(f"  {path:9}  {by}: {shown}{rest}")
        return "\n".join(lines)

    def _head(self) -> str:
        return (f"dispatch on {self.device}, policy {self.policy}: "
                + (", ".join(f"{n} {p}" for p, n in self.paths().items()) or "nothing to run"))

    __str__ = table


def _brief(types: str, width: int = 56) -> str:
    """Types that fit a column: of a long signature the first operand and how many there are."""
    if len(types) <= width or " -> " not in types:
        return types
    args, outs = (re.split(r", (?![^\[]*\])", part) for part in types.split(" -> ", 1))
    shown = [parts[0] if len(parts) == 1 else f"{parts[0]} and {len(parts) - 1} more" for parts in (args, outs)]
    return " -> ".join(shown)

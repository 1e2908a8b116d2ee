"""Coverage: op x device x {native, common, rewritten, refused}, counted by running the legalizer over every sample, or
read from what the conformance tests wrote when they ran the samples.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from rlx import device as devices
from rlx.compile.report import COMMON, FREE, NATIVE, REWRITTEN, Row
from rlx.core import flags
from rlx.core.errors import CompileError, ValueIssue
from rlx.ir.op import Op
from rlx.runtime.execute import explain
from rlx.tools import cases as C
from rlx.tools.cases import Case
from rlx.tools.gaps import GAPS, known

#: A gap is known and not refused; what ran and did not answer the oracle is wrong.
REFUSED, GAP, WRONG = "refused", "gap", "wrong"
ORDER = (NATIVE, COMMON, REWRITTEN, FREE, REFUSED, GAP, WRONG)


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one sample of an op went on a device: the path, and by what (a claim, a rule, or the reason)."""

    op: str
    device: str
    sample: str
    dtype: str
    path: str
    by: str


def place(case: Case, device: str) -> Entry:
    """Run the legalizer on one sample. An op counts as rewritten when any primitive in its decomposition was."""
    gap = known(case.op.name, device, case.dtype)
    if gap is not None and not gap.refused:
        return _entry(case, device, GAP, gap.reason)
    try:
        with flags.flags(device=device):
            report = explain(C.function([case], device), [case.arrays(device)], device=device)
    except CompileError as e:
        return _entry(case, device, REFUSED, e.why)
    path, by = _path(case.op, list(report))
    return _entry(case, device, path, by)


def _entry(case: Case, device: str, path: str, by: str) -> Entry:
    return Entry(case.op.name, device, case.id, case.dtype.short, path, by)


def _path(op: Op, rows: Sequence[Row]) -> tuple[str, str]:
    """The path of the op's own node; below a decomposition, a rewrite or a claim anywhere decides."""
    own = [r for r in rows if r.op == op.name]
    top = own[0] if own else rows[0] if rows else None
    if top is None:
        return FREE, "nothing to run"
    if top.path != COMMON:
        return top.path, top.by
    inner = [r for r in rows if r.path in (NATIVE, REWRITTEN)]
    rewritten = next((r for r in inner if r.path == REWRITTEN), None)
    return (REWRITTEN, rewritten.by) if rewritten is not None else (COMMON, top.by)


def collect(names: Iterable[str], pattern: str = "*") -> list[Entry]:
    """Every sample of the ops that match, on every device named."""
    chosen = [c for op in C.ops() if fnmatchcase(op.name, pattern) for c in C.cases(op)]
    return [place(c, d) for d in names for c in chosen]


def record(entries: Iterable[Entry], path: Path) -> None:
    """Append entries to a file, one a line."""
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(asdict(e)) + "\n" for e in entries))


def recorded(paths: Iterable[Path]) -> list[Entry]:
    """The entries of such files; what was recorded last of a sample counts. Raises ValueIssue for other files."""
    found: dict[tuple[str, str], Entry] = {}
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entry = Entry(**json.loads(line))
            except (TypeError, ValueError) as e:
                raise ValueIssue(f"line {number} of {path} is no entry of a coverage table", why=str(e),
                                 do="use a file that pytest --record-coverage wrote") from None
            found[entry.device, entry.sample] = entry
    return list(found.values())


def table(entries: Sequence[Entry], names: Sequence[str]) -> str:
    """Markdown: a row for each op, a column for each device, in a cell how many samples took each path."""
    cells: dict[tuple[str, str], Counter[str]] = {}
    for e in entries:
        cells.setdefault((e.op, e.device), Counter())[e.path] += 1
    lines = ["| op | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for op in sorted({e.op for e in entries}):
        lines.append(f"| {op} | " + " | ".join(_cell(cells.get((op, d), Counter())) for d in names) + " |")
    totals: dict[str, Counter[str]] = {d: Counter(e.path for e in entries if e.device == d) for d in names}
    lines.append("| **samples** | " + " | ".join(_cell(totals[d]) for d in names) + " |")
    return "\n".join(lines)


def _cell(counts: Counter[str]) -> str:
    """``common``, or ``native 3, common 9`` where the samples differ."""
    found = [(p, counts[p]) for p in ORDER if counts[p]]
    return found[0][0] if len(found) == 1 else ", ".join(f"{p} {n}" for p, n in found)


def details(entries: Sequence[Entry]) -> str:
    """Refused samples and known gaps with their reasons, equal ones counted."""
    found = Counter((e.op, e.device, e.dtype, e.path, e.by) for e in entries if e.path in (REFUSED, GAP, WRONG))
    lines = [f"{op} on {device}, {dtype}: {path}, {by}" + (f" ({n} samples)" if n > 1 else "")
             for (op, device, dtype, path, by), n in sorted(found.items())]
    lines += [f"known gap: {g.op} on {g.device}, {g.dtype}: {g.reason}" for g in GAPS]
    return "\n".join(lines)


def present() -> list[str]:
    """The devices that can be opened here; ``null`` only compiles, and has nothing to say."""
    return [name for name, absent in devices.available().items() if absent is None and name != "null"]


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m rlx coverage [--devices cpu,python] [--ops 'sc*'] [--details] [--from FILE ...]``."""
    parser = argparse.ArgumentParser(prog="rlx coverage", description="Where every op goes on every device.")
    parser.add_argument("--devices", default="", help="comma separated (default: every device that is present)")
    parser.add_argument("--ops", default="*", help="a pattern of op names")
    parser.add_argument("--details", action="store_true", help="the reason of every refusal and gap")
    parser.add_argument("--from", dest="files", nargs="+", type=Path, default=[], metavar="FILE",
                        help="what pytest --record-coverage wrote: from samples that ran, here or elsewhere")
    options = parser.parse_args(argv)
    names = [d.strip() for d in options.devices.split(",") if d.strip()]
    if options.files:
        entries = [e for e in recorded(options.files)
                   if fnmatchcase(e.op, options.ops) and (not names or e.device in names)]
        names = names or sorted({e.device for e in entries})
    else:
        names = names or present()
        for name in names:
            devices.find(name)
        entries = collect(names, options.ops)
    if not entries:
        raise ValueIssue(f"no op matches {options.ops!r}", why="the pattern is that of file names",
                         do="use a name or a pattern such as 'sc*'")
    print(table(entries, names))
    if options.details:
        print("\n" + (details(entries) or "nothing is refused"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Time several ways of doing the same work: parity first, then interleaved bursts, medians and spread."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from bench.plots import draw

#: Seconds of one peer's turn: a burst of a few milliseconds measures threads waking and caches filling instead.
BURST = 0.02
#: Seconds of one round from which three rounds are enough.
SLOW = 4.0
RESULTS = Path(__file__).parent / "results"
Work = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """One row: the same work by several peers. ``runs[peer]()`` does it once and returns the result to compare.

    ``units`` of work are done by one run (iterations, elements); times are reported per unit. ``bytes`` and ``flops``
    that one unit must move or compute give the roofline. ``goal`` is what the row is meant to reach, in words.
    """

    name: str
    runs: dict[str, Work]
    units: float = 1.0
    bytes: float = 0.0
    flops: float = 0.0
    rtol: float = 1e-6
    goal: str = ""
    compare: Callable[[Any, Any], None] | None = None


@dataclass(frozen=True)
class Row:
    """Seconds per unit of one peer on one case: median and the 10th and 90th percentiles."""

    case: str
    peer: str
    p50: float
    p10: float
    p90: float
    runs: int
    ratio: float = 1.0
    roofline: float | None = None
    goal: str = ""


@dataclass
class Report:
    """Rows and the conditions they were measured under."""

    title: str
    command: str
    rows: list[Row] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)

    def add(self, case: Case, seconds: float = 2.0) -> None:
        """Check that the peers agree, then time them."""
        _check(case)
        self.rows.extend(measure(case, seconds, self.limits))
        print(table([r for r in self.rows if r.case == case.name]), flush=True)

    def save(self, name: str) -> Path:
        """Write ``results/<name>.json``, ``.md`` and, with matplotlib, ``.png``."""
        RESULTS.mkdir(exist_ok=True)
        data = {"title": self.title, "date": date.today().isoformat(), "command": self.command,
                "machine": self.machine, "limits": self.limits, "rows": [asdict(r) for r in self.rows]}
        path = RESULTS / f"{name}.json"
        path.write_text(json.dumps(data, indent=1) + "\n")
        limits = ", ".join(f"{k} {v:.3g}" for k, v in self.limits.items())
        facts = "; ".join(f"{k} {v}" for k, v in self.machine.items())
        (RESULTS / f"{name}.md").write_text(f"# {self.title}\n\n{data['date']}, `{self.command}`\n\n{facts}\n\n"
                                            + (f"Measured limits: {limits}\n\n" if limits else "")
                                            + table(self.rows) + "\n")
        draw(self.rows, f"{self.title} ({data['date']})", RESULTS / f"{name}.png")
        return path


def new_report(title: str, command: str, packages: Sequence[str] = ()) -> Report:
    """A report that knows the machine and the versions."""
    return Report(title, command, machine=machine(packages))


def _check(case: Case) -> None:
    """Every peer's result equals the first one's."""
    names = list(case.runs)
    results = {n: case.runs[n]() for n in names}
    for n in names[1:]:
        if case.compare is not None:
            case.compare(results[names[0]], results[n])
        elif results[n] is not None and results[names[0]] is not None:
            np.testing.assert_allclose(np.asarray(results[n]), np.asarray(results[names[0]]), rtol=case.rtol,
                                       atol=case.rtol, err_msg=f"{case.name}: {n} against {names[0]}")


def measure(case: Case, seconds: float, limits: dict[str, float]) -> list[Row]:
    """Interleaved bursts: every round runs each peer once, so drift of the machine's speed meets all alike."""
    times: dict[str, list[float]] = {n: [] for n in case.runs}
    inner: dict[str, int] = {}
    once = 0.0
    for n, f in case.runs.items():
        start = perf_counter()
        f()
        spent = perf_counter() - start
        inner[n], once = max(int(BURST / max(spent, 1e-9)), 1), once + spent
    begin, least = perf_counter(), 7 if once < SLOW else 3
    while perf_counter() - begin < seconds or len(next(iter(times.values()))) < least:
        for n, f in case.runs.items():
            start = perf_counter()
            for _ in range(inner[n]):
                f()
            times[n].append((perf_counter() - start) / inner[n] / case.units)
    rows = []
    first = statistics.median(times[next(iter(times))])
    for n, ts in times.items():
        p10, p50, p90 = np.percentile(ts, (10, 50, 90))
        rows.append(Row(case.name, n, float(p50), float(p10), float(p90), len(ts), float(p50) / first,
                        _fraction(case, float(p50), limits), case.goal))
    return rows


def _fraction(case: Case, seconds: float, limits: dict[str, float]) -> float | None:
    """Achieved share of the bound that the work's bytes and operations set."""
    bounds = []
    if case.bytes and limits.get("bandwidth GB/s"):
        bounds.append(case.bytes / (limits["bandwidth GB/s"] * 1e9))
    if case.flops and limits.get("GFLOP/s"):
        bounds.append(case.flops / (limits["GFLOP/s"] * 1e9))
    return max(bounds) / seconds if bounds else None


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    out = ["| case | peer | median | p10 | p90 | x of rlx | roofline | goal |", "|---|---|---|---|---|---|---|---|"]
    for r in rows:
        roof = f"{r.roofline:.0%}" if r.roofline is not None else ""
        times = f"{_time(r.p50)} | {_time(r.p10)} | {_time(r.p90)}"
        out.append(f"| {r.case} | {r.peer} | {times} | {r.ratio:.2f} | {roof} | "
                   f"{r.goal if r.peer.startswith('rlx') else ''} |")
    return "\n".join(out)


def _time(s: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if s >= scale:
            return f"{s / scale:.3g} {unit}"
    return f"{s / 1e-9:.3g} ns"


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """The processor, the cores this process may use, and the versions."""
    facts: dict[str, Any] = {"cpu": _cpu_name(), "cores": len(os.sched_getaffinity(0)),
                             "python": platform.python_version()}
    for p in ("numpy", "scipy", "llvmlite", *packages):
        try:
            facts[p] = version(p)
        except PackageNotFoundError:
            facts[p] = "absent"
    return facts


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((ln.split(":")[1].strip() for ln in lines if ln.startswith("model name")), platform.machine())


def bandwidth(device: str = "cpu", nbytes: int = 1 << 28) -> float:
    """Measured memory bandwidth in GB/s: the best of fifteen readings of two arrays beyond any cache."""
    import rlx
    n = nbytes // 8
    a, b = (rlx.asarray(np.ones(n), device=device) for _ in range(2))
    f = rlx.jit(lambda a, b: (a * b).sum(), dispatch="common")
    best = 0.0
    for _ in range(15):
        start = perf_counter()
        float(f(a, b))
        best = max(best, 2 * nbytes / (perf_counter() - start) / 1e9)
    return best

"""The rows of a report as bars: how many times the time of rlx each peer takes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.harness import Row


def draw(rows: Sequence[Row], title: str, path: Path) -> Path | None:
    """Write the plot; None without matplotlib, or when there is nothing to compare."""
    cases = list(dict.fromkeys(r.case for r in rows))
    peers = list(dict.fromkeys(r.peer for r in rows))
    if find_spec("matplotlib") is None or len(peers) < 2:
        return None
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    count = len(rows)
    figure, ax = plt.subplots(figsize=(8, 1.2 + 0.22 * count + 0.18 * len(cases)), constrained_layout=True)
    place, ticks = 0.0, []
    for case in cases:
        own = [r for r in rows if r.case == case]
        ticks.append(place + (len(own) - 1) / 2)
        for r in own:
            color = f"C{peers.index(r.peer) % 10}"
            low, high = r.ratio * (1 - r.p10 / r.p50), r.ratio * (r.p90 / r.p50 - 1)
            ax.barh(place, r.ratio, 0.82, color=color, xerr=[[low], [high]], error_kw={"linewidth": 0.7},
                    label=r.peer if r.peer not in ax.get_legend_handles_labels()[1] else None)
            place += 1
        place += 0.8
    ax.axvline(1, color="0.5", linewidth=0.8)
    ax.set_yticks(ticks, cases, fontsize=8)
    ax.invert_yaxis()
    ratios = [r.ratio for r in rows]
    if max(ratios) > 20 * min(ratios):
        ax.set_xscale("log")
    ax.set_xlabel("time, in times of the first peer's median (bars: 10th to 90th percentile)")
    ax.set_title(title, fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path

"""What every part of the demo is told, and how it shows where its program went."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import rlx
from rlx.compile.report import Report


@dataclass(frozen=True)
class Setting:
    """Device, directory, how much of the report to print, and what the user chose of a part."""

    device: str
    out: Path
    whole: bool
    matrix: Path | None = None
    dtype_name: str | None = None
    rtol: float | None = None

    @property
    def dtype(self) -> Any:
        """The dtype asked for, else the widest real one of the device."""
        if self.dtype_name is not None:
            return getattr(rlx, self.dtype_name)
        return rlx.__array_namespace_info__().default_dtypes(device=self.device)["real floating"]

    def show(self, report: Report, what: str) -> None:
        """Print the placement of a program: sums, or every node."""
        print(f"{what}: {report.table() if self.whole else report.brief()}")

    def axes(self, *, width: float = 7, height: float = 4.2) -> tuple[Any, Any] | None:
        """A figure and its axes, or None without matplotlib."""
        if find_spec("matplotlib") is None:
            return None
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
        return plt.subplots(figsize=(width, height), constrained_layout=True)

    def save(self, figure: Any, name: str) -> Path:
        """Write a figure into the directory, and forget it."""
        import matplotlib.pyplot as plt
        path = self.out / name
        figure.savefig(path, dpi=130)
        plt.close(figure)
        return path

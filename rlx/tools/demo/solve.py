"""A real sparse system by conjugate gradients: the solver's loop is one program of the device.

By default the matrix is the finite-element mesh of an airfoil that the package pyamg ships. It is written to a Matrix
Market file and read back, solved with and without a preconditioner, checked against a dense factorization, and the
convergence is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import rlx
import rlx.linalg
import rlx.sparse
from rlx.array.jit import Jitted
from rlx.core.errors import FormatError, RlxError
from rlx.tools.demo.setting import Setting

#: Unknowns up to which the answer is compared with a dense factorization.
DENSE = 1500


@dataclass(frozen=True)
class Solve:
    """One solve: its label, the solver's own report, log10 of the residuals, and the seconds of a repeated run."""

    label: str
    x: np.ndarray
    info: rlx.sparse.SolverInfo
    log_residuals: np.ndarray
    error: float | None
    seconds: float


def main(setting: Setting) -> bool:
    """Solve, print and draw: true when every solve converged."""
    path = setting.matrix or ship_matrix(setting.out / "airfoil.mtx")
    A = rlx.sparse.CSR.from_mtx(path, dtype=setting.dtype, device=setting.device)
    print(f"{path}: {A}")
    wide = setting.dtype == rlx.float64
    solves = run(A, setting.rtol if setting.rtol is not None else 1e-8 if wide else 1e-5, setting)
    for s in solves:
        _print(s)
    plot(solves, f"{path.name}, n = {A.shape[0]}, {A.dtype.name} on {A.device}", setting)
    return all(s.info.converged for s in solves)


def ship_matrix(path: Path) -> Path:
    """Write pyamg's airfoil matrix as a Matrix Market file."""
    try:
        from pyamg.gallery import load_example
    except ImportError as e:
        raise RlxError("the demo's default matrix is not here", why=f"it comes with the package pyamg ({e})",
                       do="pip install 'rlx[demo]', or pass --matrix FILE.mtx") from None
    m = load_example("airfoil")["A"].tocoo()
    rlx.sparse.write_mtx(path, m.row, m.col, m.data, m.shape, comment="airfoil, from pyamg's gallery")
    return path


def run(A: rlx.sparse.CSR, rtol: float, setting: Setting) -> list[Solve]:
    """Solve ``A x = b`` for a known x, plain and with the Jacobi preconditioner."""
    if A.shape[0] != A.shape[1]:
        raise FormatError(f"the matrix has shape {A.shape}", why="the demo solves square systems",
                          do="pass a square matrix")
    n = A.shape[0]
    truth = np.sin(np.linspace(0, 20, n)).astype(A.dtype.numpy)
    b = A @ rlx.asarray(truth, device=A.device)
    dense = n <= DENSE
    program = rlx.jit(lambda A, b, M: study(A, b, M, rtol, dense))
    plain = _timed("cg", program, A, b, None)
    setting.show(program.lower(A, b, None).report, "the program of one solve")
    return [plain, _timed("cg + Jacobi", program, A, b, rlx.sparse.jacobi(A))]


def study(A: rlx.sparse.CSR, b: Any, M: Any, rtol: float, dense: bool) -> dict[str, Any]:
    """The traced program: solve, compare with a dense solve, and take the logarithm of the residuals."""
    x, info = rlx.sparse.cg(A, b, rtol=rtol, M=M)
    reference = rlx.linalg.solve(A.todense(), b) if dense else x
    error = rlx.sqrt(((x - reference) ** 2).sum() / (reference**2).sum())
    return {"x": x, "info": info, "log": rlx.log10(info.history), "error": error}


def _timed(label: str, program: Jitted, A: Any, b: Any, M: Any) -> Solve:
    program(A, b, M)
    start = perf_counter()
    found = program(A, b, M)
    rlx.eval(found["x"])
    seconds = perf_counter() - start
    info = rlx.sparse.SolverInfo.from_traced(found["info"])
    logs = np.asarray(found["log"])[:info.iterations + 1]
    return Solve(label, np.asarray(found["x"]), info, logs, float(found["error"]) if A.shape[0] <= DENSE else None,
                 seconds)


def _print(s: Solve) -> None:
    print(f"{s.label:12} {s.info.reason}: {s.info.iterations} iterations, {s.info.matvecs} products, "
          f"true residual {s.info.residual:.2e} (target {s.info.target:.2e}), {s.seconds * 1e3:.2f} ms")
    if s.error is not None:
        print(f"{'':12} relative difference from the dense factorization {s.error:.1e}")


def plot(solves: Sequence[Solve], title: str, setting: Setting) -> Path | None:
    """Draw the residuals of each solve over its iterations."""
    drawn = setting.axes()
    if drawn is None:
        return None
    figure, ax = drawn
    for s in solves:
        ax.plot(s.log_residuals, label=f"{s.label}: {s.info.iterations} iterations", linewidth=1.4)
    ax.axhline(np.log10(solves[0].info.target), color="0.6", linestyle="--", linewidth=1, label="target")
    ax.set_xlabel("iteration")
    ax.set_ylabel("log10 of the residual norm")
    ax.set_title(title, fontsize=10)
    ax.legend(frameon=False)
    ax.grid(alpha=0.25)
    return setting.save(figure, "convergence.png")

"""Sparse direct solvers against SuperLU through SciPy: new values of a known pattern factored, and a system solved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

import rlx
import rlx.sparse
from bench.harness import Case, Report, new_report
from bench.solvers import poisson

#: Symmetric mode: SuperLU prefers the diagonal, and orders and fills for A + A^T.
SYMMETRIC = {"diag_pivot_thresh": 0.001, "options": {"SymmetricMode": True}}


def plant(n: int, seed: int = 0) -> Any:
    """A matrix as of a chemical plant's stages: four entries a row, most near by, some recycled, none on a diagonal.

    It has the size, entries and spread of values of the collection's west0479, which the project does not ship.
    """
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(n), 3)
    cols = np.clip(rows + rng.integers(-20, 8, 3 * n), 0, n - 1)
    far = rng.random(3 * n) < 0.03
    cols = np.where(far, rng.integers(0, n, 3 * n), cols)
    values = rng.standard_normal(3 * n) * 10.0 ** rng.uniform(-2, 2, 3 * n)
    own = rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(0, 2, n)
    a = scipy.sparse.csr_matrix((np.concatenate([values, own]), (np.concatenate([rows, np.arange(n)]),
                                                                 np.concatenate([cols, np.arange(n)]))), shape=(n, n))
    return a[rng.permutation(n)].tocsr()


def refactor_case(name: str, m: Any, goal: str = "at or above SuperLU") -> Case:
    """Factor new values of a pattern and solve one system.

    SuperLU has no reuse through SciPy: one peer analyzes each time, as users do; one gets the columns in the order that
    it chose before, and one in symmetric mode with an order of A + A^T chosen before.
    """
    A, columns = rlx.sparse.CSR.from_scipy(m), m.tocsc()
    host = np.random.default_rng(0).standard_normal(m.shape[0])
    b, plan = rlx.asarray(host), rlx.sparse.analyze(A)
    first = rlx.sparse.lu(A, plan=plan)
    both = rlx.jit(lambda values, b: rlx.sparse.lu(A.with_data(values), plan=plan).solve(b))

    def given(spec: str, symmetric: bool) -> Any:
        order = np.argsort(scipy.sparse.linalg.splu(columns, permc_spec=spec).perm_c)
        moved = columns[order][:, order].tocsc() if symmetric else columns[:, order].tocsc()
        right = host[order] if symmetric else host
        extra = SYMMETRIC if symmetric else {}

        def run() -> Any:
            x = np.empty_like(host)
            x[order] = scipy.sparse.linalg.splu(moved, permc_spec="NATURAL", **extra).solve(right)
            return x
        return run

    runs = {"rlx": lambda: first.refactor(A.data).solve(b),
            "rlx, one compiled function": lambda: both(A.data, b),
            "scipy splu": lambda: scipy.sparse.linalg.splu(columns).solve(host),
            "scipy splu, ordered before": given("COLAMD", False)}
    if np.all(m.diagonal() != 0):
        runs["scipy splu, symmetric, ordered before"] = given("MMD_AT_PLUS_A", True)

    def agree(x: Any, y: Any) -> None:
        for z in (np.asarray(x), np.asarray(y)):
            error = np.max(abs(host - m @ z) / (abs(m) @ abs(z) + abs(host)))
            assert error < 1e-9, f"{name}: backward error {error:.2g}"
    return Case(f"LU refactor + solve, {name}, n = {m.shape[0]}, nnz = {m.nnz}", runs, flops=plan.flops, goal=goal,
                compare=agree)


def cholesky_case(name: str, m: Any) -> Case:
    """The same for a positive definite matrix, against SuperLU in symmetric mode."""
    A, columns = rlx.sparse.CSR.from_scipy(m), m.tocsc()
    host = np.random.default_rng(0).standard_normal(m.shape[0])
    b, plan = rlx.asarray(host), rlx.sparse.analyze(A, kind="cholesky")
    both = rlx.jit(lambda values, b: rlx.sparse.cholesky(A.with_data(values), plan=plan).solve(b))
    splu = scipy.sparse.linalg.splu
    runs = {"rlx": lambda: both(A.data, b),
            "scipy splu": lambda: splu(columns, permc_spec="MMD_AT_PLUS_A", **SYMMETRIC).solve(host)}
    return Case(f"Cholesky refactor + solve, {name}, n = {m.shape[0]}", runs, flops=plan.flops, rtol=1e-6)


def solve_case(name: str, m: Any) -> Case:
    """One right-hand side with factors at hand; rlx looks at its backward error, SuperLU does not."""
    f, theirs = rlx.sparse.lu(m), scipy.sparse.linalg.splu(m.tocsc(), permc_spec="MMD_AT_PLUS_A", **SYMMETRIC)
    host = np.random.default_rng(0).standard_normal(m.shape[0])
    b = rlx.asarray(host)
    return Case(f"LU solve, {name}, n = {m.shape[0]}", {"rlx": lambda: f.solve(b), "scipy splu":
                                                        lambda: theirs.solve(host)}, rtol=1e-6)


def analyze_case(name: str, m: Any) -> Case:
    """The analysis alone, beside all that SuperLU does."""
    A, columns = rlx.sparse.CSR.from_scipy(m), m.tocsc()
    runs: dict[str, Any] = {"rlx analyze": lambda: rlx.sparse.analyze(A),
                            "scipy splu": lambda: scipy.sparse.linalg.splu(columns)}
    return Case(f"analysis, {name}, n = {m.shape[0]}", runs, compare=lambda x, y: None)


def main(command: str, seconds: float = 6.0) -> Report:
    """All rows; ``RLX_BENCH_MATRICES`` names further Matrix Market files, separated by the path separator."""
    report = new_report("Sparse direct solvers", command)
    report.add(refactor_case("plant", plant(479)), seconds)
    report.add(refactor_case("Poisson 200x200", poisson(200)), seconds)
    report.add(cholesky_case("Poisson 200x200", poisson(200)), seconds)
    report.add(solve_case("Poisson 200x200", poisson(200)), seconds / 2)
    report.add(analyze_case("Poisson 200x200", poisson(200)), seconds / 2)
    for name in filter(None, os.environ.get("RLX_BENCH_MATRICES", "").split(os.pathsep)):
        report.add(refactor_case(Path(name).name, rlx.sparse.CSR.from_mtx(name).to_scipy()), seconds / 2)
    return report

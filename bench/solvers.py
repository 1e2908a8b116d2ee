"""Conjugate gradients and sparse products against SciPy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

import rlx
import rlx.sparse
from bench.harness import Case, Report, bandwidth, new_report


def poisson(n: int) -> Any:
    """The five-point Laplacian on an n x n grid, f64."""
    e = np.ones(n)
    t = scipy.sparse.diags([-e[1:], 2 * e, -e[1:]], [-1, 0, 1])
    i = scipy.sparse.eye(n)
    return (scipy.sparse.kron(i, t) + scipy.sparse.kron(t, i)).tocsr()


def iteration_bytes(m: Any) -> int:
    """Bytes one fused iteration must move: the matrix once (as CSR, or by its diagonals), and ten passes over vectors.

    ``q = A p, p.q`` reads p and writes q; ``r -= a q, r.r`` reads r, q and writes r; ``x += a p, p = r + b p`` reads
    x, r, p and writes x, p.
    """
    n, item = m.shape[0], m.dtype.itemsize
    bands = rlx.sparse.bands_of(rlx.sparse.CSR.from_scipy(m))
    matrix = m.nnz * (item + 4) + (n + 1) * 4 if bands is None else len(bands.offsets) * n * item
    return matrix + 10 * n * item


def cg_case(name: str, m: Any, iterations: int, goal: str) -> Case:
    """A fixed number of iterations, so that both do the same work; time is per iteration."""
    A = rlx.sparse.CSR.from_scipy(m)
    host = np.ones(m.shape[0])
    b = rlx.asarray(host)
    runs = {"rlx": lambda: rlx.sparse.cg(A, b, rtol=0.0, maxiter=iterations)[0],
            "scipy": lambda: scipy.sparse.linalg.cg(m, host, rtol=0.0, maxiter=iterations)[0]}
    return Case(name, runs, iterations, iteration_bytes(m), rtol=1e-6, goal=goal)


def spmv_case(name: str, m: Any) -> Case:
    """One product."""
    A = rlx.sparse.CSR.from_scipy(m)
    host = np.random.default_rng(0).standard_normal(m.shape[0])
    x = rlx.asarray(host)
    product = rlx.jit(lambda A, x: A @ x)
    moved = m.nnz * 12 + m.shape[0] * 20
    return Case(name, {"rlx": lambda: product(A, x), "scipy": lambda: m @ host}, 1, moved)


def solve_case(name: str, A: rlx.sparse.CSR, rtol: float = 1e-8) -> Case:
    """A whole solve, as a user calls it: the arguments checked, the report made."""
    m, host = A.to_scipy(), np.random.default_rng(0).standard_normal(A.shape[0])
    b = rlx.asarray(host)
    iterations = rlx.sparse.cg(A, b, rtol=rtol)[1].iterations
    runs = {"rlx": lambda: rlx.sparse.cg(A, b, rtol=rtol)[0],
            "scipy": lambda: scipy.sparse.linalg.cg(m, host, rtol=rtol)[0]}
    return Case(f"cg to {rtol:g}, {name}, n = {A.shape[0]}, nnz = {A.nnz}, {iterations} iterations", runs, rtol=1e-4,
                goal="5x scipy")


def amg_case(n: int, rtol: float = 1e-8) -> Case:
    """Conjugate gradients with a multigrid preconditioner, hierarchies made before; the answers are checked."""
    import pyamg
    m, host = poisson(n), np.random.default_rng(0).standard_normal(n * n)
    A, b = rlx.sparse.CSR.from_scipy(m), rlx.asarray(host)
    M, ml = rlx.sparse.smoothed_aggregation(A), pyamg.smoothed_aggregation_solver(m)
    single = rlx.sparse.smoothed_aggregation(A, dtype="float32")
    runs = {"rlx": lambda: rlx.sparse.cg(A, b, rtol=rtol, M=M)[0],
            "rlx, cycle in f32": lambda: rlx.sparse.cg(A, b, rtol=rtol, M=single)[0],
            "pyamg": lambda: ml.solve(host, tol=rtol, accel="cg")}
    for name, run in runs.items():
        left = np.linalg.norm(host - m @ np.asarray(run())) / np.linalg.norm(host)
        assert left <= rtol * 1.01, f"{name} left {left}"
    return Case(f"AMG-CG to {rtol:g}, Poisson {n}x{n}", runs, rtol=1e-4, goal="faster than pyamg",
                compare=lambda x, y: None)


def amg_setup_case(n: int) -> Case:
    """The hierarchies themselves."""
    import pyamg
    m = poisson(n)
    A = rlx.sparse.CSR.from_scipy(m)
    runs = {"rlx": lambda: rlx.sparse.smoothed_aggregation(A), "pyamg": lambda: pyamg.smoothed_aggregation_solver(m)}
    return Case(f"AMG setup, Poisson {n}x{n}", runs, goal="as pyamg", compare=lambda x, y: None)


def method_case(name: str, m: Any, rtol: float = 1e-8) -> Case:
    """A whole solve by another method, as a user calls it."""
    A, host = rlx.sparse.CSR.from_scipy(m), np.random.default_rng(0).standard_normal(m.shape[0])
    b, ours, theirs = rlx.asarray(host), getattr(rlx.sparse, name), getattr(scipy.sparse.linalg, name)
    iterations = ours(A, b, rtol=rtol)[1].iterations
    runs = {"rlx": lambda: ours(A, b, rtol=rtol)[0], "scipy": lambda: theirs(m, host, rtol=rtol)[0]}
    return Case(f"{name} to {rtol:g}, n = {m.shape[0]}, {iterations} iterations", runs, rtol=1e-2, goal="above scipy")


def main(command: str, seconds: float = 6.0) -> Report:
    """All rows; ``RLX_BENCH_MATRICES`` names further Matrix Market files, separated by the path separator."""
    report = new_report("Sparse solvers", command, ("pyamg",))
    report.limits["bandwidth GB/s"] = bandwidth()
    big = poisson(1000)
    report.add(cg_case("cg, Poisson 1000x1000, f64", big, 100, "2x scipy, 75 % of bandwidth"), seconds)
    report.add(solve_case("bus network", rlx.sparse.CSR.from_scipy(bus_like(494))), seconds / 2)
    report.add(solve_case("Poisson 71x71", rlx.sparse.CSR.from_scipy(poisson(71))), seconds / 2)
    for name in filter(None, os.environ.get("RLX_BENCH_MATRICES", "").split(os.pathsep)):
        report.add(solve_case(Path(name).name, rlx.sparse.CSR.from_mtx(name)), seconds / 2)
    upwind = (poisson(71) + scipy.sparse.diags([0.3, -0.3], [1, -1], shape=(5041, 5041))).tocsr()
    for method, m in (("bicgstab", upwind), ("gmres", upwind), ("minres", poisson(71))):
        report.add(method_case(method, m), seconds / 2)
    report.add(amg_setup_case(1000), seconds)
    report.add(amg_case(1000), seconds)
    report.add(spmv_case("A @ x, Poisson 1000x1000, f64", big), seconds / 2)
    return report


def bus_like(n: int) -> Any:
    """A power-network-like SPD matrix: a random tree with extra links, weighted Laplacian plus a small diagonal.

    It has the size and the entries per row of the collection's 494_bus, which the project does not ship.
    """
    rng = np.random.default_rng(494)
    heads = [int(rng.integers(0, k)) for k in range(1, n)]
    links = [*enumerate(heads, 1), *[tuple(rng.integers(0, n, 2)) for _ in range(n // 5)]]
    rows, cols, vals = [], [], []
    for i, j in links:
        if i != j:
            w = float(10 ** rng.uniform(0, 3))
            rows += [i, j, i, j]
            cols += [j, i, i, j]
            vals += [-w, -w, w, w]
    m = scipy.sparse.coo_matrix((vals, (rows, cols)), shape=(n, n)).tocsr()
    return (m + scipy.sparse.eye(n) * 1e-1).tocsr()

"""Banded storage: which matrices take it, the product, and solvers that give the same answers with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import rlx
import rlx.sparse
from rlx.ir.text import print_program


def stencil(n: int) -> Any:
    e = np.ones(n)
    t = scipy.sparse.diags([-e[1:], 2.1 * e, -e[1:]], [-1, 0, 1])
    return (scipy.sparse.kron(scipy.sparse.eye(n), t) + scipy.sparse.kron(t, scipy.sparse.eye(n))).tocsr()


def csr(m: Any) -> rlx.sparse.CSR:
    return rlx.sparse.CSR.from_scipy(m)


@pytest.mark.parametrize("size", [9, 40, 200])
def test_a_stencil_is_banded_and_its_product_is_the_same(size: int) -> None:
    m = stencil(size)
    found = rlx.sparse.bands_of(csr(m))
    assert found is not None and found.offsets == (-size, -1, 0, 1, size)
    x = np.random.default_rng(0).standard_normal(size * size)
    np.testing.assert_allclose(np.asarray(found(rlx.asarray(x))), m @ x, rtol=1e-12, atol=1e-12)


def test_the_search_is_remembered() -> None:
    A = csr(stencil(20))
    assert rlx.sparse.bands_of(A) is rlx.sparse.bands_of(A)


@pytest.mark.parametrize("name", ["scattered", "small", "rectangular", "empty", "sparse diagonals"])
def test_other_matrices_stay_csr(name: str) -> None:
    rng = np.random.default_rng(1)
    m = {"scattered": scipy.sparse.random(200, 200, 0.02, "csr", random_state=rng) + scipy.sparse.eye(200),
         "small": scipy.sparse.eye(8), "rectangular": scipy.sparse.eye(100, 120),
         "empty": scipy.sparse.csr_matrix((90, 90)),
         "sparse diagonals": scipy.sparse.diags([np.ones(200), np.r_[1.0, np.zeros(150)]], [0, 49])}[name].tocsr()
    m.eliminate_zeros()
    assert rlx.sparse.bands_of(csr(m)) is None


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_cg_gives_the_same_answer_in_both_storages(dtype: str) -> None:
    m = stencil(30).astype(dtype)
    A, b = csr(m), np.random.default_rng(2).standard_normal(900).astype(dtype)
    rtol = 1e-4 if dtype == "float32" else 1e-9
    x, info = rlx.sparse.cg(A, b, rtol=rtol)
    y, plain = rlx.sparse.cg(lambda v: A @ v, rlx.asarray(b), rtol=rtol)
    assert info.converged and plain.converged and abs(info.iterations - plain.iterations) <= 1
    np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=0, atol=200 * rtol * np.abs(np.asarray(y)).max())


def test_new_values_are_seen() -> None:
    A, b = csr(stencil(12)), np.ones(144)
    first, _ = rlx.sparse.cg(A, b, rtol=1e-10)
    second, _ = rlx.sparse.cg(A.with_data(A.data * 2), b, rtol=1e-10)
    np.testing.assert_allclose(np.asarray(first), 2 * np.asarray(second), rtol=1e-6)


def test_the_inner_part_of_a_stencil_has_no_test() -> None:
    A = rlx.sparse.bands_of(csr(stencil(40)))
    assert A is not None
    program = rlx.jit(lambda A, x: A(x)).lower(A, rlx.ones(1600)).lowered.program
    text = print_program(program)
    assert len(program.kernels()) == 1 and text.count(" vector {") == 3
    inner = text.split(" vector {")[2].split("}")[0]
    assert "select" not in inner and "for o0 in range(40, 1560)" in text

"""CSR: construction, checks, products, and conversions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import rlx
import rlx.sparse
from rlx.core.errors import DTypeError, IndexOutOfBounds, ShapeError, ValueIssue

DTYPES = ("float32", "float64", "complex64", "complex128")


def random_matrix(n: int = 30, m: int = 20, dtype: str = "float64", density: float = 0.2, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    a = scipy.sparse.random(n, m, density, "csr", random_state=rng)
    a.data = a.data + (1j * rng.standard_normal(a.nnz) if "complex" in dtype else 0)
    return a.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_product_with_vector_and_block(dtype: str) -> None:
    a = random_matrix(dtype=dtype)
    x = np.random.default_rng(1).standard_normal((20, 3)).astype(dtype)
    A = rlx.sparse.CSR.from_scipy(a)
    tol = 1e-5 if dtype in ("float32", "complex64") else 1e-12
    np.testing.assert_allclose(np.asarray(A @ rlx.asarray(x[:, 0])), a @ x[:, 0], rtol=tol, atol=tol)
    np.testing.assert_allclose(np.asarray(A @ rlx.asarray(x)), a @ x, rtol=tol, atol=tol)
    assert (A @ rlx.asarray(x)).dtype.name == dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_transpose_and_adjoint(dtype: str) -> None:
    a = random_matrix(dtype=dtype)
    A = rlx.sparse.CSR.from_scipy(a)
    y = np.random.default_rng(2).standard_normal(30).astype(dtype)
    tol = 1e-5 if dtype in ("float32", "complex64") else 1e-12
    np.testing.assert_allclose(np.asarray(A.T @ rlx.asarray(y)), a.T @ y, rtol=tol, atol=tol)
    np.testing.assert_allclose(np.asarray(A.rmatvec(rlx.asarray(y))), a.conj().T @ y, rtol=tol, atol=tol)


def test_product_with_numpy_and_promotion() -> None:
    a = random_matrix(dtype="float32")
    out = rlx.sparse.CSR.from_scipy(a) @ np.ones(20)
    assert out.dtype == rlx.float64
    np.testing.assert_allclose(np.asarray(out), a @ np.ones(20), rtol=1e-6)


def test_entries_are_summed_and_sorted() -> None:
    A = rlx.sparse.CSR.from_arrays([1, 0, 1, 1], [2, 0, 0, 2], [1.0, 2.0, 3.0, 4.0], (2, 3))
    assert np.asarray(A.todense()).tolist() == [[2, 0, 0], [3, 0, 5]]
    assert np.asarray(A.indices).tolist() == [0, 0, 2]


def test_unsorted_and_duplicate_parts_are_made_canonical() -> None:
    A = rlx.sparse.CSR([1.0, 2.0, 3.0], [2, 0, 0], [0, 3], (1, 3))
    assert np.asarray(A.indices).tolist() == [0, 2]
    assert np.asarray(A.data).tolist() == [5.0, 1.0]


def test_round_trips() -> None:
    a = random_matrix()
    A = rlx.sparse.CSR.from_scipy(a)
    assert (abs(A.to_scipy() - a)).max() == 0
    np.testing.assert_array_equal(np.asarray(A.todense()), a.toarray())
    np.testing.assert_array_equal(np.asarray(rlx.sparse.CSR.from_dense(a.toarray()).data), a.data)
    np.testing.assert_array_equal(np.asarray(A.diagonal()), a.diagonal())


def test_from_mtx(tmp_path: Any) -> None:
    a = random_matrix().tocoo()
    rlx.sparse.write_mtx(tmp_path / "a.mtx", a.row, a.col, a.data, a.shape)
    A = rlx.sparse.CSR.from_mtx(tmp_path / "a.mtx", dtype="float32")
    assert A.dtype == rlx.float32
    np.testing.assert_allclose(np.asarray(A.todense()), a.toarray().astype("float32"))


def test_from_mtx_cuts_no_values(tmp_path: Any) -> None:
    rlx.sparse.write_mtx(tmp_path / "c.mtx", [0], [0], np.array([1 + 2j]), (1, 1))
    for dtype in ("float64", "int32"):
        with pytest.raises(DTypeError):
            rlx.sparse.CSR.from_mtx(tmp_path / "c.mtx", dtype=dtype)


def test_empty_rows_and_empty_matrix() -> None:
    A = rlx.sparse.CSR.from_arrays([2], [1], [3.0], (4, 2))
    assert np.asarray(A @ np.ones(2)).tolist() == [0, 0, 3, 0]
    empty = rlx.sparse.CSR.from_arrays([], [], np.zeros(0), (3, 2))
    assert np.asarray(empty @ np.ones(2)).tolist() == [0, 0, 0]


def test_a_csr_is_a_pytree_argument() -> None:
    A = rlx.sparse.CSR.from_scipy(random_matrix())
    f = rlx.jit(lambda A, x: A @ x * 2)
    np.testing.assert_allclose(np.asarray(f(A, np.ones(20))), 2 * (A.to_scipy() @ np.ones(20)))
    f(A.with_data(A.data * 3), np.ones(20))
    assert f.cache_size == 1


def test_common_policy_gives_the_same_product() -> None:
    a = random_matrix()
    with rlx.flags(kernel_dispatch="common"):
        out = rlx.sparse.CSR.from_scipy(a) @ np.ones(20)
        np.testing.assert_allclose(np.asarray(out), a @ np.ones(20))


BAD = {
    "indptr length": (ShapeError, lambda: rlx.sparse.CSR([1.0], [0], [0, 1], (2, 2))),
    "indptr falls": (ShapeError, lambda: rlx.sparse.CSR([1.0, 2.0], [0, 1], [0, 2, 1], (2, 2))),
    "column too large": (IndexOutOfBounds, lambda: rlx.sparse.CSR([1.0], [2], [0, 1], (1, 2))),
    "column negative": (IndexOutOfBounds, lambda: rlx.sparse.CSR([1.0], [-1], [0, 1], (1, 2))),
    "lengths differ": (ShapeError, lambda: rlx.sparse.CSR([1.0], [0, 1], [0, 2], (1, 2))),
    "float indices": (DTypeError, lambda: rlx.sparse.CSR([1.0], [0.5], [0, 1], (1, 2))),
    "row out of range": (IndexOutOfBounds, lambda: rlx.sparse.CSR.from_arrays([5], [0], [1.0], (2, 2))),
    "half precision": (DTypeError, lambda: rlx.sparse.CSR(np.ones(1, "float16"), [0], [0, 1], (1, 1))),
    "huge and empty": (ShapeError, lambda: rlx.sparse.CSR.from_arrays([0], [0], [1.0], (10**12, 3))),
    "vector too short": (ShapeError, lambda: rlx.sparse.CSR([1.0], [0], [0, 1], (1, 2)) @ np.ones(3)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_parts_are_refused(name: str) -> None:
    kind, make = BAD[name]
    with pytest.raises(kind) as e:
        make()
    assert e.value.what and e.value.why and e.value.do and "test_csr.py" in e.value.where


def test_jacobi_refuses_a_zero_diagonal() -> None:
    A = rlx.sparse.CSR.from_arrays([0, 1], [1, 0], [1.0, 1.0], (2, 2))
    with pytest.raises(ValueIssue, match=r"0\.0 at 0 of its diagonal"):
        rlx.sparse.jacobi(A)

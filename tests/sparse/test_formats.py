"""CSC, COO and BSR, arithmetic, assembly and slicing against SciPy, and their bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import rlx
import rlx.sparse as rs
from rlx.core.errors import DTypeError, IndexOutOfBounds, RlxError, ShapeError, TraceError, ValueIssue
from rlx.sparse.pattern import is_canonical
from rlx.testing import check_grad

MAKERS: dict[str, Callable[[Any], Any]] = {"csr": rs.CSR.from_scipy, "csc": rs.CSC.from_scipy, "coo": rs.COO.from_scipy,
                                           "bsr": lambda m: rs.BSR.from_scipy(m, (2, 3))}


def random(shape: tuple[int, int], seed: int = 0, complex_: bool = False) -> Any:
    rng = np.random.default_rng(seed)
    m = sp.random(*shape, 0.3, "csr", random_state=rng)
    return m + 1j * sp.random(*shape, 0.3, "csr", random_state=rng) if complex_ else m


def same(got: Any, want: Any) -> None:
    """Equal as dense arrays; a sparse result has a sorted pattern without duplicates."""
    if hasattr(got, "tocsr"):
        made = got.tocsr()
        assert is_canonical(np.asarray(made.indices), np.asarray(made.indptr))
        got = got.todense()
    np.testing.assert_allclose(np.asarray(got), want.toarray() if sp.issparse(want) else np.asarray(want), atol=1e-13)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_each_format_holds_moves_and_multiplies(name: str, complex_: bool) -> None:
    m = random((12, 9), complex_=complex_)
    A = MAKERS[name](m)
    x, block = np.arange(9.0), np.arange(27.0).reshape(9, 3)
    assert A.format == name and A.shape == (12, 9) and A.ndim == 2 and A.device == "cpu" and name.upper() in repr(A)
    same(A, m)
    same(A.T, m.T)
    same(A.H, m.conj().T)
    same(A @ x, m @ x)
    same(A @ block, m @ block)
    same(A.rmatvec(np.arange(12.0)), m.conj().T @ np.arange(12.0))
    same(np.arange(24.0).reshape(2, 12) @ A, np.arange(24.0).reshape(2, 12) @ m)
    np.testing.assert_array_equal(A.to_scipy().toarray(), m.toarray())
    for other in ("csr", "csc", "coo", "bsr"):
        made = A.asformat(other)
        assert made.format == other
        same(made, m)


@pytest.mark.parametrize("name", MAKERS)
def test_arithmetic_agrees_with_scipy(name: str) -> None:
    m, n, c = random((12, 9)), random((12, 9), 1), random((9, 7), 2)
    A, B, C = MAKERS[name](m), rs.CSR.from_scipy(n), rs.CSC.from_scipy(c)
    row, column = np.arange(1.0, 10.0), np.arange(12.0)[:, None]
    same(A + B, m + n)
    same(A - n, m - n)
    same(-A, -m)
    same(2 * A * 3.0, 6 * m)
    same(A / 4, m / 4)
    same(abs(-A), m)
    same(A.power(2), m.power(2))
    same(A.multiply(B), m.multiply(n))
    same(A * row, m.multiply(row))
    same(A.multiply(column), m.multiply(column))
    same(A * (column * row), m.multiply(column * row))
    same(A @ C, m @ c)
    same(A @ sp.coo_matrix(c), m @ c)
    same((A @ C) + 1j * (A @ c), (1 + 1j) * (m @ c).toarray())


def test_a_sum_that_cancels_keeps_its_pattern_and_a_product_of_nothing_is_empty() -> None:
    A = rs.CSR.from_scipy(random((6, 6)))
    assert (A - A).nnz == A.nnz and not np.asarray((A - A).todense()).any()
    none = rs.CSR.from_scipy(sp.csr_array((6, 6)))
    assert (A @ none).nnz == 0 and (none + none).nnz == 0 and A.multiply(none).nnz == 0
    assert not np.asarray(none @ np.ones(6)).any()


def test_reductions_agree_with_scipy() -> None:
    m = random((12, 9))
    m = sp.vstack([m - 2 * sp.eye(12, 9), np.full((1, 9), -1.0), np.full((1, 9), 2.0)]).tocsr()
    A = rs.CSR.from_scipy(m)
    for axis in (None, 0, 1):
        same(A.sum(axis), np.asarray(m.sum(axis)).ravel() if axis is not None else m.sum())
        same(A.mean(axis), np.asarray(m.mean(axis)).ravel() if axis is not None else m.mean())
        for kind in ("max", "min"):
            want = getattr(m, kind)(axis=axis)
            same(getattr(A, kind)(axis), want.toarray().ravel() if axis is not None else want)


def test_slices_agree_with_scipy() -> None:
    m = random((12, 9))
    A, mask = rs.CSR.from_scipy(m), np.arange(12) % 3 == 0
    for key in (slice(2, 7), slice(None, None, -2), [3, 1, 1], mask, (slice(1, 9), slice(2, 5)), ([0, 4], slice(None))):
        same(A[key], m[key])
    same(A[-2], m[[10]])
    same(A[[1, 5], [2]], m[[1, 5]][:, [2]])
    for i, j in ((0, 0), (3, 4), (-1, -1)):
        assert A[i, j].item() == m[i, j]
    for k in (-3, 0, 2, 8):
        same(A.diagonal(k), m.diagonal(k))


def test_assembly_agrees_with_scipy() -> None:
    m, c = random((6, 5)), random((3, 4), 1)
    A, C = rs.CSR.from_scipy(m), rs.COO.from_scipy(c)
    same(rs.kron(A, C), sp.kron(m, c))
    same(rs.hstack([A, m]), sp.hstack([m, m]))
    same(rs.vstack([A, A]), sp.vstack([m, m]))
    same(rs.bmat([[A, None], [None, C]], format="csc"), sp.block_diag([m, c]))
    same(rs.block_diag([A, C, A]), sp.block_diag([m, c, m]))
    same(rs.tril(A, 1), sp.tril(m, 1))
    same(rs.triu(A, -1), sp.triu(m, -1))
    for args in ((4,), (4, 6, 2), (5, 3, -2)):
        same(rs.eye(*args), sp.eye(*args))
    assert rs.eye(3, 3, 5).nnz == 0
    same(rs.diags([[1.0, 2.0], 5.0], [1, 0], (3, 3)), sp.diags_array([[1.0, 2.0], [5.0] * 3], offsets=[1, 0]))
    same(rs.diags(np.arange(1.0, 4.0)), np.diag(np.arange(1.0, 4.0)))


def test_duplicates_are_summed_in_any_order() -> None:
    data, row, col = [1.0, 2.0, 4.0, 8.0], [2, 0, 2, 2], [1, 0, 1, 0]
    want = sp.coo_matrix((data, (row, col)), shape=(3, 2))
    same(rs.COO(data, row, col, (3, 2)).tocsr(), want)
    same(rs.CSC([1.0, 2.0, 4.0], [1, 0, 1], [0, 3, 3], (2, 2)), sp.csc_array([[2.0, 0.0], [5.0, 0.0]]))
    A = rs.COO(data, row, col, (3, 2))
    assert A.nnz == 4 and A.sum_duplicates().nnz == 3
    same(A.T, want.T)


def test_blocks_of_a_fitting_size_are_found() -> None:
    m = sp.kron(random((10, 10)), np.ones((3, 3))).tocsr()
    A = rs.CSR.from_scipy(m).tobsr()
    assert A.blocksize == (3, 3)
    same(A, m)
    same(A.T, m.T)
    b = np.arange(30.0)
    spd = (m @ m.T + 30 * sp.eye(30)).tocsr()
    x, info = rs.cg(rs.BSR.from_scipy(spd, (3, 3)), b, rtol=1e-10)
    assert info == 0
    np.testing.assert_allclose(spd @ np.asarray(x), b, atol=1e-7)


def test_values_keep_derivatives_through_arithmetic_and_conversion() -> None:
    A, B = rs.CSR.from_scipy(random((5, 5))), rs.CSR.from_scipy(random((5, 5), 1))
    v = rlx.asarray(np.arange(5.0))

    def f(a: Any, b: Any) -> Any:
        m, n = A.with_data(a), B.with_data(b)
        made = (m @ n + m.multiply(n) * 2 - n.T).tocsc().tocoo().tobsr((1, 1))
        return ((rs.vstack([made, rs.kron(m, n)[:3, :5]]) @ v) ** 2).sum()
    check_grad(f, A.data, B.data)
    assert rlx.jit(f)(A.data, B.data).item() == pytest.approx(f(A.data, B.data).item())
    assert rlx.vmap(lambda a: f(a, B.data))(rlx.asarray(np.stack([np.asarray(A.data)] * 2))).shape == (2,)


BAD: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    "CSC row outside": (IndexOutOfBounds, lambda: rs.CSC([1.0], [2], [0, 1, 1], (2, 2))),
    "CSC negative row": (IndexOutOfBounds, lambda: rs.CSC([1.0], [-1], [0, 1, 1], (2, 2))),
    "CSC pointer of rows": (ShapeError, lambda: rs.CSC([1.0], [0], [0, 1, 1, 1], (3, 2))),
    "COO column outside": (IndexOutOfBounds, lambda: rs.COO([1.0], [0], [5], (2, 2))),
    "COO uneven": (ShapeError, lambda: rs.COO([1.0, 2.0], [0], [1], (2, 2))),
    "COO float rows": (DTypeError, lambda: rs.COO([1.0], [0.5], [1], (2, 2))),
    "BSR flat data": (ShapeError, lambda: rs.BSR([1.0], [0], [0, 1], (1, 1))),
    "BSR that does not tile": (ShapeError, lambda: rs.BSR(np.ones((1, 2, 2)), [0], [0, 1], (3, 2))),
    "BSR duplicate blocks": (ValueIssue, lambda: rs.BSR(np.ones((2, 1, 1)), [0, 0], [0, 2], (1, 2))),
    "BSR unsorted blocks": (ValueIssue, lambda: rs.BSR(np.ones((2, 1, 1)), [1, 0], [0, 2], (1, 2))),
    "BSR block outside": (IndexOutOfBounds, lambda: rs.BSR(np.ones((1, 1, 1)), [2], [0, 1], (1, 2))),
    "blocksize that does not divide": (ShapeError, lambda: rs.eye(5).tobsr((2, 2))),
    "no such format": (ValueIssue, lambda: rs.eye(2).asformat("dok")),
    "sum of shapes": (ShapeError, lambda: rs.eye(2) + rs.eye(3)),
    "sum with a number": (ValueIssue, lambda: rs.eye(2) + 1),
    "quotient of matrices": (ValueIssue, lambda: rs.eye(2) / rs.eye(2)),
    "product of shapes": (ShapeError, lambda: rs.eye(2) @ rs.eye(3)),
    "an array that does not broadcast": (ShapeError, lambda: rs.eye(2) * np.ones(3)),
    "row outside": (IndexOutOfBounds, lambda: rs.eye(2)[2]),
    "column outside": (IndexOutOfBounds, lambda: rs.eye(2)[0, -3]),
    "three axes": (ShapeError, lambda: rs.eye(2)[0, 0, 0]),
    "float index": (DTypeError, lambda: rs.eye(2)[1.0]),
    "axis 2": (ValueIssue, lambda: rs.eye(2).sum(2)),
    "largest of complex": (DTypeError, lambda: (rs.eye(2) * 1j).max()),
    "diagonal too long": (ShapeError, lambda: rs.diags([[1.0, 2.0, 3.0]], [1], (3, 3))),
    "offsets twice": (ValueIssue, lambda: rs.diags([1.0, 2.0], [1, 1], (3, 3))),
    "ragged blocks": (ShapeError, lambda: rs.bmat([[rs.eye(2)], [rs.eye(2), rs.eye(2)]])),
    "blocks that do not fit": (ShapeError, lambda: rs.hstack([rs.eye(2), rs.eye(3)])),
    "a line of None": (ShapeError, lambda: rs.bmat([[rs.eye(2), None], [None, None]])),
    "a traced pattern": (TraceError, lambda: rlx.jit(lambda A: (A + A).data)(rs.eye(3))),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    kind, call = BAD[name]
    with pytest.raises(kind) as e:
        call()
    error: Any = e.value
    assert isinstance(error, RlxError) and error.what and error.why and error.do

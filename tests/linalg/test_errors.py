"""The error contract: raise where somebody looks, NaN, info; the batch index named; bad shapes and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx import linalg as la
from rlx.core.errors import DTypeError, ShapeError, SolverError, ValueIssue

SINGULAR = np.stack([np.eye(2), [[1.0, 2.0], [2.0, 4.0]], np.eye(2)])
INDEFINITE = np.stack([np.eye(3), np.diag([1.0, -1.0, 1.0])])
BROKEN = np.stack([np.eye(3), np.full((3, 3), np.nan)])
#: function, batch, the index that fails, its info (None: any but 0)
FAILING: dict[str, tuple[Any, Any, int, int | None]] = {
    "cholesky": (la.cholesky, INDEFINITE, 1, 2),
    "inv": (la.inv, SINGULAR, 1, 2),
    "solve": (lambda a, **k: la.solve(a, np.ones((2, 1)), **k), SINGULAR, 1, 2),
    "solve_triangular": (lambda a, **k: la.solve_triangular(a, np.ones((3, 1)), lower=True, **k),
                         np.stack([np.eye(3), np.diag([1.0, 0, 1])]), 1, 2),
    "eigh": (la.eigh, BROKEN, 1, None), "eigvalsh": (la.eigvalsh, BROKEN, 1, None),
    "eig": (la.eig, BROKEN, 1, None), "svd": (la.svd, BROKEN, 1, None), "svdvals": (la.svdvals, BROKEN, 1, None),
    "pinv": (la.pinv, BROKEN, 1, None), "infinite": (la.eigvals, np.where(np.isnan(BROKEN), np.inf, BROKEN), 1, None),
}


@pytest.fixture(params=["prefer_native", "common"], autouse=True)
def policy(request: pytest.FixtureRequest) -> Any:
    with rlx.flags(kernel_dispatch=request.param):
        yield


def first(x: Any) -> Any:
    return x[0] if isinstance(x, tuple) else x


@pytest.mark.parametrize("name", FAILING)
def test_the_three_modes(name: str) -> None:
    f, a, index, number = FAILING[name]
    pending = first(f(a)) + 1  # nobody looks yet
    with pytest.raises(la.LinAlgError, match=rf"matrix {index} of the batch.*1 of {len(a)} failed") as e:
        np.asarray(pending)
    assert "test_errors.py" in e.value.where and e.value.why and e.value.do
    with pytest.raises(np.linalg.LinAlgError):  # still there for the next who looks
        np.asarray(pending)
    out = np.asarray(first(f(a, errors="nan")))
    bad = np.isnan(out.reshape(len(a), -1)).any(axis=1)
    assert bad.tolist() == [i == index for i in range(len(a))]
    info = np.asarray(f(a, errors="info")[-1])
    assert info.dtype == np.int32 and np.flatnonzero(info).tolist() == [index]
    assert number is None or info[index] == number


@pytest.mark.parametrize("name", FAILING)
def test_what_succeeds_raises_nothing(name: str) -> None:
    f, a, _, _ = FAILING[name]
    assert np.isfinite(np.asarray(first(f(a[:1])))).all()


def test_one_matrix_has_no_index() -> None:
    with pytest.raises(la.LinAlgError, match=r"^the matrix is singular"):
        np.asarray(la.inv(np.zeros((2, 2))))


def test_inside_a_compiled_function_a_failure_is_nan() -> None:
    out = np.asarray(rlx.jit(lambda a: la.inv(a))(rlx.asarray(SINGULAR)))
    assert np.isnan(out[1]).all() and np.isfinite(out[[0, 2]]).all()


def test_a_failure_that_nobody_needs_is_not_raised() -> None:
    a = rlx.asarray(SINGULAR)
    la.inv(a)
    assert np.isfinite(np.asarray(a + 1)).all()


def test_the_error_is_of_both_families() -> None:
    assert issubclass(la.LinAlgError, SolverError) and issubclass(la.LinAlgError, np.linalg.LinAlgError)


@pytest.mark.parametrize("call, error, text", [
    (lambda: la.inv(np.ones((2, 3))), ShapeError, "last two axes differ"),
    (lambda: la.cholesky(np.ones(3)), ShapeError, "two axes"),
    (lambda: la.solve(np.eye(2), np.ones(3)), ShapeError, "2 equations"),
    (lambda: la.solve(np.ones((2, 2, 2)), np.ones((3, 2, 1))), ShapeError, "batches do not fit"),
    (lambda: la.inv(np.eye(2, dtype=np.float16)), DTypeError, "float16"),
    (lambda: la.qr(np.eye(2), mode="raw"), ValueIssue, "modes"),
    (lambda: la.eigh(np.eye(2), UPLO="X"), ValueIssue, "triangle"),
    (lambda: la.inv(np.eye(2), errors="ignore"), ValueIssue, "'raise', 'nan' and 'info'"),
    (lambda: la.norm(np.eye(2), "bad"), ValueIssue, "orders"),
    (lambda: la.cross(np.ones(2), np.ones(2)), ShapeError, "three elements"),
    (lambda: la.multi_dot([np.ones((2, 2, 2)), np.eye(2)]), ShapeError, "batches"),
    (lambda: la.cond(np.zeros((0, 0))), ShapeError, "empty"),
])
def test_bad_arguments(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as e:
        call()
    assert text in str(e.value)

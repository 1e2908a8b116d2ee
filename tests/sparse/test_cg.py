"""Conjugate gradients: agreement with SciPy, honest reports, and every kind of bad input."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import rlx
import rlx.sparse
from rlx.core.errors import DTypeError, FormatError, ShapeError, TraceError, ValueIssue

DTYPES = ("float32", "float64", "complex64", "complex128")


def spd(n: int = 60, dtype: str = "float64", seed: int = 0) -> Any:
    """A sparse Hermitian positive definite matrix with condition number about 1e3."""
    rng = np.random.default_rng(seed)
    a = scipy.sparse.random(n, n, 0.08, "csr", random_state=rng)
    if "complex" in dtype:
        a = a + 1j * scipy.sparse.random(n, n, 0.08, "csr", random_state=rng)
    return (a @ a.conj().T + scipy.sparse.diags(np.linspace(0.01, 2, n))).tocsr().astype(dtype)


def poisson(n: int) -> Any:
    e = np.ones(n)
    t = scipy.sparse.diags([-e[1:], 2 * e, -e[1:]], [-1, 0, 1])
    return (scipy.sparse.kron(scipy.sparse.eye(n), t) + scipy.sparse.kron(t, scipy.sparse.eye(n))).tocsr()


def residual(a: Any, x: Any, b: Any) -> float:
    wide = np.complex128 if np.iscomplexobj(a) else np.float64
    return float(np.linalg.norm(b.astype(wide) - a.astype(wide) @ np.asarray(x).astype(wide)))


@pytest.mark.parametrize("policy", ["prefer_native", "common"])
@pytest.mark.parametrize("where", ["cpu", "python"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_agrees_with_scipy(dtype: str, where: str, policy: str) -> None:
    a = spd(dtype=dtype)
    rng = np.random.default_rng(1)
    b = (rng.standard_normal(60) + (1j * rng.standard_normal(60) if "complex" in dtype else 0)).astype(dtype)
    rtol = 1e-4 if dtype in ("float32", "complex64") else 1e-10
    with rlx.flags(kernel_dispatch=policy):
        x, info = rlx.sparse.cg(a, b, rtol=rtol, device=where)
    expected, code = scipy.sparse.linalg.cg(a, b, rtol=rtol)
    assert code == 0 and info == 0 and info.converged
    assert x.dtype.name == dtype and x.device == where
    assert residual(a, x, b) <= rtol * np.linalg.norm(b) * (1 + 1e-3)
    np.testing.assert_allclose(np.asarray(x), expected, rtol=0, atol=300 * rtol * np.linalg.norm(expected))


@pytest.mark.parametrize("size", [40, 220])
def test_large_systems_use_every_chunk(size: int) -> None:
    a = poisson(size)
    b = np.random.default_rng(2).standard_normal(size * size)
    x, info = rlx.sparse.cg(a, b, rtol=1e-8)
    assert info.converged and residual(a, x, b) <= 1e-8 * np.linalg.norm(b) * (1 + 1e-6)
    assert abs(info.residual - residual(a, x, b)) <= 1e-3 * info.residual


def test_iterations_and_history_match_scipy() -> None:
    a, b = spd(), np.ones(60)
    seen: list[float] = []
    scipy.sparse.linalg.cg(a, b, rtol=1e-8, callback=lambda x: seen.append(float(np.linalg.norm(b - a @ x))))
    _, info = rlx.sparse.cg(a, b, rtol=1e-8)
    assert abs(info.iterations - len(seen)) <= 1
    k = min(10, len(seen))
    np.testing.assert_allclose(info.history[1:k + 1], seen[:k], rtol=1e-6)
    assert info.matvecs == info.iterations + 2 and info.history[0] == pytest.approx(np.linalg.norm(b))


def test_operator_forms_agree() -> None:
    a, b = spd(), np.ones(60)
    A = rlx.sparse.CSR.from_scipy(a)
    dense = a.toarray()
    answers = [rlx.sparse.cg(form, b, rtol=1e-10)[0] for form in (A, a, scipy.sparse.coo_matrix(a), dense)]
    matrix = rlx.asarray(dense)
    answers.append(rlx.sparse.cg(lambda p: matrix @ p, rlx.asarray(b), rtol=1e-10)[0])
    for x in answers[1:]:
        np.testing.assert_allclose(np.asarray(x), np.asarray(answers[0]), rtol=1e-6, atol=1e-8)


def test_a_function_sees_its_present_arrays() -> None:
    """The same function over another array is another operator: nothing of the first call is kept."""
    b = rlx.asarray(np.ones(3))
    box = {"d": rlx.asarray([1.0, 2.0, 4.0])}

    def apply(p: Any) -> Any:
        return box["d"] * p

    first, _ = rlx.sparse.cg(apply, b)
    box["d"] = rlx.asarray([2.0, 4.0, 8.0])
    second, _ = rlx.sparse.cg(apply, b)
    np.testing.assert_allclose(np.asarray(first), 2 * np.asarray(second), rtol=1e-5)


def test_preconditioners() -> None:
    a = scipy.sparse.diags(np.logspace(0, 4, 200)).tocsr() + poisson(20)[:200, :200] * 0.1
    a, b = a.tocsr(), np.ones(200)
    _, plain = rlx.sparse.cg(a, b, rtol=1e-8)
    inverse = 1 / a.diagonal()
    forms = (rlx.sparse.jacobi(a), scipy.sparse.diags(inverse).tocsr(), lambda r: r * inverse)
    for M in forms:
        x, info = rlx.sparse.cg(a, b, rtol=1e-8, M=M)
        assert info.converged and info.iterations < plain.iterations / 4
        assert residual(a, x, b) <= 1e-8 * np.linalg.norm(b) * (1 + 1e-6)


def test_starting_guess() -> None:
    a, b = spd(), np.ones(60)
    x, _ = rlx.sparse.cg(a, b, rtol=1e-12)
    again, info = rlx.sparse.cg(a, b, x, rtol=1e-8)
    assert info.iterations == 0 and info.converged
    np.testing.assert_array_equal(np.asarray(again), np.asarray(x))


def test_zero_right_hand_side() -> None:
    x, info = rlx.sparse.cg(spd(), np.zeros(60))
    assert info == 0 and info.iterations == 0 and not np.asarray(x).any()


def test_callback_gets_every_iterate_and_changes_nothing() -> None:
    a, b = spd(), np.ones(60)
    seen: list[np.ndarray] = []
    x, info = rlx.sparse.cg(a, b, rtol=1e-8, callback=lambda x: seen.append(np.array(x)))
    y, plain = rlx.sparse.cg(a, b, rtol=1e-8)
    assert len(seen) == info.iterations == plain.iterations
    np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
    np.testing.assert_array_equal(seen[-1], np.asarray(x))


def test_under_jit_the_report_is_arrays() -> None:
    a, b = rlx.sparse.CSR.from_scipy(spd()), np.ones(60)
    f = rlx.jit(lambda A, b: rlx.sparse.cg(A, b, rtol=1e-8))
    x, info = f(a, b)
    y, plain = rlx.sparse.cg(a, b, rtol=1e-8)
    np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
    assert int(info.iterations) == plain.iterations and int(info.status) == 1
    made = rlx.sparse.SolverInfo.from_traced(info)
    assert made.reason == "converged" and made == 0
    with pytest.raises(TraceError, match="callback"):
        rlx.jit(lambda A, b: rlx.sparse.cg(A, b, callback=print)[0])(a, b)


def test_one_program_serves_new_values_and_tolerances() -> None:
    from rlx.runtime.execute import PROGRAMS
    a, b = rlx.sparse.CSR.from_scipy(spd()), rlx.asarray(np.ones(60))
    rlx.sparse.cg(a, b, rtol=1e-8)
    before = PROGRAMS.compiles
    for k in range(3):
        rlx.sparse.cg(a.with_data(a.data * (k + 2)), b, rtol=10.0 ** -(k + 3))
    assert PROGRAMS.compiles - before <= 1


# Honest endings

def test_iteration_limit() -> None:
    x, info = rlx.sparse.cg(poisson(30), np.ones(900), rtol=1e-10, maxiter=5)
    assert info == 5 and info.reason == "maxiter" and not info.converged
    assert info.residual == pytest.approx(residual(poisson(30), x, np.ones(900)))
    assert rlx.sparse.cg(poisson(30), np.ones(900), maxiter=0)[1].reason == "maxiter"


@pytest.mark.parametrize("shift", [-2.0, -4.0])
def test_an_indefinite_matrix_breaks_down(shift: float) -> None:
    a = (poisson(20) + shift * scipy.sparse.eye(400)).tocsr()
    b = np.random.default_rng(0).standard_normal(400)
    x, info = rlx.sparse.cg(a, b, rtol=1e-12)
    if not info.converged:
        assert info < 0 and info.reason == "breakdown" and "positive definite" in info.message
    else:
        assert residual(a, x, b) <= 1e-12 * np.linalg.norm(b) * 1.01


def test_negative_definite_is_a_breakdown_at_once() -> None:
    _, info = rlx.sparse.cg(-poisson(10), np.ones(100))
    assert info < 0 and info.reason == "breakdown" and info.iterations <= 1


def test_an_unsymmetric_matrix_is_never_called_solved_wrongly() -> None:
    rng = np.random.default_rng(5)
    a = (scipy.sparse.random(80, 80, 0.2, random_state=rng) + scipy.sparse.eye(80) * 0.5).tocsr()
    b = rng.standard_normal(80)
    x, info = rlx.sparse.cg(a, b, rtol=1e-8)
    assert info.converged == (residual(a, x, b) <= 1e-8 * np.linalg.norm(b) * (1 + 1e-9))
    assert not info.converged


def test_a_tolerance_below_rounding_stagnates() -> None:
    a = spd(dtype="float32")
    _, info = rlx.sparse.cg(a, np.ones(60, "float32"), rtol=1e-14, maxiter=5000)
    assert info.reason in ("stagnated", "maxiter") and info > 0 and not info.converged


def test_overflow_is_reported() -> None:
    a = scipy.sparse.eye(4).tocsr() * 1e-200
    _, info = rlx.sparse.cg(a, np.full(4, 1e200))
    assert info < 0 and info.reason == "nonfinite"


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e-30, 1e30, 1e200, 1e300])
def test_the_size_of_b_does_not_matter(size: float) -> None:
    a = spd()
    b = np.random.default_rng(3).standard_normal(60)
    plain, info = rlx.sparse.cg(a, b, rtol=1e-10)
    x, scaled = rlx.sparse.cg(a, b * size, rtol=1e-10)
    assert scaled == 0 and abs(scaled.iterations - info.iterations) <= 1
    np.testing.assert_allclose(np.asarray(x) / size, np.asarray(plain), rtol=1e-7, atol=1e-9)
    assert scaled.target / size == pytest.approx(info.target, rel=1e-6)
    _, again = rlx.sparse.cg(a, b * size, np.asarray(x) * 0.9, rtol=1e-10)
    assert again == 0 and again.target == pytest.approx(scaled.target, rel=1e-6)


def test_info_is_an_int_and_pickles() -> None:
    _, info = rlx.sparse.cg(spd(), np.ones(60))
    assert isinstance(info, int) and info == 0 and not info
    again = pickle.loads(pickle.dumps(info))
    assert again == info and again.reason == info.reason and again.iterations == info.iterations
    assert "converged" in repr(info)


# Bad input

BAD: dict[str, tuple[type[Exception], Any]] = {
    "rectangular": (ShapeError, lambda: rlx.sparse.cg(scipy.sparse.random(4, 5, 0.5), np.ones(4))),
    "b too long": (ShapeError, lambda: rlx.sparse.cg(spd(), np.ones(61))),
    "b a matrix": (ShapeError, lambda: rlx.sparse.cg(spd(), np.ones((60, 2)))),
    "x0 too short": (ShapeError, lambda: rlx.sparse.cg(spd(), np.ones(60), np.ones(59))),
    "M of another size": (ShapeError, lambda: rlx.sparse.cg(spd(), np.ones(60), M=scipy.sparse.eye(59))),
    "NaN in A": (ValueIssue, lambda: rlx.sparse.cg(spd() * np.nan, np.ones(60))),
    "NaN in b": (ValueIssue, lambda: rlx.sparse.cg(spd(), np.full(60, np.nan))),
    "infinity in b": (ValueIssue, lambda: rlx.sparse.cg(spd(), np.full(60, np.inf))),
    "negative rtol": (ValueIssue, lambda: rlx.sparse.cg(spd(), np.ones(60), rtol=-1.0)),
    "NaN atol": (ValueIssue, lambda: rlx.sparse.cg(spd(), np.ones(60), atol=float("nan"))),
    "negative maxiter": (ValueIssue, lambda: rlx.sparse.cg(spd(), np.ones(60), maxiter=-1)),
    "float maxiter": (ValueIssue, lambda: rlx.sparse.cg(spd(), np.ones(60), maxiter=1.5)),  # type: ignore[arg-type]
    "half precision": (DTypeError, lambda: rlx.sparse.cg(spd(), np.ones(60, "float16"))),
    "a string for A": (DTypeError, lambda: rlx.sparse.cg("A", np.ones(60))),
    "a function of another shape": (ShapeError, lambda: rlx.sparse.cg(lambda p: p[:3], np.ones(60))),
    "a function of another dtype": (ShapeError, lambda: rlx.sparse.cg(lambda p: p * 1j, np.ones(60))),
    "a number for a product": (ShapeError, lambda: rlx.sparse.cg(lambda p: 3, np.ones(60))),  # type: ignore[arg-type,return-value]
    "no matrix": (DTypeError, lambda: rlx.sparse.cg(None, np.ones(60))),
    "a tolerance that is no number": (ValueIssue, lambda: rlx.sparse.cg(spd(), np.ones(60), rtol="small")),  # type: ignore[arg-type]
    "a callback that is no function": (DTypeError, lambda: rlx.sparse.cg(spd(), np.ones(60), callback=3)),  # type: ignore[arg-type]
    "a SciPy operator": (DTypeError, lambda: rlx.sparse.cg(scipy.sparse.linalg.aslinearoperator(spd()), np.ones(60))),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    kind, call = BAD[name]
    with pytest.raises(kind) as e:
        call()
    error: Any = e.value
    assert error.what and error.why and error.do and "test_cg.py" in error.where


def test_an_absent_device_is_named() -> None:
    from rlx.core.errors import DeviceError
    with pytest.raises(DeviceError) as e:
        rlx.sparse.cg(spd(), np.ones(60), device="abacus")
    assert "abacus" in e.value.what and e.value.do


def test_a_lying_file_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "lie.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n2 2 5\n1 1 1.0\n")
    with pytest.raises(FormatError):
        rlx.sparse.CSR.from_mtx(path)


def test_no_tolerance_ends_where_rounding_does() -> None:
    a = scipy.sparse.diags([-1.0, 2.1, -1.0], [-1, 0, 1], shape=(50, 50))
    _, info = rlx.sparse.cg(a, np.random.default_rng(0).standard_normal(50), rtol=0)
    assert info.reason == "stagnated" and info > 0 and info.residual < 1e-12


def test_a_zero_right_hand_side_needs_no_iteration_from_any_guess() -> None:
    x, info = rlx.sparse.cg(spd(), np.zeros(60), np.ones(60))
    assert info == 0 and info.iterations == 0 and not np.asarray(x).any()


def test_arrays_of_two_devices_are_refused_and_host_data_follows() -> None:
    from rlx.core.errors import DeviceError
    a, b = spd(), np.ones(60)
    with pytest.raises(DeviceError, match="A on cpu, b on python"):
        rlx.sparse.cg(rlx.sparse.CSR.from_scipy(a, device="cpu"), rlx.asarray(b, device="python"))
    assert rlx.sparse.cg(a, rlx.asarray(b, device="python"))[0].device == "python"


def test_nested_lists_are_a_matrix() -> None:
    x, info = rlx.sparse.cg([[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0])
    assert info == 0
    np.testing.assert_allclose(np.asarray(x), [1 / 11, 7 / 11], rtol=1e-5)

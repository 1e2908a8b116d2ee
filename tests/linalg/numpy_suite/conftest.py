"""NumPy's own tests of numpy.linalg, aimed at rlx.linalg: what is replaced, and what is known to differ."""

from __future__ import annotations

from fnmatch import fnmatchcase
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rlx

COMPLEX = "eigenvalues of a general matrix are complex whatever their values, as the Array API says"
SUBCLASS = "results are plain arrays: subclasses of ndarray are NumPy's own business"
DTYPES = "NumPy's long double and object dtypes, which rlx does not have"
RAW = "the mode 'raw' of qr returns LAPACK's packed reflectors, which are not public"
#: Pattern of a test's name, and why it cannot pass. These must fail: one that passes is taken off the list.
GAPS: dict[str, str] = {
    **{f"TestMatrixPower::test_{name}[[]dt{i}]": DTYPES for i in (12, 15, 16) for name in (
        "large_power", "power_is_zero", "power_is_one", "power_is_two", "exceptions_non_square")},
    "TestQR::test_mode_raw": RAW, "TestQR::test_mode_all_but_economic": RAW, "TestQR::test_qr_empty*": RAW,
    "TestMultiDot::test*_and_out": "arrays are values: there is no out=",
    "TestLstsq::test_rcond": "the rank by rcond=-1 counts a singular value that is rounding noise, which differs",
    "TestSolve::test_0_size*": SUBCLASS, "TestInv::test_0_size": SUBCLASS,
    "TestNorm*::test_longdouble_norm": DTYPES, "TestNorm*::test_complex_high_ord": DTYPES,
    "TestNorm*::test_vector_return_type": DTYPES,
    "TestNorm*::test_bad_args": "an axis out of range is rlx's ShapeError, which is no NumPy AxisError",
    "TestLstsq::test_sq_cases": "complex64: compared to six decimals with an answer that is less exact than rlx's",
    "TestEigvals::test_0_size": COMPLEX, "TestEig::test_0_size": COMPLEX,
    "TestEigvals::test_types*float*": COMPLEX, "TestEig::test_types*float*": COMPLEX,
}
#: Tests of NumPy itself: its build, its threads, its other functions.
NOT_OURS: dict[str, str] = {}
FUNCTIONS = ("cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq",
             "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer",
             "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace",
             "vecdot", "vector_norm")


def host(x: Any) -> Any:
    """Results as NumPy arrays (scalars for single numbers), evaluated, so that failures are raised by the call."""
    if isinstance(x, rlx.Array):
        return np.array(x)[()]
    if isinstance(x, tuple):
        values = [host(v) for v in x]
        return type(x)(*values) if hasattr(x, "_fields") else tuple(values)
    return x


def aimed(name: str) -> Any:
    f = getattr(rlx.linalg, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        return host(f(*args, **kwargs))
    call.__name__ = name
    return call


class Aimed(ModuleType):
    """NumPy, whose ``linalg`` is rlx's."""

    def __init__(self, linalg: Any) -> None:
        super().__init__("numpy")
        self.linalg = linalg

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def aim(suite: ModuleType) -> None:
    """Replace the functions under test in NumPy's module of tests."""
    ours = {name: aimed(name) for name in FUNCTIONS}
    linalg: Any = SimpleNamespace(**{**{n: getattr(np.linalg, n) for n in dir(np.linalg)}, **ours})
    names = vars(suite)
    names["linalg"], names["np"] = linalg, Aimed(linalg)
    for name in ("matrix_power", "matrix_rank", "multi_dot", "norm"):
        names[name] = ours[name]
    # Subclasses of ndarray are NumPy's own business.
    names["consistent_subclass"] = lambda out, given: True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "numpy_suite" not in item.nodeid:
            continue
        name = "::".join(item.nodeid.split("::")[1:])
        for table, mark in ((GAPS, pytest.mark.xfail), (NOT_OURS, pytest.mark.skip)):
            for pattern, reason in table.items():
                if fnmatchcase(name, pattern):
                    item.add_marker(mark(reason=reason, strict=True) if table is GAPS else mark(reason=reason))

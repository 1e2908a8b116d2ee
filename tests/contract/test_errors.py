"""Every class of error: a situation that raises it, its four parts, the built-in class it also is, and pickling."""

from __future__ import annotations

import copy
import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.core import errors
from rlx.core.errors import RlxError


def _device() -> None:
    rlx.asarray(np.zeros(2), device="quantum")


def _dtype() -> None:
    rlx.bitwise_and(rlx.asarray(1.5), 2)


def _shape() -> None:
    rlx.asarray(np.zeros(3)) + rlx.asarray(np.zeros(4))


def _index() -> None:
    rlx.asarray(np.zeros(3))[7]


def _value() -> None:
    rlx.arange(0, 5, 0)


def _trace() -> None:
    rlx.jit(lambda x: x if x.sum() > 0 else -x)(np.zeros(2))


def _compile() -> None:
    rlx.jit(lambda x: x + 1, dispatch="strict")(np.zeros(2))


def _format() -> None:
    from rlx.sparse import read_mtx
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "matrix.mtx"
        path.write_text("%%MatrixMarket matrix coordinate real general\n3 3 9\n1 1 1.0\n", encoding="utf-8")
        read_mtx(path)


def _verify() -> None:
    from rlx.ir.verify import verify_mir
    graph = rlx.jit(lambda x: rlx.softmax(x)).trace(np.zeros((2, 3))).graph
    verify_mir(graph)


def _not_differentiable() -> None:
    rlx.grad(lambda x: rlx.nextafter(x, x * 0).sum())(np.ones(3))


#: Each class with what raises it; the built-in exception it can be caught as.
CASES: dict[str, tuple[Callable[[], None], type[Exception]]] = {
    "DeviceError": (_device, RuntimeError), "DTypeError": (_dtype, TypeError), "ShapeError": (_shape, ValueError),
    "IndexOutOfBounds": (_index, IndexError), "ValueIssue": (_value, ValueError), "TraceError": (_trace, TypeError),
    "CompileError": (_compile, RuntimeError), "FormatError": (_format, ValueError),
                                                                "VerifyError": (_verify, RuntimeError),
    "NotDifferentiableError": (_not_differentiable, TypeError),
}
#: Raised by solvers only when the caller asks; its own tests are beside them.
ELSEWHERE = {"SolverError": ArithmeticError}


def test_every_class_is_here() -> None:
    classes = {n for n, c in vars(errors).items() if inspect.isclass(c) and issubclass(c, RlxError)
               and c is not RlxError}
    assert classes == {*CASES, *ELSEWHERE}


@pytest.mark.parametrize("name", CASES)
def test_it_has_four_parts(name: str) -> None:
    raiser, builtin = CASES[name]
    with pytest.raises(getattr(errors, name)) as caught:
        raiser()
    e = caught.value
    assert type(e) is getattr(errors, name) and isinstance(e, RlxError) and isinstance(e, builtin)
    assert e.what and e.why and e.do
    # A malformed file is wrong at its own line; everything else at the line of the user's code.
    place = "matrix.mtx:2" if name == "FormatError" else "test_errors.py:"
    assert place in e.where, f"where is {e.where!r}"
    text = str(e).splitlines()
    assert text[0] == e.what.splitlines()[0]
    assert [part for part in ("where:", "why:", "do:") if any(part in t for t in text)] == ["where:", "why:", "do:"]


@pytest.mark.parametrize("name", [*CASES, *ELSEWHERE])
def test_it_survives_copying(name: str) -> None:
    """Errors cross process borders (test runners, pools) by their reduce form."""
    cls: Any = getattr(errors, name)
    e = cls("what happened", where="file.py:3", why="because", do="this")
    again = copy.copy(e)
    rebuild, args = e.__reduce__()
    for other in (again, rebuild(*args)):
        assert type(other) is cls and str(other) == str(e)
        assert (other.what, other.where, other.why, other.do) == (e.what, e.where, e.why, e.do)
    assert isinstance(e, ELSEWHERE.get(name, Exception))

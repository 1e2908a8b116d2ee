"""NumPy indexing, reading and writing, against NumPy: random keys, eager and traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rlx
from rlx.core.errors import IndexOutOfBounds, RlxError
from rlx.ops.index import gather, scatter

Draw = Callable[[Any], Any]
RUN = settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
SHAPES = st.sampled_from([(5,), (4, 3), (3, 4, 5), (1, 6), (0, 3), (2, 1, 3, 2), (7, 0), (1,)])


@st.composite
def keys(draw: Draw, shape: tuple[int, ...], unique: bool = False) -> Any:
    """A NumPy index of an array of this shape; with ``unique`` no element is named twice."""
    items: list[Any] = []
    arrays = 0
    common = draw(st.integers(0, 4))
    for axis, n in enumerate(shape):
        options = ["slice", "slice", "all"] + (["int", "array"] if n else []) + (["mask"] if not arrays else [])
        kind = draw(st.sampled_from(options))
        if draw(st.booleans()) and draw(st.booleans()):
            items.append(None)
        if kind == "int":
            items.append(draw(st.integers(-n, n - 1)))
        elif kind == "array" and (not unique or (arrays == 0 and n)):
            arrays += 1
            items.append(_rows(draw, n, common, unique))
        elif kind == "mask" and axis == len(items):
            arrays += 1
            common = 1
            items.append(np.array([draw(st.booleans()) for _ in range(n)], bool))
            if items[-1].sum() != 1 and arrays > 1:
                items[-1] = slice(None)
            common = int(items[-1].sum()) if isinstance(items[-1], np.ndarray) else common
        elif kind == "all":
            items.append(slice(None))
        else:
            bound = st.one_of(st.none(), st.integers(-n - 2, n + 2))
            items.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2]))))
        if draw(st.integers(0, 9)) == 0:
            break
    if Ellipsis not in [i for i in items if i is Ellipsis] and draw(st.integers(0, 4)) == 0:
        items.insert(draw(st.sampled_from([0, len(items)])), Ellipsis)
    return tuple(items)


def _rows(draw: Draw, n: int, common: int, unique: bool) -> Any:
    if unique:
        rows = draw(st.lists(st.integers(0, n - 1), max_size=n, unique=True))
    else:
        rows = [draw(st.integers(-n, n - 1)) for _ in range(common)]
    return np.array(rows, draw(st.sampled_from([np.int64, np.int32, np.int8])))


def _numpy(x: Any, key: Any) -> Any:
    """NumPy's answer, or None for a key that NumPy refuses (index arrays of lengths that do not broadcast)."""
    try:
        return x[key]
    except IndexError:
        return None


@st.composite
def reads(draw: Draw, unique: bool = False) -> tuple[tuple[int, ...], Any]:
    shape = draw(SHAPES)
    return shape, draw(keys(shape, unique))


@RUN
@given(reads())
def test_reading(case: tuple[tuple[int, ...], Any]) -> None:
    shape, key = case
    x = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    want = _numpy(x, key)
    if want is None:
        with pytest.raises(RlxError):
            rlx.asarray(x)[key].numpy()
        return
    got = np.asarray(rlx.asarray(x)[key])
    assert got.shape == want.shape and np.array_equal(got, want), key
    jitted = np.asarray(rlx.jit(lambda a: a[key] + 0)(rlx.asarray(x)))
    assert jitted.shape == want.shape and np.array_equal(jitted, want), key


@RUN
@given(reads(unique=True), st.sampled_from(["number", "array", "row"]))
def test_writing(case: tuple[tuple[int, ...], Any], kind: str) -> None:
    shape, key = case
    x = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    target = _numpy(x, key)
    if target is None:
        return
    value: Any = -1.5 if kind == "number" else np.arange(target.size, dtype=np.float64).reshape(target.shape) - 100
    if kind == "row":
        value = value[(0,) * (target.ndim - 1)] if target.size and target.ndim else -3.0
    want = x.copy()
    want[key] = value

    def write(a: Any) -> Any:
        a = a.copy()
        a[key] = value
        return a
    eager, original = rlx.asarray(x), rlx.asarray(x)
    eager[key] = value
    assert np.array_equal(np.asarray(eager), want), key
    assert np.array_equal(np.asarray(rlx.jit(write)(original)), want), key
    assert np.array_equal(np.asarray(original), x)


@pytest.mark.parametrize("kind,f", [("add", np.add), ("multiply", np.multiply), ("min", np.minimum),
                                    ("max", np.maximum)])
def test_updates_with_duplicates_combine(device: str, kind: str, f: np.ufunc) -> None:
    x, rows, v = np.arange(12.0).reshape(4, 3), np.array([1, 3, 1, 1]), np.arange(12.0).reshape(4, 3) - 4
    want = x.copy()
    f.at(want, rows, v)
    a = rlx.asarray(x, device=device)
    got = getattr(a.at[rlx.asarray(rows, device=device)], kind)(rlx.asarray(v, device=device))
    assert np.array_equal(np.asarray(got), want)
    last = a.at[rlx.asarray(rows, device=device)].set(rlx.asarray(v, device=device))
    x[rows] = v
    assert np.array_equal(np.asarray(last), x)


@pytest.mark.parametrize("key", [4, -5, (0, 3), (slice(None), -4), np.array([0, 4]), np.array([-5]),
                                 (np.array([0]), np.array([3])),
                                 (0, 0, 0), (Ellipsis, Ellipsis), np.array([0.5])], ids=str)
def test_out_of_bounds_raises_eager(key: Any) -> None:
    x = rlx.asarray(np.zeros((4, 3)))
    with pytest.raises(IndexOutOfBounds) as e:
        x[key]
    assert e.value.where and e.value.why and e.value.do
    with pytest.raises(IndexOutOfBounds):
        x[key] = 1.0


def test_a_pending_index_out_of_bounds_raises_eager() -> None:
    """An index that is an expression is looked at too: outside a trace there is no reason to clamp."""
    x, i = rlx.asarray(np.zeros(4)), rlx.asarray(np.array([1, 3]))
    with pytest.raises(IndexOutOfBounds):
        x[i + 1]
    with pytest.raises(IndexOutOfBounds):
        rlx.take(x, i + 1)
    with pytest.raises(IndexOutOfBounds):
        x[i + 1] = 2.0


@pytest.mark.parametrize("f", [lambda a, i: a[i], lambda a, i: a.at[i].set(9.0)], ids=["reading", "writing"])
def test_an_index_out_of_bounds_in_a_compiled_function_raises(f: Any) -> None:
    x, g = rlx.asarray(np.arange(4.0)), rlx.jit(f)
    assert np.asarray(g(x, np.array([0, -1]))).shape in ((2,), (4,))
    with pytest.raises(IndexOutOfBounds) as e:
        rlx.eval(g(x, np.array([0, 99])))
    assert e.value.why and e.value.do


def test_the_primitives_clamp_and_drop() -> None:
    """Below the checks of indexing no access leaves its buffer."""
    x, i = rlx.asarray(np.arange(4.0)), rlx.asarray(np.array([0, 99, -7]))
    new = rlx.asarray(np.array([9.0, 8.0, 7.0]))
    assert np.asarray(gather(x, i)).tolist() == [0.0, 3.0, 0.0]
    assert np.asarray(scatter(x, new, (i,), "set")).tolist() == [9.0, 1.0, 2.0, 3.0]

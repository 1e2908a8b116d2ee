"""Collectives over the axis that vmap names."""

import numpy as np
import pytest

import rlx
from rlx.core.errors import CompileError, TraceError, ValueIssue
from rlx.distributed import all_gather, all_reduce, axis_index, axis_size, shift

X = np.random.default_rng(0).standard_normal((4, 3))


def mapped(f, *args, **kw):
    return np.asarray(rlx.vmap(f, axis_name="i", **kw)(*map(rlx.asarray, args)))


@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod"])
def test_all_reduce(kind):
    want = getattr(X, kind)(0)
    np.testing.assert_allclose(mapped(lambda x: x + all_reduce(x, "i", kind), X), X + want)


def test_what_is_the_same_for_all_counts_once_for_each():
    np.testing.assert_allclose(mapped(lambda x: x * 0 + all_reduce(rlx.asarray(2.0), "i"), X), np.full((4, 3), 8.0))


def test_gather_shift_place_and_size():
    np.testing.assert_array_equal(mapped(lambda x: all_gather(x, "i") + 0, X), np.broadcast_to(X, (4, 4, 3)))
    np.testing.assert_array_equal(mapped(lambda x: shift(x, "i", 1), X), np.roll(X, 1, axis=0))
    np.testing.assert_array_equal(mapped(lambda x: shift(x, "i", -1), X), np.roll(X, -1, axis=0))
    np.testing.assert_array_equal(mapped(lambda x: x[0] * 0 + axis_index("i") * axis_size("i"), X), np.arange(4) * 4)


def test_within_loops_that_would_else_be_the_same_for_all():
    f = lambda x: rlx.fori_loop(0, 3, lambda k, s: s + axis_index("i"), 0) + x[0] * 0
    np.testing.assert_array_equal(mapped(f, X), np.arange(4) * 3)
    g = lambda x: rlx.fori_loop(0, 3, lambda k, s: all_reduce(s, "i") * 0.25 + x, x)
    want = X
    for _ in range(3):
        want = want.sum(0) * 0.25 + X
    np.testing.assert_allclose(mapped(g, X), want)


def test_nested_axes_each_by_its_name():
    f = lambda x: all_reduce(x, "i") + 10 * all_reduce(x, "j") + all_gather(x, "i").sum()
    got = np.asarray(rlx.vmap(rlx.vmap(f, axis_name="j"), axis_name="i")(rlx.asarray(X)))
    np.testing.assert_allclose(got, 2 * X.sum(0)[None] + 10 * X.sum(1)[:, None] + 0 * X)


@pytest.mark.parametrize("f", [
    lambda x: all_reduce(x * x, "i"), lambda x: all_reduce(x, "i", "max") * x, lambda x: all_reduce(x, "i", "prod"),
    lambda x: shift(x * x, "i") * x, lambda x: (all_gather(x, "i") * rlx.arange(4.0)[:, None]).sum(0) * x])
def test_the_gradient_is_that_of_the_whole_batch(f):
    whole = lambda x: (rlx.vmap(f, axis_name="i")(x) ** 2).sum()
    rlx.testing.check_grad(whole, X)
    # Within the map the sum over members belongs to the transposition: the same numbers.
    one = rlx.grad(lambda x: (f(x) ** 2).sum())
    np.testing.assert_allclose(mapped(one, X), np.asarray(rlx.grad(whole)(rlx.asarray(X))), rtol=1e-9)


def test_the_gradient_of_a_product_with_zeros():
    x = X.copy()
    x[1, 0] = x[0, 1] = x[2, 1] = 0
    got = np.asarray(rlx.grad(lambda x: rlx.vmap(lambda x: all_reduce(x, "i", "prod"), axis_name="i")(x)[0].sum())(
        rlx.asarray(x)))
    others = np.stack([np.delete(x, k, axis=0).prod(axis=0) for k in range(4)])
    np.testing.assert_allclose(got, others)


def test_under_jit():
    f = rlx.jit(rlx.vmap(lambda x: x / all_reduce(x, "i"), axis_name="i"))
    np.testing.assert_allclose(np.asarray(f(rlx.asarray(X))), X / X.sum(0))


def test_names_that_are_unknown_hidden_or_kinds_that_are_none():
    with pytest.raises(TraceError, match="no axis is named 'k'"):
        mapped(lambda x: all_reduce(x, "k"), X)
    with pytest.raises(TraceError, match="no axis is named 'i'"):
        all_reduce(rlx.ones(3), "i")
    with pytest.raises(ValueIssue, match="named 'i' already"):
        mapped(lambda x: rlx.vmap(lambda y: y, axis_name="i")(x), X)
    with pytest.raises(ValueIssue, match="kind 'mean'"):
        mapped(lambda x: all_reduce(x, "i", "mean"), X)


def test_a_collective_that_no_map_takes_is_refused_at_compilation():
    from rlx.array.build import emit1
    with pytest.raises(CompileError, match="all_reduce") as e:
        rlx.jit(lambda x: emit1("all_reduce", x, rlx.zeros((), dtype=rlx.int32), axis="devices", kind="sum"))(
            rlx.ones(3)).tolist()
    assert "mesh" in e.value.why

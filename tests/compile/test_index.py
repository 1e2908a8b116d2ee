"""Index arithmetic: the normal form equals the plain formula everywhere, and meets itself."""

from __future__ import annotations

from itertools import product
from math import prod

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlx.compile.index import Indexer, has_division
from rlx.core.shape import strides
from rlx.ir import loop as L
from rlx.ir.loop import Expr

EXTENTS = {"i": 4, "j": 6, "k": 5}
QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def value(e: Expr, names: dict[str, int]) -> int:
    """An integer expression for given loop variables (floor division and remainder as Python's)."""
    if e.op == "const":
        return int(e.value)
    if e.op == "var":
        return names[e.value]
    a, b = (value(x, names) for x in e.args)
    return {"add": a + b, "sub": a - b, "mul": a * b, "floordiv": a // b if b else 0, "rem": a % b if b else 0,
            "min": min(a, b), "max": max(a, b)}[e.op]


def everywhere(extents: dict[str, int]) -> list[dict[str, int]]:
    return [dict(zip(extents, at, strict=True)) for at in product(*map(range, extents.values()))]


def indexer(extents: dict[str, int] = EXTENTS) -> tuple[Indexer, dict[str, Expr]]:
    ix = Indexer()
    return ix, {n: ix.var(n, k) for n, k in extents.items()}


def test_divisions_of_known_ranges_disappear() -> None:
    ix, v = indexer()
    i, j = v["i"], v["j"]
    flat = ix.add(ix.scale(i, 6), j)
    assert ix.div(flat, 6) == i
    assert ix.mod(flat, 6) == j
    assert ix.div(ix.scale(i, 12), 4) == ix.scale(i, 3)
    assert ix.mod(ix.scale(i, 12), 4) == ix.const(0)
    assert ix.div(j, 6) == ix.const(0) and ix.mod(j, 6) == j
    assert ix.div(ix.div(j, 2), 2) == L.div(j, 4)


def test_a_division_and_its_remainder_join() -> None:
    ix = Indexer()
    o = ix.var("o", 1000)
    q, r = ix.div(o, 4), ix.mod(o, 4)
    assert ix.add(ix.scale(q, 4), r) == o
    assert ix.add(ix.scale(q, 12), ix.scale(r, 3)) == ix.scale(o, 3)
    assert has_division(ix.add(ix.scale(q, 5), r))


def test_a_part_below_the_common_divisor_does_not_hinder() -> None:
    ix = Indexer()
    t, o = ix.var("t", 36), ix.var("o", 64)
    position = ix.add(ix.scale(t, 64), o)
    assert ix.div(position, 768) == ix.div(t, 12)
    assert ix.split(position, (3, 12, 64)) == (*ix.split(t, (3, 12)), o)


def test_loops_of_one_step_are_constants() -> None:
    ix = Indexer()
    assert ix.var("a", 1) == ix.const(0) and "a" not in ix.extent


def test_reshapes_meet() -> None:
    ix = Indexer()
    o = ix.var("o", 24)
    for shape in ((2, 3, 4), (24,), (4, 6), (1, 8, 3), (2, 12, 1)):
        assert ix.linear(ix.split(o, shape), shape) == o
    i, j = ix.var("i", 4), ix.var("j", 6)
    assert ix.split(ix.linear((i, j), (4, 6)), (4, 6)) == (i, j)


def test_ranges() -> None:
    ix, v = indexer()
    assert ix.range(ix.add(ix.scale(v["i"], 3), ix.const(2))) == (2, 11)
    assert ix.range(ix.scale(v["j"], -2)) == (-10, 0)
    assert ix.range(L.mod(L.var("unknown"), 7)) == (0, 6)
    assert ix.range(L.var("unknown")) == (None, None)


def test_a_reversed_axis_keeps_its_values() -> None:
    ix, v = indexer()
    back = ix.offset(ix.scale(v["j"], -1), 5)
    for n in (2, 3, 4, 7):
        for names in everywhere(EXTENTS):
            assert value(ix.div(back, n), names) == (5 - names["j"]) // n
            assert value(ix.mod(back, n), names) == (5 - names["j"]) % n


@st.composite
def nonnegative(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Steps of arithmetic on a sum of loop variables that stays non-negative."""
    kinds = st.sampled_from(["add i", "add j", "add k", "scale", "offset", "div", "mod", "twice"])
    return [(draw(kinds), draw(st.integers(1, 9))) for _ in range(draw(st.integers(1, 8)))]


@QUIET
@given(nonnegative())
def test_arithmetic_equals_brute_force(steps: list[tuple[str, int]]) -> None:
    ix, v = indexer()
    points = everywhere(EXTENTS)
    e, want = ix.const(0), [0] * len(points)
    for kind, n in steps:
        before = want
        match kind.split():
            case ["add", name]:
                e, want = ix.add(e, ix.scale(v[name], n)), [w + n * p[name] for w, p in zip(want, points, strict=True)]
            case ["scale"]:
                e, want = ix.scale(e, n), [w * n for w in want]
            case ["offset"]:
                e, want = ix.offset(e, n), [w + n for w in want]
            case ["div"]:
                e, want = ix.div(e, n), [w // n for w in want]
            case ["mod"]:
                e, want = ix.mod(e, n), [w % n for w in want]
            case _:
                e, want = ix.add(ix.scale(ix.div(e, n), n), ix.mod(e, n)), before
        assert [value(e, p) for p in points] == want
        low, high = ix.range(e)
        assert (low is None or low <= min(want)) and (high is None or high >= max(want))


@QUIET
@given(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=3), st.data())
def test_layouts_equal_brute_force(shape: list[int], data: st.DataObject) -> None:
    """``linear(split(position, a), b)`` for two shapes of one size, at every position."""
    n = prod(shape)
    other = data.draw(st.permutations(shape))
    ix = Indexer()
    o = ix.var("o", n)
    index = ix.split(o, shape)
    for at in range(n):
        names = {"o": at}
        want = [at // s % d for d, s in zip(shape, strides(shape), strict=True)]
        assert [value(e, names) for e in index] == want
        assert value(ix.linear(index[::-1], other), names) == \
            sum(w * s for w, s in zip(want[::-1], strides(other), strict=True))

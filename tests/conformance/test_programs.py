"""Random programs: the same expression on a device and on the interpreter, bit for bit.

All values are small integers (in integer or floating dtypes), so that sums are exact in any order and the comparison
needs no tolerance. Shapes have sizes 0 and 1, odd sizes, and enough elements for chunked grids and collapsed loops.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rlx
from rlx.ops.movement import pad_with

Draw = Callable[[Any], Any]
Step = Callable[[list[Any]], Any]
SMALL = st.sampled_from([(), (1,), (7,), (3, 5), (1, 4), (0, 3), (2, 3, 4), (5, 1, 3), (2, 1, 1, 5), (13, 17), (33, 9),
                         (4, 0, 2)])
LARGE = st.sampled_from([(65_537,), (211, 199), (3, 5, 2801), (40_009, 1), (1, 50_001), (7, 6101), (401, 11, 13)])
MAX_SIZE = 200_000
RUN = settings(max_examples=int(os.environ.get("RLX_TEST_EXAMPLES", "60")), deadline=None, derandomize=True,
               suppress_health_check=list(HealthCheck))


@st.composite
def programs(draw: Draw, shapes: st.SearchStrategy[tuple[int, ...]], steps: int) -> tuple[Any, ...]:
    """(input shapes and dtype, steps, outputs): each step makes one more value from those before it."""
    dtype = draw(st.sampled_from(["int32", "float64", "float32", "int64"]))
    first = draw(shapes)
    pool = [first, first]
    made: list[tuple[str, Step]] = []
    for _ in range(draw(st.integers(1, steps))):
        name, shape, step = _step(draw, pool)
        pool.append(shape)
        made.append((name, step))
    outputs = sorted({draw(st.integers(2, len(pool) - 1)) for _ in range(draw(st.integers(1, 3)))})
    return first, dtype, made, outputs


def _step(draw: Draw, pool: list[tuple[int, ...]]) -> tuple[str, tuple[int, ...], Step]:
    k = draw(st.integers(max(len(pool) - 4, 0), len(pool) - 1))
    shape = pool[k]
    kinds = [_unary, _binary, _binary, _reshape, _permute, _slice, _pad, _concat, _reduce, _flip, _broadcast,
             _against_reduced,
             _take, _scan, _sort]
    kind = draw(st.sampled_from(kinds if shape else [_unary, _binary, _broadcast, _reshape]))
    return (f"{kind.__name__}({k})", *kind(draw, pool, k, shape))


def _unary(draw: Draw, pool: Any, k: int, shape: Any) -> Any:
    f = draw(st.sampled_from([lambda x: -x, abs, lambda x: x + 3, lambda x: rlx.minimum(x, 5),
                              lambda x: rlx.where(x > 2, x, -x),
                              lambda x: rlx.clip(x, -7, 7), lambda x: rlx.sign(x)]))
    return shape, lambda v: f(v[k])


def _binary(draw: Draw, pool: Any, k: int, shape: Any) -> Any:
    f = draw(st.sampled_from([rlx.add, rlx.subtract, rlx.maximum, rlx.minimum, lambda x,
                              y: rlx.where(x < y, x, y - x)]))
    fits = [i for i, s in enumerate(pool) if s == shape or _together(s, shape) is not None]
    j = draw(st.sampled_from(fits))
    return np.broadcast_shapes(pool[j], shape), lambda v: f(v[k], v[j])


def _together(a: Any, b: Any) -> Any:
    try:
        out = np.broadcast_shapes(a, b)
    except ValueError:
        return None
    return out if prod(out) <= MAX_SIZE else None


def _reshape(draw: Draw, pool: Any, k: int, shape: Any) -> Any:
    n = prod(shape)
    new: list[int] = []
    if n == 0:
        new = draw(st.permutations([*shape, 1]))
    else:
        while n > 1 and len(new) < 3:
            d = draw(st.sampled_from([q for q in (1, 2, 3, 5, 7, 11, 13, n) if n % q == 0]))
            new.append(d)
            n //= d
        new.append(n)
    return tuple(new), lambda v: v[k].reshape(tuple(new))


def _permute(draw: Draw, pool: Any, k: int, shape: Any) -> Any:
    axes = tuple(draw(st.permutations(range(len(shape)))))
    return tuple(shape[a] for a in axes), lambda v: v[k].transpose(axes)


def _slice(draw: Draw, pool: Any, k: int, shape: Any) -> Any:
    key = []
    for n in shape:
        step = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        a = draw(st.integers(0, min(n, 3)))
        key.append(slice(a, None, step) if step > 0 else slice(None, a - 1 if a else None, step))
    return np.broadcast_to(0, shape)[tuple(key)].shape, lambda v: v[k][tuple(key)]


def _pad(draw: Draw, pool: Any, k: int, shape: Any) -> Any:
    low, high = ([draw(st.integers(0, 3)) for _ in shape] for _ in (0, 1))
    out = tuple(n + a + b for n, a, b in zip(shape, low, high, strict=True))
    if prod(out) > MAX_SIZE:
        return shape, lambda v: v[k] + 1
    return out, lambda v: pad_with(v[k], low, high, 4)


def _concat(draw: Draw, pool: Any, k: int, shape: Any) -> Any:
    axis = draw(st.integers(0, len(shape) - 1))
    fits = [i for i, s in enumerate(pool) if len(s) == len(shape) and
            all(a == b for m, (a, b) in enumerate(zip(s, shape, strict=True)) if m != axis)]
    j = draw(st.sampled_from(fits))
    out = (*shape[:axis], shape[axis] + pool[j][axis], *shape[axis + 1:])
    if prod(out) > MAX_SIZE:
        return shape, lambda v: v[k] + 1
    return out, lambda v: rlx.concat([v[k], v[j]], axis=axis)


def _reduce(draw: Draw, pool: Any, k: int, shape: Any) -> Any:
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    keep = draw(st.booleans())
    empty = any(shape[a] == 0 for a in axes)
    kind = draw(st.sampled_from(["sum"] if empty else ["sum", "max", "min"]))
    out = tuple(1 if a in axes else n for a, n in enumerate(shape) if keep or a not in axes)

    def step(v: list[Any]) -> Any:
        x = v[k]
        y = getattr(rlx, kind)(x, axis=axes, keepdims=keep)
        # Sums stay small: what comes after must be exact too.
        return rlx.remainder(y, 101).astype(x.dtype) if kind == "sum" else y
    return out, step


def _flip(draw: Draw, pool: Any, k: int, shape: Any) -> Any:
    axis = draw(st.integers(0, len(shape) - 1))
    return shape, lambda v: rlx.flip(v[k], axis=axis)


def _broadcast(draw: Draw, pool: Any, k: int, shape: Any) -> Any:
    lead = draw(st.sampled_from([(2,), (1,), (3, 1)]))
    wide = tuple(draw(st.sampled_from([1, 4])) if n == 1 else n for n in shape)
    out = (*lead, *wide)
    if prod(out) > MAX_SIZE:
        return shape, lambda v: v[k] * 1
    return out, lambda v: rlx.broadcast_to(v[k], out)


def _against_reduced(draw: Draw, pool: Any, k: int, shape: Any) -> Any:
    """The pattern of softmax and normalization: a value against a reduction of itself."""
    axis = draw(st.integers(0, len(shape) - 1))
    if shape[axis] == 0:
        return shape, lambda v: v[k] - 1
    return shape, lambda v: v[k] - rlx.max(v[k], axis=axis, keepdims=True) + rlx.min(v[k], axis=axis, keepdims=True)


def _take(draw: Draw, pool: Any, k: int, shape: Any) -> Any:
    axis = draw(st.integers(0, len(shape) - 1))
    n = shape[axis]
    if n == 0:
        return shape, lambda v: v[k] - 1
    rows = np.array(draw(st.lists(st.integers(-n, n - 1), min_size=0, max_size=5)), np.int64)
    return (*shape[:axis], len(rows), *shape[axis + 1:]), lambda v: rlx.take(v[k],
                                                                             rlx.asarray(rows, device=v[k].device),
                                                                             axis=axis)


def _scan(draw: Draw, pool: Any, k: int, shape: Any) -> Any:
    axis = draw(st.integers(0, len(shape) - 1))
    return shape, lambda v: rlx.remainder(rlx.cumulative_sum(v[k], axis=axis), 97).astype(v[k].dtype)


def _sort(draw: Draw, pool: Any, k: int, shape: Any) -> Any:
    axis, down = draw(st.integers(0, len(shape) - 1)), draw(st.booleans())
    return shape, lambda v: rlx.sort(v[k], axis=axis, descending=down)


def run(program: tuple[Any, ...], device: str, jit: bool = False) -> list[np.ndarray]:
    shape, dtype, steps, outputs = program

    def f(x: Any, y: Any) -> list[Any]:
        values = [x, y]
        for _, step in steps:
            values.append(step(values))
        return [values[i] for i in outputs]
    rng = np.random.default_rng(5)
    xs = [rlx.asarray(rng.integers(-9, 10, shape).astype(dtype), device=device) for _ in (0, 1)]
    with rlx.flags(device=device):
        outs = rlx.jit(f)(*xs) if jit else f(*xs)
        rlx.eval(outs)
    return [np.asarray(o) for o in outs]


def check(program: tuple[Any, ...], device: str) -> None:
    want = run(program, "python")
    for jit in (False, True):
        got = run(program, device, jit)
        for a, b in zip(got, want, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape, (program[:2], [n for n, _ in program[2]])
            assert np.array_equal(a, b), (program[:2], [n for n, _ in program[2]], program[3], jit)


@RUN
@given(programs(SMALL, 9))
def test_small_programs(program: tuple[Any, ...]) -> None:
    check(program, "cpu")


@RUN
@given(programs(LARGE, 6))
def test_large_programs(program: tuple[Any, ...]) -> None:
    check(program, "cpu")


def test_another_device(device: str) -> None:
    """A fixed set of programs on the device asked for."""
    if device in ("cpu", "python"):
        shapes = [(3, 5)]
    else:
        shapes = [(), (7,), (3, 5), (0, 3), (211, 199), (65_537,)]
    for shape in shapes:
        @settings(RUN, max_examples=10, database=None)
        @given(programs(st.just(shape), 8))
        def some(program: tuple[Any, ...]) -> None:
            check(program, device)
        some()


@pytest.mark.parametrize("chain", [((6, 4), (3, 8), (24,), (2, 3, 4)), ((0, 5), (5, 0), (0,)),
                                   ((1, 6, 1), (6,), (3, 2)),
                                   ((210, 200), (200, 210), (42_000,), (7, 6000), (5, 7, 1200))])
def test_reshape_chains_with_work_between(chain: tuple[tuple[int, ...], ...]) -> None:
    x = np.arange(prod(chain[0]), dtype=np.float64).reshape(chain[0])
    want, got = x, rlx.asarray(x)
    for shape in chain[1:]:
        want = (want + 1).reshape(shape).T.reshape(shape)
        got = (got + 1).reshape(shape).T.reshape(shape)
    assert np.array_equal(np.asarray(got), want)

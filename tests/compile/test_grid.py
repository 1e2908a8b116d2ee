"""The grid schedule: what every kernel of it must satisfy, for devices of different size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compile.grid_form import MAX_GROUPS
from rlx.compile.pipeline import compile_graph
from rlx.core.caps import Caps
from rlx.core.dtype import ALL, int32
from rlx.ir import loop as L
from rlx.render.c import spells


class Target:
    """A device that exists as capabilities only."""

    name = "target"
    claims: dict[str, tuple[()]] = {}

    def __init__(self, lanes: int, shared: int, features: tuple[str, ...] = ()) -> None:
        dtypes = frozenset(ALL)
        self.caps = Caps(
            name="target",
            dtypes=dtypes,
            schedule="grid",
            index_bits=32,
            spells=spells(dtypes),
            max_workgroup=lanes,
            shared_bytes=shared,
            cores=4,
            features=frozenset(features),
        )


TARGETS = {
    "large": Target(1024, 49_152, ("atomic-max-i32", "atomic-add-f32")),
    "small": Target(32, 2048),
    "bare": Target(64, 0),
}


def zeros(*shape: int, dtype: str = "float32") -> Any:
    return rlx.asarray(np.zeros(shape, dtype))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "points": (lambda x: rlx.exp(x) + 1, (zeros(1000),)),
    "many points": (lambda x: x + 1, (zeros(5000, 5000, dtype="int8"),)),
    "total": (lambda x: (x * x).sum(), (zeros(100_000),)),
    "softmax": (lambda x: rlx.softmax(x, axis=-1), (zeros(100, 300),)),
    "columns": (lambda x: x.sum(axis=0), (zeros(4000, 9),)),
    "product": (lambda x, y: x @ y, (zeros(100, 90), zeros(90, 80))),
    "scan": (lambda x: rlx.cumulative_sum(x), (zeros(9000),)),
    "sort": (lambda x: rlx.sort(x), (zeros(500),)),
}


def kernels(target: Target, name: str) -> tuple[L.Kernel, ...]:
    f, args = PROGRAMS[name]
    program = compile_graph(rlx.jit(f).trace(*args).graph, target).program
    assert program is not None
    return program.kernels()


def walk(body: tuple[L.Stmt, ...], inside: tuple[L.Stmt, ...] = ()) -> Iterator[tuple[L.Stmt, tuple[L.Stmt, ...]]]:
    """Every statement with the statements around it."""
    for s in body:
        yield s, inside
        for part in ("body", "then", "orelse"):
            yield from walk(getattr(s, part, ()), (*inside, s))


@pytest.fixture(params=[(t, p) for t in TARGETS for p in PROGRAMS], ids=lambda x: "-".join(x))
def made(request: pytest.FixtureRequest) -> tuple[Target, tuple[L.Kernel, ...]]:
    target = TARGETS[request.param[0]]
    return target, kernels(target, request.param[1])


def test_grid_loops_are_outermost_and_hold_block_loops(made: tuple[Target, tuple[L.Kernel, ...]]) -> None:
    target, found = made
    for k in found:
        (grid,) = k.body
        assert isinstance(grid, L.For) and grid.kind == L.GRID and grid.stop.op == "const"
        (block,) = grid.body
        assert isinstance(block, L.For) and block.kind == L.BLOCK and block.stop.op == "const"
        assert 1 <= grid.stop.value <= MAX_GROUPS and 1 <= block.stop.value <= target.caps.max_workgroup
        assert not any(isinstance(s, L.For) and s.kind in (L.GRID, L.BLOCK) for s, _ in walk(block.body))


def test_barriers_are_met_by_all_lanes(made: tuple[Target, tuple[L.Kernel, ...]]) -> None:
    """No barrier under a condition, nor in a loop whose bounds depend on the lane."""
    for k in made[1]:
        for s, inside in walk(k.body[0].body[0].body):
            if isinstance(s, L.Barrier):
                assert not any(isinstance(o, L.If | L.Loop) for o in inside)
                assert not any("l" in _names(o.start) | _names(o.stop) for o in inside if isinstance(o, L.For))


def test_shared_memory_fits(made: tuple[Target, tuple[L.Kernel, ...]]) -> None:
    target, found = made
    for k in found:
        used = sum(
            s.size * s.dtype.itemsize for s, _ in walk(k.body) if isinstance(s, L.Array) and s.space == "shared"
        )
        assert used <= target.caps.shared_bytes


def test_indices_have_the_width_the_device_asks_for(made: tuple[Target, tuple[L.Kernel, ...]]) -> None:
    for k in made[1]:
        for s, _ in walk(k.body):
            if isinstance(s, L.Store):
                assert s.index.dtype == int32


def test_a_large_product_is_tiled() -> None:
    (k,) = kernels(TARGETS["large"], "product")
    arrays = {s.name for s, _ in walk(k.body) if isinstance(s, L.Array) and s.space == "shared"}
    assert arrays == {"left", "right"}


def _names(e: L.Expr) -> set[str]:
    found = {str(e.value)} if e.op == "var" else set()
    return found.union(*map(_names, e.args))

"""How many kernels a program takes: what fuses, what is updated in place, and which buffers exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import rlx
from rlx import device as devices
from rlx.array.build import trace
from rlx.compile.legalize import Policy
from rlx.compile.pipeline import compile_graph
from rlx.ir import loop as L
from rlx.ir.graph import Type
from tests.ir.programs import cg, f64, i64, normalize, softmax

N = 1 << 20


def program(f: Callable[..., Any], *types: Type) -> L.Program:
    p = compile_graph(trace(f, types)[0], devices.find("cpu"), Policy("common")).program
    assert p is not None
    return p


def walk(steps: Sequence[L.Step]) -> Iterator[L.Step]:
    for s in steps:
        yield s
        for inner in (getattr(s, k, ()) for k in ("head", "body", "then", "orelse")):
            yield from walk(inner)


def launches(steps: Sequence[L.Step]) -> list[L.Launch]:
    return [s for s in walk(steps) if isinstance(s, L.Launch)]


def large(p: L.Program, steps: Sequence[L.Step], n: int) -> list[L.Launch]:
    """Launches that touch a buffer of at least n elements: the passes over memory."""
    return [s for s in launches(steps) if any(p.buffer(b).size >= n for b in s.buffers)]


def temps(p: L.Program, n: int) -> list[L.Buffer]:
    """Temporaries of at least n elements."""
    return [b for b in p.buffers if b.role == "temp" and b.size >= n]


def loads(k: L.Kernel, name: str) -> int:
    """Distinct load expressions of a buffer in a kernel."""
    found: set[L.Expr] = set()

    def expr(e: L.Expr) -> None:
        if e.op == "load" and e.value == name:
            found.add(e)
        for a in e.args:
            expr(a)

    def visit(body: Sequence[L.Stmt]) -> None:
        for s in body:
            for part in ("value", "init", "index", "cond"):
                if hasattr(s, part):
                    expr(getattr(s, part))
            for part in ("body", "then", "orelse"):
                visit(getattr(s, part, ()))

    visit(k.body)
    return len(found)


@pytest.mark.parametrize("shape", [(4, 300), (1000, 1000), (3, 5, 7), (3, 12, 64, 64), (3, 12, 160, 160)])
def test_softmax_is_one_kernel(shape: tuple[int, ...]) -> None:
    p = program(softmax, f64(*shape))
    assert len(p.steps) == 1 and len(launches(p.steps)) == 1
    assert not temps(p, 1)


@pytest.mark.parametrize("rows", [16, 5000])
def test_layer_normalization_is_one_kernel(rows: int) -> None:
    p = program(normalize, f64(rows, 64), f64(64), f64(64))
    assert len(p.steps) == 1 and not temps(p, 1)


def test_an_elementwise_chain_is_one_kernel() -> None:
    p = program(lambda x, y: rlx.exp(x + y * 2) / (1 + rlx.abs(y)) - x, f64(N), f64(N))
    assert len(p.steps) == 1 and not temps(p, 1)


@pytest.mark.parametrize("f", [
    lambda x, y: rlx.sum(rlx.sqrt(x * x + y * y)),
    lambda x, y: rlx.sum(x + y * 2),
    lambda x, y: rlx.max(rlx.abs(x - y)),
])
def test_a_chain_into_a_total_is_one_pass_and_a_small_combination(f: Callable[..., Any]) -> None:
    p = program(f, f64(N), f64(N))
    first, second = launches(p.steps)
    assert len(p.steps) == 2
    assert large(p, p.steps, N) == [first]
    assert all(p.buffer(b).size <= 64 for b in second.buffers)


def test_a_small_total_is_one_kernel() -> None:
    assert len(program(lambda x, y: rlx.sum(x + y * 2), f64(100), f64(100)).steps) == 1


@pytest.mark.parametrize("f", [
    lambda x: (rlx.sum(x), rlx.max(x)),
    lambda x: (rlx.sum(x), rlx.sum(x * x), rlx.min(x)),
])
def test_totals_of_one_input_share_its_pass(f: Callable[..., Any]) -> None:
    p = program(f, f64(N))
    (one,) = large(p, p.steps, N)
    assert len(p.steps) == 2
    (name,) = [q.name for q in one.kernel.params if q.size == N]
    assert loads(one.kernel, name) == 1


def test_row_reductions_of_one_input_share_its_pass() -> None:
    p = program(lambda x: (rlx.sum(x, axis=1), rlx.max(x, axis=1)), f64(500, 300))
    assert len(p.steps) == 1


def test_what_depends_on_a_total_is_a_second_pass() -> None:
    p = program(lambda x: x / rlx.sum(x), f64(N))
    assert len(large(p, p.steps, N)) == 2 and len(p.steps) == 3


def test_movement_costs_no_kernel() -> None:
    def f(x):
        turned = rlx.flip(rlx.permute_dims(x.reshape((32, 64)), (1, 0)), axis=0)
        return rlx.sum(turned * 2, axis=1)

    p = program(f, f64(2048))
    assert len(p.steps) == 1 and not temps(p, 1)


# Loops

def repeat(p: L.Program) -> L.Repeat:
    (found,) = [s for s in walk(p.steps) if isinstance(s, L.Repeat)]
    return found


def small_copies_only(p: L.Program, steps: Sequence[L.Step], n: int) -> bool:
    return all(p.buffer(s.dst).size < n for s in walk(steps) if isinstance(s, L.Copy))


@pytest.mark.parametrize("n", [100, 1000])
def test_a_step_of_cg_is_three_passes(n: int) -> None:
    p = program(cg, f64(n, n), f64(n))
    body = repeat(p).body
    assert len(large(p, body, n)) == 3
    assert small_copies_only(p, body, n)
    assert len(temps(p, n)) <= 2


def test_a_step_of_sparse_cg_is_three_passes() -> None:
    from rlx.ops.segments import segment_reduce
    n, nnz = 10_000, 50_000

    def solve(values: Any, columns: Any, offsets: Any, b: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            x, r, d, rr = state
            q = segment_reduce(values * d[columns], offsets)
            alpha = rr / rlx.sum(d * q)
            x, r = x + alpha * d, r - alpha * q
            new = rlx.sum(r * r)
            return x, r, r + (new / rr) * d, new
        return rlx.fori_loop(0, 10, step, (rlx.zeros_like(b), b, b, rlx.sum(b * b)))

    p = program(solve, f64(nnz), i64(nnz), i64(n + 1), f64(n))
    body = repeat(p).body
    assert len(large(p, body, n)) == 3
    assert small_copies_only(p, body, n)


def test_a_carry_is_updated_in_place() -> None:
    p = program(lambda x, y: rlx.fori_loop(0, 5, lambda i, v: v * rlx.sum(v) + y, x), f64(N), f64(N))
    body = repeat(p).body
    step = body[-1]
    assert isinstance(step, L.Launch) and len(set(step.buffers)) < len(step.buffers)
    assert len(large(p, body, N)) == 2 and small_copies_only(p, body, N) and not temps(p, N)


def test_a_carry_that_is_read_elsewhere_is_not_overwritten_too_early() -> None:
    p = program(lambda x: rlx.fori_loop(0, 5, lambda i, v: v + rlx.flip(v, axis=0), x), f64(N))
    for s in launches(repeat(p).body):
        reads = {b for b, q in zip(s.buffers, s.kernel.params, strict=True) if "r" in q.access and q.size == N}
        writes = {b for b, q in zip(s.buffers, s.kernel.params, strict=True) if "w" in q.access and q.size == N}
        assert not reads & writes


def test_a_swap_of_carries_keeps_both() -> None:
    out = rlx.fori_loop(0, 3, lambda i, v: (v[1], v[0] + 1), (rlx.asarray([1.0]), rlx.asarray([10.0])))
    a, b = 1.0, 10.0
    for _ in range(3):
        a, b = b, a + 1
    assert [float(v[0]) for v in out] == [a, b]


def test_a_scatter_into_a_carry_writes_its_storage() -> None:
    p = program(lambda x: rlx.fori_loop(0, 5, lambda i, v: v.at[i].set(rlx.sum(v)), x), f64(N))
    assert small_copies_only(p, repeat(p).body, N) and not temps(p, N)


def test_a_constant_is_not_stored_for_a_loop() -> None:
    p = program(lambda x: rlx.while_loop(lambda v: rlx.sum(v) < 100, lambda v: v * 2 + 1, x), f64(1000))
    assert [b.role for b in p.buffers if b.size == 1000] == ["input", "output"]

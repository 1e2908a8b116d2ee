"""The memory plan: no two buffers that are in use at once share bytes, and bytes are used again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlx.compile.memory import ALIGN, place
from rlx.core.dtype import bool_, float64, int64
from rlx.ir import loop as L
from rlx.ir.verify import verify_program
from tests.ir.programs import PROGRAMS, lowered

NAMES = [f"t{k}" for k in range(6)]


def kernel(reads: int, writes: int, sizes: list[int]) -> L.Kernel:
    params = tuple(L.Param(f"b{k}", float64, n, "r" if k < reads else "w") for k, n in enumerate(sizes))
    return L.Kernel(f"k{reads}_{writes}_{'_'.join(map(str, sizes))}", params, ())


class Machine:
    """Runs a program on symbols: every write stores a fresh token in all its bytes, every read checks them.

    What a read sees must be what was written under that name last, unless nothing wrote it yet: a byte that another
    buffer has overwritten in between is an overlap of two live buffers.
    """

    def __init__(self, program: L.Program) -> None:
        self.at = {b.name: (b.offset, b.nbytes) for b in program.buffers if b.role == "temp"}
        self.memory = np.zeros(program.arena, np.int64)
        self.last: dict[str, int] = {}
        self.clock = 0

    def write(self, name: str) -> None:
        if name in self.at:
            self.clock += 1
            o, n = self.at[name]
            self.memory[o:o + n] = self.last[name] = self.clock

    def read(self, name: str) -> None:
        if name in self.at and name in self.last:
            o, n = self.at[name]
            assert (self.memory[o:o + n] == self.last[name]).all(), f"{name} was overwritten"

    def run(self, steps: tuple[L.Step, ...]) -> None:
        for s in steps:
            match s:
                case L.Launch():
                    access = [p.access for p in s.kernel.params]
                    self.io([b for b, a in zip(s.buffers, access, strict=True) if "r" in a],
                            [b for b, a in zip(s.buffers, access, strict=True) if "w" in a])
                case L.Native():
                    self.io(list(s.buffers[:s.inputs]), [*s.scratch, *s.buffers[s.inputs:]])
                case L.Copy():
                    self.io([s.src], [s.dst])
                case L.While():
                    for _ in range(3):
                        self.run(s.head)
                        self.read(s.pred)
                        self.run(s.body)
                    self.run(s.head)
                    self.read(s.pred)
                case L.Branch():
                    self.read(s.pred)
                    self.run(s.then if self.clock % 2 else s.orelse)
                case L.Repeat():
                    if isinstance(s.count, str):
                        self.read(s.count)
                    for _ in range(3):
                        self.write(s.counter)
                        self.run(s.body)
                        self.read(s.counter)

    def io(self, reads: list[str], writes: list[str]) -> None:
        """One step: all it reads is there, and its results and operands do not share bytes."""
        for name in reads:
            self.read(name)
        spans = sorted(self.at[n] for n in {*reads, *writes} if n in self.at)
        for (a, n), (b, _) in pairwise(spans):
            assert a + n <= b, "two buffers of one step share bytes"
        for name in writes:
            self.write(name)


def check(program: L.Program) -> L.Program:
    placed = place(program)
    for b in placed.buffers:
        if b.role == "temp":
            assert b.offset % ALIGN == 0 and b.offset + b.nbytes <= placed.arena
    Machine(placed).run(placed.steps)
    return placed


def chain(count: int, size: int = 100) -> L.Program:
    """in -> t0 -> t1 -> ... -> out"""
    names = ["in0", *[f"t{k}" for k in range(count)], "out0"]
    k = kernel(1, 1, [size, size])
    roles = ["input", *["temp"] * count, "output"]
    return L.Program("chain", tuple(L.Buffer(n, float64, size, r) for n, r in zip(names, roles, strict=True)),
                     tuple(L.Launch(k, (a, b)) for a, b in pairwise(names)))


def test_a_chain_needs_two_buffers() -> None:
    placed = check(chain(8))
    assert placed.arena == 2 * -(-800 // ALIGN) * ALIGN
    assert {b.offset for b in placed.buffers if b.role == "temp"} == {0, 832}


def test_temps_that_nothing_uses_are_dropped() -> None:
    p = chain(1)
    p = replace(p, buffers=(*p.buffers, L.Buffer("unused", float64, 10, "temp")))
    assert [b.name for b in place(p).buffers] == ["in0", "t0", "out0"]


def test_what_a_loop_reads_from_outside_lives_through_it() -> None:
    """t0 is read first in the body and t1 written after it: in the second iteration t0 is read again."""
    k, one = kernel(1, 1, [100, 100]), kernel(0, 1, [1])
    buffers = (L.Buffer("in0", float64, 100, "input"), L.Buffer("out0", float64, 100, "output"),
               L.Buffer("t0", float64, 100, "temp"), L.Buffer("t1", float64, 100, "temp"),
               L.Buffer("n", int64, 1, "temp"))
    body = (L.Launch(k, ("t0", "out0")), L.Launch(k, ("in0", "t1")), L.Launch(k, ("t1", "out0")))
    placed = check(L.Program("p", buffers, (L.Launch(k, ("in0", "t0")), L.Repeat(3, "n", body))))
    assert one.params and placed.buffer("t0").offset != placed.buffer("t1").offset


def test_the_machine_sees_an_overlap() -> None:
    p = place(chain(3))
    broken = replace(p, buffers=tuple(replace(b, offset=0) for b in p.buffers))
    with pytest.raises(AssertionError, match="share bytes"):
        Machine(broken).run(broken.steps)


@pytest.mark.parametrize("policy", ["common", "prefer_native"])
@pytest.mark.parametrize("name", [n for n in PROGRAMS if not n.startswith("prim_")])
def test_real_programs(name: str, policy: str) -> None:
    p = lowered(name, "cpu", policy).program
    assert p is not None
    check(replace(p, arena=0))


@st.composite
def blocks(draw: st.DrawFn, known: frozenset[str], depth: int = 0) -> tuple[tuple[L.Step, ...], frozenset[str]]:
    """Steps over six temps of fixed sizes that read only what is written, and what is written after them."""
    steps: list[L.Step] = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.integers(0, 5 if depth < 2 else 2))
        if kind <= 2:
            reads = draw(st.lists(st.sampled_from(sorted(known)), max_size=3, unique=True)) if known else []
            others = st.sampled_from([n for n in NAMES if n not in reads])
            writes = draw(st.lists(others, min_size=1, max_size=2, unique=True))
            steps.append(launch(reads, writes))
            known |= set(writes)
        elif kind == 3:
            head, known = draw(blocks(known, depth + 1))
            steps.append(L.While(head, "p", draw(blocks(known, depth + 1))[0]))
        elif kind == 4:
            steps.append(L.Repeat(draw(st.sampled_from([3, "n"])), f"c{depth}", draw(blocks(known, depth + 1))[0]))
        else:
            (then, after), (orelse, other) = draw(blocks(known, depth + 1)), draw(blocks(known, depth + 1))
            steps.append(L.Branch("p", then, orelse))
            known = after & other
    return tuple(steps), known


def launch(reads: list[str], writes: list[str]) -> L.Launch:
    names = (*reads, *writes)
    return L.Launch(kernel(len(reads), len(writes), [size_of(n) for n in names]), names)


def size_of(name: str) -> int:
    return 8 * (1 + NAMES.index(name))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(blocks(frozenset()))
def test_random_programs(made: tuple[tuple[L.Step, ...], frozenset[str]]) -> None:
    buffers = (*(L.Buffer(n, float64, size_of(n), "temp") for n in NAMES), L.Buffer("p", bool_, 1, "temp"),
               L.Buffer("n", int64, 1, "temp"), *(L.Buffer(f"c{d}", int64, 1, "temp") for d in range(3)))
    first = L.Native("c", ("p", "n"), ((bool_, (1,)), (int64, (1,))), 0)
    check(verify_program(L.Program("p", buffers, (first, *made[0]))))

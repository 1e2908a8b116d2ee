"""Every op of the registry, on every sample, on every device asked for: values, types, eager, policies, one compile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.array.host import from_host, to_host
from rlx.compile.report import NATIVE
from rlx.core.dtype import bool_, float64
from rlx.core.errors import CompileError
from rlx.ir import loop as L
from rlx.ir.op import Op
from rlx.ir.prim import PRIMITIVES
from rlx.runtime.execute import PROGRAMS
from rlx.tools import cases as C
from rlx.tools import coverage
from rlx.tools.cases import Case
from rlx.tools.gaps import flushes, known
from tests.conformance.tolerance import difference

#: Cases in one program: enough to share the cost of compiling, few enough to keep a failure readable.
PACK = 48
OPS = [op for op in C.ops() if op.sample_makers and "ref" in op.rules]


@pytest.fixture(params=OPS, ids=[op.name for op in OPS])
def op(request: pytest.FixtureRequest) -> Op:
    return request.param


def packs(op: Op, device: str) -> list[list[Case]]:
    """The op's cases without the known gaps, in packs."""
    cases = [c for c in C.cases(op) if known(op.name, device, c.dtype) is None]
    if not cases:
        pytest.skip(f"{op.name} on {device}: " + "; ".join({g.reason for c in C.cases(op)
                                                          if (g := known(op.name, device, c.dtype))}))
    return [cases[i:i + PACK] for i in range(0, len(cases), PACK)]


@dataclass(frozen=True)
class Ran:
    """A pack as one jitted function, and what its first call gave."""

    group: list[Case]
    f: Any
    outputs: list[list[rlx.Array]]


@cache
def ran(op: Op, device: str) -> tuple[Ran, ...]:
    """Each pack of the op, run once; every test below looks at the same results."""
    return tuple(run(group, device) for group in packs(op, device))


def run(group: list[Case], device: str, dispatch: str | None = None) -> Ran:
    """The pack as one jitted program; when that fails, the first case that fails alone is named."""
    with rlx.flags(device=device):
        try:
            f = rlx.jit(C.function(group, device), device=device, dispatch=dispatch)
            return Ran(group, f, f([c.arrays(device) for c in group]))
        except Exception as error:
            for c in group:
                try:
                    rlx.jit(C.function([c], device), device=device, dispatch=dispatch)([c.arrays(device)])
                except Exception as alone:
                    raise AssertionError(f"{c.id} on {device}: {type(alone).__name__}: {alone}") from alone
            raise error


@cache
def _expected(op: Op) -> dict[str, list[np.ndarray]]:
    return {c.id: c.expected() for c in C.cases(op)}


def wrong(case: Case, outs: Sequence[rlx.Array]) -> list[str]:
    """How the outputs of a case differ from the oracle's; where subnormal numbers are zero, from its on zeros too."""
    found = _wrong(case, outs, _expected(case.op)[case.id])
    if found and flushes(outs[0].device):
        zeros, want = [_flushed(np.asarray(x)) for x in outs], [_flushed(y) for y in case.expected(_flushed)]
        if case.op.name in ("div", "floordiv"):  # they also divide by way of a reciprocal, which may be subnormal
            size = np.abs(case.hosts()[1])
            open_ = np.isfinite(size) & (size > 0) & ((size < 2.0**-126) | (size > 2.0**126))
            zeros[0], want[0] = (np.where(open_, 0, y).astype(y.dtype) for y in (zeros[0], want[0]))
        return _wrong(case, [rlx.asarray(x) for x in zeros], want)
    return found


def _flushed(x: np.ndarray) -> np.ndarray:
    """float32 without subnormal numbers."""
    if x.dtype not in (np.float32, np.complex64):
        return x
    parts = np.array(x).reshape(-1).view(np.float32)
    small = np.abs(parts) < np.finfo(np.float32).tiny
    parts[small] = np.copysign(0, parts[small])
    return parts.view(x.dtype).reshape(x.shape)


def _wrong(case: Case, outs: Sequence[rlx.Array], want: Sequence[np.ndarray]) -> list[str]:
    found = []
    if len(want) != len(outs):
        return [f"{case.id}: {len(outs)} outputs instead of {len(want)}"]
    canonical = case.op.rules.get("canonical")
    if canonical is not None:  # the results are not unique, such as the signs of eigenvectors
        args = case.hosts()
        want = canonical(want, *args, **case.sample.attrs)
        outs = [rlx.asarray(x) for x in canonical([np.asarray(x) for x in outs], *args, **case.sample.attrs)]
    for k, (got, ref) in enumerate(zip(outs, want, strict=True)):
        with np.errstate(all="ignore"):
            ref = from_host(to_host(np.asarray(ref), got.dtype), got.dtype)
        name = case.op.name + (".complex" if case.dtype.is_complex and not got.dtype.is_complex else "")
        text = difference(name, np.asarray(got), ref, got.dtype, case.op.primitive, case.sample.tolerance)
        if text is not None:
            found.append(f"{case.id} output {k} ({got.dtype.name}): {text}")
    return found


def test_values_equal_the_oracle(op: Op, device: str, request: pytest.FixtureRequest) -> None:
    file = request.config.getoption("--record-coverage")
    if file is not None:
        refused = [c for c in C.cases(op) if known(op.name, device, c.dtype) is not None]
        coverage.record([coverage.place(c, device) for c in refused], file)
    bad = []
    for c, outs in [pair for r in ran(op, device) for pair in zip(r.group, r.outputs, strict=True)]:
        found = wrong(c, outs)
        if file is not None:
            e = coverage.place(c, device)
            coverage.record([replace(e, path=coverage.WRONG, by=found[0]) if found else e], file)
        bad += found
    assert not bad, "\n".join(bad)


def test_results_have_the_dtype_of_the_oracle(op: Op, device: str) -> None:
    """The oracle is NumPy, so its dtypes are NumPy's: an op's type rule may not promote in another way."""
    bad = []
    for r in ran(op, device):
        for c, outs in zip(r.group, r.outputs, strict=True):
            for got, ref in zip(outs, _expected(op)[c.id], strict=True):
                if got.shape != ref.shape or (c.half is None and got.dtype != rlx.asarray(ref).dtype):
                    bad.append(f"{c.id}: {got.dtype.name}{got.shape} instead of {ref.dtype}{ref.shape}")
    assert not bad, "\n".join(bad)


def adds_in_any_order(steps: Sequence[L.Step] | Sequence[L.Stmt]) -> bool:
    """Whether a kernel has float atomics: a device with many lanes adds them up in another order every time."""
    return any((isinstance(s, L.Atomic) and s.value.dtype.is_inexact) or any(
        adds_in_any_order(getattr(s, part, ())) for part in ("head", "body", "then", "orelse")) or (
        isinstance(s, L.Launch) and adds_in_any_order(s.kernel.body)) for s in steps)


def test_eager_gives_the_same_bits_as_jit(op: Op, device: str) -> None:
    for r in ran(op, device):
        with rlx.flags(device=device):
            arrays = [c.arrays(device) for c in r.group]
            program = r.f.lower(arrays).lowered.program
            eager = C.function(r.group, device)(arrays)
        rlx.eval(eager)
        loose = program is not None and adds_in_any_order(program.steps)
        for c, a, b in zip(r.group, r.outputs, eager, strict=True):
            for x, y in zip(a, b, strict=True):
                assert (x.dtype, x.shape, x.device) == (y.dtype, y.shape, y.device), c.id
                if not np.array_equal(np.asarray(x), np.asarray(y), equal_nan=x.dtype.is_inexact):
                    assert loose, c.id
                    assert not wrong(c, b), c.id


def test_a_float_atomic_is_found_wherever_it_stands() -> None:
    at = L.Atomic("add", "b0", L.const(0), L.const(1.0, float64))
    kernel = L.Kernel("k", (), (L.For("g", L.const(0), L.const(2), 1, L.GRID, (L.If(L.const(True, bool_), (at,)),)),))
    launch = L.Launch(kernel, ())
    assert adds_in_any_order((L.While((), "p", (L.Repeat(2, "c", (launch,)),)),))
    store = L.Store("b0", L.const(0), L.const(1.0, float64))
    assert not adds_in_any_order((L.Launch(L.Kernel("k", (), (store,)), ()),))


def test_common_agrees_with_native(op: Op, device: str) -> None:
    """Where a claim took a node, the decomposition (or the generated kernel) must answer the oracle too."""
    for r in ran(op, device):
        with rlx.flags(device=device):
            program = r.f.lower([c.arrays(device) for c in r.group])
        if not any(row.path == NATIVE for row in program.report):
            continue
        common = run(r.group, device, "common")
        bad = [line for c, outs in zip(r.group, common.outputs, strict=True) for line in wrong(c, outs)]
        assert not bad, "\n".join(bad)


def test_a_second_call_with_new_data_does_not_compile(op: Op, device: str) -> None:
    for r in ran(op, device):
        before = PROGRAMS.compiles
        with rlx.flags(device=device):
            r.f([c.arrays(device) for c in r.group])
        assert PROGRAMS.compiles == before
        assert r.f.cache_size == 1


def test_a_refusal_is_a_compile_error_with_four_parts(op: Op, device: str) -> None:
    """What is a known gap must be refused, not answered wrongly: the error names the limit and what else there is."""
    for c in C.cases(op):
        gap = known(op.name, device, c.dtype)
        if gap is None or not gap.refused:
            continue
        try:
            report = rlx.explain(C.function([c], device), [c.arrays(device)], device=device)
        except CompileError as e:
            assert e.what and e.where and e.why and e.do, c.id
            assert f"{device} has no " in e.why and "another device" in e.do, c.id
        else:  # its arguments are its results: there is nothing to compute
            assert not [row for row in report if row.op in PRIMITIVES], f"{c.id} is not refused"

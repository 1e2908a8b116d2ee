"""The dispatch contract: every path, every decline with its reason, policies, overrides, and what the report says."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.array.build import emit
from rlx.compile.legalize import Policy
from rlx.compile.report import COMMON, FREE, NATIVE, REWRITTEN, Report, Row
from rlx.core import dtype as dt
from rlx.core.errors import CompileError, DeviceError, ValueIssue
from rlx.ir.op import REGISTRY, Op
from tests.contract.fake import FakeDevice, claim, plug_in

X = np.arange(12.0).reshape(3, 4)


def softmax(x: Any, *, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def only_f64(call: Any) -> str | None:
    got = call.inputs[0][0]
    return None if got == dt.float64 else f"needs float64, got {got.name}"


def only_matrices(call: Any) -> str | None:
    rank = len(call.inputs[0][1])
    return None if rank == 2 else f"needs 2 axes, got {rank}"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    made = FakeDevice("fake", {"softmax": (claim("softmax", softmax, only_f64, "first"),
                                           claim("softmax", softmax, only_matrices, "second"))})
    plug_in(monkeypatch, made)
    return made


def on_fake(x: Any = X) -> rlx.Array:
    return rlx.asarray(x, device="fake")


def close(got: Any, want: Any, atol: float = 1e-8) -> bool:
    return np.allclose(np.asarray(got), want, atol=atol)


def own(report: Report, op: str) -> Row:
    return next(r for r in report if r.op == op)


def line() -> int:
    """The line that calls this."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


# Paths

def test_a_third_party_device_runs_programs(fake: FakeDevice) -> None:
    assert "fake" in __import__("rlx.device").device.names()
    y = rlx.jit(lambda x: (x @ x.T + 1).sum(axis=0))(on_fake())
    assert y.device == "fake" and close(y, (X @ X.T + 1).sum(axis=0))
    assert close(on_fake() * 2 + 1, X * 2 + 1)


def test_native_is_taken_and_executed(fake: FakeDevice) -> None:
    f = rlx.jit(lambda x: rlx.softmax(x) + 1)
    assert close(f(on_fake()), softmax(X) + 1)
    row = own(f.lower(on_fake()).report, "softmax")
    assert (row.path, row.by, row.declined) == (NATIVE, "first (libfake.softmax)", ())
    assert fake.calls == ["first"]


def test_a_decline_is_recorded_and_the_next_claim_asked(fake: FakeDevice) -> None:
    f = rlx.jit(lambda x: rlx.softmax(x))
    assert close(f(on_fake(X.astype(np.float32))), softmax(X), atol=1e-6)
    row = own(f.lower(on_fake(X.astype(np.float32))).report, "softmax")
    assert row.by == "second (libfake.softmax)" and row.declined == (("first", "needs float64, got float32"),)


def test_common_when_every_claim_declines(fake: FakeDevice) -> None:
    x = X.astype(np.float32).reshape(2, 3, 2)
    f = rlx.jit(lambda a: rlx.softmax(a))
    assert close(f(on_fake(x)), softmax(x), atol=1e-6) and fake.calls == []
    report = f.lower(on_fake(x)).report
    row = own(report, "softmax")
    assert row.path == COMMON and row.by == "decomposition of softmax"
    assert row.declined == (("first", "needs float64, got float32"), ("second", "needs 2 axes, got 3"))
    assert {r.op for r in report if r.depth == 1} >= {"exp", "reduce", "div"}
    assert "first declined: needs float64" in report.table() and "second declined: needs 2 axes" in report.table()


def test_rewritten_names_the_rule() -> None:
    report = rlx.explain(lambda x: rlx.exp(x), rlx.asarray(X))
    row = own(report, "exp")
    assert row.path == REWRITTEN and row.by == "exp-expansion"
    pairs = own(rlx.explain(lambda x: x * x, rlx.asarray(X + 1j)), "mul")
    assert pairs.path == REWRITTEN and pairs.by == "complex-to-pairs"


def test_movement_is_free() -> None:
    report = rlx.explain(lambda x: x.T[::-1].reshape(2, 6), rlx.asarray(X))
    assert {r.path for r in report} == {FREE} and report.paths() == {}


def test_a_graph_inside_control_flow_is_reported() -> None:
    report = rlx.explain(lambda x: rlx.fori_loop(0, 3, lambda i, v: v * 2, x), rlx.asarray(X))
    assert own(report, "loop").depth == 0 and own(report, "mul").depth == 1


# Policies

def test_common_ignores_claims(fake: FakeDevice) -> None:
    f = rlx.jit(lambda x: rlx.softmax(x), dispatch="common")
    assert close(f(on_fake()), softmax(X)) and fake.calls == []
    row = own(f.lower(on_fake()).report, "softmax")
    assert row.path == COMMON and row.declined == ()


def test_strict_refuses_what_is_not_native(fake: FakeDevice) -> None:
    assert close(rlx.jit(lambda x: rlx.softmax(x).T, dispatch="strict")(on_fake()), softmax(X).T)
    with pytest.raises(CompileError) as e:
        rlx.jit(lambda x: rlx.softmax(x) + 1, dispatch="strict")(on_fake())
    assert "add" in e.value.what and "strict" in e.value.why and "override" in e.value.do


def test_strict_goes_into_a_decomposition(fake: FakeDevice) -> None:
    """An op whose claims all declined is refused under strict, with each reason."""
    with pytest.raises(CompileError) as e:
        rlx.jit(lambda x: rlx.softmax(x), dispatch="strict")(on_fake(X.astype(np.float32).reshape(2, 3, 2)))
    assert "strict" in e.value.why
    assert "reduce" in e.value.what and "part of softmax" in e.value.why
    assert "first declined: needs float64" in e.value.why and "second declined: needs 2 axes" in e.value.why


def test_an_override_is_for_one_op(fake: FakeDevice) -> None:
    f = rlx.jit(lambda x: rlx.softmax(x) + 1, dispatch="strict", overrides={"add": "prefer_native"})
    assert close(f(on_fake()), softmax(X) + 1) and fake.calls == ["first"]
    g = rlx.jit(lambda x: rlx.softmax(x) + 1, overrides={"softmax": "common"})
    assert close(g(on_fake()), softmax(X) + 1) and fake.calls == ["first"]
    assert "softmax=common" in g.lower(on_fake()).report.policy


def test_the_environment_sets_the_policy(fake: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_KERNEL_DISPATCH", "common")
    assert close(rlx.softmax(on_fake()), softmax(X)) and fake.calls == []
    assert own(rlx.explain(lambda x: rlx.softmax(x), on_fake(), device="fake"), "softmax").path == COMMON
    monkeypatch.setenv("RLX_KERNEL_DISPATCH", "prefer_native")
    assert close(rlx.softmax(on_fake()), softmax(X)) and fake.calls == ["first"]


def test_a_policy_set_for_a_block_is_another_specialization(fake: FakeDevice) -> None:
    f = rlx.jit(lambda x: rlx.softmax(x))
    f(on_fake())
    with rlx.flags(kernel_dispatch="common"):
        f(on_fake())
    f(on_fake())
    assert fake.calls == ["first", "first"] and f.cache_size == 2


@pytest.mark.parametrize("make", [lambda: Policy("fastest"), lambda: Policy(overrides={"add": "never"}),
                                  lambda: rlx.jit(lambda x: x + 1, dispatch="fastest")(X)])
def test_unknown_policies_are_refused(make: Any) -> None:
    with pytest.raises(ValueIssue) as e:
        make()
    assert "prefer_native" in e.value.do and e.value.why


def test_an_unknown_policy_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_KERNEL_DISPATCH", "fastest")
    with pytest.raises(ValueIssue) as e:
        rlx.eval(rlx.asarray(X) + 1)
    assert "RLX_KERNEL_DISPATCH" in e.value.what and "strict" in e.value.do


# The report

def test_rows_carry_the_users_lines() -> None:
    def f(x: rlx.Array) -> rlx.Array:
        a = x + 1; first = line()  # noqa: E702
        b = rlx.softmax(a); second = line()  # noqa: E702
        lines.update(add=first, softmax=second)
        return b
    lines: dict[str, int] = {}
    report = rlx.explain(f, rlx.asarray(X))
    for name in ("add", "softmax"):
        assert own(report, name).where.line == lines[name]
        assert own(report, name).where.file == __file__
    inner = [r for r in report if r.depth == 1]
    assert inner and all(r.where.line == lines["softmax"] and r.where.via == "softmax" for r in inner)


def test_the_report_of_a_lazy_expression_has_lines_too() -> None:
    y = rlx.asarray(X) * 3; here = line()  # noqa: E702
    row = own(rlx.explain(y), "mul")
    assert row.where.line == here and row.where.short.endswith(f"test_dispatch.py:{here}")


def test_explain_runs_nothing(fake: FakeDevice) -> None:
    report = rlx.explain(lambda x: rlx.softmax(x), on_fake())
    assert fake.calls == [] and report.device == "fake" and report.paths() == {NATIVE: 1}


def test_explain_for_another_device(fake: FakeDevice) -> None:
    assert own(rlx.explain(lambda x: rlx.softmax(x), rlx.asarray(X), device="fake"), "softmax").path == NATIVE
    assert own(rlx.explain(lambda x: rlx.softmax(x), rlx.asarray(X), device="cpu"), "softmax").path == COMMON


def test_the_report_is_printed_when_asked_for(monkeypatch: pytest.MonkeyPatch,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RLX_DISPATCH_REPORT", "1")
    rlx.jit(lambda x: rlx.exp(x) * 1.2345)(rlx.asarray(X))
    printed = capsys.readouterr().err
    assert "dispatch on cpu, policy prefer_native" in printed and "exp-expansion" in printed
    monkeypatch.setenv("RLX_DISPATCH_REPORT", "0")
    rlx.jit(lambda x: rlx.exp(x) * 5.4321)(rlx.asarray(X))
    assert capsys.readouterr().err == ""


# Refusals

def test_an_op_without_decomposition_or_claim(fake: FakeDevice) -> None:
    """Refused with every reason where no claim takes it, and native where one does."""
    REGISTRY.add(Op("unavailable", doc="An op that a device must claim."))
    try:
        def f(x: rlx.Array) -> rlx.Array:
            return emit("unavailable", (x,), types=(x._value.type,))[0] + 1
        fake.claims = {"unavailable": (claim("unavailable", lambda x: x * 10, only_f64, "picky"),)}
        g = rlx.jit(f)
        assert close(g(on_fake()), X * 10 + 1)
        assert own(g.lower(on_fake()).report, "unavailable").by == "picky (libfake.unavailable)"
        with pytest.raises(CompileError) as e:
            rlx.jit(f)(on_fake(X.astype(np.float32)))
        assert e.value.what == "no legal lowering of unavailable (f32[3,4] -> f32[3,4]) on fake"
        assert "no decomposition" in e.value.why and "picky declined: needs float64, got float32" in e.value.why
        assert "test_dispatch.py:" in e.value.where and "decompose" in e.value.do
    finally:
        del REGISTRY._ops["unavailable"]


def test_a_dtype_that_the_device_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    small = frozenset(d for d in dt.ALL if d.name not in ("float64", "complex128", "complex64"))
    plug_in(monkeypatch, FakeDevice("small", {}, dtypes=small, default_float=dt.float32))
    x = rlx.asarray(X.astype(np.float32), device="small")
    assert close(x + 1, X + 1)
    assert rlx.zeros((2,), device="small").dtype == rlx.float32
    y = x.astype(rlx.float64) * 2; wrong = line()  # noqa: E702
    with pytest.raises(CompileError) as e:
        rlx.eval(y)
    assert "float64" in e.value.why and "small" in e.value.what and "float32" in e.value.do
    assert e.value.where.endswith(f"test_dispatch.py:{wrong}")


def test_a_function_that_the_device_cannot_spell(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, FakeDevice("plain", {}, spells={"add": frozenset((dt.float64,))}, features=frozenset()))
    x = rlx.asarray(X, device="plain")
    assert close(x + x, X + X)
    with pytest.raises(CompileError) as e:
        rlx.eval(rlx.nextafter(x, x))
    assert "nextafter" in e.value.what and "cannot compute" in e.value.why and e.value.where and e.value.do


def test_control_flow_on_a_device_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, FakeDevice("straight", {}, control=False))
    x = rlx.asarray(X, device="straight")
    with pytest.raises(CompileError) as e:
        rlx.eval(rlx.fori_loop(0, 3, lambda i, v: v + 1, x))
    assert "loop" in e.value.what and "loops" in e.value.why and "unroll" in e.value.do


def test_a_refusal_names_every_claim_that_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = {"dot": (claim("dot", lambda *a, **k: a[0], lambda call: "is out of paper", "tape"),
                      claim("dot", lambda *a, **k: a[0], lambda call: "is on holiday", "abacus"))}
    plug_in(monkeypatch, FakeDevice("shop", claims))
    x = rlx.asarray(X, device="shop")
    with pytest.raises(CompileError) as e:
        rlx.eval(rlx.jit(lambda a: a @ a.T, dispatch="strict")(x))
    assert "tape declined: is out of paper" in e.value.why and "abacus declined: is on holiday" in e.value.why
    assert "dot (f64[3,4], f64[3,4] -> f64[3,3])" in e.value.what


def test_a_broken_plug_in_is_absent_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    made = FakeDevice("broken", {})
    plug_in(monkeypatch, made)
    monkeypatch.setattr(rlx.device, "_module", lambda name: (_ for _ in ()).throw(ImportError("no driver")))
    with pytest.raises(DeviceError) as e:
        rlx.asarray(X, device="broken")
    assert "no driver" in e.value.why and e.value.do


def test_numbers_stay_weak_through_nested_compiled_functions() -> None:
    """A Python number given to a compiled function inside another takes the dtype of the arrays it meets."""
    inner = rlx.jit(lambda x, s: rlx.where(x > s, x * s, x))
    outer = rlx.jit(lambda x: inner(x, 0.5))
    x = rlx.asarray(np.array([0.25, 1.0], np.float32))
    assert outer(x).dtype == rlx.float32 and outer(x).tolist() == [0.25, 0.5]
    assert "f64" not in outer.lower(x).text("hir")


def test_a_predicate_that_raises_is_named_with_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(call: Any) -> str | None:
        raise KeyError("axes")
    plug_in(monkeypatch, FakeDevice("hasty", {"softmax": (claim("softmax", softmax, broken, "hasty"),)}))
    with pytest.raises(CompileError, match="claim hasty of device hasty failed on softmax") as e:
        rlx.softmax(rlx.asarray(X, device="hasty")).tolist()
    assert "KeyError: 'axes'" in e.value.why and "overrides" in e.value.do
    common = rlx.jit(lambda x: rlx.softmax(x), overrides={"softmax": "common"})
    assert close(common(rlx.asarray(X, device="hasty")), softmax(X))


def test_a_predicate_that_answers_true_is_no_silent_decline(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Any = lambda call: True
    plug_in(monkeypatch, FakeDevice("sure", {"softmax": (claim("softmax", softmax, answers, "hasty"),)}))
    with pytest.raises(CompileError, match="answered True"):
        rlx.softmax(rlx.asarray(X, device="sure")).tolist()


def test_the_folded_report_has_a_line_for_each_path_and_who_took_it(fake: FakeDevice) -> None:
    lines = rlx.jit(lambda x: rlx.softmax(x) + rlx.sin(x) * 2 + x * x).lower(on_fake()).report.brief().splitlines()
    assert lines[0].startswith("dispatch on fake, policy prefer_native: 1 native, ")
    assert lines[1] == "  native     first (libfake.softmax): softmax"
    assert any(ln.startswith("  common     generated kernel: ") and "mul x2" in ln for ln in lines[2:])

"""The coverage table: counted from the legalizer, one cell for each op and device, gaps from the one list of gaps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlx.core import dtype as dt
from rlx.core.errors import DeviceError, ValueIssue
from rlx.tools import cases as C
from rlx.tools import coverage, gaps
from tests.contract.fake import FakeDevice, claim, plug_in


def paths(device: str, pattern: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for e in coverage.collect([device], pattern):
        found.setdefault(e.op, set()).add(e.path)
    return found


def test_paths_of_known_ops() -> None:
    assert paths("cpu", "add") == {"add": {"common"}}
    assert paths("cpu", "exp") == {"exp": {"rewritten"}}
    assert paths("cpu", "permute") == {"permute": {"free"}}
    assert "native" in paths("cpu", "dot")["dot"]
    assert paths("python", "exp") == {"exp": {"common"}}, "the interpreter calls NumPy, it expands nothing"


def test_an_op_whose_decomposition_is_rewritten_counts_as_rewritten() -> None:
    assert paths("cpu", "softmax") == {"softmax": {"rewritten"}}


def test_refusals_and_claims_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    made = FakeDevice("narrow", {"hypot": (claim("hypot", lambda x, y: x),)},
                      dtypes=frozenset((dt.float32, dt.bool_, dt.int32, dt.int64)), default_float=dt.float32)
    plug_in(monkeypatch, made)
    entries = coverage.collect(["narrow"], "hypot") + coverage.collect(["narrow"], "atan2")
    by = {(e.op, e.dtype): e.path for e in entries}
    assert by["hypot", "f32"] == "native" and by["atan2", "f32"] == "common"
    assert by["atan2", "f64"] == "refused"
    text = coverage.table(entries, ["narrow"])
    assert "| atan2 |" in text and "refused" in text and "| **samples** |" in text
    assert "narrow has no float64" in coverage.details(entries)


def test_known_gaps_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    gap = gaps.Gap("sor*", "py*", "f64", "for this test", refused=False)
    monkeypatch.setattr(gaps, "GAPS", (gap,))
    monkeypatch.setattr(coverage, "GAPS", (gap,))
    assert gaps.known("sort", "python", dt.float64) is gap and gaps.known("sort", "python", dt.float32) is None
    assert gaps.known("sort", "cpu", dt.float64) is None and gaps.known("scan", "python", dt.float64) is None
    entries = coverage.collect(["python"], "sort")
    assert {e.dtype for e in entries if e.path == "gap"} == {"f64"}
    assert "sort on python, f64: gap, for this test" in coverage.details(entries)


def test_every_gap_names_an_op_and_a_reason() -> None:
    names = {op.name for op in C.ops()}
    for gap in gaps.GAPS:
        assert gap.reason and any(gap.covers(n, gap.device, dt.BY_NAME.get(gap.dtype, dt.float64)) for n in names), gap


def test_what_ran_is_read_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ran.jsonl"
    first = coverage.Entry("sort", "moon", "sort[0]", "f32", "common", "generated kernel")
    coverage.record([first, coverage.Entry("sort", "moon", "sort[1]", "f64", "refused", "moon has no float64")], file)
    coverage.record([replace(first, path=coverage.WRONG, by="1 of 3 values differ")], file)
    assert coverage.main(["--from", str(file), "--details"]) == 0
    printed = capsys.readouterr().out
    assert "| sort | refused 1, wrong 1 |" in printed and "1 of 3 values differ" in printed
    assert coverage.main(["--from", str(file), "--devices", "moon", "--ops", "so*"]) == 0
    file.write_text("{}\n")
    with pytest.raises(ValueIssue, match="line 1 of"):
        coverage.main(["--from", str(file)])


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert coverage.main(["--devices", "cpu,python", "--ops", "s[io]*", "--details"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("| op | cpu | python |") and "| sort | common | common |" in printed
    with pytest.raises(ValueIssue):
        coverage.main(["--ops", "no-such-op"])
    with pytest.raises(DeviceError):
        coverage.main(["--devices", "quantum"])

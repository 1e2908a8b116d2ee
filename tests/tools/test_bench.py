"""The harness refuses peers that disagree, counts per unit, and writes its three files."""

import json

import numpy as np
import pytest

from bench import harness
from rlx.tools.cli import main


def case(**runs):
    return harness.Case("a row", runs, units=4.0, bytes=8e3, goal="as fast as it is")


def test_peers_that_disagree_are_not_timed():
    with pytest.raises(AssertionError, match="a row: other against rlx"):
        harness.new_report("t", "c").add(case(rlx=lambda: np.ones(3), other=lambda: np.zeros(3)), seconds=0.01)


def test_a_report_keeps_the_rows_the_spread_and_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "BURST", 1e-4)
    report = harness.new_report("Some work", "python -m rlx bench some")
    report.limits["bandwidth GB/s"] = 10.0
    report.add(case(rlx=lambda: np.ones(3), numpy=lambda: np.ones(3)), seconds=0.01)
    report.save("some")
    assert {p.name for p in tmp_path.iterdir()} == {"some.json", "some.md", "some.png"}
    kept = json.loads((tmp_path / "some.json").read_text())
    first, second = kept["rows"]
    assert (first["peer"], second["peer"], first["ratio"]) == ("rlx", "numpy", 1.0)
    assert first["p10"] <= first["p50"] <= first["p90"] and first["runs"] >= 7 and first["roofline"] > 0
    assert kept["machine"]["cores"] >= 1 and kept["command"] == "python -m rlx bench some"
    text = (tmp_path / "some.md").read_text()
    assert "as fast as it is" in text and text.count("| a row |") == 2


def test_an_unknown_suite_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "cooking"])
    assert "cooking" in capsys.readouterr().err


def test_without_the_source_tree_it_says_where_they_are(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("rlx.tools.bench.__file__", str(tmp_path / "site" / "rlx" / "tools" / "bench.py"))
    monkeypatch.chdir(tmp_path)
    assert main(["bench"]) == 1 and "source tree" in capsys.readouterr().err

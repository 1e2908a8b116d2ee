"""The page on transforms runs as it is written."""

from __future__ import annotations

from pathlib import Path

from tests.test_readme import execute

PAGE = Path(__file__).parents[2] / "docs" / "transforms.md"


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert execute(PAGE.read_text(encoding="utf-8"), "docs/transforms.md") >= 8

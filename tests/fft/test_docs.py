"""The page on Fourier transforms runs as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_readme import execute

PAGE = Path(__file__).parents[2] / "docs" / "fourier.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert execute(PAGE.read_text(encoding="utf-8"), "docs/fourier.md") == 2

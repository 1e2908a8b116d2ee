"""The page on devices runs as it is written, and the commands that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

from rlx import device as devices
from rlx.tools import gaps
from tests.test_readme import execute

PAGE = Path(__file__).parents[2] / "docs" / "devices.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_page_runs() -> None:
    assert execute(TEXT, "docs/devices.md") == 1


def test_what_the_page_names_exists() -> None:
    assert callable(gaps.flushes) and "rlx.tools.gaps.flushes" in TEXT
    (named,) = re.findall(r"--devices (\w+),(\w+)", TEXT)
    assert set(named) <= set(devices.names())

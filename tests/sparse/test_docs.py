"""The examples of the documentation and of every docstring of rlx.sparse run as shown."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import rlx.sparse
from tests.test_readme import execute

PAGE = Path(__file__).parents[2] / "docs" / "sparse.md"
MODULES = ["rlx.sparse", *sorted(f"rlx.sparse.{m.name}" for m in pkgutil.iter_modules(rlx.sparse.__path__))]


def test_the_page_runs() -> None:
    assert execute(PAGE.read_text(), PAGE.name) >= 5


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0

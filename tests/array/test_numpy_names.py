"""Every name of NumPy's is in rlx, or in docs/numpy.md with what to use instead."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import rlx

PAGE = (Path(__file__).parents[2] / "docs" / "numpy.md").read_text(encoding="utf-8")


def listed(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


def left_out() -> set[str]:
    """The first column of the table of what is left out."""
    table = PAGE.split("## What is left out")[1].split("\n\n")[1]
    return {name for row in table.splitlines()[2:] for name in listed(row.split("|")[1])}


def lacking(theirs: object, ours: object) -> set[str]:
    return {n for n in dir(theirs) if not n.startswith("_") and not hasattr(ours, n)}


def test_every_name_of_numpy_is_there_or_left_out_for_a_reason():
    assert sorted(lacking(np, rlx) - left_out()) == []


def test_what_is_left_out_is_not_there():
    assert sorted(n for n in left_out() if hasattr(rlx, n)) == []


def test_every_method_of_numpys_arrays_is_there_or_left_out():
    text = PAGE.split("Methods of arrays left out:")[1].split("(")[0]
    assert lacking(np.ndarray, rlx.Array) == listed(text)


def test_every_row_says_what_to_use_instead():
    rows = PAGE.split("## What is left out")[1].split("\n\n")[1].splitlines()[2:]
    assert rows and all(row.split("|")[2].strip() for row in rows)

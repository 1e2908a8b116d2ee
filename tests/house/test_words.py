"""Words that do not belong in the tree: paths of one machine, numbers of other places, promises for later."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.tree import ROOT, files

#: Each pattern is spelled so that it does not match itself.
ANYWHERE = {
    "a path of one machine": r"(?<![\w.])/(?:work|root|opt/venv|Users/\w+|home/\w+)/",
    "a path out of the checkout": r"\.\./shared\b",
    "a number in another place": r"(?i)\bissues?\s+#?\d+\b|(?:\bfix(?:es)?|\bclose[sd]?|\bsee)\s+#\d+\b",
    "a conflict mark": r"^(?:<{7}|>{7}) ",
}
SHIPPED = {
    "a promise for later": r"\b(?:TO[D]O|FIX[M]E|XX[X]|HA[C]K)\b",
    "a stub": r"\bNotImplemented[E]rror\b",
    "a stop for the debugger": r"\bbreak[p]oint\(\)|\bpdb\.set_[t]race\b",
}
CODE = ("rlx", "linalg", "sparse", "splat", "nn", "bench", "examples")
BINARY = {".gz", ".bz2", ".npz", ".npy", ".png", ".jpg", ".ply", ".spz", ".splat", ".whl"}


def offences(path: Path, text: str) -> list[str]:
    """What of the two tables matches in ``text``; ``path`` is relative to the tree."""
    patterns = ANYWHERE | (SHIPPED if path.parts[0] in CODE else {})
    return [f"{path}:{text[: m.start()].count(chr(10)) + 1}: {label}: {m.group()!r}"
            for label, pattern in patterns.items() for m in re.finditer(pattern, text, re.MULTILINE)]


def test_no_file_has_them():
    found = []
    for path in files():
        if path.suffix not in BINARY:
            found += offences(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    assert found == []


@pytest.mark.parametrize(("path", "text", "label"), [
    ("README.md", "see /wo" + "rk/main/x", "a path of one machine"),
    ("rlx/a.py", '"/ro' + 'ot/x"', "a path of one machine"),
    ("tests/a.py", ".." + "/shared/data", "a path out of the checkout"),
    ("rlx/a.py", "# iss" + "ue 12", "a number in another place"),
    ("rlx/a.py", "# fixes " + "#12", "a number in another place"),
    ("rlx/a.py", "x\n# TO" + "DO later", "a promise for later"),
    ("sparse/a.py", "raise NotImplemented" + "Error", "a stub"),
])
def test_each_is_found(path, text, label):
    assert [f"{label}:" in line for line in offences(Path(path), text)] == [True]


@pytest.mark.parametrize("text", ["network/root/x", "issues of 64 bits", "https://x.org/home/", "x = 1 # 2"])
def test_ordinary_text_is_not(text):
    assert offences(Path("rlx/a.py"), text) == []

"""The README's examples run, in order, in one namespace; a block with prompts must print what it shows."""

from __future__ import annotations

import doctest
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlx.core import flags

README = Path(__file__).parents[1] / "README.md"
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its info string, text, and the line of its first line of text."""

    info: str
    body: str
    line: int


def blocks(text: str) -> list[Block]:
    return [Block(m["info"].strip(), m["body"], text.count("\n", 0, m.start("body")) + 1)
            for m in FENCE.finditer(text)]


def execute(text: str, name: str) -> int:
    """Run every ``python`` block of ``text``; the number of blocks run."""
    namespace: dict[str, Any] = {"__name__": "readme"}
    ran = 0
    for block in blocks(text):
        if not block.info.startswith("py"):
            continue
        assert block.info == "python", f"{name}:{block.line - 1}: a block is python, without {block.info!r}"
        assert "skip" not in block.body.lower(), f"{name}:{block.line}: no example is skipped"
        if block.body.lstrip().startswith(">>>"):
            _compare_output(block, namespace, name)
        else:
            # Blank lines before the code give tracebacks the README's own line numbers.
            exec(compile("\n" * (block.line - 1) + block.body, name, "exec"), namespace)
        ran += 1
    return ran


def _compare_output(block: Block, namespace: dict[str, Any], name: str) -> None:
    test = doctest.DocTestParser().get_doctest(block.body, namespace, name, name, block.line - 1)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    result = runner.run(test, out=report.append, clear_globs=False)
    namespace.update(test.globs)
    assert result.failed == 0, "".join(report)


def test_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert execute(README.read_text(encoding="utf-8"), "README.md") > 0


def test_the_table_of_flags_is_the_one_in_the_code():
    table = flags.document()
    assert table in README.read_text(encoding="utf-8"), f"the README's table of flags should read\n{table}"


def test_blocks_share_a_namespace():
    assert execute("```python\nx = 2\n```\n```sh\nfalse\n```\n```python\n>>> x + 1\n3\n```\n", "t") == 2


@pytest.mark.parametrize("text", [
    "```python\n>>> 1 + 1\n3\n```\n", "```python\nassert 1 == 2\n```\n", "```python no-run\nx = 1\n```\n",
    "```python\n>>> 1 / 0  # doctest: +SKIP\n```\n", "```py\nx = 1\n```\n"])
def test_a_wrong_example_fails(text):
    with pytest.raises(AssertionError):
        execute(text, "t")


def test_a_traceback_has_the_line_of_the_readme():
    with pytest.raises(ZeroDivisionError) as e:
        execute("# title\n\n```python\nx = 1\nx / 0\n```\n", "t")
    assert e.traceback[-1].lineno + 1 == 5


def test_every_page_is_listed_and_every_link_leads_to_a_file():
    root = README.parent
    pages = [README, *sorted((root / "docs").glob("*.md"))]
    broken = [f"{page.name}: {target}" for page in pages
              for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
              if not (page.parent / target).exists()]
    assert not broken
    text = README.read_text(encoding="utf-8")
    assert not [page.name for page in pages[1:] if f"| [docs/{page.name}](docs/{page.name}) |" not in text]

"""Words of the IR text: a scanner that knows line and column, shared by the readers of every level."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from math import copysign, inf, isinf, isnan, nan
from typing import Any, NoReturn

from rlx.core.dtype import BY_NAME, DType
from rlx.core.errors import FormatError

_TOKEN = re.compile(r"""
    (?P<space>[ \t\r\n]+)
  | (?P<comment>\#[^\n]*)
  | (?P<value>%\d+)
  | (?P<number>(\d+\.\d*|\d+)([eE][+-]?\d+)?)
  | (?P<string>"(\\.|[^"\\\n])*")
  | (?P<word>[A-Za-z_][A-Za-z_0-9.]*)
  | (?P<sign><<|>>|==|!=|<=|>=|//|[-+*/%<>=&|^(){}\[\],:@])
""", re.VERBOSE)

#: A name that the text can hold without quotes.
NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*")
#: The dtypes by the short spelling of the text.
SHORT: dict[str, DType] = {d.short: d for d in BY_NAME.values()}


@dataclass(frozen=True, slots=True)
class Token:
    """A word of the text: its kind, its characters, and where it stands (both from 1)."""

    kind: str
    text: str
    line: int
    column: int


class Scanner:
    """Reads a text word by word; every failure is a FormatError with line, column and what was expected."""

    def __init__(self, text: str) -> None:
        self._tokens: list[Token] = []
        #: The comment that ends each line.
        self._comments: dict[int, str] = {}
        self._split(text)
        self._at = 0

    def _split(self, text: str) -> None:
        line, start, at = 1, 0, 0
        while at < len(text):
            m = _TOKEN.match(text, at)
            if m is None:
                self.fail("a word of the IR text", Token("sign", text[at], line, at - start + 1))
            kind, found = str(m.lastgroup), m.group()
            if kind == "comment":
                self._comments[line] = unescape(found[1:].strip())
            elif kind == "space":
                if "\n" in found:
                    line += found.count("\n")
                    start = at + found.rindex("\n") + 1
            else:
                self._tokens.append(Token(kind, found, line, at - start + 1))
            at = m.end()
        self._tokens.append(Token("end", "the end of the text", line, at - start + 1))

    def fail(self, expected: str, token: Token | None = None) -> NoReturn:
        """Raise for a word that cannot stand here."""
        t = token or self.peek
        found = t.text if t.kind == "end" else repr(t.text)
        raise FormatError(f"line {t.line}, column {t.column} of the IR text: expected {expected}",
                          where=f"IR text:{t.line}:{t.column}", why=f"found {found}",
                          do="compare with the grammar in rlx.ir.text")

    @property
    def peek(self) -> Token:
        """The next word."""
        return self._tokens[self._at]

    def next(self) -> Token:
        """Take the next word."""
        t = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return t

    def comment(self) -> str:
        """The comment on the line of the word taken last, or nothing."""
        return self._comments.get(self._tokens[max(self._at - 1, 0)].line, "")

    def accept(self, text: str) -> bool:
        """Take the next word if it is this one."""
        t = self._tokens[self._at]
        if t.text != text or t.kind in ("string", "end"):
            return False
        self.next()
        return True

    def expect(self, text: str) -> None:
        """Take this word."""
        if not self.accept(text):
            self.fail(repr(text))

    def word(self, what: str = "a name") -> str:
        """Take a name."""
        if self.peek.kind != "word":
            self.fail(what)
        return self.next().text

    def choice(self, choices: tuple[str, ...]) -> str:
        """Take one of these names."""
        if self.peek.text not in choices or self.peek.kind != "word":
            self.fail("one of " + ", ".join(choices))
        return self.next().text

    def value(self) -> Token:
        """Take a ``%number``."""
        if self.peek.kind != "value":
            self.fail("a value such as %0")
        return self.next()

    def string(self) -> str:
        """Take a quoted string."""
        t = self.peek
        if t.kind != "string":
            self.fail("a quoted string")
        self.next()
        try:
            return str(json.loads(t.text))
        except ValueError:
            self.fail("a string with JSON's escapes", t)

    def integer(self) -> int:
        """Take an integer, with its sign."""
        minus = self.accept("-")
        t = self.peek
        if t.kind != "number" or not t.text.isdigit():
            self.fail("an integer")
        self.next()
        return -int(t.text) if minus else int(t.text)

    def dtype(self) -> DType:
        """Take the short name of a dtype."""
        if self.peek.text not in SHORT or self.peek.kind != "word":
            self.fail("a dtype such as f64")
        return SHORT[self.next().text]

    def real(self) -> int | float:
        """Take a number: an int without a point, else a float."""
        minus = self.accept("-")
        t = self.peek
        if t.text in ("nan", "inf"):
            self.next()
            value = nan if t.text == "nan" else inf
            return -value if minus else value
        if t.kind != "number":
            self.fail("a number")
        self.next()
        if t.text.isdigit():
            return -int(t.text) if minus else int(t.text)
        return float("-" + t.text if minus else t.text)

    @property
    def at_number(self) -> bool:
        """Whether a number, with or without a sign, comes next."""
        t = self._tokens[min(self._at + (self.peek.text == "-"), len(self._tokens) - 1)]
        return t.kind == "number" or t.text in ("nan", "inf")

    def done(self) -> None:
        """Nothing may follow."""
        if self.peek.kind != "end":
            self.fail("the end of the text")


def float_text(x: float) -> str:
    """The shortest decimal that reads back as the same double; ``nan``, ``inf``, ``-inf``, ``-0.0``."""
    if isnan(x):
        return "-nan" if copysign(1.0, x) < 0 else "nan"
    if isinf(x):
        return "inf" if x > 0 else "-inf"
    text = repr(x)
    return text if "." in text or "e" in text else text + ".0"


def scalar_text(x: Any) -> str | None:
    """A Python scalar, or None when ``x`` is none."""
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, int):
        return str(x)
    if isinstance(x, float):
        return float_text(x)
    if isinstance(x, complex):
        return f"complex({float_text(x.real)}, {float_text(x.imag)})"
    return json.dumps(x) if isinstance(x, str) else None


def escape(text: str) -> str:
    """A comment on one line."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").strip()


def unescape(text: str) -> str:
    """The inverse of :func:`escape`."""
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "r": "\r"}.get(m.group(1), m.group(1)), text)


def commented(line: str, comment: str) -> str:
    """A line with a comment after it, when there is one."""
    return f"{line}  # {escape(comment)}" if comment else line

"""The first pass over a Matrix Market file: header, sizes, and how many numbers each line holds.

Nothing here allocates what a header asks for; a file that passes holds exactly the numbers it promises.
"""

from __future__ import annotations

import bz2
import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rlx.core.errors import FormatError
from rlx.sparse.mtxlex import is_plain

FIELDS = ("real", "double", "integer", "unsigned-integer", "complex", "pattern")
SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")

#: Bytes a line may have. The format says 1,024; comments in the wild are longer.
LINE_LIMIT = 1 << 16
#: A compressed file may grow to this many bytes whatever its own size ...
FREE_BYTES = 64 << 20
#: ... and beyond that to this multiple of it. Matrices compress 3 to 40 times; DEFLATE ends at 1,032 times.
RATIO_LIMIT = 200
CHUNK = 1 << 20
_INT64_MAX = (1 << 63) - 1
_WORD = np.ones(256, dtype=bool)
_WORD[[9, 10, 11, 12, 13, 32]] = False


@dataclass(frozen=True, slots=True)
class Header:
    """What the first lines say of the file, checked against each other."""

    dense: bool
    field: str
    symmetry: str
    shape: tuple[int, int]
    stored: int  # lines of numbers after the size line
    line: int  # number of the size line, from 1

    @property
    def layout(self) -> str:
        """The format's name in the banner."""
        return "array" if self.dense else "coordinate"

    @property
    def dtype(self) -> np.dtype[Any]:
        """One line of the body as a record."""
        kind = {"integer": "i8", "unsigned-integer": "u8"}.get(self.field, "f8")
        index = [] if self.dense else [("row", "i8"), ("col", "i8")]
        parts = {"pattern": 0, "complex": 2}.get(self.field, 1)
        return np.dtype(index + [("re", kind), ("im", kind)][:parts])

    @property
    def width(self) -> int:
        """Numbers on a line."""
        return len(self.dtype.names or ())


class Source:
    """The file's decompressed bytes, counted; a failing decompressor is a :class:`FormatError`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)
        if os.path.exists(path) and not os.path.isfile(path):
            raise FormatError(f"{self.name} is not a regular file", where=self.name,
                              why="a matrix file is read twice", do="save it to a file first")
        self.file: IO[bytes] = open(path, "rb")  # noqa: SIM115 - closed by __exit__
        self.size = os.fstat(self.file.fileno()).st_size
        self.taken = 0
        magic = self.file.read(3)
        self.file.seek(0)
        self.packed = magic[:2] == b"\x1f\x8b" or magic == b"BZh"
        self.stream: Any = self.file
        if self.packed:
            self.stream = bz2.BZ2File(self.file) if magic == b"BZh" else gzip.GzipFile(fileobj=self.file)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self.file.close()

    def error(self, line: int, what: str, *, why: str = "", do: str = "") -> FormatError:
        """A :class:`FormatError` at a line of this file (line 0: the file as a whole)."""
        where = f"{self.name}:{line}" if line else self.name
        return FormatError(what, where=where, why=why, do=do or "get the file again, or correct it by hand")

    def read(self, n: int) -> bytes:
        """At most ``n`` bytes; none at the end."""
        return self._count(lambda: self.stream.read(n))

    def line(self) -> bytes:
        """One line of at most ``LINE_LIMIT`` bytes (one byte longer when the line is longer)."""
        return self._count(lambda: self.stream.readline(LINE_LIMIT + 1))

    def _count(self, take: Callable[[], bytes]) -> bytes:
        try:
            data = take()
        except (EOFError, zlib.error, OSError) as e:
            if not self.packed:
                raise
            raise self.error(0, "the compressed file is damaged or cut short", why=str(e)) from None
        self.taken += len(data)
        if self.packed and self.taken > max(FREE_BYTES, RATIO_LIMIT * self.size):
            raise self.error(0, f"{self.size} compressed bytes unpack to more than {self.taken - 1}",
                             why=f"beyond {FREE_BYTES >> 20} MiB a ratio over {RATIO_LIMIT} is taken for a "
                                 "decompression bomb",
                             do="if you trust the file, decompress it yourself and read the .mtx")
        return data


def read_header(source: Source) -> Header:
    """Banner, comments and size line; leaves the source at the first entry."""
    words = _text(source, 1, source.line()).split()
    if not words or words[0] != "%%MatrixMarket":
        raise source.error(1, "this is not a Matrix Market file",
                           why="line 1 does not begin with %%MatrixMarket",
                           do="line 1 must read: %%MatrixMarket matrix coordinate real general")
    layout, field, symmetry = _banner(source, [w.lower() for w in words[1:]])
    line, text = 2, _text(source, 2, source.line())
    while text and (text.startswith("%") or not text.strip()):
        line, text = line + 1, _text(source, line + 1, source.line())
    if not text:
        raise source.error(line, "the size line is missing", why="the file ends after its comments")
    sizes = _sizes(source, line, text.split(), 2 if layout == "array" else 3)
    shape = (sizes[0], sizes[1])
    if symmetry != "general" and shape[0] != shape[1]:
        raise source.error(line, f"a {symmetry} matrix of shape {shape} is not square",
                           why="only a square matrix can equal its transpose")
    stored = sizes[2] if layout == "coordinate" else _dense_count(shape, symmetry)
    header = Header(layout == "array", field, symmetry, shape, stored, line)
    least = 2 * header.width * stored - 1  # a digit and a separator each; the last line may lack its end
    if not source.packed and least > source.size - source.taken:
        raise source.error(line, f"{stored} entries are promised, more than the file can hold",
                           why=f"they need at least {least} bytes, and {source.size - source.taken} follow")
    return header


def _text(source: Source, number: int, line: bytes) -> str:
    if len(line) > LINE_LIMIT:
        raise source.error(number, f"the line is longer than {LINE_LIMIT} bytes",
                           why="a matrix file has a line for each entry")
    return line.decode("latin-1")


def _banner(source: Source, words: list[str]) -> tuple[str, str, str]:
    if len(words) != 4:
        raise source.error(1, f"the banner has {len(words)} words after %%MatrixMarket, not 4",
                           why="they say how to read everything that follows",
                           do="it must read: %%MatrixMarket matrix FORMAT FIELD SYMMETRY")
    choices = {"object": ("matrix",), "format": ("coordinate", "array"), "field": FIELDS,
               "symmetry": SYMMETRIES}
    for word, (label, known) in zip(words, choices.items(), strict=True):
        if word not in known:
            raise source.error(1, f"unknown {label} {word!r}", why=f"rlx reads {', '.join(known)}")
    _, layout, field, symmetry = words
    if field == "pattern" and (layout == "array" or symmetry in ("skew-symmetric", "hermitian")):
        raise source.error(1, f"a pattern cannot be {layout} {symmetry}", why="a pattern has no values")
    if symmetry == "hermitian" and field != "complex":
        raise source.error(1, f"a hermitian matrix cannot be {field}", why="hermitian means complex",
                           do="declare it symmetric")
    if symmetry == "skew-symmetric" and field == "unsigned-integer":
        raise source.error(1, "a skew-symmetric matrix cannot be unsigned",
                           why="half its entries are negative")
    return layout, field, symmetry


def _sizes(source: Source, line: int, words: list[str], count: int) -> list[int]:
    if len(words) != count:
        raise source.error(line, f"the size line has {len(words)} numbers, not {count}",
                           why="it is ROWS COLUMNS ENTRIES, or ROWS COLUMNS in an array file")
    for word in words:
        if not re.fullmatch(r"[0-9]+", word):
            raise source.error(line, f"size {word[:40]!r} is not a count", why="sizes are digits only")
        if len(word) > 30 or int(word) > _INT64_MAX:
            raise source.error(line, f"size {word[:40]} is too large", why="indices have 64 bits")
    return [int(word) for word in words]


def _dense_count(shape: tuple[int, int], symmetry: str) -> int:
    n, m = shape
    if symmetry == "general":
        return n * m
    return n * (n - 1) // 2 if symmetry == "skew-symmetric" else n * (n + 1) // 2


def survey(source: Source, header: Header) -> bool:
    """Count the numbers of every line; refuse the first line, or the end, that differs from the header.

    Returns whether the body is plain: no blank line, and every word a number that any parser reads alike.
    """
    want, seen, line, rest = header.width, 0, header.line, b""
    integers = want if header.field == "integer" else 0 if header.dense else 2
    plain = header.field != "unsigned-integer"
    while True:
        data = source.read(CHUNK)
        block = rest + data
        cut = block.rfind(b"\n") + 1 if data else len(block)
        block, rest = block[:cut], block[cut:]
        if len(rest) > LINE_LIMIT:
            _text(source, line + block.count(b"\n") + 1, rest)
        raw = np.frombuffer(block, dtype=np.uint8)
        starts = _word_starts(raw)
        counts = _words_per_line(raw, starts)
        full = np.flatnonzero(counts)
        odd = np.flatnonzero(counts[full] != want)
        good = int(odd[0]) if odd.size else full.size
        if seen + good > header.stored or (odd.size and seen + good == header.stored):
            raise source.error(line + int(full[header.stored - seen]) + 1,
                               "there are more entries than stated",
                               why=f"the size line (line {header.line}) promises {header.stored}")
        if odd.size:
            at = int(full[good])
            raise source.error(line + at + 1, f"{counts[at]} numbers where an entry has {want}",
                               why=f"the file is declared {header.layout} {header.field}")
        seen, line = seen + full.size, line + block.count(b"\n")
        blank = counts.size - full.size - (counts[-1] == 0)  # what follows the last line end is no line
        plain = plain and not blank and is_plain(raw, starts, want, integers)
        if not data:
            break
    if seen < header.stored:
        raise source.error(line, f"the file ends after {seen} of {header.stored} entries",
                           why=f"the size line (line {header.line}) promises {header.stored}")
    return plain


def _word_starts(raw: NDArray[np.uint8]) -> NDArray[np.intp]:
    word = _WORD[raw]
    word[1:] &= ~word[:-1].copy()
    return np.flatnonzero(word)


def _words_per_line(raw: NDArray[np.uint8], starts: NDArray[np.intp]) -> NDArray[np.intp]:
    """Words in each line; text after the last line end counts as a line."""
    until = np.searchsorted(starts, np.flatnonzero(raw == 10))
    return np.diff(until, prepend=0, append=starts.size)


def body_lines(source: Source, header: Header) -> Iterator[tuple[int, bytes]]:
    """The nonblank lines after the size line, with their numbers."""
    number = 0
    while line := source.line():
        number += 1
        if number > header.line and line.strip():
            yield number, line



"""Matrix Market files (``.mtx``, ``.mtx.gz``, ``.mtx.bz2``): strict reading, atomic writing.

A file is read twice. The first pass streams through it and counts numbers line by line, so a header
that lies, a truncated file or a decompression bomb is refused before anything the header asks for is
allocated. The second pass parses: a body of plain numbers with ``scipy.io.mmread``, which is fast, and any
other with :func:`numpy.loadtxt`, which is strict. (Alone, ``mmread`` reads ``1.0D+05`` as 1.0 and ``0x10``
as 0, ignores numbers left over at the end of a line, and ends the process on a NUL byte.)

The format: https://math.nist.gov/MatrixMarket/formats.html
"""

from __future__ import annotations

import bz2
import gzip
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlx.core.errors import FormatError, IndexOutOfBounds, ShapeError, ValueIssue
from rlx.core.files import replacing
from rlx.sparse.mtxscan import SYMMETRIES, Header, Source, body_lines, read_header, survey

_INTEGER = re.compile(rb"[+-]?\d+")
_FLOAT = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([dDeE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
#: Fortran writes the exponent of a double with a D.
_FORTRAN = re.compile(rb"(?<=[0-9.])[dD](?=[+-]?[0-9])")


class Coordinates(NamedTuple):
    """A matrix as entries: ``values[k]`` at ``(rows[k], cols[k])``, counted from 0.

    A symmetric, skew-symmetric or hermitian file is expanded: both triangles are here, and ``symmetry``
    says what the file declared. Entries come in the file's order (mirrored ones last), and a position may
    occur more than once: its value is then the sum. ``values`` is float64, complex128, int64 or uint64; a
    pattern has ones.
    """

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    values: NDArray[Any]
    shape: tuple[int, int]
    symmetry: str


def read_mtx(path: str | os.PathLike[str]) -> Coordinates:
    """Read a Matrix Market file, plain or compressed with gzip or bzip2.

    All fields (real, integer, unsigned-integer, complex, pattern), symmetries and both formats are read; of
    a dense ``array`` file the nonzero entries are returned. Exponents may be Fortran's (``1.0D+05``). NaN and
    infinities are kept: a solver decides about those. ``shape`` is what the file says, however few entries it has.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "two.mtx")
    >>> write_mtx(file, rows=[0, 1], cols=[0, 1], values=[2.0, 3.0], shape=(2, 2))
    >>> read_mtx(file).values.tolist()
    [2.0, 3.0]

    Raises :class:`~rlx.core.errors.FormatError`, with the line, for a malformed, truncated or lying file, and
    the usual :class:`OSError` when the file cannot be opened.
    """
    with Source(path) as source:
        header = read_header(source)
        plain = survey(source, header)
    with Source(path) as source:
        body = _parse_plain(source, header) if plain and header.stored else None
    with Source(path) as source:
        body = _parse(source, header) if body is None else body
        rows, cols = _positions(source, header, body)
        values = _values(header, body)
        _check_triangle(source, header, rows, cols, values)
    if header.dense:
        kept = values != 0
        rows, cols, values = rows[kept], cols[kept], values[kept]
    return Coordinates(*_expand(header.symmetry, rows, cols, values), header.shape, header.symmetry)


class _General:
    """The body under a header that declares it general, as a stream for ``scipy.io.mmread``.

    It always ends with a line end: without one, SciPy ends the process where a space is the last byte.
    """

    def __init__(self, source: Source, header: Header) -> None:
        n, m = header.shape
        size = f"{header.stored} 1" if header.dense else f"{n} {m} {header.stored}"
        self.source = source
        self.last = b"\n"
        self.rest = f"%%MatrixMarket matrix {header.layout} {header.field} general\n{size}\n".encode()

    def read(self, n: int = -1) -> bytes:
        """The first bytes are the header's own, whatever ``n``; it is shorter than any buffer."""
        data, self.rest = self.rest, b""
        data = data or self.source.read(n)
        if not data and self.last != b"\n":
            data = b"\n"
        self.last = data[-1:] or self.last
        return data


def _parse_plain(source: Source, header: Header) -> NDArray[Any] | None:
    """The body as ``mmread`` reads it; None where it objects, and the strict parser says what is wrong."""
    import scipy.io

    for _ in range(header.line):
        source.line()
    try:
        read = scipy.io.mmread(_General(source, header), spmatrix=False)
    except (ValueError, OverflowError):
        return None
    body = np.empty(header.stored, dtype=header.dtype)
    values = read.ravel() if header.dense else read.data
    if values.size != header.stored:
        return None
    if not header.dense:
        body["row"], body["col"] = (index.astype(np.int64) + 1 for index in read.coords)
    if header.field == "complex":
        body["re"], body["im"] = values.real, values.imag
    elif header.field != "pattern":
        body["re"] = values
    return body


def _parse(source: Source, header: Header) -> NDArray[Any]:
    if not header.stored:
        return np.empty(0, dtype=header.dtype)
    lines = (_FORTRAN.sub(b"e", line).decode("latin-1") for _, line in body_lines(source, header))
    try:
        body = np.loadtxt(lines, dtype=header.dtype, comments=None, ndmin=1, max_rows=header.stored)
    except ValueError as e:
        raise _explain(source.name, header, str(e)) from None
    if body.size != header.stored:
        raise source.error(0, "the file changed while it was read", do="read it again")
    return body


def _explain(path: str, header: Header, message: str) -> FormatError:
    """Find the first word that is no number of its kind, the slow way: the file is refused already."""
    kinds = [header.dtype[name].kind for name in header.dtype.names or ()]
    with Source(path) as source:
        for number, line in body_lines(source, header):
            for kind, word in zip(kinds, line.split(), strict=False):
                shown = word[:40].decode("latin-1")
                if not (_FLOAT if kind == "f" else _INTEGER).fullmatch(word):
                    need = "a number" if kind == "f" else "an integer"
                    return source.error(number, f"{shown!r} is not {need}",
                                        why=f"the field is {header.field}")
                limits = None if kind == "f" else np.iinfo(kind + "8")
                if limits and not limits.min <= int(word[:40]) <= limits.max:
                    return source.error(number, f"{shown} does not fit its type", why="integers have 64 bits")
        return source.error(0, "the entries cannot be read", why=message)


def _line_of(path: str, header: Header, entry: int) -> int:
    with Source(path) as source:
        for k, (number, _) in enumerate(body_lines(source, header)):
            if k == entry:
                return number
    return 0


def _positions(source: Source, header: Header,
               body: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    n, m = header.shape
    if not header.stored:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    if header.dense:
        if header.symmetry == "general":
            return np.tile(np.arange(n), m), np.repeat(np.arange(m), n)
        cols, rows = np.triu_indices(n, k=int(header.symmetry == "skew-symmetric"))
        return rows.astype(np.int64), cols.astype(np.int64)
    for axis, size in (("row", n), ("col", m)):
        bad = np.flatnonzero((body[axis] < 1) | (body[axis] > size))
        if bad.size:
            at = int(bad[0])
            label = "row" if axis == "row" else "column"
            raise source.error(_line_of(source.name, header, at),
                               f"{label} index {body[axis][at]} is out of range",
                               why=f"{label}s are numbered 1 to {size}")
    return body["row"] - 1, body["col"] - 1


def _values(header: Header, body: NDArray[Any]) -> NDArray[Any]:
    if header.field == "pattern":
        return np.ones(body.size)
    if header.field != "complex":
        return np.ascontiguousarray(body["re"])
    values = np.empty(body.size, dtype=np.complex128)
    values.real, values.imag = body["re"], body["im"]
    return values


def _check_triangle(source: Source, header: Header, rows: NDArray[np.int64],
                    cols: NDArray[np.int64], values: NDArray[Any]) -> None:
    if header.symmetry == "general":
        return
    bad, what = rows < cols, "an entry above the diagonal"
    if header.symmetry == "skew-symmetric":
        bad, what = bad | ((rows == cols) & (values != 0)), "an entry on or above the diagonal"
    if header.symmetry == "hermitian" and not bad.any():
        bad, what = (rows == cols) & (values.imag != 0), "a diagonal entry that is not real"
    at = np.flatnonzero(bad)
    if at.size:
        raise source.error(_line_of(source.name, header, int(at[0])),
                           f"a {header.symmetry} file has {what}",
                           why="such a file stores the lower triangle only; the rest follows from it",
                           do="declare the file general, or store the lower triangle")


def _expand(symmetry: str, rows: NDArray[np.int64], cols: NDArray[np.int64],
            values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    if symmetry == "general":
        return rows, cols, values
    off = rows != cols
    mirror = values[off]
    if symmetry == "skew-symmetric":
        mirror = -mirror
    elif symmetry == "hermitian":
        mirror = mirror.conj()
    return (np.concatenate((rows, cols[off])), np.concatenate((cols, rows[off])),
            np.concatenate((values, mirror)))


def write_mtx(path: str | os.PathLike[str], rows: ArrayLike, cols: ArrayLike, values: ArrayLike,
              shape: tuple[int, int], *, symmetry: str = "general", comment: str = "") -> None:
    """Write entries as a coordinate file; ``read_mtx`` gives the same numbers back exactly.

    ``rows`` and ``cols`` count from 0. With a ``symmetry`` other than general both triangles are given (as
    ``read_mtx`` returns them) and the lower one is stored; a matrix that does not have the symmetry is
    refused. A name ending in ``.gz`` or ``.bz2`` is compressed. The file appears whole or not at all: it is
    written beside its place and renamed.

    Raises :class:`~rlx.core.errors.ShapeError`, :class:`~rlx.core.errors.IndexOutOfBounds` or
    :class:`~rlx.core.errors.ValueIssue` before anything is written.
    """
    import scipy.io
    import scipy.sparse

    entries = _checked(rows, cols, values, shape)
    if symmetry not in SYMMETRIES:
        raise ValueIssue(f"unknown symmetry {symmetry!r}", why="the format has four",
                         do=f"use one of {', '.join(SYMMETRIES)}")
    if symmetry != "general":
        entries = _lower_triangle(entries, shape, symmetry)
    i, j, v = entries
    matrix = scipy.sparse.coo_array((v, (i, j)), shape=shape)
    with _replacing(Path(path)) as stream:
        # A triangle goes out as "general", so SciPy need not search it; the banner says what it is.
        banner = f"%%MatrixMarket matrix coordinate {_FIELD[v.dtype.kind]} {symmetry}"
        scipy.io.mmwrite(_Rebannered(stream, banner.encode()), matrix, comment=comment, symmetry="general")


_FIELD = {"i": "integer", "u": "unsigned-integer", "f": "real", "c": "complex"}
_Entries = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]


class _Rebannered:
    """A stream that puts another first line in place of the one that passes through it.

    SciPy calls a matrix without entries real, whatever its type, so field and symmetry are both written here.
    """

    def __init__(self, stream: IO[bytes], banner: bytes) -> None:
        self.stream, self.banner, self.started = stream, banner, False

    def write(self, data: bytes) -> int:
        if self.started:
            self.stream.write(data)
        else:
            _, end, rest = bytes(data).partition(b"\n")
            self.stream.write(self.banner + end + rest)
            self.started = bool(end)
        return len(data)

    def flush(self) -> None:
        self.stream.flush()


def _checked(rows: ArrayLike, cols: ArrayLike, values: ArrayLike, shape: tuple[int, int]) -> _Entries:
    index = [np.asarray(x) for x in (rows, cols)]
    v = np.asarray(values)
    if not (index[0].shape == index[1].shape == v.shape == (v.size,)):
        raise ShapeError(f"rows {index[0].shape}, cols {index[1].shape} and values {v.shape} do not fit",
                         why="an entry has one of each", do="pass three vectors of one length")
    for x, size, label in zip(index, shape, ("row", "column"), strict=True):
        if x.size and x.dtype.kind not in "iu":
            raise ValueIssue(f"{label} indices of type {x.dtype}", why="an index is an integer")
        if x.size and (x.min() < 0 or x.max() >= size):
            raise IndexOutOfBounds(f"a {label} index is outside 0 to {size - 1}", why=f"the shape is {shape}")
    if v.dtype.kind not in "biufc" or v.dtype.itemsize > (16 if v.dtype.kind == "c" else 8):
        raise ValueIssue(f"values of type {v.dtype} cannot be written", why="the format has no such field",
                         do="convert them to float64 or complex128")
    wide = {"b": np.int64, "i": np.int64, "u": np.uint64, "f": np.float64, "c": np.complex128}[v.dtype.kind]
    return index[0].astype(np.int64), index[1].astype(np.int64), v.astype(wide)


def _lower_triangle(entries: _Entries, shape: tuple[int, int], symmetry: str) -> _Entries:
    """Both triangles -> the lower one, after checking that the other follows from it."""
    import scipy.sparse

    i, j, v = entries
    if shape[0] != shape[1] or (symmetry == "hermitian") > (v.dtype.kind == "c") or v.dtype.kind == "u":
        raise ValueIssue(f"a {v.dtype} matrix of shape {shape} cannot be written as {symmetry}",
                         why="the format wants it square; hermitian means complex; unsigned is general",
                         do='write it with symmetry="general"')
    matrix = scipy.sparse.coo_array((v, (i, j)), shape=shape).tocsr()
    other = matrix.T.tocsr()
    other = {"symmetric": other, "skew-symmetric": -other, "hermitian": other.conj()}[symmetry]
    for m in (matrix, other):
        m.eliminate_zeros()
        m.sort_indices()
    if not (np.array_equal(matrix.indptr, other.indptr) and np.array_equal(matrix.indices, other.indices)
            and np.array_equal(matrix.data, other.data, equal_nan=True)):
        raise ValueIssue(f"the matrix is not {symmetry}", why="an entry differs from its mirror image",
                         do='write it with symmetry="general"')
    kept = i > j if symmetry == "skew-symmetric" else i >= j
    return i[kept], j[kept], v[kept]


def _packed(file: IO[bytes], suffix: str) -> AbstractContextManager[Any]:
    if suffix == ".gz":  # neither name nor time in the header: equal matrices make equal files
        return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
    return bz2.BZ2File(file, "wb") if suffix == ".bz2" else nullcontext(file)


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A stream, packed as the suffix says, to a new file that takes ``path``'s place when the block ends well."""
    with replacing(path) as file, _packed(file, path.suffix) as stream:
        yield stream

"""Matrix Market files: every field, symmetry and format; every way a file can be wrong; atomic writing."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import re
import tracemalloc

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx.core.errors import FormatError, IndexOutOfBounds, ShapeError, ValueIssue
from rlx.sparse import mtx as reader
from rlx.sparse import mtxscan
from rlx.sparse.mtx import read_mtx, write_mtx
from rlx.sparse.mtxlex import is_plain

BANNER = "%%MatrixMarket matrix "
UNSIGNED = "coordinate unsigned-integer general"
HERMITIAN = "coordinate complex hermitian"


@pytest.fixture
def mtx(tmp_path):
    def make(kind: str, body: str | bytes, name: str = "a.mtx"):
        text = (BANNER + kind + "\n").encode() + (body.encode() if isinstance(body, str) else body)
        pack = {".gz": gzip.compress, ".bz2": bz2.compress}.get(os.path.splitext(name)[1], bytes)
        path = tmp_path / name
        path.write_bytes(pack(text))
        return path
    return make


def dense(c) -> np.ndarray:
    out = np.zeros(c.shape, dtype=c.values.dtype)
    np.add.at(out, (c.rows, c.cols), c.values)
    return out


GOOD = {
    "real": ("coordinate real general", "2 3 2\n1 1 1.5\n2 3 -2e3\n", [[1.5, 0, 0], [0, 0, -2000]], "f8"),
    "double": ("coordinate double general", "1 1 1\n1 1 2\n", [[2]], "f8"),
    "any case": ("Coordinate REAL General", "1 1 1\n1 1 2\n", [[2]], "f8"),
    "integer": ("coordinate integer general", "1 2 1\n1 2 -9007199254740993\n", [[0, -(2**53) - 1]], "i8"),
    "unsigned": (UNSIGNED, "1 1 1\n1 1 18446744073709551615\n", [[2**64 - 1]], "u8"),
    "complex": ("coordinate complex general", "1 2 1\n1 2 1 -2\n", [[0, 1 - 2j]], "c16"),
    "pattern": ("coordinate pattern general", "2 2 2\n1 1\n2 1\n", [[1, 0], [1, 0]], "f8"),
    "symmetric": ("coordinate real symmetric", "2 2 2\n1 1 4\n2 1 5\n", [[4, 5], [5, 0]], "f8"),
    "pattern symmetric": ("coordinate pattern symmetric", "2 2 1\n2 1\n", [[0, 1], [1, 0]], "f8"),
    "skew": ("coordinate integer skew-symmetric", "2 2 1\n2 1 5\n", [[0, -5], [5, 0]], "i8"),
    "hermitian": (HERMITIAN, "2 2 2\n1 1 4 0\n2 1 5 6\n", [[4, 5 - 6j], [5 + 6j, 0]], "c16"),
    "duplicates": ("coordinate real general", "1 1 2\n1 1 1\n1 1 2\n", [[3]], "f8"),
    "plus sign": ("coordinate real general", "1 1 1\n+1 1 +2.5E+0\n", [[2.5]], "f8"),
    "no last newline": ("coordinate real general", "1 1 1\n1 1 2", [[2]], "f8"),
    "a space at the end": ("array real general", "1 2\n4\n0 ", [[4, 0]], "f8"),
    "blank lines": ("coordinate real general", "% c\n\n% d\n\n1 1 1\n\n 1\t1  2 \r\n\n", [[2]], "f8"),
    "no entries": ("coordinate real general", "2 2 0\n", [[0, 0], [0, 0]], "f8"),
    "0 x 0": ("coordinate real general", "0 0 0\n", np.zeros((0, 0)), "f8"),
    "array": ("array real general", "2 3\n1\n2\n3\n4\n0\n6\n", [[1, 3, 0], [2, 4, 6]], "f8"),
    "array symmetric": ("array real symmetric", "2 2\n1\n2\n3\n", [[1, 2], [2, 3]], "f8"),
    "array skew": ("array real skew-symmetric", "3 3\n1\n2\n3\n", [[0, -1, -2], [1, 0, -3], [2, 3, 0]], "f8"),
    "array complex": ("array complex hermitian", "2 2\n1 0\n2 3\n4 0\n", [[1, 2 - 3j], [2 + 3j, 4]], "c16"),
    "array integer": ("array integer general", "1 2\n7\n-8\n", [[7, -8]], "i8"),
}


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2"])
@pytest.mark.parametrize("case", GOOD)
def test_reads(mtx, case, suffix):
    kind, body, want, dtype = GOOD[case]
    got = read_mtx(mtx(kind, body, "a.mtx" + suffix))
    assert got.rows.dtype == got.cols.dtype == np.int64
    assert got.values.dtype == dtype
    assert got.symmetry == kind.split()[-1].lower()
    np.testing.assert_array_equal(dense(got), np.array(want, dtype=dtype))


def test_agrees_with_scipy_on_what_scipy_reads(tmp_path):
    rng = np.random.default_rng(1)
    a = scipy.sparse.random_array((40, 40), density=0.2, rng=rng)
    for matrix, symmetry in ((a, "general"), (a + a.T, "symmetric"), (a - a.T, "skew-symmetric")):
        scipy.io.mmwrite(tmp_path / "s.mtx", matrix, symmetry=symmetry)
        got = read_mtx(tmp_path / "s.mtx")
        assert got.symmetry == symmetry
        np.testing.assert_array_equal(dense(got), scipy.io.mmread(tmp_path / "s.mtx").toarray())


def test_duplicates_and_nonfinite_values_are_kept(mtx):
    got = read_mtx(mtx("coordinate real general", "2 2 4\n1 1 1\n1 1 2\n2 1 nan\n2 2 -Inf\n"))
    assert got.rows.tolist() == [0, 0, 1, 1]
    assert np.isnan(got.values[2]) and got.values[3] == -np.inf
    assert np.isnan(read_mtx(mtx("array real general", "2 1\nnan\n0\n")).values).tolist() == [True]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text("019.eE+-", min_size=1, max_size=6), min_size=1, max_size=4), st.integers(0, 2))
def test_a_plain_word_is_a_number_to_everybody(words, integers):
    line = (" ".join(words) + "\n").encode()
    starts = np.cumsum([0] + [len(w) + 1 for w in words[:-1]])
    plain = is_plain(np.frombuffer(line, dtype=np.uint8), starts, len(words), integers)
    number = r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
    assert plain == all(re.fullmatch(r"-?\d+" if k < integers else number, w) for k, w in enumerate(words))


@pytest.mark.parametrize("case", GOOD)
def test_both_parsers_agree(mtx, case, monkeypatch):
    kind, body, *_ = GOOD[case]
    path = mtx(kind, body)
    fast = read_mtx(path)
    monkeypatch.setattr(reader, "_parse_plain", lambda *_: None)
    strict = read_mtx(path)
    assert fast.values.dtype == strict.values.dtype
    for a, b in zip(fast[:3], strict[:3]):
        np.testing.assert_array_equal(a, b)


def test_fortran_exponents_are_read(mtx):
    path = mtx("coordinate complex general", "2 2 2\n1 1 1.5D+02 -1d-1\n2 2 .5d3 2.D0\n")
    np.testing.assert_array_equal(read_mtx(path).values, [150 - 0.1j, 500 + 2j])
    path = mtx("array real general", "2 1\n1d3\n-1.25D-2\n")
    np.testing.assert_array_equal(read_mtx(path).values, [1000.0, -0.0125])


def test_plain_files_take_the_fast_parser(mtx, monkeypatch):
    monkeypatch.setattr(reader, "_parse", lambda *_: pytest.fail("the strict parser ran"))
    for case in ("real", "symmetric", "skew", "hermitian", "pattern", "integer", "no last newline"):
        read_mtx(mtx(*GOOD[case][:2]))
    read_mtx(mtx(GOOD["real"][0], GOOD["real"][1].replace("\n", "\r\n")))


def test_an_entry_across_the_chunks_of_the_first_pass(mtx, monkeypatch):
    body = "9 9 30\n" + "".join(f"{1 + k % 9} {1 + k // 9} {k}.5\n\n" for k in range(30))
    path = mtx("coordinate real general", body)
    want = read_mtx(path)
    for chunk in (1, 2, 7, 64):
        monkeypatch.setattr(mtxscan, "CHUNK", chunk)
        np.testing.assert_array_equal(read_mtx(path).values, want.values)
    short = mtx("coordinate real general", body.replace("9 9 30", "9 9 29"), "b.mtx")
    with pytest.raises(FormatError, match="more entries") as e:
        read_mtx(short)
    assert e.value.where.endswith("b.mtx:61")


R = "coordinate real general"
C = "coordinate complex general"
BAD = {  # banner words, body, part of the message, line (0: the whole file)
    "one word": ("vector", "", "banner has 2 words", 1),
    "five words": ("tensor coordinate real general", "", "banner has 5 words", 1),
    "unknown format": ("sparse real general", "1 1 0\n", "unknown format 'sparse'", 1),
    "unknown field": ("coordinate quaternion general", "1 1 0\n", "unknown field", 1),
    "unknown symmetry": ("coordinate real diagonal", "1 1 0\n", "unknown symmetry", 1),
    "array pattern": ("array pattern general", "1 1\n", "pattern cannot be array", 1),
    "real hermitian": ("coordinate real hermitian", "1 1 0\n", "hermitian matrix cannot be real", 1),
    "pattern skew": ("coordinate pattern skew-symmetric", "1 1 0\n", "pattern cannot be", 1),
    "unsigned skew": ("coordinate unsigned-integer skew-symmetric", "1 1 0\n", "cannot be unsigned", 1),
    "no size line": (R, "% only a comment\n", "size line is missing", 3),
    "size line of two": (R, "2 2\n1 1 1\n", "size line has 2 numbers", 2),
    "size line of four": (R, "2 2 1 1\n", "size line has 4 numbers", 2),
    "negative size": (R, "2 -2 1\n1 1 1\n", "'-2' is not a count", 2),
    "fractional size": (R, "2 2.5 1\n1 1 1\n", "'2.5' is not a count", 2),
    "wordy size": (R, "two 2 1\n1 1 1\n", "'two' is not a count", 2),
    "size past 64 bits": (R, "9223372036854775808 1 1\n1 1 1\n", "too large", 2),
    "size of 5000 digits": (R, "9" * 5000 + " 1 1\n1 1 1\n", "too large", 2),
    "not square": ("coordinate real symmetric", "2 3 1\n2 1 1\n", "not square", 2),
    "array not square": ("array real symmetric", "2 3\n1\n2\n3\n", "not square", 2),
    "more than the file holds": (R, "9 9 1000000000000\n1 1 1\n", "more than the file can hold", 2),
    "dense and huge": ("array real general", "1000000000 1000000000\n1\n", "more than the file can hold", 2),
    "fewer entries": (R, "2 2 2\n1 1 1.000000\n", "ends after 1 of 2", 3),
    "more entries": (R, "2 2 1\n1 1 1\n2 2 1\n", "more entries than stated", 4),
    "entries for none": (R, "2 2 0\n1 1 1\n", "more entries than stated", 3),
    "text after the end": (R, "2 2 1\n1 1 1\nthank you\n", "more entries than stated", 4),
    "array too short": ("array real general", "2 2\n1.0000\n2\n3\n", "ends after 3 of 4", 5),
    "cut inside a line": (R, "2 2 2\n1 1 1.00000\n2 2", "2 numbers where an entry has 3", 4),
    "row 0": (R, "2 2 1\n0 1 1\n", "row index 0 is out of range", 3),
    "row past the end": (R, "2 2 2\n1 1 1\n\n3 1 1\n", "row index 3 is out of range", 5),
    "column 0": (R, "2 2 1\n1 0 1\n", "column index 0", 3),
    "column past the end": (R, "2 2 1\n1 3 1\n", "column index 3", 3),
    "negative index": (R, "2 2 1\n-1 1 1\n", "row index -1", 3),
    "index of a 0 x 0": (R, "0 0 1\n1 1 1\n", "row index 1", 3),
    "index past 64 bits": (R, "2 2 1\n99999999999999999999 1 1\n", "does not fit", 3),
    "fractional index": (R, "2 2 1\n1.5 1 1\n", "'1.5' is not an integer", 3),
    "word for a value": (R, "2 2 2\n1 1 1\n2 2 abc\n", "'abc' is not a number", 4),
    "tail on a value": (R, "2 2 1\n1 1 1.5abc\n", "'1.5abc' is not a number", 3),
    "two points": (R, "2 2 1\n1 1 1.5.3\n", "is not a number", 3),
    "hexadecimal": (R, "2 2 1\n1 1 0x10\n", "is not a number", 3),
    "Fortran exponent without digits": (R, "2 2 1\n1 1 1.0D+\n", "is not a number", 3),
    "Fortran exponent twice": (R, "2 2 1\n1 1 1D1D1\n", "is not a number", 3),
    "Fortran exponent of an index": (R, "2 2 1\n1d0 1 1\n", "'1d0' is not an integer", 3),
    "underscore": (R, "2 2 1\n1 1 1_0\n", "is not a number", 3),
    "NUL byte": (R, "2 2 1\n1 1 1\x00\n", "is not a number", 3),
    "comment in the body": (R, "2 2 1\n% hi\n1 1 1\n", "2 numbers where an entry has 3", 3),
    "not ASCII": (R, "2 2 1\n1 1 \u0661\n".encode(), "is not a number", 3),
    "Latin-1 space": (R, b"2 2 1\n1 1\xa01 1\n", "is not an integer", 3),
    "lone carriage return": (R, "2 2 1\n1 1\r1.0\n", "cannot be read", 0),
    "fraction as integer": ("coordinate integer general", "2 2 1\n1 1 1.5\n", "'1.5' is not an integer", 3),
    "integer past 64 bits": ("coordinate integer general", f"1 1 1\n1 1 {2**63}\n", "does not fit", 3),
    "negative unsigned": ("coordinate unsigned-integer general", "1 1 1\n1 1 -1\n", "does not fit", 3),
    "no imaginary part": (C, "2 2 1\n1 1 1.0000000\n", "3 numbers where an entry has 4", 3),
    "imaginary part in real": (R, "2 2 1\n1 1 1 2\n", "4 numbers where an entry has 3", 3),
    "value in a pattern": ("coordinate pattern general", "2 2 1\n1 1 1\n", "3 numbers where", 3),
    "upper in symmetric": ("coordinate real symmetric", "2 2 2\n1 1 1\n1 2 1\n", "above the diagonal", 4),
    "upper in hermitian": ("coordinate complex hermitian", "2 2 1\n1 2 1 1\n", "above the diagonal", 3),
    "upper in skew": ("coordinate real skew-symmetric", "2 2 1\n1 2 1\n", "on or above", 3),
    "diagonal in skew": ("coordinate real skew-symmetric", "2 2 1\n1 1 1\n", "on or above", 3),
    "complex diagonal": ("coordinate complex hermitian", "2 2 1\n1 1 1 1\n", "not real", 3),
    "endless line": (R, "2 2 1\n1 1 1" + "0" * 3_000_000, "longer than", 3),
    "endless comment": (R, "%" * 100_000 + "\n2 2 1\n1 1 1\n", "longer than", 2),
}


@pytest.mark.parametrize("case", BAD)
def test_refuses(mtx, case):
    kind, body, message, line = BAD[case]
    path = mtx(kind, body)
    with pytest.raises(FormatError) as e:
        read_mtx(path)
    assert message in e.value.what
    assert e.value.where == (f"{path}:{line}" if line else str(path))
    assert e.value.why and e.value.do


@pytest.mark.parametrize("text", [b"", b"\n", b"PK\x03\x04", b"%MatrixMarket matrix array real general\n",
                                  b"1 1 1\n1 1 1\n", b"\xff\xfe%\x00%\x00"])
def test_refuses_what_is_no_matrix_market_file(tmp_path, text):
    path = tmp_path / "a.mtx"
    path.write_bytes(text)
    with pytest.raises(FormatError, match="not a Matrix Market file"):
        read_mtx(path)


def test_a_lying_header_allocates_nothing(mtx):
    # Packed, the file's own size bounds nothing: only counting its entries does.
    path = mtx(R, "1000000 1000000 100000000\n1 1 1\n", "a.mtx.gz")
    tracemalloc.start()
    with pytest.raises(FormatError, match="ends after 1 of 100000000"):
        read_mtx(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_a_huge_shape_with_few_entries_is_read(mtx):
    got = read_mtx(mtx(R, f"{2**62} {2**62} 1\n{2**62} 1 3\n"))
    assert (got.shape, got.rows.tolist()) == ((2**62, 2**62), [2**62 - 1])
    assert read_mtx(mtx("array real general", f"0 {2**62}\n")).shape == (0, 2**62)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(mtxscan, "FREE_BYTES", 1 << 16)
    for text in (b"1 1 1\n" + b"\n" * 3_000_000, (b"%" * 99 + b"\n") * 30_000):
        path = tmp_path / "bomb"
        path.write_bytes(pack((BANNER + R + "\n").encode() + text))
        with pytest.raises(FormatError, match="unpack to more than") as e:
            read_mtx(path)
        assert "bomb" in e.value.why


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_damaged_compressed_files(tmp_path, pack):
    body = "".join(f"{k} {k} {k}.25\n" for k in range(1, 200))
    whole = pack((BANNER + R + "\n200 200 199\n" + body).encode())
    path = tmp_path / "a.mtx.gz"
    flipped = whole[:60] + bytes([whole[60] ^ 0xFF]) + whole[61:]
    for damaged in (whole[: len(whole) // 2], whole[:-3], flipped):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match="damaged or cut short"):
            read_mtx(path)


def test_absent_file_and_directory(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_mtx(tmp_path / "none.mtx")
    with pytest.raises(FormatError, match="not a regular file"):
        read_mtx(tmp_path)


NUMBERS = {np.float64: st.floats(width=64), np.int64: st.integers(-(2**63), 2**63 - 1),
           np.complex128: st.complex_numbers()}


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(list(NUMBERS)), suffix=st.sampled_from(["", ".gz", ".bz2"]))
def test_write_then_read_is_exact(tmp_path_factory, data, dtype, suffix):
    n, m = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 2**40)))
    k = data.draw(st.integers(0, 8))
    rows = data.draw(st.lists(st.integers(0, n - 1), min_size=k, max_size=k))
    cols = data.draw(st.lists(st.integers(0, m - 1), min_size=k, max_size=k))
    values = np.array(data.draw(st.lists(NUMBERS[dtype], min_size=k, max_size=k)), dtype=dtype)
    path = tmp_path_factory.mktemp("w") / f"a.mtx{suffix}"
    write_mtx(path, rows, cols, values, (n, m), comment="two\nlines")
    got = read_mtx(path)
    assert (got.shape, got.rows.tolist(), got.cols.tolist()) == ((n, m), rows, cols)
    assert got.values.dtype == dtype
    np.testing.assert_array_equal(got.values, values)


@pytest.mark.parametrize("symmetry", ["symmetric", "skew-symmetric", "hermitian"])
def test_symmetric_round_trip(tmp_path, symmetry):
    rng = np.random.default_rng(3)
    a = rng.standard_normal((7, 7)) + (1j * rng.standard_normal((7, 7)) if symmetry == "hermitian" else 0)
    a = {"symmetric": a + a.T, "skew-symmetric": a - a.T, "hermitian": a + a.conj().T}[symmetry]
    rows, cols = np.nonzero(a)
    write_mtx(tmp_path / "a.mtx", rows, cols, a[rows, cols], a.shape, symmetry=symmetry)
    got = read_mtx(tmp_path / "a.mtx")
    assert got.symmetry == symmetry
    np.testing.assert_array_equal(dense(got), a)
    # half is stored, and SciPy reads the same matrix
    assert scipy.io.mminfo(tmp_path / "a.mtx")[2] == (21 if symmetry == "skew-symmetric" else 28)
    np.testing.assert_array_equal(scipy.io.mmread(tmp_path / "a.mtx").toarray(), a)


def test_write_refuses(tmp_path):
    path = tmp_path / "a.mtx"
    one = ([0], [1], [2.0])
    for error, args, extra in (
        (ShapeError, ([0, 1], [1], [2.0], (2, 2)), {}),
        (IndexOutOfBounds, ([2], [1], [2.0], (2, 2)), {}),
        (IndexOutOfBounds, ([0], [-1], [2.0], (2, 2)), {}),
        (ValueIssue, ([0.5], [1], [2.0], (2, 2)), {}),
        (ValueIssue, ([0], [1], ["x"], (2, 2)), {}),
        (ValueIssue, (*one, (2, 2)), {"symmetry": "diagonal"}),
        (ValueIssue, (*one, (2, 2)), {"symmetry": "symmetric"}),
        (ValueIssue, (*one, (2, 3)), {"symmetry": "symmetric"}),
        (ValueIssue, (*one, (2, 2)), {"symmetry": "hermitian"}),
    ):
        with pytest.raises(error):
            write_mtx(path, *args, **extra)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.mtx"
    write_mtx(path, [0], [0], [1.0], (1, 1))

    def fail(stream: io.BytesIO, *_: object, **__: object) -> None:
        stream.write(b"%%MatrixMarket half")
        raise OSError("no space left")
    monkeypatch.setattr(scipy.io, "mmwrite", fail)
    with pytest.raises(OSError, match="no space"):
        write_mtx(path, [0], [0], [2.0], (1, 1))
    assert [p.name for p in tmp_path.iterdir()] == ["a.mtx"]
    assert read_mtx(path).values.tolist() == [1.0]

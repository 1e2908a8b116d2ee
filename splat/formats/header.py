"""The header of a PLY file, and its tables of scalars."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx.core.errors import FormatError
from rlx.splat.formats.files import HEADER_BYTES, need

#: PLY scalar types, by both of their spellings.
_TYPES = {"char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
          "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
          "double": "f8", "float64": "f8"}
_ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">"}


@dataclass(frozen=True)
class Element:
    """A table: its name, number of rows, and columns."""

    name: str
    count: int
    columns: tuple[tuple[str, str], ...]


def read_tables(data: bytes, what: str) -> dict[str, np.ndarray]:
    """The tables of a binary PLY file as structured arrays that share memory with ``data``."""
    elements, order, at = _parse(data, what)
    out: dict[str, np.ndarray] = {}
    for e in elements:
        row = np.dtype([(name, order + kind) for name, kind in e.columns])
        need(data, at, e.count * row.itemsize, f"{what}: element {e.name}")
        out[e.name] = np.frombuffer(data, row, e.count, at)
        at += e.count * row.itemsize
    return out


def _parse(data: bytes, what: str) -> tuple[list[Element], str, int]:
    """Elements, byte order, and where the data start."""
    if data[:4] not in (b"ply\n", b"ply\r"):
        raise FormatError(
            f"{what} is not a PLY file", why=f"it starts with {data[:4]!r}", do="check the file and its name"
        )
    end = data.find(b"end_header", 0, HEADER_BYTES)
    stop = data.find(b"\n", end, end + 16) if end >= 0 else -1
    if stop < 0:
        raise FormatError(f"{what}: the PLY header has no end", why="no end_header line in the first megabyte",
                          do="get the file again")
    try:
        lines = [x.split() for x in data[:end].decode("ascii").splitlines()[1:]]
    except UnicodeDecodeError:
        raise FormatError(
            f"{what}: the PLY header is not text", why="it has bytes above 127", do="get the file again"
        ) from None
    return *_read_lines(lines, what), stop + 1


def _read_lines(lines: list[list[str]], what: str) -> tuple[list[Element], str]:
    order: str | None = None
    elements: list[Element] = []
    for words in lines:
        match words:
            case [] | ["comment", *_] | ["obj_info", *_]:
                continue
            case ["format", kind, "1.0"] if kind in _ORDERS:
                order = _ORDERS[kind]
            case ["format", *rest]:
                raise FormatError(f"{what}: PLY format {' '.join(rest)}", why="scenes are read from binary PLY 1.0",
                                  do="convert it to binary_little_endian")
            case ["element", name, count] if count.isdigit() and len(count) < 12:
                elements.append(Element(name, int(count), ()))
            case ["property", kind, name] if elements and kind in _TYPES:
                last = elements[-1]
                if name in dict(last.columns):
                    raise FormatError(f"{what}: element {last.name} has two properties {name}", why="names are unique",
                                      do="get the file again")
                elements[-1] = Element(last.name, last.count, (*last.columns, (name, _TYPES[kind])))
            case _:
                raise FormatError(f"{what}: PLY header line {' '.join(words)[:80]!r}", why="it is not understood here",
                                  do="save the scene with scalar properties only")
    if order is None:
        raise FormatError(
            f"{what}: the PLY header names no format", why="the format line is missing", do="get the file again"
        )
    if len({e.name for e in elements}) != len(elements):
        raise FormatError(f"{what}: two PLY elements have one name", why="names are unique", do="get the file again")
    return [e for e in elements if e.columns or e.count], order


def columns(table: np.ndarray, names: list[str], what: str) -> np.ndarray:
    """Columns of a table side by side as float32 (N, len(names))."""
    have = table.dtype.names or ()
    lost = [n for n in names if n not in have]
    if lost:
        raise FormatError(f"{what}: no property {', '.join(lost[:4])}", why=f"the file has {', '.join(have[:8])}...",
                          do="pass a file of Gaussians in the layout of its kind")
    return (
        np.stack([table[n].astype(np.float32) for n in names], axis=1)
        if names
        else np.zeros((len(table), 0), np.float32)
    )


def header(elements: list[tuple[str, int, list[tuple[str, str]]]]) -> bytes:
    """The text of a header: (name, rows, [(property, PLY type)])."""
    lines = ["ply", "format binary_little_endian 1.0"]
    for name, count, props in elements:
        lines.append(f"element {name} {count}")
        lines += [f"property {kind} {prop}" for prop, kind in props]
    return ("\n".join([*lines, "end_header"]) + "\n").encode("ascii")

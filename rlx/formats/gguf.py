"""Models in ``.gguf`` files: metadata, arrays, and arrays in quantized blocks that rlx programs compute with.

>>> import struct, tempfile
>>> from rlx.formats import gguf
>>> head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)                     # version, one array, no metadata
>>> head += struct.pack("<Q1sIQIQ", 1, b"w", 1, 32, 8, 0)             # "w": 32 numbers of type Q8_0, at 0
>>> data = struct.pack("<e32b", 0.5, *range(32))                      # a block: its scale, and 32 bytes
>>> with tempfile.NamedTemporaryFile() as f:
...     _ = f.write(head.ljust(-len(head) % 32 + len(head), b"\\0") + data)
...     f.flush()
...     file = gguf.load(f.name)
>>> file.arrays["w"].shape, file.array("w")[:4].tolist()
((32,), [0.0, 0.5, 1.0, 1.5])
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import from_numpy
from rlx.array.host import from_host
from rlx.core import dtype as dt
from rlx.core.errors import FormatError
from rlx.formats.blocks import KINDS, Quantized

#: Types of arrays by their number in ggml.h: plain ones by dtype, those in blocks by name.
TYPES: dict[int, dt.DType | str] = {
    0: dt.float32, 1: dt.float16, 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 24: dt.int8, 25: dt.int16, 26: dt.int32, 27: dt.int64, 28: dt.float64, 30: dt.bfloat16,
}
#: Types of metadata that are one number, by their number: how struct spells them.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
#: Least bytes of an entry of metadata (a key without letters, its type, one byte) and of an array's description.
_ENTRY, _DESCRIPTION = 13, 24
#: Axes of an array (GGML_MAX_DIMS), and lists within lists of metadata.
_AXES, _DEPTH = 4, 4


@dataclass(frozen=True)
class File:
    """What a file holds: ``arrays`` by name (a :class:`Quantized` where in blocks), and ``metadata`` by key.

    The arrays are the leaves of the pytree.
    """

    arrays: dict[str, Array | Quantized]
    metadata: _Metadata = field(metadata={"static": True})

    def array(self, name: str, dtype: Any = None) -> Array:
        """An array as numbers: dequantized to float32, or as ``dtype``."""
        x = self.arrays[name]
        if isinstance(x, Quantized):
            return x.dequantize(dtype)
        return x if dtype is None else FUNCTIONS["astype"](x, dt.as_dtype(dtype))


class _Metadata(dict[str, Any]):
    """Metadata as a static part of a pytree: hashed by identity."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


def load(path: str | Path, *, device: str | None = None) -> File:
    """Read a file of version 2 or 3; its arrays go to ``device``, those in blocks as they are.

    Shapes are in C order: the axis along which blocks run is the last. Counts, lengths and offsets are checked against
    the file before anything of their size is made; what does not fit, or a type that rlx cannot compute with, is a
    FormatError that names the place.
    """
    place = Path(path)
    if not place.is_file():
        raise FormatError(f"there is no file {str(path)!r}", why="it does not exist, or is not a regular file",
                          do="check the path")
    if place.stat().st_size < 24:
        raise FormatError(f"{str(path)!r} is not a GGUF file", why="it is shorter than a header", do="get it again")
    raw = np.memmap(place, dtype=np.uint8, mode="r")
    return _Reader(raw, str(path)).file(device)


class _Reader:
    """A position in the bytes of a file."""

    def __init__(self, raw: np.ndarray, name: str) -> None:
        self.raw, self.name, self.at = raw, name, 0

    def refuse(self, what: str, why: str, do: str = "get the file again") -> FormatError:
        return FormatError(what, where=f"{self.name}: byte {self.at}", why=why, do=do)

    def take(self, count: int) -> bytes:
        left = len(self.raw) - self.at
        if count > left:
            raise self.refuse("the file ends within its header", f"{count} bytes are said to follow, {left} do")
        self.at += count
        return self.raw[self.at - count:self.at].tobytes()

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def count(self, what: str, least: int) -> int:
        """A number of things of at least so many bytes each, which the rest of the file must have room for."""
        found: int = self.number("Q")
        if found * least > len(self.raw) - self.at:
            raise self.refuse(f"{found} {what}", f"{len(self.raw) - self.at} bytes are left")
        return found

    def text(self) -> str:
        return self.take(self.count("letters", 1)).decode("utf-8", "replace")

    def file(self, device: str | None) -> File:
        if self.take(4) != b"GGUF":
            raise self.refuse(f"{self.name!r} is not a GGUF file", "it does not begin with GGUF", "check the path")
        version = self.number("I")
        if version not in (2, 3):
            raise self.refuse(f"version {version} of GGUF", "versions 2 and 3, little endian, are read",
                              "convert the file")
        arrays, entries = self.count("arrays", _DESCRIPTION), self.number("Q")
        if entries * _ENTRY > len(self.raw) - self.at:
            raise self.refuse(f"{entries} entries of metadata", f"{len(self.raw) - self.at} bytes are left")
        metadata = _Metadata()
        for _ in range(entries):
            key = self.text()
            metadata[key] = self.value(self.number("I"), 0)
        parts = [self.description() for _ in range(arrays)]
        start = self.begin(metadata)
        self.check(parts, len(self.raw) - start)
        return File({name: self.array(kind, shape, start + offset, device) for name, kind, shape, offset in parts},
                    metadata)

    def value(self, kind: int, depth: int) -> Any:
        """A value of metadata: a number, text, or a list."""
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY or depth == _DEPTH:
            raise self.refuse(f"metadata of type {kind}", "there is no such type, or lists are too deep")
        inner = self.number("I")
        code = _NUMBERS.get(inner)
        count = self.count("elements", struct.calcsize(f"<{code}") if code else 8)
        if code:
            return list(struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(f"<{code}"))))
        return [self.value(inner, depth + 1) for _ in range(count)]

    def description(self) -> tuple[str, dt.DType | str, tuple[int, ...], int]:
        name, axes = self.text(), self.number("I")
        if axes > _AXES:
            raise self.refuse(f"array {name!r} of {axes} axes", f"the format has up to {_AXES}")
        shape = tuple([self.number("Q") for _ in range(axes)][::-1])
        number = self.number("I")
        if number not in TYPES:
            raise self.refuse(f"array {name!r} of type number {number}",
                              f"rlx reads {', '.join(k if isinstance(k, str) else k.name for k in TYPES.values())}",
                              "quantize the model in another way")
        kind, offset = TYPES[number], self.number("Q")
        if isinstance(kind, str) and (not shape or shape[-1] % KINDS[kind].numbers):
            raise self.refuse(f"array {name!r} of shape {shape} in blocks of {KINDS[kind].numbers}",
                              "the last axis is no whole number of blocks")
        return name, kind, shape, offset

    def begin(self, metadata: dict[str, Any]) -> int:
        """Where the data start."""
        step = metadata.get("general.alignment", 32)
        if not isinstance(step, int) or not 0 < step <= 2 ** 20 or step & (step - 1):
            raise self.refuse(f"an alignment of {step!r}", "it is a power of two")
        return -(-self.at // step) * step

    def check(self, parts: list[tuple[str, dt.DType | str, tuple[int, ...], int]], room: int) -> None:
        """Raise where arrays have one name, lie outside the data, or share bytes (so that few would become many)."""
        end = 0
        for name, kind, shape, offset in sorted(parts, key=lambda p: p[3]):
            size = _bytes(kind, shape)
            if size and not end <= offset <= offset + size <= room:
                raise self.refuse(f"array {name!r} of shape {shape}", f"its {size} bytes from {offset} are outside the "
                                  f"{max(room, 0)} bytes of data, or another array's")
            end = max(end, offset + size)
        names = [p[0] for p in parts]
        if len(set(names)) < len(names):
            raise self.refuse("two arrays of one name", f"{len(names) - len(set(names))} names are there twice")

    def array(self, kind: dt.DType | str, shape: tuple[int, ...], at: int, device: str | None) -> Array | Quantized:
        data = self.raw[at:at + _bytes(kind, shape)]
        if isinstance(kind, str):
            blocks = (*shape[:-1], shape[-1] // KINDS[kind].numbers, KINDS[kind].size)
            return Quantized(from_numpy(np.array(data).reshape(blocks), dt.uint8, device), kind)
        # dtype.numpy is the storage: 16 bits for bfloat16.
        host = np.frombuffer(data.tobytes(), kind.numpy.newbyteorder("<")).reshape(shape)
        return from_numpy(from_host(host, kind), kind, device)


def _bytes(kind: dt.DType | str, shape: tuple[int, ...]) -> int:
    if isinstance(kind, str):
        return prod(shape[:-1]) * (shape[-1] // KINDS[kind].numbers) * KINDS[kind].size
    return prod(shape) * kind.bits // 8

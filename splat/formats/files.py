"""What every scene file needs: bounded reading and decompression, checked headers, and writing all or nothing."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlx.core.errors import FormatError
from rlx.core.files import replacing

#: Decoded bytes that a compressed file may always have, whatever its ratio.
FREE_BYTES = 256 << 20
#: Ratio of decoded to stored bytes above which a larger file is taken for a bomb (real scenes stay below 30).
MAX_RATIO = 1000
#: Most bytes of a header.
HEADER_BYTES = 1 << 20


class Cloud(NamedTuple):
    """Gaussians on the host, float32, linear scales and opacities: means (N, 3), scales (N, 3), rotations (N, 4) as
    w x y z, opacities (N,), sh (N, K, 3)."""

    means: np.ndarray
    scales: np.ndarray
    rotations: np.ndarray
    opacities: np.ndarray
    sh: np.ndarray

    @property
    def degree(self) -> int:
        """Degree of the spherical harmonics."""
        return {1: 0, 4: 1, 9: 2, 16: 3}[self.sh.shape[1]]


def read_bytes(path: Any) -> bytes:
    """The content of a file."""
    p = Path(path)
    if not p.is_file():
        raise FormatError(f"there is no file {str(p)!r}", why="it does not exist, or is not a regular file",
                          do="check the path")
    return p.read_bytes()


def write_atomic(path: Any, parts: list[bytes]) -> None:
    """Write all parts as one file, or nothing: a reader never sees half a file."""
    with replacing(path) as file:
        file.writelines(parts)


def need(data: bytes | memoryview, offset: int, size: int, what: str) -> None:
    """Raise FormatError unless ``size`` bytes follow ``offset``: called before anything of that size is made."""
    if offset < 0 or size < 0 or offset + size > len(data):
        raise FormatError(f"{what}: {size} bytes are declared and {max(len(data) - offset, 0)} are there",
                          why="the file is truncated, or its header is wrong", do="get the file again")


def bounded(declared: int, stored: int, what: str) -> None:
    """Raise FormatError when ``stored`` compressed bytes claim to hold implausibly many."""
    if declared > FREE_BYTES and declared > MAX_RATIO * stored:
        raise FormatError(
            f"{what}: {stored} compressed bytes declare {declared} decoded ones",
            why=f"a ratio above {MAX_RATIO} is not a scene but a decompression bomb",
            do="do not open this file",
        )


def gunzip(data: bytes, limit: Callable[[bytes], int], first: int, what: str) -> bytes:
    """Decompress a gzip stream: ``first`` bytes, then up to the total that ``limit(first bytes)`` gives, no more.

    A stream that ends early, or goes on, is a FormatError.
    """
    engine = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        head = engine.decompress(data, first)
        if len(head) < first:
            raise FormatError(f"{what}: the compressed data end within the header", why="the file is truncated",
                              do="get the file again")
        total = limit(head)
        bounded(total, len(data), what)
        # zlib's ratio is at most 1032: a larger claim is refused before the memory is asked for.
        if total > 1040 * len(data) + 1024:
            raise FormatError(f"{what}: {len(data)} compressed bytes cannot hold {total}", why="the header is wrong",
                              do="get the file again")
        rest = total - first
        body = engine.decompress(engine.unconsumed_tail, rest) if rest else b""
        # One byte more than declared: the checksum behind the data is verified when there is none.
        beyond = engine.decompress(engine.unconsumed_tail, 1)
    except zlib.error as e:
        raise FormatError(f"{what}: the compressed data are damaged", why=str(e), do="get the file again") from None
    if len(body) != rest or beyond or not engine.eof:
        raise FormatError(f"{what}: {total} bytes are declared and {'more' if beyond else first + len(body)} are there",
                          why="the file is truncated, or its header is wrong", do="get the file again")
    return head + body


def unzstd(data: bytes, size: int, what: str) -> bytes:
    """Decompress one zstd stream of exactly ``size`` bytes."""
    try:
        reader: Any = _zstd_reader(data)
        out: bytes = reader.read(size + 1)
        while len(out) <= size and (more := reader.read(size + 1 - len(out))):
            out += more
    except FormatError:
        raise
    except Exception as e:
        raise FormatError(f"{what}: the compressed data are damaged", why=str(e), do="get the file again") from None
    if len(out) != size:
        raise FormatError(f"{what}: {size} bytes are declared and {'more' if len(out) > size else len(out)} are there",
                          why="the file is truncated, or its table is wrong", do="get the file again")
    return out


def zstd(data: bytes) -> bytes:
    """One zstd frame."""
    module, own = _zstd_module()
    packed: bytes = module.compress(data) if own else module.ZstdCompressor(level=9).compress(data)
    return packed


def _zstd_reader(data: bytes) -> Any:
    import io
    module, own = _zstd_module()
    return module.ZstdFile(io.BytesIO(data)) if own else module.ZstdDecompressor().stream_reader(data)


def _zstd_module() -> tuple[Any, bool]:
    """Python's own module (3.14) or the ``zstandard`` package, and whether it is Python's."""
    from importlib import import_module
    for name in ("compression.zstd", "zstandard"):
        with contextlib.suppress(ImportError):
            return import_module(name), name == "compression.zstd"
    raise FormatError("this file is compressed with zstd", why="neither compression.zstd nor zstandard can be imported",
                      do="pip install zstandard")


def finite(cloud: Cloud, what: str) -> Cloud:
    """The cloud, float32 and contiguous; FormatError when a mean, scale, rotation or opacity is NaN or infinite."""
    for name, x in zip(Cloud._fields, cloud, strict=True):
        bad = np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(axis=1)) if len(x) else np.zeros(0, np.intp)
        if len(bad):
            raise FormatError(f"{what}: {name} of Gaussian {int(bad[0])} is not finite ({len(bad)} such)",
                              why="a NaN or infinity cannot be rendered", do="remove those Gaussians from the file")
    return Cloud._make([np.ascontiguousarray(x, np.float32) for x in cloud])

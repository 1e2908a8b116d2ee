"""Niantic's ``.spz``, versions 1 to 4: quantized attributes, one after another, in gzip (1 to 3) or zstd streams
(4).
"""

from __future__ import annotations

import gzip
import struct
from typing import NamedTuple

import numpy as np

from rlx.core.errors import FormatError, ValueIssue
from rlx.splat.formats.files import Cloud, bounded, gunzip, need, unzstd, zstd

MAGIC = b"NGSP"
_HEAD = struct.Struct("<4sIIBBBB")
_HEAD4 = struct.Struct("<4sIIBBBBI12x")
_EXTENDED = 2
#: Number of harmonics above the constant one, by degree; degree 4 is in the format, and read to degree 3.
_HIGHER = (0, 3, 8, 15, 24)
#: Colours are bytes of 0.5 + 0.15 f_dc.
_COLOR = 0.15
#: Harmonics whose sign changes when y and z do: from x right, y up, z back (the file's axes) to x right, y down,
#: z forward (PLY's and the camera's). Order: degree 1, then 2, then 3.
FLIP = np.array([-1, -1, 1, -1, 1, 1, -1, 1, -1, 1, -1, -1, 1, -1, 1], np.float32)
#: Extensions that only describe cameras.
_SAFE = (0xADBE0002,)


class Head(NamedTuple):
    """The fields that all versions share, and the size of each attribute's bytes."""

    version: int
    points: int
    degree: int
    fraction: int
    flags: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of positions, alphas, colours, scales, rotations and harmonics."""
        n = self.points
        return ((6 if self.version == 1 else 9) * n, n, 3 * n, 3 * n, (4 if self.version >= 3 else 3) * n,
                3 * _HIGHER[self.degree] * n)


def decode(data: bytes, what: str) -> Cloud:
    """The Gaussians of a file, in PLY's axes."""
    head, streams = _streams4(data, what) if data[:4] == MAGIC else _streams1(data, what)
    n = head.points
    raw = [np.frombuffer(s, np.uint8) for s in streams]
    means = _positions(raw[0], head)
    scales = np.exp(raw[3].reshape(n, 3).astype(np.float32) / 16 - 10)
    q = _rotations4(raw[4]) if head.version >= 3 else _rotations3(raw[4])
    sh = np.zeros((n, _HIGHER[min(head.degree, 3)] + 1, 3), np.float32)
    sh[:, 0] = (raw[2].reshape(n, 3).astype(np.float32) / 255 - 0.5) / _COLOR
    if head.degree:
        b = raw[5].reshape(n, -1, 3)[:, :sh.shape[1] - 1].astype(np.float32)
        sh[:, 1:] = (b - 128) / 128 * FLIP[:sh.shape[1] - 1, None]
    means, q = means * np.array([1, -1, -1], np.float32), q * np.array([1, 1, -1, -1], np.float32)
    return Cloud(means, scales, q, raw[1].astype(np.float32) / 255, sh)


def _streams1(data: bytes, what: str) -> tuple[Head, list[bytes]]:
    """Versions 1 to 3: one gzip stream. Extensions follow the header and have no length in it."""
    if data[:2] != b"\x1f\x8b":
        raise FormatError(
            f"{what} is not an .spz file", why=f"it starts with {data[:4]!r}", do="check the file and its name"
        )
    found: list[Head] = []

    def limit(first: bytes) -> int:
        magic, version, count, degree, fraction, flags, _ = _HEAD.unpack(first)
        if magic != MAGIC:
            raise FormatError(f"{what} is not an .spz file", why=f"the compressed data start with {magic!r}",
                              do="check the file and its name")
        found.append(_head(version, (1, 2, 3), count, degree, fraction, flags, what))
        if flags & _EXTENDED:
            raise FormatError(
                f"{what}: an .spz version {version} file with extensions",
                why="they may change the meaning of the data",
                do="save it as version 4",
            )
        return _HEAD.size + sum(found[0].sizes)

    body = memoryview(gunzip(data, limit, _HEAD.size, what))[_HEAD.size:]
    out, at = [], 0
    for size in found[0].sizes:
        out.append(bytes(body[at:at + size]))
        at += size
    return found[0], out


def _streams4(data: bytes, what: str) -> tuple[Head, list[bytes]]:
    """Version 4: header, extensions, a table of (compressed, decoded) sizes, then the zstd streams."""
    need(data, 0, _HEAD4.size, f"{what}: header")
    _, version, count, degree, fraction, flags, streams, table = _HEAD4.unpack_from(data)
    head = _head(version, (4,), count, degree, fraction, flags, what)
    sizes = head.sizes if head.degree else head.sizes[:5]
    if streams != len(sizes) and not (streams == 6 and head.degree == 0):
        raise FormatError(
            f"{what}: {streams} streams", why=f"degree {degree} has {len(sizes)}", do="get the file again"
        )
    if table < _HEAD4.size:
        raise FormatError(f"{what}: the table of streams lies at byte {table}", why="that is within the header",
                          do="get the file again")
    need(data, table, 16 * streams, f"{what}: table of streams")
    if flags & _EXTENDED:
        _check_extensions(data[_HEAD4.size:table], what)
    rows = [struct.unpack_from("<QQ", data, table + 16 * i) for i in range(streams)]
    at = table + 16 * streams
    need(data, at, sum(r[0] for r in rows), f"{what}: streams")
    for (_, decoded), size in zip(rows, head.sizes, strict=False):
        if decoded != size:
            raise FormatError(f"{what}: a stream of {decoded} bytes for {count} Gaussians", why=f"it must have {size}",
                              do="get the file again")
    bounded(sum(head.sizes), len(data), what)
    out = []
    for (packed, decoded) in rows:
        out.append(unzstd(data[at:at + packed], decoded, what) if decoded else b"")
        at += packed
    return head, [*out, b""][:6]


def _check_extensions(block: bytes, what: str) -> None:
    """An extension that is not known might change what the data mean: it is refused."""
    at = 0
    while at < len(block):
        need(block, at, 8, f"{what}: extension")
        kind, size = struct.unpack_from("<II", block, at)
        need(block, at + 8, size, f"{what}: extension {kind:#x}")
        if kind not in _SAFE:
            raise FormatError(
                f"{what}: extension {kind:#010x}",
                why="it is not known here and may change what the data mean",
                do="save the scene without extensions",
            )
        at += 8 + size


def _head(version: int, known: tuple[int, ...], count: int, degree: int, fraction: int, flags: int, what: str) -> Head:
    if version not in known:
        raise FormatError(f"{what}: .spz version {version}", why="versions 1 to 4 are known", do="convert the file")
    if degree >= len(_HIGHER) or fraction > 23:
        raise FormatError(
            f"{what}: degree {degree} and {fraction} fractional bits",
            why="the header is damaged: degrees go to 4, bits to 23",
            do="get the file again",
        )
    return Head(version, count, degree, fraction, flags)


def _positions(b: np.ndarray, head: Head) -> np.ndarray:
    if head.version == 1:
        return b.view("<f2").reshape(-1, 3).astype(np.float32)
    b = b.reshape(-1, 3, 3).astype(np.int32)
    # The sign is that of the third byte: shifted to the top and back.
    whole = ((b[..., 0] << 8) | (b[..., 1] << 16) | (b[..., 2] << 24)) >> 8
    return whole.astype(np.float32) * np.float32(2.0 ** -head.fraction)


def _rotations3(b: np.ndarray) -> np.ndarray:
    """x, y, z as bytes over [-1, 1]; w is the positive remainder."""
    v = b.reshape(-1, 3).astype(np.float32) / 127.5 - 1
    w = np.sqrt(np.maximum(1 - (v ** 2).sum(axis=1), 0))
    return np.concatenate([w[:, None], v], axis=1)


def _rotations4(b: np.ndarray) -> np.ndarray:
    """The three smallest of x, y, z, w as sign and 9 bits over [0, 1/sqrt 2], and the place of the largest."""
    word = b.view("<u4").astype(np.uint32)
    fields = np.stack([(word >> np.uint32(s)) & np.uint32(1023) for s in (20, 10, 0)], axis=1)
    v = (fields & 511).astype(np.float32) * np.float32(np.sqrt(0.5) / 511)
    v = np.where(fields >> 9 == 1, -v, v)
    rest = np.sqrt(np.maximum(1 - (v ** 2).sum(axis=1), 0))
    largest = (word >> np.uint32(30)).astype(np.intp)
    xyzw = np.empty((len(word), 4), np.float32)
    for k in range(4):
        rows = largest == k
        xyzw[rows] = np.insert(v[rows], k, rest[rows], axis=1)
    return xyzw[:, [3, 0, 1, 2]]


# Writing

def encode(c: Cloud, version: int = 4, fraction: int = 12) -> list[bytes]:
    """The parts of a file of version 2, 3 or 4, positions with ``fraction`` bits below the point."""
    if version not in (2, 3, 4):
        raise ValueIssue(f"writing .spz version {version}", why="versions 2, 3 and 4 are written", do="pass version=4")
    n = len(c.means)
    fixed = np.rint(c.means.astype(np.float64) * [1, -1, -1] * 2.0 ** fraction)
    if n and np.abs(fixed).max() >= 1 << 23:
        raise ValueIssue(f"an .spz file with a coordinate of {float(np.abs(c.means).max()):g}",
                         why=f"24 bits with {fraction} below the point reach {(1 << 23) / 2.0 ** fraction:g}",
                         do="pass a smaller fraction, or save as .ply")
    whole = fixed.astype("<i4").reshape(-1).view(np.uint8).reshape(-1, 4)[:, :3]
    scales = _byte((np.log(np.maximum(c.scales.astype(np.float64), 1e-30)) + 10) * 16)
    q = c.rotations / np.maximum(np.linalg.norm(c.rotations, axis=1, keepdims=True), 1e-12)
    xyzw = (q * [1, 1, -1, -1])[:, [1, 2, 3, 0]]
    turns = _pack4(xyzw) if version >= 3 else _byte(np.where(xyzw[:, 3:] < 0, -1, 1) * xyzw[:, :3] * 127.5 + 127.5)
    higher = c.sh[:, 1:] * FLIP[:c.sh.shape[1] - 1, None]
    parts = [
        whole,
        _byte(c.opacities * 255),
        _byte((c.sh[:, 0] * _COLOR + 0.5) * 255),
        scales,
        turns,
        _byte(higher * 128 + 128),
    ]
    raw = [np.ascontiguousarray(p).tobytes() for p in parts]
    if version < 4:
        head = _HEAD.pack(MAGIC, version, n, c.degree, fraction, 0, 0)
        return [gzip.compress(b"".join([head, *raw]), mtime=0)]
    raw = raw if c.degree else raw[:5]
    packed = [zstd(r) for r in raw]
    table = b"".join(struct.pack("<QQ", len(p), len(r)) for p, r in zip(packed, raw, strict=True))
    return [_HEAD4.pack(MAGIC, 4, n, c.degree, fraction, 0, len(raw), _HEAD4.size), table, *packed]


def _byte(x: np.ndarray) -> np.ndarray:
    out: np.ndarray = np.clip(np.rint(x), 0, 255).astype(np.uint8)
    return out


def _pack4(xyzw: np.ndarray) -> np.ndarray:
    largest = np.abs(xyzw).argmax(axis=1) if len(xyzw) else np.zeros(0, np.intp)
    q = np.where(np.take_along_axis(xyzw, largest[:, None], 1) < 0, -xyzw, xyzw)
    others = np.argsort(np.arange(4) == largest[:, None], axis=1, kind="stable")[:, :3]
    word = largest.astype(np.uint32)
    for v in np.take_along_axis(q, others, 1).T:
        field = (v < 0).astype(np.uint32) << 9 | np.minimum(np.rint(np.abs(v) * (511 / np.sqrt(0.5))), 511).astype(
            np.uint32
        )
        word = (word << 10) | field
    return word.astype("<u4")

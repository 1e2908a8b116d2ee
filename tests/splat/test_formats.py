"""Scene files: what is written is read, and damaged or hostile files are refused before memory is asked for."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scenes import arrays, random_scene

import rlx
from rlx import splat
from rlx.core.errors import FormatError, RlxError, ValueIssue
from rlx.splat.formats import decode, spz
from rlx.splat.formats.files import Cloud, bounded, unzstd, zstd

zstandard = pytest.importorskip(
    "zstandard", reason="version 4 of .spz is compressed with zstd (Python 3.14 has its own)"
)


def scene(n: int = 300, degree: int = 3) -> splat.Gaussians:
    return random_scene(n, degree, seed=4, dtype=rlx.float32)


def turned(a: np.ndarray, b: np.ndarray) -> float:
    """The largest angle between rotations, as 1 - |cos|."""
    unit = lambda q: q / np.linalg.norm(q, axis=1, keepdims=True)
    return float((1 - np.abs((unit(a) * unit(b)).sum(1))).max())


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_ply_is_exact(tmp_path: Path, degree: int) -> None:
    g = scene(degree=degree)
    splat.save(tmp_path / "a.ply", g)
    back = splat.load(tmp_path / "a.ply")
    assert back.degree == degree and np.array_equal(back.means, g.means) and np.array_equal(back.sh, g.sh)
    np.testing.assert_array_equal(np.asarray(back.rotations), np.asarray(g.rotations))
    np.testing.assert_allclose(np.asarray(back.scales), np.asarray(g.scales), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(back.opacities), np.asarray(g.opacities), rtol=1e-6)


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("degree", [0, 3])
def test_spz_is_within_its_quantization(tmp_path: Path, version: int, degree: int) -> None:
    g = scene(degree=degree)
    splat.save(tmp_path / "a.spz", g, version=version)
    raw = (tmp_path / "a.spz").read_bytes()
    assert raw[:4] == b"NGSP" if version == 4 else raw[:2] == b"\x1f\x8b"
    m, s, q, o, sh = arrays(splat.load(tmp_path / "a.spz"))
    M, S, Q, O, SH = arrays(g)
    assert (
        np.abs(m - M).max() <= 0.51 / 4096
        and np.abs(np.log(s / S)).max() <= 0.51 / 16
        and np.abs(o - O).max() <= 0.51 / 255
    )
    assert turned(q, Q) < (1e-2 if version == 2 else 5e-6)  # version 2 derives w, badly when it is small
    assert np.abs(sh[:, 0] - np.clip(SH[:, 0], -10 / 3, 10 / 3)).max() <= 0.51 / 255 / 0.15
    # Signs change with the axes, so that either end may be the one with 127/128.
    assert np.abs(sh[:, 1:] - np.clip(SH[:, 1:], -127 / 128, 127 / 128)).max(initial=0) <= 1.01 / 128
    splat.save(tmp_path / "b.spz", splat.load(tmp_path / "a.spz"), version=version)
    for a, b in zip(arrays(splat.load(tmp_path / "b.spz"))[:2], (m, s), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_spz_version_1_has_half_positions() -> None:
    n = 3
    points = np.array([[1, -2, 0.5], [0, 0, 0], [8, 4, -4]], "<f2")
    body = points.tobytes() + bytes([255, 0, 51]) + bytes(3 * n) + bytes([160] * 3 * n) + bytes([128, 128, 128] * n)
    c = decode(gzip.compress(struct.pack("<4sIIBBBB", b"NGSP", 1, n, 0, 12, 0, 0) + body), "old.spz")
    np.testing.assert_array_equal(c.means, points.astype(np.float32) * [1, -1, -1])
    np.testing.assert_allclose(c.opacities, [1, 0, 0.2])
    np.testing.assert_allclose(c.scales, 1)
    assert c.rotations[0, 0] == pytest.approx(1, abs=1e-4)


def test_spz_axes_are_turned_with_the_harmonics() -> None:
    """A file's picture from the turned camera is the picture: colours must follow the axes."""
    rng = np.random.default_rng(0)
    d = rng.standard_normal((20, 3))
    c = rng.standard_normal((20, 16, 3))
    flipped = np.concatenate([c[:, :1], c[:, 1:] * spz.FLIP[:, None]], axis=1)
    np.testing.assert_allclose(np.asarray(splat.spherical_harmonics(d * [1, -1, -1], flipped)),
                               np.asarray(splat.spherical_harmonics(d, c)), atol=1e-12)


@pytest.mark.parametrize("degree", [0, 3])
def test_compressed_ply_is_within_its_quantization(tmp_path: Path, degree: int) -> None:
    g = scene(700, degree)
    splat.save(tmp_path / "a.compressed.ply", g)
    m, s, q, o, sh = arrays(splat.load(tmp_path / "a.compressed.ply"))
    M, S, Q, O, SH = arrays(g)
    # The order is changed: each is matched to its nearest original.
    near = np.array([np.argmin(np.abs(M - x).sum(1)) for x in m])
    assert len(set(near)) > 690
    assert np.abs(m - M[near]).max() <= np.ptp(M) / 1023 and np.abs(np.log(s / S[near])).max() <= 3 / 1023 * 1.1
    assert turned(q, Q[near]) < 1e-5 and np.abs(o - O[near]).max() <= 0.51 / 255
    assert np.abs(sh[:, 0] - SH[near, 0]).max() <= np.ptp(SH[:, 0]) / 255
    assert np.abs(sh[:, 1:] - SH[near, 1:]).max(initial=0) <= 8 / 256


def test_splat_keeps_the_constant_colour(tmp_path: Path) -> None:
    g = scene()
    splat.save(tmp_path / "a.splat", g)
    assert (tmp_path / "a.splat").stat().st_size == 32 * len(g)
    back = splat.load(tmp_path / "a.splat")
    m, s, q, o, sh = arrays(back)
    order = np.argsort(-np.asarray(g.scales, np.float64).prod(1) * np.asarray(g.opacities), kind="stable")
    M, S, Q, O, SH = (a[order] for a in arrays(g))
    assert np.array_equal(m, M) and np.array_equal(s, S) and back.degree == 0
    assert turned(q, Q) < 2e-4 and np.abs(o - O).max() <= 0.51 / 255
    c0 = 0.28209479177387814
    assert np.abs(sh[:, 0] * c0 + 0.5 - np.clip(SH[:, 0] * c0 + 0.5, 0, 1)).max() <= 0.51 / 255


@pytest.mark.parametrize("name", ["a.ply", "a.compressed.ply", "a.splat", "a.spz"])
def test_an_empty_scene(tmp_path: Path, name: str) -> None:
    g = splat.Gaussians.create(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 4)), np.zeros(0), np.zeros((0, 1, 3)))
    splat.save(tmp_path / name, g)
    assert len(splat.load(tmp_path / name)) == 0


@pytest.mark.parametrize("name", ["a.ply", "a.compressed.ply", "a.splat", "a.spz", "old.spz"])
def test_every_truncation_is_refused(tmp_path: Path, name: str) -> None:
    splat.save(tmp_path / name, scene(40, 1), version=3 if name == "old.spz" else 4)
    data = (tmp_path / name).read_bytes()
    for size in {0, 1, 3, 5, 15, 16, 31, 40, len(data) // 3, len(data) // 2 + 1, len(data) - 17, len(data) - 1}:
        if name.endswith(".splat") and size % 32 == 0:
            continue
        with pytest.raises(FormatError) as e:
            decode(data[:size], name)
        assert e.value.why and e.value.do


@pytest.mark.parametrize("name", ["a.ply", "a.compressed.ply", "a.splat", "a.spz", "old.spz"])
def test_damaged_bytes_give_values_or_an_error_of_ours(tmp_path: Path, name: str) -> None:
    splat.save(tmp_path / name, scene(40, 1), version=3 if name == "old.spz" else 4)
    data = (tmp_path / name).read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(150):
        bad = bytearray(data)
        for at in rng.integers(0, min(len(bad), 400), 3):
            bad[at] = rng.integers(0, 256)
        try:
            splat.formats.finite(decode(bytes(bad), name), name)
        except RlxError:
            pass


def peak_of(f: object) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            f()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_lying_headers_ask_for_no_memory() -> None:
    count = 4_000_000_000
    ply = f"ply\nformat binary_little_endian 1.0\nelement vertex {count}\nproperty float x\nend_header\n".encode()
    old = gzip.compress(struct.pack("<4sIIBBBB", b"NGSP", 3, count, 3, 12, 0, 0) + bytes(1000))
    new = struct.pack("<4sIIBBBBI12x", b"NGSP", 4, count, 0, 12, 0, 5, 32)
    sizes = spz.Head(4, count, 0, 12, 0).sizes[:5]
    new += b"".join(struct.pack("<QQ", 10, s) for s in sizes) + bytes(50)
    for data, name in ((ply, "a.ply"), (old, "a.spz"), (new, "a.spz")):
        assert peak_of(lambda data=data, name=name: decode(data, name)) < 1 << 21


def test_bombs_are_bounded() -> None:
    bomb = gzip.compress(struct.pack("<4sIIBBBB", b"NGSP", 3, 10, 0, 12, 0, 0) + bytes(64 << 20))
    # Ten Gaussians are declared: what follows them is not decompressed.
    assert peak_of(lambda: decode(bomb, "a.spz")) < 8 << 20
    packed = zstd(bytes(32 << 20))
    assert peak_of(lambda: unzstd(packed, 1000, "a.spz")) < 8 << 20
    with pytest.raises(FormatError, match="declare"):
        bounded(1 << 40, 1 << 20, "a.spz")
    bounded(1 << 30, 1 << 24, "a.spz")


@pytest.mark.parametrize(
    "header",
    [
        b"ply\nformat ascii 1.0\nelement vertex 0\nproperty float x\nend_header\n",
        b"ply\nformat binary_little_endian 1.0\nelement vertex 1\nproperty list uchar int x\nend_header\n    ",
        b"ply\nformat binary_little_endian 1.0\nelement vertex -5\nproperty float x\nend_header\n",
        b"ply\nformat binary_little_endian 1.0\nelement vertex 1\nproperty float x\nproperty float x\nend_header\n"
        + bytes(8),
        b"ply\nelement vertex 0\nproperty float x\nend_header\n",
        b"ply\nformat binary_little_endian 1.0\nelement face 0\nproperty float x\nend_header\n",
        b"ply\nformat binary_little_endian 1.0\nelement vertex 1\nproperty float x\nend_header\n" + bytes(4),
        b"ply\nformat binary_little_endian 1.0\n" + b"comment x\n" * 200_000,
        b"ply\nformat \xff\xfe 1.0\nend_header\n",
    ],
)
def test_ply_headers_that_are_not_scenes(header: bytes) -> None:
    with pytest.raises(FormatError) as e:
        decode(header, "a.ply")
    assert e.value.why and e.value.do


def test_big_endian_ply_is_read(tmp_path: Path) -> None:
    splat.save(tmp_path / "a.ply", scene(5, 0))
    data = (tmp_path / "a.ply").read_bytes()
    head, body = data.split(b"end_header\n")
    other = head.replace(b"little", b"big") + b"end_header\n" + np.frombuffer(body, "<f4").astype(">f4").tobytes()
    for a, b in zip(decode(other, "b.ply"), decode(data, "a.ply"), strict=True):
        np.testing.assert_array_equal(a, b)


def test_extensions_of_spz() -> None:
    head = lambda ext: struct.pack("<4sIIBBBBI12x", b"NGSP", 4, 0, 0, 12, 2, 5, 32 + len(ext)) + ext
    empty = zstd(b"")
    rest = struct.pack("<QQ", len(empty), 0) * 5 + empty * 5
    safe = struct.pack("<II12x", 0xADBE0002, 12)
    assert len(decode(head(safe) + rest, "a.spz").means) == 0
    with pytest.raises(FormatError, match="0xadbe0003"):
        decode(head(struct.pack("<III", 0xADBE0003, 4, 2)) + rest, "a.spz")
    with pytest.raises(FormatError):
        decode(head(struct.pack("<II", 0xADBE0002, 1 << 30)) + rest, "a.spz")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.ply"
    splat.save(target, scene(3))
    before = target.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        splat.save(target, scene(5))
    assert target.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["a.ply"]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no file"):
        splat.load(tmp_path / "none.ply")
    with pytest.raises(FormatError, match="cannot save"):
        splat.save(tmp_path / "a.obj", scene(3))
    with pytest.raises(FormatError, match="not a scene"):
        decode(b"hello world", "a.obj")
    with pytest.raises(ValueIssue, match="version 1"):
        splat.save(tmp_path / "a.spz", scene(3), version=1)
    g = [a.copy() for a in arrays(scene(3))]
    g[0][1] = 1e6
    with pytest.raises(ValueIssue, match="coordinate"):
        splat.save(tmp_path / "a.spz", splat.Gaussians.create(*g))
    g[0][1] = np.nan
    with pytest.raises(FormatError, match="Gaussian 1 is not finite"):
        splat.save(tmp_path / "a.ply", splat.Gaussians.create(*g))
    assert not list(tmp_path.iterdir())
    assert Cloud(*g).degree == 3

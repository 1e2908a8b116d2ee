"""GGUF files: every block type by the definition of its bytes, and what a hostile header meets."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import rlx
from rlx.core.errors import DTypeError, FormatError
from rlx.formats import gguf
from rlx.formats.blocks import KINDS, Quantized

NUMBER = {name: n for n, name in gguf.TYPES.items() if isinstance(name, str)}


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def header(arrays=(), metadata=(), version=3, count=None, entries=None):
    """The bytes before the data: descriptions are (name, sizes from the fastest, type number, offset)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(arrays) if count is None else count,
                                len(metadata) if entries is None else entries)
    for key, kind, value in metadata:
        out += text(key) + struct.pack("<I", kind) + value
    for name, sizes, kind, offset in arrays:
        out += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)
    return out


def file_of(path, arrays, data, **more):
    head = header(arrays, **more)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return path


def f16(b):
    return struct.unpack("<e", bytes(b[:2]))[0]


def i8(b):
    return b - 256 if b > 127 else b


def k_scales(s):
    """Scales and minima of 6 bits: part i below 4 in bytes i and i + 4; part i above in three places."""
    scale = [s[i] & 63 if i < 4 else (s[i + 4] & 15) | (s[i - 4] >> 6) << 4 for i in range(8)]
    least = [s[i + 4] & 63 if i < 4 else (s[i + 4] >> 4) | (s[i] >> 6) << 4 for i in range(8)]
    return scale, least


def one(kind, b, i):
    """The i-th number of a block."""
    half = lambda q: q[i % 16] >> (4 if i >= 16 else 0) & 15
    fifth = lambda at: (b[at + i // 8] >> i % 8 & 1) << 4
    if kind == "Q4_0":
        return f16(b) * (half(b[2:]) - 8)
    if kind == "Q4_1":
        return f16(b) * half(b[4:]) + f16(b[2:])
    if kind == "Q5_0":
        return f16(b) * ((half(b[6:]) | fifth(2)) - 16)
    if kind == "Q5_1":
        return f16(b) * (half(b[8:]) | fifth(4)) + f16(b[2:])
    if kind == "Q8_0":
        return f16(b) * i8(b[2 + i])
    if kind == "Q2_K":
        q = b[16 + i // 128 * 32 + i % 32] >> (i % 128 // 32 * 2) & 3
        s = b[i // 16]
        return f16(b[80:]) * (s & 15) * q - f16(b[82:]) * (s >> 4)
    if kind in ("Q4_K", "Q5_K"):
        scale, least = k_scales(b[4:16])
        p, start = i // 32, 16 if kind == "Q4_K" else 48
        q = b[start + i // 64 * 32 + i % 32] >> (4 * (p % 2)) & 15
        q |= 0 if kind == "Q4_K" else (b[16 + i % 32] >> p & 1) << 4
        return f16(b) * scale[p] * q - f16(b[2:]) * least[p]
    n, r = i // 128, i % 128
    low = b[n * 64 + r % 64] >> (4 if r >= 64 else 0) & 15
    high = b[128 + n * 32 + r % 32] >> (r // 32 * 2) & 3
    return f16(b[208:]) * i8(b[192 + i // 16]) * ((low | high << 4) - 32)


def random_blocks(kind, *lead):
    """Random bytes, with scales that are numbers of ordinary size."""
    rng = np.random.default_rng(len(kind) + KINDS[kind].size)
    b = rng.integers(0, 256, (*lead, KINDS[kind].size), dtype=np.uint8)
    halves = {"Q2_K": (80, 82), "Q6_K": (208,), "Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,)}.get(kind, (0, 2))
    for at in halves:
        b[..., at:at + 2] = rng.standard_normal((*lead, 1)).astype(np.float16).view(np.uint8)
    return b


@pytest.mark.parametrize("place", ["cpu", "python"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_blocks_are_what_their_bytes_say(tmp_path, kind, place):
    b = random_blocks(kind, 2, 3)
    n = KINDS[kind].numbers
    path = file_of(tmp_path / "a.gguf", [("w", (3 * n, 2), NUMBER[kind], 0)], b.tobytes())
    file = gguf.load(path, device=place)
    want = [[one(kind, block.tolist(), i) for block in row for i in range(n)] for row in b]
    assert file.arrays["w"].shape == (2, 3 * n) == file.array("w").shape
    np.testing.assert_allclose(file.array("w"), want, rtol=1e-6, atol=1e-6)
    assert file.array("w", rlx.float16).dtype is rlx.float16


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_blocks_are_as_the_formats_own_package_reads_them(kind):
    package = pytest.importorskip("gguf", reason="the gguf package is not installed")
    b = random_blocks(kind, 5, 2)
    want = package.quants.dequantize(b.reshape(5, -1), package.GGMLQuantizationType[kind])
    np.testing.assert_allclose(Quantized(rlx.asarray(b), kind).dequantize(), want, rtol=1e-6, atol=1e-6)


def test_a_written_file_is_read(tmp_path):
    package = pytest.importorskip("gguf", reason="the gguf package is not installed")
    rng = np.random.default_rng(0)
    w, v = rng.standard_normal((4, 64)).astype(np.float32), rng.standard_normal(7).astype(np.float16)
    writer = package.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_array("names", ["a", "bc"])
    writer.add_float32("rate", 0.5)
    writer.add_custom_alignment(64)
    kind = package.GGMLQuantizationType.Q8_0
    writer.add_tensor("w", package.quants.quantize(w, kind), raw_dtype=kind)
    writer.add_tensor("v", v)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    file = gguf.load(tmp_path / "m.gguf")
    assert file.metadata["names"] == ["a", "bc"] and file.metadata["rate"] == 0.5
    np.testing.assert_array_equal(file.arrays["v"], v)
    np.testing.assert_allclose(file.array("w"), w, atol=0.02)


def test_a_product_with_blocks_is_one_program(tmp_path):
    b = random_blocks("Q4_0", 8, 2)
    file = gguf.load(file_of(tmp_path / "a.gguf", [("w", (64, 8), 2, 0)], b.tobytes()))
    x = rlx.asarray(np.random.default_rng(0).standard_normal(64).astype(np.float32))
    f = rlx.jit(lambda file, x: file.array("w") @ x)
    np.testing.assert_allclose(f(file, x), np.asarray(file.array("w")) @ np.asarray(x), rtol=1e-4, atol=1e-4)
    assert f.cache_size == 1


def test_plain_arrays_and_metadata(tmp_path):
    parts = [("f", np.float32([[1, 2, 3], [4, 5, 6]]), 0, 0), ("i", np.int64([-1, 2 ** 40]), 27, 32),
             ("h", np.uint16([0x3F80, 0xC000]), 30, 64), ("e", np.zeros((0, 2), np.int8), 24, 96)]
    data = b"".join(x.tobytes().ljust(32, b"\0") for _, x, _, _ in parts)
    held = [("n", 4, struct.pack("<I", 7)), ("s", 8, text("hx")), ("yes", 7, b"\1"),
            ("list", 9, struct.pack("<IQ3i", 5, 3, 1, -2, 3)), ("texts", 9, struct.pack("<IQ", 8, 1) + text("q")),
            ("deep", 9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ2B", 0, 2, 8, 9))]
    file = gguf.load(file_of(tmp_path / "a.gguf", [(n, x.shape[::-1], k, at) for n, x, k, at in parts], data,
                             metadata=held, version=2))
    assert file.metadata == {"n": 7, "s": "hx", "yes": True, "list": [1, -2, 3], "texts": ["q"], "deep": [[8, 9]]}
    assert file.arrays["f"].tolist() == [[1, 2, 3], [4, 5, 6]] and file.arrays["i"].tolist() == [-1, 2 ** 40]
    assert file.arrays["h"].dtype is rlx.bfloat16 and file.array("h", rlx.float32).tolist() == [1.0, -2.0]
    assert file.arrays["e"].shape == (0, 2)
    with pytest.raises(DTypeError, match="as int32"):
        Quantized(rlx.zeros((1, 18), dtype=rlx.uint8), "Q4_0").dequantize(rlx.int32)


BIG = 2 ** 62


@pytest.mark.parametrize("raw, words", [
    (b"", "shorter"), (b"GGML" + b"\0" * 40, "does not begin"), (header(version=1), "version 1"),
    (header(version=3 << 24), "version"), (header(count=BIG), "arrays"), (header(entries=BIG), "entries"),
    (header(entries=1) + struct.pack("<Q", BIG) + b"\0" * 20, "letters"),
    (header(metadata=[("a", 9, struct.pack("<IQ", 4, BIG))]), "elements"),
    (header(metadata=[("a", 9, struct.pack("<IQ", 8, BIG))]), "elements"),
    (header(metadata=[("a", 13, b"\0" * 8)]), "type 13"),
    (header(metadata=[("a", 9, struct.pack("<IQ", 9, 1) * 6)]), "too deep"),
    (header(metadata=[("general.alignment", 4, struct.pack("<I", 0))]), "alignment of 0"),
    (header(metadata=[("general.alignment", 4, struct.pack("<I", 33))]), "alignment of 33"),
    (header([("w", (4,), 0, 0)]) + b"\0" * 15, "outside"), (header([("w", (BIG, 4), 0, 0)]), "outside"),
    (header([("w", (1,), 0, BIG)]) + b"\0" * 64, "outside"), (header([("w", (1,) * 9, 0, 0)]), "9 axes"),
    (header([("w", (40,), 2, 0)]) + b"\0" * 64, "no whole number of blocks"),
    (header([("w", (32,), 99, 0)]) + b"\0" * 64, "type number 99"),
    (header([("w", (1,), 0, 0), ("v", (1,), 0, 0)]) + b"\0" * 64, "another array's"),
    (header([("w", (1,), 0, 0), ("w", (1,), 0, 32)]) + b"\0" * 96, "one name"),
    (header([("w", (4,), 0, 0)])[:-3], "ends within|arrays"),
])
def test_a_header_that_lies_is_refused_with_the_place(tmp_path, raw, words):
    path = tmp_path / "a.gguf"
    path.write_bytes(raw)
    with pytest.raises(FormatError, match=words):
        gguf.load(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FormatError, match="there is no file"):
        gguf.load(tmp_path / "none.gguf")

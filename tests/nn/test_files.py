"""safetensors files: round trips, what other readers see, and files that lie."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import safetensors.numpy

import rlx
from rlx import nn
from rlx.core.errors import DTypeError, FormatError, ShapeError
from rlx.formats import safetensors as files

DTYPES = [rlx.bool, rlx.int8, rlx.int16, rlx.int32, rlx.int64, rlx.uint8, rlx.uint16, rlx.uint32, rlx.uint64,
          rlx.float16, rlx.bfloat16, rlx.float32, rlx.float64, rlx.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_round_trip(tmp_path, dtype):
    x = rlx.astype(rlx.asarray([[0.0, 1.0, 2.5], [3.25, 100.0, 7.0]]), dtype)
    files.save(tmp_path / "a.safetensors", {"x": x, "scalar": x[0, 1], "none": x[:0]})
    back = files.load(tmp_path / "a.safetensors")
    assert list(back) == ["none", "scalar", "x"]
    assert {v.dtype for v in back.values()} == {dtype}
    assert [v.shape for v in back.values()] == [(0, 3), (), (2, 3)]
    np.testing.assert_array_equal(np.asarray(back["x"]), np.asarray(x))


def test_other_readers_and_writers(tmp_path):
    path = tmp_path / "a.safetensors"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    files.save(path, {"t": rlx.asarray(x).T, "b": np.array([True, False])}, metadata={"format": "pt"})
    seen = safetensors.numpy.load_file(path)
    np.testing.assert_array_equal(seen["t"], x.T)
    assert seen["b"].tolist() == [True, False]
    with safetensors.safe_open(path, "np") as f:
        assert f.metadata() == {"format": "pt"}
    safetensors.numpy.save_file({"y": x}, path)
    np.testing.assert_array_equal(np.asarray(files.load(path, device="python")["y"]), x)


def raw(header, body=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def tensor(dtype="F32", shape=(2,), span=(0, 8)):
    return {"w": {"dtype": dtype, "shape": list(shape), "data_offsets": list(span)}}


HOSTILE = {
    "empty": b"",
    "no header": b"\x08\0\0\0\0\0\0\0",
    "a header beyond the file": struct.pack("<Q", 1 << 62) + b"{}",
    "not json": struct.pack("<Q", 4) + b"nope",
    "truncated": raw(tensor(), b"\0" * 4),
    "more data than declared": raw(tensor(), b"\0" * 12),
    "a shape beyond its data": raw(tensor(shape=(1 << 40,)), b"\0" * 8),
    "offsets backwards": raw(tensor(span=(8, 0)), b"\0" * 8),
    "a shape that overflows": raw(tensor(shape=(1 << 33, 1 << 33)), b"\0" * 8),
    "a negative size": raw(tensor(shape=(-2,)), b"\0" * 8),
    "overlapping": raw({**tensor(), "v": tensor()["w"]}, b"\0" * 8),
    "unknown dtype": raw(tensor(dtype="F33"), b"\0" * 8),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_files_that_lie(tmp_path, name):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(FormatError, match="not a sound safetensors file"):
        files.load(path)


def test_types_that_rlx_does_not_have(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw(tensor("F8_E4M3", (8,)), b"\0" * 8))
    with pytest.raises(FormatError, match=r"'w' in .* is of type F8_E4M3"):
        files.load(path)
    with pytest.raises(DTypeError, match="complex128"):
        files.save(path, {"z": rlx.asarray([1j])})


def test_a_missing_file_and_a_folder(tmp_path):
    for path in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(FormatError, match="there is no file"):
            files.load(path)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.safetensors"
    files.save(path, {"a": rlx.ones(2)})
    before = path.read_bytes()
    with pytest.raises(DTypeError):
        files.save(path, {"a": rlx.zeros(2), "z": rlx.asarray([1j])})
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_modules(tmp_path):
    make = lambda seed, n=3: nn.Sequential.of(nn.Linear.create(4, n, rng=seed), nn.relu, nn.LayerNorm.create(n))
    path = tmp_path / "net.safetensors"
    nn.save(path, make(1))
    back = nn.load(path, make(2))
    for a, b in zip(nn.named(back).values(), nn.named(make(1)).values(), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    with pytest.raises(ShapeError, match=r"layers.0.weight has shape \(3, 4\)"):
        nn.load(path, make(2, 5))

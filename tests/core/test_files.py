"""Files appear whole or not at all, with the mode that the user's other files have."""

import os
import stat

import numpy as np
import pytest

import rlx
from rlx.core.files import replacing


def test_a_new_file_has_the_mode_of_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        rlx.save(tmp_path / "a.npy", rlx.ones(3))
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.npy").stat().st_mode) == 0o640


def test_a_block_that_raises_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="half"), replacing(target) as file:
        file.write(b"ne")
        raise RuntimeError("half")
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_the_new_content_takes_the_place(tmp_path):
    rlx.savez(tmp_path / "a.npz", x=rlx.zeros(2))
    rlx.savez(tmp_path / "a.npz", x=rlx.ones(2))
    np.testing.assert_array_equal(np.load(tmp_path / "a.npz")["x"], [1, 1])
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]

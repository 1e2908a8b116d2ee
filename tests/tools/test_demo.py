"""The demo shows what it says, leaves its files, and tells failure by its exit status."""

import struct
import zlib

import numpy as np
import pytest

from rlx.tools import demo
from rlx.tools.cli import main
from rlx.tools.demo.factorize import KINDS, matrices, measure
from rlx.tools.demo.render import write_png
from rlx.tools.demo.setting import Setting


def test_all_four_domains_leave_their_pictures(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for part in demo.PARTS:
        assert f"== {part}: " in text
    assert text.count("dispatch on cpu, policy prefer_native") == 4 and "4 of 4 parts" in text
    assert {p.name for p in tmp_path.iterdir()} == {
        "airfoil.mtx", "convergence.png", "factorizations.md", "scene.png", "training.png"}


def test_a_part_that_fails_is_named_and_the_others_still_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(KINDS, "lu", (KINDS["lu"][0], lambda p, lower, upper: lower @ upper))
    assert main(["demo", "factorize", "solve", "--out", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "1 of 2 parts" in text and "not factorize" in text and "cg + Jacobi  converged" in text


def test_a_matrix_of_the_user_is_solved_alone_with_the_whole_report(tmp_path, capsys):
    path = tmp_path / "a.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real symmetric\n2 2 3\n1 1 4\n2 1 1\n2 2 3\n")
    assert main(["demo", "--matrix", str(path), "--out", str(tmp_path / "o"), "--report", "--dtype", "float32"]) == 0
    text = capsys.readouterr().out
    assert "float32[2, 2]" in text and "== render" not in text and "op " in text


def test_an_absent_device_and_an_unknown_part_are_said(tmp_path, capsys):
    assert main(["demo", "learn", "--device", "toaster", "--out", str(tmp_path)]) == 1
    assert "toaster" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["demo", "dance"])
    assert "dance" in capsys.readouterr().err


def test_the_ratio_sees_an_error_of_a_few_roundings_as_small_and_a_wrong_factor_as_large(tmp_path):
    setting = Setting("cpu", tmp_path, False)
    a = matrices(24)["random"]
    eps = np.finfo(np.float64).eps
    assert measure("qr", a, setting, eps) < 5
    KINDS["off"] = (KINDS["qr"][0], lambda q, r: q @ r * (1 + 1e-9))
    try:
        assert measure("off", a, setting, eps) > 1e4
    finally:
        del KINDS["off"]


def test_the_png_holds_the_picture(tmp_path):
    rgb = np.random.default_rng(0).random((5, 7, 3))
    data = write_png(tmp_path / "a.png", rgb).read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == (7, 5)
    size = struct.unpack(">I", data[33:37])[0]
    rows = np.frombuffer(zlib.decompress(data[41:41 + size]), np.uint8).reshape(5, 22)
    assert not rows[:, 0].any()
    np.testing.assert_array_equal(rows[:, 1:].reshape(5, 7, 3), (rgb * 255 + 0.5).astype(np.uint8))

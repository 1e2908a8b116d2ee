"""The examples run on scenes of the tests' own making."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scenes import random_scene

import rlx
from rlx import splat

EXAMPLES = Path(__file__).parents[2] / "examples"
imageio = pytest.importorskip("imageio.v2", reason="pictures are written with imageio")


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_render_a_still_and_a_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    splat.save(tmp_path / "a.ply", random_scene(dtype=rlx.float32))
    run = example("render_splats").main
    size = ["--width", "48", "--height", "32", "--frames", "3"]
    assert run([str(tmp_path / "a.ply"), "-o", str(tmp_path / "a.png"), *size]) == 0
    still = imageio.imread(tmp_path / "a.png")
    assert still.shape == (32, 48, 3) and still.std() > 5
    assert run([str(tmp_path / "a.ply"), "-o", str(tmp_path / "a.gif"), *size]) == 0
    assert len(imageio.mimread(tmp_path / "a.gif")) == 3
    assert "3/3" in capsys.readouterr().err


def test_a_damaged_scene_is_an_error_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.spz").write_bytes(b"NGSP" + bytes(5))
    assert example("render_splats").main([str(tmp_path / "a.spz"), "-o", str(tmp_path / "a.png")]) == 1
    assert "truncated" in capsys.readouterr().err and not (tmp_path / "a.png").exists()


def test_a_missing_encoder_is_an_error_message(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    splat.save(tmp_path / "a.ply", random_scene(dtype=rlx.float32))
    for name in ("imageio_ffmpeg", "av"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit):
        example("render_splats").main([str(tmp_path / "a.ply"), "-o", str(tmp_path / "a.mp4")])
    assert "pip install imageio-ffmpeg" in capsys.readouterr().err and not (tmp_path / "a.mp4").exists()


def test_a_fit_improves_views_it_has_not_seen() -> None:
    g, psnr = example("fit_splats").fit(steps=40, count=200, size=32, views=6, report=lambda line: None)
    assert psnr[-1] > psnr[0] + 2
    assert all(np.isfinite(np.asarray(x)).all() for x in (g.means, g.scales, g.rotations, g.opacities, g.sh))

"""Models that packages carry, against ONNX Runtime: ``pip install --no-deps silero-vad magika`` and onnxruntime."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the onnx package is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from rlx.formats import onnx as frontend  # noqa: E402

SIZES = {("input", 2): (1, 576), ("input", 3): (1, 1, 576), ("state", 3): (2, 1, 128), ("bytes", 2): (1, 2048)}


def files():
    found = [s for name in ("silero_vad", "magika") if (s := find_spec(name)) is not None]
    return [f for s in found for f in sorted(Path(s.submodule_search_locations[0]).rglob("*.onnx"))]


@pytest.mark.parametrize("path", [pytest.param(f, id=f.stem) for f in files()] or [
    pytest.param(None, marks=pytest.mark.skip(reason="neither silero-vad nor magika is installed"))])
def test_a_published_model_gives_what_onnx_runtime_does(path):
    model, rng = frontend.load(path), np.random.default_rng(0)
    values = {}
    for port in model.inputs:
        kind = port.dtype.numpy
        shape = SIZES.get((port.name, len(port.shape)), [n if isinstance(n, int) else 1 for n in port.shape])
        values[port.name] = (np.array(16000, kind) if port.name == "sr" else
                             0.1 * rng.standard_normal(shape).astype(kind) if kind.kind == "f" else
                             rng.integers(0, 256, shape).astype(kind))
    want = runtime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, values)
    got = model(**values)
    for g, w in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)
    assert not model.program.stepwise

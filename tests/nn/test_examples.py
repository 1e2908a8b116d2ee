"""The examples do what they say, on small inputs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from rlx import nn

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def mnist():
    return example("train_mnist")


def test_drawn_digits_are_told_apart(mnist):
    data = mnist.procedural(1200)
    assert data.x.shape == (960, 1, 12, 12) and data.x_test.shape == (240, 1, 12, 12)
    assert data.x.min() >= 0 and data.x.max() <= 1 and set(data.y) == set(range(10))
    lines = []
    _, losses, shares = mnist.train(data, epochs=20, rate=1e-2, report=lines.append)
    assert np.mean(losses[-30:]) < 0.3 * np.mean(losses[:30]) and shares[-1] > 0.85 and len(lines) == len(shares) == 20


def test_a_convolutional_network_trains_and_is_saved(mnist, tmp_path, monkeypatch, capsys):
    x, y = mnist.procedural(80)[:2]
    whole = np.uint8(x[:, 0] * 255)
    np.savez(tmp_path / "mnist.npz", x_train=whole, y_train=y, x_test=whole[:16], y_test=y[:16])
    out = tmp_path / "net.safetensors"
    args = ["--model", "cnn", "--epochs", "1", "--mnist", str(tmp_path / "mnist.npz"), "-o", str(out),
            "--curve", str(tmp_path / "a" / "curve.png")]
    assert mnist.main(args) == 0
    printed = capsys.readouterr().out
    assert "64 pictures of 12x12" in printed
    drawn = importlib.util.find_spec("matplotlib") is not None
    assert (tmp_path / "a" / "curve.png").exists() == drawn == ("no curve" not in printed)
    back = nn.load(out, mnist.cnn(12, np.random.default_rng(5), None))
    assert nn.named(back)["layers.0.weight"].shape == (16, 1, 3, 3)


def test_a_model_in_a_file_is_run(tmp_path, capsys):
    onnx = pytest.importorskip("onnx", reason="the onnx package is not installed")
    make, kind = onnx.helper, onnx.TensorProto
    ports = [make.make_tensor_value_info(n, k, ["N", 3]) for n, k in (("x", kind.FLOAT), ("k", kind.INT64), ("y", 1))]
    nodes = [make.make_node("Cast", ["k"], ["f"], to=1), make.make_node("Add", ["x", "f"], ["y"])]
    onnx.save(make.make_model(make.make_graph(nodes, "g", ports[:2], ports[2:])), tmp_path / "m.onnx")
    np.save(tmp_path / "k.npy", np.full((4, 3), 7))
    args = [str(tmp_path / "m.onnx"), "--size", "N=4", "--input", f"k={tmp_path / 'k.npy'}", "--explain"]
    assert example("run_onnx").main(args) == 0
    printed = capsys.readouterr().out
    assert "gives y: float32[N, 3] = float32[4, 3]" in printed and "generated kernel" in printed


def test_the_closest_sentences_come_first():
    class Encoder:
        def encode(self, texts):
            return np.array([[1, 0], [0, 1], [1, 0], [0.6, 0.8]], np.float32)
    found = example("embed_sentences").closest(Encoder(), "q", ["a", "b", "c"], 2)
    assert [s for _, s in found] == ["b", "c"] and found[0][0] == 1

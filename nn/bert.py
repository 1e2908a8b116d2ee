"""The BERT family of encoders: Devlin et al., arXiv 1810.04805, with weights by their published names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.core.errors import FormatError, ShapeError, ValueIssue
from rlx.nn.activations import gelu
from rlx.nn.layers import Attention, Dropout, Embedding, LayerNorm, Linear
from rlx.nn.module import Module, static
from rlx.random import fold_in


@dataclass(frozen=True)
class BertConfig:
    """Sizes of an encoder; the defaults are those of all-MiniLM-L6-v2."""

    vocabulary: int = 30522
    size: int = 384
    layers: int = 6
    heads: int = 12
    inner: int = 1536
    positions: int = 512
    kinds: int = 2
    eps: float = 1e-12
    dropout: float = 0.1

    @classmethod
    def read(cls, path: str | Path) -> BertConfig:
        """From a ``config.json``; a FormatError where it asks for what this encoder is not."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            values: list[Any] = [_whole(found[k]) for k in _SIZES]
            values += [float(found["layer_norm_eps"]), float(found.get("hidden_dropout_prob", 0))]
            made = cls(*values)
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise FormatError(f"{str(path)!r} is not the configuration of a BERT encoder",
                              why=f"{type(e).__name__}: {e}", do="pass the config.json beside the weights") from None
        for key, want in (("model_type", "bert"), ("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
            if found.get(key, want) != want:
                raise FormatError(f"{str(path)!r} has {key} {found[key]!r}", why=f"the encoder has {want!r} only",
                                  do="load another model")
        if made.size % made.heads:
            raise FormatError(f"{str(path)!r} has {made.heads} heads for size {made.size}", why="heads divide the size",
                              do="get the file again")
        return made


#: The names of the sizes in a config.json, in the order of the fields.
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
          "max_position_embeddings", "type_vocab_size")


def _whole(x: Any) -> int:
    if not isinstance(x, int) or isinstance(x, bool) or x < 1:
        raise ValueError(f"{x!r} is not a positive whole number")
    return x


@dataclass(frozen=True)
class BertLayer(Module):
    """Attention and two linear maps, each added to its input and normalized. Shapes: (N, S, D)."""

    attention: Attention
    attention_norm: LayerNorm
    up: Linear
    down: Linear
    norm: LayerNorm
    dropout: float = static(default=0.0)

    def __call__(self, x: Array, *, mask: Array | None = None, key: Array | None = None) -> Array:
        """With a key, what attention and the maps add is dropped out (attention weights are not)."""
        drop, keys = Dropout(self.dropout), (None, None) if key is None else (fold_in(key, 0), fold_in(key, 1))
        x = self.attention_norm(x + drop(self.attention(x, mask=mask), key=keys[0]))
        return self.norm(x + drop(self.down(gelu(self.up(x))), key=keys[1]))


@dataclass(frozen=True)
class Bert(Module):
    """Token, position and segment embeddings, then layers. The output is the last layer's (N, S, D)."""

    words: Embedding
    positions: Embedding
    kinds: Embedding
    norm: LayerNorm
    layers: tuple[BertLayer, ...]
    dropout: float = static(default=0.0)

    @classmethod
    def create(cls, config: BertConfig, *, rng: np.random.Generator | int, dtype: Any = None,
               device: str | None = None) -> Bert:
        """An untrained encoder."""
        rng = rng if isinstance(rng, np.random.Generator) else np.random.default_rng(rng)
        where: Any = {"dtype": dtype, "device": device}
        d = config.size
        norm: Any = lambda: LayerNorm.create(d, eps=config.eps, **where)
        layers = [BertLayer(Attention.create(d, config.heads, rng=rng, **where), norm(),
                            Linear.create(d, config.inner, rng=rng, **where),
                            Linear.create(config.inner, d, rng=rng, **where), norm(), config.dropout)
                  for _ in range(config.layers)]
        table: Any = lambda n: Embedding.create(n, d, rng=rng, **where)
        return cls(table(config.vocabulary), table(config.positions), table(config.kinds), norm(), tuple(layers),
                   config.dropout)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], config: BertConfig) -> Bert:
        """From weights under their published names (``encoder.layer.0.attention.self.query.weight``).

        A prefix ``bert.`` and arrays that the encoder does not have (the pooler) are passed over; a missing array or
        one of another shape is a FormatError.
        """
        prefix = "bert." if any(k.startswith("bert.encoder.") for k in arrays) else ""
        take = _Taker(arrays, prefix)
        d, table = config.size, "embeddings.{}_embeddings"
        layers = [_layer(take, f"encoder.layer.{i}.", config) for i in range(config.layers)]
        return cls(Embedding(take(table.format("word"), config.vocabulary, d)),
                   Embedding(take(table.format("position"), config.positions, d)),
                   Embedding(take(table.format("token_type"), config.kinds, d)),
                   take.norm("embeddings.LayerNorm", d, config.eps), tuple(layers), config.dropout)

    def __call__(self, x: Array, *, mask: Array | None = None, kinds: Array | None = None,
                 key: Array | None = None) -> Array:
        """Shapes: token numbers x (N, S), mask (N, S) true at real tokens, segments (N, S), 0 unless given."""
        if x.ndim != 2:
            raise ShapeError(f"an encoder of tokens of shape {x.shape}", why="they are (N, S): sentences of tokens",
                             do="reshape them")
        most = self.positions.weight.shape[0]
        if x.shape[1] > most:
            raise ValueIssue(f"{x.shape[1]} tokens", why=f"the encoder knows {most} positions",
                             do="truncate the text")
        h = self.words(x) + self.positions.weight[:x.shape[1]]
        h = self.norm(h + (self.kinds.weight[0] if kinds is None else self.kinds(kinds)))
        h = Dropout(self.dropout)(h, key=None if key is None else fold_in(key, 0))
        for i, layer in enumerate(self.layers):
            h = layer(h, mask=mask, key=None if key is None else fold_in(key, i + 1))
        return h


@dataclass(frozen=True)
class _Taker:
    """Takes arrays by name, checked."""

    arrays: Mapping[str, Array]
    prefix: str

    def __call__(self, name: str, *shape: int, suffix: str = "weight") -> Array:
        full = f"{self.prefix}{name}.{suffix}"
        if full not in self.arrays:
            raise FormatError(f"the weights have no {full!r}", why="it is part of a BERT encoder of these sizes",
                              do="check that weights and configuration belong together")
        found = self.arrays[full]
        if found.shape != shape or not found.dtype.is_float:
            raise FormatError(f"{full!r} is {found.dtype.name}{list(found.shape)}",
                              why=f"the configuration says floats of shape {list(shape)}",
                              do="check that weights and configuration belong together")
        return found

    def linear(self, name: str, inputs: int, outputs: int) -> Linear:
        return Linear(self(name, outputs, inputs), self(name, outputs, suffix="bias"))

    def norm(self, name: str, size: int, eps: float) -> LayerNorm:
        return LayerNorm(self(name, size), self(name, size, suffix="bias"), eps)


def _layer(take: _Taker, at: str, config: BertConfig) -> BertLayer:
    d = config.size
    query, key, value = (take.linear(f"{at}attention.self.{part}", d, d) for part in ("query", "key", "value"))
    attention = Attention(query, key, value, take.linear(f"{at}attention.output.dense", d, d), config.heads)
    return BertLayer(attention, take.norm(f"{at}attention.output.LayerNorm", d, config.eps),
                     take.linear(f"{at}intermediate.dense", d, config.inner),
                     take.linear(f"{at}output.dense", config.inner, d),
                     take.norm(f"{at}output.LayerNorm", d, config.eps), config.dropout)


def mean_pool(states: Array, mask: Array) -> Array:
    """The mean of the real tokens' states, scaled to length 1. Shapes: (N, S, D) and (N, S) boolean give (N, D)."""
    real = rlx.astype(mask, states.dtype)
    total = (states * rlx.expand_dims(real, axis=2)).sum(axis=1)
    mean = total / rlx.maximum(real.sum(axis=1, keepdims=True), 1)
    # The least length keeps a zero vector finite (PyTorch's normalize has the same number).
    return mean / rlx.maximum(rlx.sqrt((mean * mean).sum(axis=1, keepdims=True)), 1e-12)

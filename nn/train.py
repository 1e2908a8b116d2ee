"""Training: one step, or many steps that never leave the device, as one compiled program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.core.errors import ShapeError, ValueIssue
from rlx.nn.optim import Optimizer, OptimState
from rlx.ops.index import gather
from rlx.random import fold_in

#: ``loss(model, *batch) -> number``, or with a key ``loss(model, *batch, key=key)``.
Loss = Callable[..., Array]


class TrainState(NamedTuple):
    """A model, and the optimizer's state."""

    model: Any
    optimizer: OptimState


def start(model: Any, optimizer: Optimizer) -> TrainState:
    """The state before the first step."""
    return TrainState(model, optimizer.init(model))


def step_of(loss: Loss, optimizer: Optimizer) -> Callable[..., tuple[TrainState, Array]]:
    """The step ``(state, *batch) -> (state, loss)``, to be compiled or called within a program."""
    def step(state: TrainState, *batch: Array, **key: Array) -> tuple[TrainState, Array]:
        value, grads = rlx.value_and_grad(loss)(state.model, *batch, **key)
        model, kept = optimizer.update(grads, state.optimizer, state.model)
        return TrainState(model, kept), value
    return step


def trainer(loss: Loss, optimizer: Optimizer) -> Callable[..., tuple[TrainState, Array]]:
    """A compiled function ``(state, data, order, key=None) -> (state, losses)`` with a step for each row of ``order``.

    Shapes: every array of the tuple ``data`` (N, ...), order (steps, batch) row numbers below N, losses (steps,). The
    loop is part of the program: batches are gathered, and nothing returns to the host, until all steps are done. With
    a key, the loss gets one of its own at each step.

    >>> import numpy as np, rlx
    >>> from rlx import nn
    >>> x = rlx.asarray(np.linspace(-1, 1, 32, dtype=np.float32)[:, None])
    >>> run = nn.trainer(lambda model, x, y: nn.mse(model(x), y), nn.Adam(0.1))
    >>> state = nn.start(nn.Linear.create(1, 1, rng=0), nn.Adam(0.1))
    >>> state, losses = run(state, (x, 3 * x + 1), nn.batches(32, 8, rng=0, epochs=50))
    >>> float(losses[-1]) < 1e-3
    True
    """
    step = step_of(loss, optimizer)

    def run(state: TrainState, data: tuple[Array, ...], order: Array, key: Array | None = None) -> tuple[TrainState,
                                                                                                         Array]:
        _check(data, order)

        def body(carry: TrainState, x: tuple[Array, Array]) -> tuple[TrainState, Array]:
            rows, i = x
            # The row numbers come from the caller, who promised that they are below N.
            batch = [gather(d, rows) for d in data]
            return step(carry, *batch, **({} if key is None else {"key": fold_in(key, i)}))
        new, losses = rlx.scan(body, state, (order, rlx.arange(order.shape[0], device=order.device)))
        return new, losses
    compiled: Callable[..., tuple[TrainState, Array]] = rlx.jit(run)
    return compiled


def _check(data: tuple[Array, ...], order: Array) -> None:
    sizes = {d.shape[0] for d in data}
    if len(sizes) != 1 or order.ndim != 2 or not order.dtype.is_integer:
        kind = f"{order.dtype.name}{list(order.shape)}"
        raise ShapeError(f"training on arrays of {sorted(map(str, sizes))} rows in the order {kind}",
                         why="data have one leading size, and the order is (steps, batch) integers",
                         do="make the order with rlx.nn.batches")


def batches(count: int, size: int, *, rng: np.random.Generator | int | None = None, epochs: int = 1) -> np.ndarray:
    """Rows of each batch, (steps, size) int32: every epoch a new permutation, its remainder left out.

    Without ``rng`` the rows are in order.

    >>> from rlx import nn
    >>> nn.batches(5, 2).tolist()
    [[0, 1], [2, 3]]
    """
    if not 1 <= size <= count:
        raise ValueIssue(f"batches of {size} from {count} rows", why="a batch has 1 row to all of them",
                         do="pass a smaller batch")
    source = np.random.default_rng(rng) if isinstance(rng, int) else rng
    steps = count // size
    rows = [(np.arange(count) if source is None else source.permutation(count))[:steps * size] for _ in range(epochs)]
    return np.concatenate(rows).reshape(-1, size).astype(np.int32)

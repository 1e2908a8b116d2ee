"""RNN, GRU and LSTM: a loop over the time steps that stays on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.array.array import Array
from rlx.core import dtype as dt
from rlx.formats.onnx.operators.movement import reversed_by
from rlx.formats.onnx.table import Call, Value, X, operator

Cell = Callable[[Array, tuple[Array, ...]], tuple[Array, ...]]
Function = Callable[[Array], Array]


def _activation(c: Call, name: str, alpha: float | None, beta: float | None) -> Function:
    a, b = alpha, beta
    found: dict[str, Function] = {
        "tanh": X.tanh, "sigmoid": lambda x: 0.5 * X.tanh(0.5 * x) + 0.5, "relu": lambda x: X.maximum(x, 0),
        "affine": lambda x: (1.0 if a is None else a) * x + (0.0 if b is None else b),
        "leakyrelu": lambda x: X.where(x < 0, (0.01 if a is None else a) * x, x),
        "thresholdedrelu": lambda x: X.where(x > (1.0 if a is None else a), x, 0),
        "scaledtanh": lambda x: (1.0 if a is None else a) * X.tanh((1.0 if b is None else b) * x),
        "hardsigmoid": lambda x: X.clip((0.2 if a is None else a) * x + (0.5 if b is None else b), 0, 1),
        "elu": lambda x: X.where(x < 0, (1.0 if a is None else a) * X.expm1(X.minimum(x, 0)), x),
        "softsign": lambda x: x / (1 + X.abs(x)), "softplus": lambda x: X.logaddexp(x, X.zeros_like(x)),
    }
    if name.lower() not in found:
        raise c.refuse(f"activation {name!r}", "the standard has no such function here")
    return found[name.lower()]


def _activations(c: Call, usual: tuple[str, ...], direction: int) -> list[Function]:
    names = c.attr("activations", usual * (direction + 1))
    alphas, betas = (list(c.attr(k, ())) for k in ("activation_alpha", "activation_beta"))
    out = []
    for i, name in enumerate(names):
        # The constants are listed in the order of the functions that take them, as ONNX's own runtime reads them.
        takes = name.lower() in ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
        both = name.lower() in ("affine", "scaledtanh", "hardsigmoid")
        f = _activation(c, name, alphas.pop(0) if takes and alphas else None, betas.pop(0) if both and betas else None)
        if i // len(usual) == direction:
            out.append(f)
    return out


def _clipped(c: Call, x: Array) -> Array:
    limit = c.attr("clip")
    return x if not limit else X.clip(x, -limit, limit)


def _swept(cell: Cell, inputs: Array, state: tuple[Array, ...], lengths: Array | None) -> tuple[Array, Any]:
    """The states of all time steps and the last one; past its length a sequence keeps its state and gives zeros."""
    if lengths is None:
        def step(carry: Any, x: Array) -> Any:
            new = cell(x, carry)
            return new, new[0]
        last, out = X.scan(step, state, inputs)
        return out, last
    alive = X.arange(inputs.shape[0], device=inputs.device)[:, None] < X.astype(lengths, dt.int64)

    def masked(carry: Any, x: Any) -> Any:
        values, on = x
        new = cell(values, carry)
        kept = tuple([X.where(on[:, None], n, o) for n, o in zip(new, carry, strict=True)])
        return kept, X.where(on[:, None], new[0], 0)
    last, out = X.scan(masked, state, (inputs, alive))
    return out, last


def _recurrent(c: Call, x: Array, w: Array, r: Array, b: Array | None, lengths: Array | None,
               states: tuple[Array | None, ...], make: Callable[..., Cell], gates: int) -> Value:
    """Shapes: x (T, N, I), w (directions, gates H, I), r (directions, gates H, H), b (directions, 2 gates H).

    ``make(direction, recurrence, bias)`` gives the cell, which gets ``x w^T`` of a time step, computed for all steps
    at once.
    """
    batch_first = bool(c.attr("layout", 0))
    if batch_first:
        x = X.permute_dims(x, (1, 0, 2))
        states = tuple([None if s is None else X.permute_dims(s, (1, 0, 2)) for s in states])
    ways = c.attr("direction", "forward")
    n, h = x.shape[1], r.shape[-1]
    outs, lasts = [], []
    for k in range(w.shape[0]):
        back = ways == "reverse" or k == 1
        bias = X.zeros((2 * gates * h,), dtype=x.dtype, device=x.device) if b is None else b[k]
        inputs = _turned(x, lengths) if back else x
        projected = X.matmul(inputs, X.permute_dims(w[k], (1, 0))) + bias[:gates * h]
        start = tuple([X.zeros((n, h), dtype=x.dtype, device=x.device) if s is None else s[k] for s in states])
        out, last = _swept(make(k, X.permute_dims(r[k], (1, 0)), bias[gates * h:]), projected, start, lengths)
        outs.append(_turned(out, lengths) if back else out)
        lasts.append(last)
    y = X.stack(outs, axis=1)
    finals = [X.stack([last[i] for last in lasts], axis=0) for i in range(len(states))]
    if batch_first:
        y = X.permute_dims(y, (2, 0, 1, 3))
        finals = [X.permute_dims(f, (1, 0, 2)) for f in finals]
    return (y, *finals)


def _turned(x: Array, lengths: Array | None) -> Array:
    """The time steps in reverse."""
    return X.flip(x, axis=0) if lengths is None else reversed_by(x, lengths, 0, 1)


@operator("RNN")
def rnn(c: Call, x: Array, w: Array, r: Array, b: Array | None = None, lengths: Array | None = None,
        h0: Array | None = None) -> Value:
    def make(k: int, recurrence: Array, bias: Array) -> Cell:
        f, = _activations(c, ("Tanh",), k)
        return lambda z, state: (f(_clipped(c, z + X.matmul(state[0], recurrence) + bias)),)
    return _recurrent(c, x, w, r, b, lengths, (h0,), make, 1)


@operator("GRU")
def gru(c: Call, x: Array, w: Array, r: Array, b: Array | None = None, lengths: Array | None = None,
        h0: Array | None = None) -> Value:
    """Gates in the order update, reset, hidden."""
    h, after = r.shape[-1], bool(c.attr("linear_before_reset", 0))

    def make(k: int, recurrence: Array, bias: Array) -> Cell:
        f, g = _activations(c, ("Sigmoid", "Tanh"), k)
        gates, hidden = recurrence[:, :2 * h], recurrence[:, 2 * h:]

        def cell(z: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            old = state[0]
            both = f(_clipped(c, z[:, :2 * h] + X.matmul(old, gates) + bias[:2 * h]))
            update, reset = both[:, :h], both[:, h:]
            if after:
                part = reset * (X.matmul(old, hidden) + bias[2 * h:])
            else:
                part = X.matmul(reset * old, hidden) + bias[2 * h:]
            new = g(_clipped(c, z[:, 2 * h:] + part))
            return ((1 - update) * new + update * old,)
        return cell
    return _recurrent(c, x, w, r, b, lengths, (h0,), make, 3)


@operator("LSTM")
def lstm(c: Call, x: Array, w: Array, r: Array, b: Array | None = None, lengths: Array | None = None,
         h0: Array | None = None, c0: Array | None = None, peepholes: Array | None = None) -> Value:
    """Gates in the order input, output, forget, cell; peepholes in the order input, output, forget."""
    h = r.shape[-1]

    def make(k: int, recurrence: Array, bias: Array) -> Cell:
        f, g, last = _activations(c, ("Sigmoid", "Tanh", "Tanh"), k)
        peep = [0, 0, 0] if peepholes is None else [peepholes[k][i * h:(i + 1) * h] for i in range(3)]

        def cell(z: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            old, memory = state
            total = z + X.matmul(old, recurrence) + bias
            i, o, forget, new = (total[:, j * h:(j + 1) * h] for j in range(4))
            keep = f(_clipped(c, forget + peep[2] * memory))
            if c.attr("input_forget", 0):
                enter = 1 - keep
            else:
                enter = f(_clipped(c, i + peep[0] * memory))
            memory = keep * memory + enter * g(_clipped(c, new))
            return f(_clipped(c, o + peep[1] * memory)) * last(memory), memory
        return cell
    return _recurrent(c, x, w, r, b, lengths, (h0, c0), make, 4)

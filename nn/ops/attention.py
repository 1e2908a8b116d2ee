"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.array.define import op_named
from rlx.core.errors import DTypeError, ShapeError
from rlx.ir.op import Sample


@op_named("nn.attention")
def attention(q: Array, k: Array, v: Array, mask: Array | None = None, /, *, causal: bool = False,
              scale: float | None = None) -> Array:
    """``softmax(scale q k^T + mask) v`` over the last two axes; ``scale`` is ``1 / sqrt(D)`` unless given.

    Shapes: q (..., S, D), k (..., T, D), v (..., T, E), result (..., S, E); leading axes are equal. A boolean mask,
    broadcast to (..., S, T), is true where a query may look; any other mask is added. ``causal`` lets query i look at
    keys 0 to i. A query that may look nowhere averages all values.
    """
    _check(q, k, v, mask)
    s = rlx.matmul(q * (scale if scale is not None else 1 / math.sqrt(q.shape[-1])), rlx.matrix_transpose(k))
    low = float(rlx.finfo(s.dtype).min)
    if causal:
        rows, columns = (rlx.arange(n, device=q.device) for n in s.shape[-2:])
        s = rlx.where(rlx.expand_dims(rows, axis=1) >= columns, s, low)
    if mask is not None:
        s = rlx.where(mask, s, low) if mask.dtype == rlx.bool else s + mask
    return rlx.matmul(rlx.softmax(s, axis=-1), v)


def _check(q: Array, k: Array, v: Array, mask: Array | None) -> None:
    fits = q.ndim >= 2 and q.ndim == k.ndim == v.ndim and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
    if not fits or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError(f"attention of q {q.shape}, k {k.shape}, v {v.shape}",
                         why="they must be (..., S, D), (..., T, D) and (..., T, E) with equal leading axes",
                         do="transpose or broadcast them first")
    if not q.dtype == k.dtype == v.dtype:
        raise DTypeError(f"attention of {q.dtype.name}, {k.dtype.name} and {v.dtype.name}", why="they must be alike",
                         do="cast them to one dtype")
    if mask is not None and mask.dtype not in (rlx.bool, q.dtype):
        raise DTypeError(f"an attention mask of {mask.dtype.name}", why=f"a mask is boolean, or {q.dtype.name} to add",
                         do="compare it with 0, or cast it")


@attention.ref
def _(q: Any, k: Any, v: Any, mask: Any = None, *, causal: bool = False, scale: float | None = None) -> Any:
    """Query by query, in float64."""
    lead, (n, d) = q.shape[:-2], q.shape[-2:]
    t = k.shape[-2]
    add = np.zeros((*lead, n, t))
    if mask is not None:
        add = add + (np.where(mask, 0.0, -1e30) if mask.dtype == bool else mask.astype(np.float64))
    if causal:
        add = add + np.where(np.tri(n, t, dtype=bool), 0.0, -1e30)
    out = np.zeros((*lead, n, v.shape[-1]))
    for i in np.ndindex(*lead, n):
        z = k[i[:-1]].astype(np.float64) @ q[i] * (1 / math.sqrt(d) if scale is None else scale) + add[i]
        e = np.exp(z - z.max())
        out[i] = e @ v[i[:-1]] / e.sum()
    return out.astype(q.dtype)


@attention.samples
def _() -> list[Sample]:
    rng = np.random.default_rng(0)
    draw: Any = lambda *s: rng.standard_normal(s)
    q, k, v = draw(2, 3, 4), draw(2, 5, 4), draw(2, 5, 3)
    look = np.array([True, True, False, True, False])
    nowhere = np.array([[True] * 5, [False] * 5, [True] * 5])
    return [Sample((q, k, v), name="plain"), Sample((q, k, v), {"scale": 2.0}, name="scale"),
            Sample((q, k, v, look), name="mask"), Sample((q, k, v, draw(2, 3, 5)), name="added mask"),
            Sample((draw(4, 2), draw(4, 2), draw(4, 2)), {"causal": True}, name="causal"),
            Sample(tuple([x.astype(np.float32) for x in (q, k, v)]), name="float32"),
            Sample((q, k, v, nowhere), name="a query without keys", edge=True, grad=False)]

"""Functions that together use every primitive, as graphs and programs. The goldens show the lines of this file."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import rlx
from rlx import device as devices
from rlx.array.build import emit1, trace
from rlx.compile.legalize import Policy
from rlx.compile.pipeline import Lowered, compile_graph
from rlx.core import dtype as dt
from rlx.ir.graph import Graph, Type
from rlx.ir.prim import POINTWISE
from rlx.ops.index import gather, scatter
from rlx.ops.segments import segment_reduce

Program = tuple[Callable[..., Any], tuple[Type, ...]]


def f64(*shape: int) -> Type:
    return Type(dt.float64, shape)


def i64(*shape: int) -> Type:
    return Type(dt.int64, shape)


def softmax(x):
    return rlx.softmax(x)


def cg(a, b):
    """Ten steps of the conjugate gradient method."""
    def step(i, state):
        x, r, p, rr = state
        q = a @ p
        alpha = rr / (p @ q)
        x = x + alpha * p
        r = r - alpha * q
        new = r @ r
        return x, r, r + (new / rr) * p, new

    return rlx.fori_loop(0, 10, step, (rlx.zeros_like(b), b, b, b @ b))


def movement(x, y):
    wide = rlx.broadcast_to(rlx.reshape(x, (3, 1, 4)), (3, 5, 4))
    padded = emit1("pad", wide, rlx.sum(y), low=(0, 1, 0), high=(2, 0, 0))
    windows = emit1("window", x, axes=(1,), size=(2,), step=(1,), dilation=(2,))
    joined = rlx.concat([rlx.flip(x, axis=1), x[:, ::-1] * 2, y])
    return (joined, padded[1:, ::2], windows, rlx.permute_dims(wide, (2, 0, 1)),
            rlx.sum(rlx.arange(12).reshape((3, 4)) + x, axis=(0, 1)))


def indexing(x, i, k):
    return x[i], gather(x, i, mode="promise"), scatter(x, x[i] * 2, (i,), "add"), x.at[2].set(1.0), x.at[k, 0].max(0.5)


def contractions(x, y, values, offsets):
    return (rlx.sum(x, axis=0), rlx.max(x), rlx.cumulative_sum(x, axis=1), rlx.sort(x, axis=1), rlx.argsort(x[0]),
            x @ y, segment_reduce(values, offsets), rlx.all(x > 0, axis=1), rlx.std(x, axis=1), rlx.prod(x, axis=1))


def control(x, n):
    looped = rlx.while_loop(lambda v: rlx.sum(v[0]) < 100, lambda v: (v[0] * 2 + 1, v[1] + 1), (x, n))
    chosen = rlx.cond(rlx.sum(x) > 0, lambda v: rlx.exp(v), lambda v: -v, x)
    carry, ys = rlx.scan(lambda c, row: (c + row, c * row), x[0], x)
    return *looped, chosen, carry, ys, rlx.switch(n, (lambda v: v, lambda v: v + 1, lambda v: v * 2), x)


def numbers(x, z):
    special = x + rlx.where(x > 0, float("inf"), -0.0) * float("nan") + 1e-300
    return special, z * (1 - 2j), rlx.astype(x, "float32") * 0.1, rlx.astype(x, "int8") - 3, x > 0, z.real, abs(z)


def columns(x):
    """Large enough for several chunks: partial rows and a grid."""
    return rlx.sum(x, axis=0), rlx.sum(x * x), rlx.exp(x) + rlx.mean(x, axis=1, keepdims=True)


def empty(x):
    return rlx.sum(x), x + 1


def normalize(x, g, b):
    mean = rlx.mean(x, axis=-1, keepdims=True)
    centred = x - mean
    return centred / rlx.sqrt(rlx.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * g + b


PROGRAMS: dict[str, Program] = {
    "softmax": (softmax, (f64(4, 300),)),
    "cg": (cg, (f64(100, 100), f64(100))),
    "movement": (movement, (f64(3, 4), f64(2, 4))),
    "indexing": (indexing, (f64(6, 5), i64(4), Type(dt.int32, (4,)))),
    "contractions": (contractions, (f64(6, 5), f64(5, 7), f64(20), i64(8))),
    "control": (control, (f64(5, 3), i64())),
    "numbers": (numbers, (f64(7), Type(dt.complex128, (7,)))),
    "columns": (columns, (f64(2000, 300),)),
    "empty": (empty, (f64(0, 3),)),
    "normalize": (normalize, (f64(16, 64), f64(64), f64(64))),
}


def pointwise(name: str) -> Program:
    """A function of one elementwise primitive, in the widest dtype of each kind that it takes."""
    row = POINTWISE[name]
    wide = {"b": dt.bool_, "i": dt.int64, "u": dt.uint32, "f": dt.float64, "c": dt.complex128}
    target = {"cast": {"dtype": dt.int16}, "bitcast": {"dtype": dt.float64}}
    if name == "bitcast":
        return lambda x: emit1("bitcast", x, dtype=dt.float64), (i64(3),)

    def call(*xs: Any) -> Any:
        given = iter(xs)
        out = []
        for _ in row.kinds:
            condition = [next(given)] if name == "select" else []
            out.append(emit1(name, *condition, *[next(given) for _ in range(row.arity - len(condition))],
                             **target.get(name, {})))
        return tuple(out)

    types: list[Type] = []
    for k in row.kinds:
        types += [Type(dt.bool_ if name == "select" and j == 0 else wide[k], (3,)) for j in range(row.arity)]
    return call, tuple(types)


PROGRAMS |= {f"prim_{name}": pointwise(name) for name in POINTWISE}


def graph(name: str) -> Graph:
    """The traced function."""
    f, types = PROGRAMS[name]
    return trace(f, types, name=name)[0]


@cache
def lowered(name: str, device: str = "cpu", policy: str = "common") -> Lowered:
    """The function at every level."""
    return compile_graph(graph(name), devices.find(device), Policy(policy), name)

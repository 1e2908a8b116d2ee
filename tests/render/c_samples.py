"""Kernels for the tests of the C family: every primitive at every dtype, and shapes that a scheduler makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from rlx.core.dtype import ALL, DType, bool_, int32
from rlx.ir import loop as L
from rlx.ir.prim import POINTWISE
from rlx.render.c import spells

EDGES: dict[str, list[Any]] = {
    "b": [False, True],
    "i": [0, 1, -1, 2, -2, 3, -3, 7, -7, 8, 13, 31, 32, 63, 64, 100, -100, "min", "max", "min+1"],
    "u": [0, 1, 2, 3, 7, 8, 13, 31, 32, 63, 64, 100, "max", "half"],
    "f": [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3.0,
        -3.0,
        0.1,
        7.25,
        -7.25,
        1e-3,
        100.5,
        -300.7,
        3e4,
        6.1e-5,
        np.inf,
        -np.inf,
        np.nan,
        "tiny",
        "max",
    ],
}


def edges(d: DType) -> np.ndarray[Any, Any]:
    """Values of a real dtype that break careless arithmetic."""
    if d.is_float:
        host = np.dtype(np.float32) if d.short == "bf16" else d.numpy
        info = np.finfo(host)
        special = {"tiny": info.smallest_subnormal, "max": info.max}
    elif d.kind == "b":
        host, special = d.numpy, {}
    else:
        host, limits = d.numpy, np.iinfo(d.numpy)
        special = {"min": limits.min, "max": limits.max, "min+1": limits.min + 1, "half": limits.max // 2}
    values = [special.get(v, v) if isinstance(v, str) else v for v in EDGES[d.kind]]
    if d.is_integer:
        values = [v for v in values if np.iinfo(host).min <= v <= np.iinfo(host).max]
    return np.array(values, host)


def lanes(n: int, body: Iterable[L.Stmt], lanes_: int = 64) -> tuple[L.Stmt, ...]:
    """``body`` at every ``i < n``, on a grid of workgroups."""
    g, lane, i = (L.var(v, int32) for v in ("g", "l", "i"))
    at = L.add(L.mul(g, L.const(lanes_, int32)), lane)
    inner = L.If(L.less(at, L.const(n, int32)), (L.Let(i.value, at), *body))
    block = L.For("l", L.const(0, int32), L.const(lanes_, int32), 1, L.BLOCK, (inner,))
    return (L.For("g", L.const(0, int32), L.const(-(-n // lanes_), int32), 1, L.GRID, (block,)),)


def result_dtype(name: str, d: DType) -> DType:
    """The dtype of a primitive's result."""
    kind = POINTWISE[name].result
    return bool_ if kind == "bool" else d.real if kind == "real" else d.complex if kind == "complex" else d


def primitive(name: str, d: DType, n: int, grid: bool = True) -> L.Kernel:
    """``out[i] = name(a[i], ..)``; select takes its condition from a further buffer."""
    i = L.var("i", int32)
    arity = POINTWISE[name].arity
    dtypes = [bool_, d, d] if name == "select" else [d] * arity
    args = tuple(L.load(f"b{k}", i, t) for k, t in enumerate(dtypes))
    out = result_dtype(name, d)
    store = L.Store("o", i, L.expr(name, args, out))
    params = (*(L.Param(f"b{k}", t, n, "r") for k, t in enumerate(dtypes)), L.Param("o", out, n, "w"))
    return L.Kernel(f"{name}_{d.short}", params, _spread(n, store, grid))


def cast(src: DType, dst: DType, n: int, op: str = "cast", grid: bool = True) -> L.Kernel:
    """``out[i] = cast(a[i])``."""
    i = L.var("i", int32)
    store = L.Store("o", i, L.expr(op, (L.load("b0", i, src),), dst))
    params = (L.Param("b0", src, n, "r"), L.Param("o", dst, n, "w"))
    return L.Kernel(f"{op}_{src.short}_{dst.short}", params, _spread(n, store, grid))


def _spread(n: int, store: L.Stmt, grid: bool) -> tuple[L.Stmt, ...]:
    if grid:
        return lanes(n, (store,))
    return (L.For("i", L.const(0, int32), L.const(n, int32), 1, L.SERIAL, (store,)),)


def all_primitives(dtypes: Iterable[DType] = ALL) -> Iterator[tuple[str, DType]]:
    """(primitive, dtype) of everything the family renders, casts left out."""
    known = tuple(dtypes)
    for name, found in spells(known).items():
        if name not in ("cast", "bitcast"):
            yield from ((name, d) for d in known if d in found)


def bundle(names: Iterable[str], d: DType, n: int) -> L.Kernel:
    """Many primitives in one kernel: ``out_k[i] = name_k(a[i], b[i], c[i])``."""
    i, stores, params = L.var("i", int32), [], [L.Param(f"b{k}", d, n, "r") for k in range(3)]
    params.append(L.Param("b3", bool_, n, "r"))
    x = [L.load(f"b{k}", i, d) for k in range(3)]
    for name in names:
        args = (L.load("b3", i, bool_), x[0], x[1]) if name == "select" else tuple(x[: POINTWISE[name].arity])
        out = result_dtype(name, d)
        stores.append(L.Store(f"o_{name}", i, L.expr(name, args, out)))
        params.append(L.Param(f"o_{name}", out, n, "w"))
    return L.Kernel(f"all_{d.short}", tuple(params), lanes(n, stores))


def casts(src: DType, targets: Iterable[DType], n: int) -> L.Kernel:
    """Casts of one dtype to many."""
    i, stores, params = L.var("i", int32), [], [L.Param("b0", src, n, "r")]
    for d in targets:
        stores.append(L.Store(f"o_{d.short}", i, L.expr("cast", (L.load("b0", i, src),), d)))
        params.append(L.Param(f"o_{d.short}", d, n, "w"))
    return L.Kernel(f"casts_{src.short}", tuple(params), lanes(n, stores))


def row_sum(rows: int, n: int, d: DType, team: int = 64) -> L.Kernel:
    """One workgroup a row: strided parts, a tree in shared memory, lane 0 stores. Guards, barriers, a select
    that loads.
    """
    g, lane, i = (L.var(v, int32) for v in ("g", "l", "i"))
    acc = L.var("s", d)
    index = L.add(L.mul(g, L.const(n, int32)), i)
    inside = L.less(i, L.const(n - 1, int32))
    padded = L.select(inside, L.load("b0", L.add(index, L.const(1, int32)), d), L.const(0, d))
    body: list[L.Stmt] = [
        L.Array("red", d, team, "shared"),
        L.Register("s", L.const(0, d)),
        L.For(
            "i",
            lane,
            L.const(n, int32),
            team,
            L.SERIAL,
            (L.Assign("s", L.expr("add", (acc, L.expr("mul", (L.load("b0", index, d), padded), d)), d), True),),
        ),
        L.Store("red", lane, acc),
        L.Barrier(),
    ]
    s = team // 2
    while s:
        both = (L.load("red", lane, d), L.load("red", L.add(lane, L.const(s, int32)), d))
        body += [L.If(L.less(lane, L.const(s, int32)), (L.Store("red", lane, L.expr("add", both, d)),)), L.Barrier()]
        s //= 2
    zero = L.const(0, int32)
    body.append(L.If(L.expr("eq", (lane, zero), bool_), (L.Store("b1", g, L.load("red", zero, d)),)))
    block = L.For("l", zero, L.const(team, int32), 1, L.BLOCK, tuple(body))
    grid = L.For("g", zero, L.const(rows, int32), 1, L.GRID, (block,))
    return L.Kernel("row_sum", (L.Param("b0", d, rows * n, "r"), L.Param("b1", d, rows, "w")), (grid,))


def gelu(n: int, d: DType) -> L.Kernel:
    """``x * (1 + erf(x / sqrt 2)) / 2`` at every element: a helper function, shared expressions, a grid with a
    guard.
    """
    i = L.var("i", int32)
    x = L.load("b0", i, d)
    half = L.expr("mul", (x, L.const(0.5, d)), d)
    e = L.expr("erf", (L.expr("mul", (x, L.const(0.7071067811865476, d)), d),), d)
    y = L.expr("mul", (half, L.expr("add", (L.const(1.0, d), e), d)), d)
    return L.Kernel(
        "gelu", (L.Param("b0", d, n, "r"), L.Param("b1", d, n, "w")), lanes(n, (L.Store("b1", i, y),), 256)
    )


def search(n: int) -> L.Kernel:
    """A binary search in each lane: a loop with registers, floor division, an atomic count of what was found."""
    i, a, b = (L.var(v, int32) for v in ("i", "a", "b"))
    h = L.var("h", int32)
    middle = L.expr("floordiv", (L.add(a, b), L.const(2, int32)), int32)
    below = L.less(L.load("b0", h, int32), L.load("b1", i, int32))
    one = L.const(1, int32)
    step = (L.Let("h", middle), L.If(below, (L.Assign("a", L.add(h, one)),), (L.Assign("b", h),)))
    body = (
        L.Register("a", L.const(0, int32)),
        L.Register("b", L.const(n, int32)),
        L.Loop(L.less(a, b), step),
        L.Store("b2", i, a),
        L.Atomic("add", "b3", L.const(0, int32), one),
    )
    params = tuple(
        L.Param(f"b{k}", int32, m, w) for k, (m, w) in enumerate(((n, "r"), (n, "r"), (n, "w"), (1, "rw")))
    )
    return L.Kernel("search", params, lanes(n, body))


__all__ = [
    "all_primitives",
    "bundle",
    "cast",
    "casts",
    "edges",
    "gelu",
    "primitive",
    "result_dtype",
    "row_sum",
    "search",
]

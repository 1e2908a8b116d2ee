"""Oracles and samples of dot, reduce, segment_reduce, scan and sort."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.ir.op import REGISTRY, Sample
from rlx.ops.oracle.data import FEW, NUMBERS, REALS, values

dot, reduce, segment, scan, sort = (REGISTRY[n] for n in ("dot", "reduce", "segment_reduce", "scan", "sort"))
Axes = tuple[tuple[int, ...], tuple[int, ...]]
NONE: Axes = ((), ())


@dot.ref
def _(x: Any, y: Any, *, contract: Axes, batch: Axes) -> Any:
    def flat(a: Any, k: int, lead: bool) -> tuple[Any, tuple[int, ...]]:
        free = [i for i in range(a.ndim) if i not in contract[k] and i not in batch[k]]
        order = [*batch[k], *free, *contract[k]] if lead else [*batch[k], *contract[k], *free]
        b = math.prod(a.shape[i] for i in batch[k])
        f = math.prod(a.shape[i] for i in free)
        c = math.prod(a.shape[i] for i in contract[k])
        return a.transpose(order).reshape((b, f, c) if lead else (b, c, f)), tuple(a.shape[i] for i in free)

    (p, left), (q, right) = flat(x, 0, True), flat(y, 1, False)
    wide = {"float16": np.float32, "float32": np.float64, "complex64": np.complex128}.get(x.dtype.name, x.dtype)
    out = np.stack([np.matmul(a, b) for a, b in zip(p.astype(wide), q.astype(wide), strict=True)]) if len(p) else \
        np.zeros((0, p.shape[1], q.shape[2]))
    return out.astype(x.dtype).reshape((*(x.shape[i] for i in batch[0]), *left, *right))


@dot.samples
def _() -> list[Sample]:
    plain = {"contract": ((1,), (0,)), "batch": NONE}
    out = [Sample((values((5, 7), d, 1), values((7, 6), d, 2)), plain, d) for d in NUMBERS]
    cases: list[tuple[str, Any, Any, Axes, Axes]] = [
        ("inner", (9,), (9,), ((0,), (0,)), NONE), ("outer", (4,), (5,), NONE, NONE),
                                                     ("matvec", (4, 9), (9,), ((1,), (0,)), NONE),
        ("vecmat", (9,), (9, 4), ((0,), (0,)), NONE), ("left transposed", (7, 5), (7, 6), ((0,), (0,)), NONE),
        ("right transposed", (5, 7), (6, 7), ((1,), (1,)), NONE),
                                                     ("batch", (3, 4, 5), (3, 5, 6), ((2,), (1,)), ((0,), (0,))),
        ("batch inside", (4, 3, 5), (5, 6, 3), ((2,), (0,)), ((1,), (2,))),
        ("two batches", (2, 3, 4, 5), (3, 2, 5, 6), ((3,), (2,)), ((0, 1), (1, 0))),
        ("two contracted", (4, 5, 6), (6, 5, 3), ((1, 2), (1, 0)), NONE),
                                                     ("all contracted", (4, 5), (4, 5), ((0, 1), (0, 1)), NONE),
        ("one", (1, 1), (1, 1), ((1,), (0,)), NONE), ("no rows", (0, 4), (4, 3), ((1,), (0,)), NONE),
        ("nothing summed", (3, 0), (0, 4), ((1,), (0,)), NONE),
                                                     ("no batch", (0, 2, 3), (0, 3, 2), ((2,), (1,)), ((0,), (0,))),
        ("larger", (70, 65), (65, 33), ((1,), (0,)), NONE),
                                                     ("batched inner", (6, 9), (6, 9), ((1,), (1,)), ((0,), (0,)))]
    for name, a, b, contract, batch in cases:
        empty = 0 in a or 0 in b
        out.append(Sample((values(a, "float64", 3), values(b, "float64", 4)), {"contract": contract, "batch": batch},
                          name,
                          edge=empty, grad=not empty))
    return out


_FOLD: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
                         "and": np.bitwise_and,
                         "or": np.bitwise_or, "xor": np.bitwise_xor}


@reduce.ref
def _(x: Any, *, kind: str, axes: tuple[int, ...]) -> Any:
    f = _FOLD[kind]
    with np.errstate(all="ignore"):
        for a in sorted(axes, reverse=True):
            start = {"dtype": x.dtype} if kind in ("sum", "prod") else {}
            x = f.reduce(x, axis=a, **start)
    return x


@reduce.samples
def _() -> list[Sample]:
    out = []
    for kind in _FOLD:
        dtypes = [d for d in REALS if np.dtype(d).kind in "biu"] if kind in ("and", "or", "xor") else \
            list(NUMBERS if kind in ("sum", "prod") else REALS)
        out += [Sample((values((4, 7), d, 1, -2, 3),), {"kind": kind, "axes": (1,)}, f"{kind}-{d}") for d in dtypes]
        d = "int32" if kind in ("and", "or", "xor") else "float64"
        for name, shape, axes in (("columns", (6, 5), (0,)), ("all", (6, 5), (0, 1)), ("outside", (2, 3, 4), (0, 2)),
                                  ("middle", (2, 3, 4), (1,)), ("one", (1, 5), (0,)), ("lead", (3, 4, 5), (0, 1)),
                                  ("none left", (7,), (0,)), ("kept empty", (0, 5), (1,))):
            out.append(Sample((values(shape, d, 2, -2, 3),), {"kind": kind, "axes": axes}, f"{kind}-{name}",
                              edge=0 in shape, grad=0 not in shape))
    nothing = [Sample((values((3, 0), d),), {"kind": k, "axes": (1,)}, f"{k}-{d}-empty", True, False)
               for k, d in (("sum", "float64"), ("prod", "float64"), ("sum", "int64"), ("or", "bool"), ("and", "bool"))]
    nothing += [Sample((values(s, "float64"),), {"kind": k, "axes": a}, f"{k}-{n}", True, False)
                for k in ("sum", "prod")
                for n, s, a in (("no rows", (0, 5), (0,)), ("no elements", (0,), (0,)), ("no matrix", (0, 4), (0, 1)),
                                ("no planes", (3, 0, 5), (1,)), ("no columns", (3, 4, 0), (0,)))]
    nan = np.array([[1.0, np.nan, 2.0], [np.inf, -np.inf, 0.0], [-0.0, 0.0, -0.0]])
    special = [Sample((nan.astype(d),), {"kind": k, "axes": (1,)}, f"{k}-{d}-nan", True, False)
               for k in ("sum", "prod", "min", "max") for d in ("float32", "float64")]
    return out + nothing + special


@segment.ref
def _(v: Any, offsets: Any, *, kind: str) -> Any:
    info = np.iinfo(v.dtype) if v.dtype.kind in "iu" else None
    empty = {"sum": 0, "prod": 1, "min": info.max if info else np.inf, "max": info.min if info else -np.inf}[kind]
    out = np.full((len(offsets) - 1, *v.shape[1:]), empty, v.dtype)
    for i, (a, b) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        if b > a:
            out[i] = _FOLD[kind].reduce(v[a:b], axis=0, **({"dtype": v.dtype} if kind in ("sum", "prod") else {}))
    return out


@segment.samples
def _() -> list[Sample]:
    at = np.array([0, 3, 3, 4, 9, 9])
    out = []
    for kind in ("sum", "prod", "min", "max"):
        for d in ("int32", "int64", "uint8", "float32", "float64",
                  *(("complex128",) if kind in ("sum", "prod") else ())):
            out.append(Sample((values((9,), d, 1, -2, 3), at), {"kind": kind}, f"{kind}-{d}",
                              grad=kind in ("sum", "prod")))
    return [*out, Sample((values((9, 4), "float64", 2), at.astype(np.int32)), {"kind": "sum"}, "rows"),
            Sample((values((9, 4), "float64", 2), at.astype(np.uint32)), {"kind": "max"}, "rows-max", grad=False),
            Sample((values((0,), "float64"), np.array([0, 0, 0])), {"kind": "sum"}, "all empty", True, False),
            Sample((values((5,), "float64"), np.array([0])), {"kind": "sum"}, "no segments", True, False),
            Sample((values((5,), "float64", 3), np.array([0, 5])), {"kind": "sum"}, "one segment")]


@scan.ref
def _(x: Any, *, kind: str, axis: int, reverse: bool) -> Any:
    f = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[kind]
    lines = np.moveaxis(x.copy(), axis, 0)
    n = len(lines)
    order = range(n - 2, -1, -1) if reverse else range(1, n)
    with np.errstate(all="ignore"):
        for i in order:
            lines[i] = f(lines[i + 1] if reverse else lines[i - 1], lines[i])
    return np.moveaxis(lines, 0, axis)


@scan.samples
def _() -> list[Sample]:
    out = []
    for kind in ("add", "mul", "min", "max"):
        for d in NUMBERS if kind in ("add", "mul") else [d for d in REALS if d != "bool"]:
            out.append(Sample((values((9,), d, 1, -2, 3),), {"kind": kind, "axis": 0, "reverse": False}, f"{kind}-{d}"))
        for name, shape, axis, reverse in (("rows", (3, 6), 1, False), ("columns", (5, 4), 0, False),
                                           ("back", (3, 6), 1, True), ("columns back", (5, 4), 0, True),
                                           ("middle", (2, 4, 3), 1, True), ("one", (3, 1), 1, False),
                                           ("empty", (3, 0), 1, False), ("no lines", (0, 3), 1, True)):
            out.append(Sample((values(shape, "float64", 2, -2, 3),), {"kind": kind, "axis": axis, "reverse": reverse},
                              f"{kind}-{name}", edge=0 in shape, grad=0 not in shape))
    nan = np.array([3.0, np.nan, 1.0, np.inf, -0.0])
    return out + [Sample((nan,), {"kind": k, "axis": 0, "reverse": r}, f"{k}-nan-{r}", True, False)
                  for k in ("add", "mul", "min", "max") for r in (False, True)]


@sort.ref
def _(*xs: Any, axis: int, descending: bool) -> Any:
    keys = np.moveaxis(xs[0], axis, -1)
    moved = [np.moveaxis(x, axis, -1) for x in xs]
    out = [np.empty_like(m) for m in moved]
    for line in np.ndindex(*keys.shape[:-1]):
        row = keys[line].tolist()
        nan = [i for i, v in enumerate(row) if v != v]
        rest = sorted((i for i, v in enumerate(row) if v == v), key=lambda i: -int(row[i]) if isinstance(row[i], bool)
                      else -row[i]) if descending else sorted((i for i, v in enumerate(row) if v == v),
                                                              key=lambda i: row[i])
        for o, m in zip(out, moved, strict=True):
            o[line] = m[line][rest + nan]
    return tuple(np.moveaxis(o, -1, axis) for o in out)


@sort.samples
def _() -> list[Sample]:
    up, down = {"axis": 0, "descending": False}, {"axis": 0, "descending": True}
    out = []
    for d in REALS:
        keys = values((13,), d, 1)
        out += [Sample((keys, np.arange(13)), a, f"{d}-{n}", grad=False) for n, a in (("up", up), ("down", down))]
    nan = np.array([2.0, np.nan, -0.0, np.inf, 0.0, -np.inf, np.nan, 2.0])
    for d in ("float32", "float64"):
        out += [Sample((nan.astype(d), np.arange(8)), a, f"{d}-nan-{n}", True, False) for n,
                a in (("up", up), ("down", down))]
    for name, shape, axis in (("rows", (3, 7), 1), ("columns", (7, 3), 0), ("middle", (2, 5, 3), 1), ("one", (3, 1), 1),
                              ("empty", (3, 0), 1), ("no lines", (0, 3), 1), ("long", (2, 65), 1)):
        x = np.random.default_rng(4).permutation(math.prod(shape)).reshape(shape).astype("float64")
        out.append(Sample((x, values(shape, "int32", 5)), {"axis": axis, "descending": False}, name, edge=0 in shape,
                          grad=False))
        out.append(Sample((x,), {"axis": axis, "descending": True}, f"{name}-keys", edge=0 in shape,
                          grad=0 not in shape))
    extremes = [Sample((np.array([np.iinfo(d).min, 0, np.iinfo(d).max, 1, np.iinfo(d).min], d), np.arange(5)), a,
                       f"{d}-ends",
                       True, False) for d in ("int32", "int64", "uint64") for a in (up, down)]
    few = [Sample((values((6,), "int32", 7), values((6,), d, 8)), up, f"payload-{d}", grad=False) for d in FEW]
    return out + extremes + few

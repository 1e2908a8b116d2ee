"""Samples of control flow: small programs with their counterpart in plain Python, named by an attribute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.ir.op import REGISTRY, Op, Sample
from rlx.ops.control import cond, fori_loop, scan, switch, while_loop
from rlx.ops.creation import full_like
from rlx.ops.elementwise import where
from rlx.ops.index import gather
from rlx.ops.oracle.data import values

Program = Callable[..., Any]
_PROGRAMS: dict[str, tuple[Program, Program]] = {}


def _example(op: str, name: str, samples: list[tuple[Any, ...]], program: Program, plain: Program) -> None:
    """Register a program and its plain counterpart as samples of the op."""
    _PROGRAMS[name] = (program, plain)
    REGISTRY[op].samples(lambda: [Sample(args, {"example": name}, f"{name}-{k}", grad=False)
                                  for k, args in enumerate(samples)])


def _attach(op: Op) -> None:
    op.call(lambda *args, example: _PROGRAMS[example][0](*args))
    op.ref(lambda *args, example: _PROGRAMS[example][1](*[np.asarray(a) for a in args]))


for _name in ("while", "cond", "loop"):
    _attach(REGISTRY[_name])

I = np.int64


# while

def _collatz(n: Any) -> Any:
    return while_loop(lambda v: v[0] != 1, lambda v: (where(v[0] % 2 == 0, v[0] // 2, 3 * v[0] + 1), v[1] + 1),
                      (n, n * 0))


def _collatz_plain(n: Any) -> Any:
    n, k = int(n), 0
    while n != 1:
        n, k = n // 2 if n % 2 == 0 else 3 * n + 1, k + 1
    return I(n), I(k)


def _fibonacci(a: Any, b: Any, top: Any) -> Any:
    return while_loop(lambda v: v[1] < top, lambda v: (v[1], v[0] + v[1]), (a, b))


def _fibonacci_plain(a: Any, b: Any, top: Any) -> Any:
    while b < top:
        a, b = b, a + b
    return a, b


def _normalize(x: Any, limit: Any) -> Any:
    """Halve until the sum is small: a reduction in the condition, a captured scalar, a carried array."""
    return while_loop(lambda v: v.sum() > limit, lambda v: v * 0.5, x)


def _normalize_plain(x: Any, limit: Any) -> Any:
    while x.sum() > limit:
        x = x * 0.5
    return x


def _nested_while(n: Any, step: Any) -> Any:
    def outer(v: Any) -> Any:
        i, total = v
        _, added = while_loop(lambda w: w[0] < i, lambda w: (w[0] + step, w[1] + w[0] * i), (i * 0, total))
        return i + 1, added
    return while_loop(lambda v: v[0] < n, outer, (n * 0, n * 0))


def _nested_while_plain(n: Any, step: Any) -> Any:
    i = total = 0
    while i < n:
        j = 0
        while j < i:
            total, j = total + j * i, j + step
        i += 1
    return I(i), I(total)


_example("while", "collatz", [(I(27),), (I(1),)], _collatz, _collatz_plain)
_example("while", "fibonacci", [(I(0), I(1), I(1000)), (I(5), I(8), I(2)),
                                (np.float64(0), np.float64(1), np.float64(50))],
         _fibonacci, _fibonacci_plain)
_example("while", "normalize", [(values((4, 5), "float64", 1, 1, 9), np.float64(3)), (np.zeros((0, 2)), np.float64(0)),
                                (values((6,), "float32", 2, 1, 9), np.float32(2))], _normalize, _normalize_plain)
_example("while", "nested", [(I(6), I(1)), (I(7), I(2)), (I(0), I(1))], _nested_while, _nested_while_plain)


# cond

def _branch(p: Any, x: Any, y: Any) -> Any:
    return cond(p, lambda a, b: (a + b, a * 2), lambda a, b: (a - b, b * y), x, y)


def _branch_plain(p: Any, x: Any, y: Any) -> Any:
    return (x + y, x * 2) if p else (x - y, y * y)


def _three(i: Any, x: Any) -> Any:
    return switch(i, (lambda a: a + 1, lambda a: a * a, lambda a: cond(a.sum() > 0, lambda b: -b, lambda b: b - x, a)),
                  x)


def _three_plain(i: Any, x: Any) -> Any:
    k = min(max(int(i), 0), 2)
    return x + 1 if k == 0 else x * x if k == 1 else -x if x.sum() > 0 else x - x


def _same(p: Any, x: Any) -> Any:
    """Branches that return an operand, a captured value, and a constant."""
    return cond(p, lambda a: (a, a, x), lambda a: (x, full_like(a, 7), a), x)


def _same_plain(p: Any, x: Any) -> Any:
    return (x, x, x) if p else (x, np.full_like(x, 7), x)


_x, _y = values((3, 4), "float64", 1), values((3, 4), "float64", 2)
_example("cond", "branch", [(np.bool_(True), _x, _y), (np.bool_(False), _x, _y), (I(3), _x, _y),
                            (np.bool_(False), values((3,), "int32", 1), values((3,), "int32", 2))], _branch,
         _branch_plain)
_example("cond", "three", [(I(0), _x), (I(1), _x), (I(2), np.abs(_x)), (I(2), -np.abs(_x)), (I(99), _x), (I(-4), _x)],
         _three, _three_plain)
_example("cond", "same", [(np.bool_(True), _x), (np.bool_(False), _x)], _same, _same_plain)


# loop

def _rotate(n: Any, a: Any, b: Any, c: Any) -> Any:
    """Every carried value takes another's place: none may be overwritten before it is read."""
    return fori_loop(0, n, lambda i, v: (v[1], v[2], v[0] + i), (a, b, c))


def _rotate_plain(n: Any, a: Any, b: Any, c: Any) -> Any:
    for i in range(int(n)):
        a, b, c = b, c, a + np.asarray(i).astype(a.dtype)
    return a, b, c


def _stencil(n: Any, u: Any, k: Any) -> Any:
    """Neighbours of the old values: the update must not see the new ones."""
    return fori_loop(0, n, lambda i, v: v.at[1:-1].set(v[1:-1] + k * (v[2:] - 2 * v[1:-1] + v[:-2])), u)


def _stencil_plain(n: Any, u: Any, k: Any) -> Any:
    for _ in range(int(n)):
        v = u.copy()
        v[1:-1] = u[1:-1] + k * (u[2:] - 2 * u[1:-1] + u[:-2])
        u = v
    return u


def _shift(n: Any, u: Any) -> Any:
    return fori_loop(0, n, lambda i, v: v[::-1] + v.sum() * 0.125, u)


def _shift_plain(n: Any, u: Any) -> Any:
    for _ in range(int(n)):
        u = u[::-1] + u.sum() * 0.125
    return u


def _running(xs: Any, start: Any) -> Any:
    return scan(lambda c, x: (c * 0.5 + x.sum(), (x * c, c)), start, xs)


def _running_plain(xs: Any, start: Any) -> Any:
    c, ys, cs = start, np.zeros_like(xs), np.zeros(len(xs))
    for i, x in enumerate(xs):
        ys[i], cs[i] = x * c, c
        c = c * 0.5 + x.sum()
    return c, ys, cs


def _backward(xs: Any, start: Any) -> Any:
    return scan(lambda c, x: (c + x, c), start, xs, reverse=True)


def _backward_plain(xs: Any, start: Any) -> Any:
    ys, c = np.zeros_like(xs), start
    for i in range(len(xs) - 1, -1, -1):
        ys[i], c = c, c + xs[i]
    return c, ys


def _table(n: Any, m: Any, seed: Any) -> Any:
    """A loop in a loop in a condition, all with captured values."""
    def row(i: Any, t: Any) -> Any:
        return fori_loop(0, m, lambda j, s: cond(s % 2 == 0, lambda a: a // 2 + i * j, lambda a: 3 * a + seed, s), t)
    return fori_loop(0, n, row, seed)


def _table_plain(n: Any, m: Any, seed: Any) -> Any:
    s = int(seed)
    for i in range(int(n)):
        for j in range(int(m)):
            s = s // 2 + i * j if s % 2 == 0 else 3 * s + int(seed)
    return I(s)


def _pointer(n: Any, nxt: Any, at: Any) -> Any:
    """A chase through a captured array."""
    return fori_loop(0, n, lambda i, p: gather(nxt, p), at)


def _pointer_plain(n: Any, nxt: Any, at: Any) -> Any:
    for _ in range(int(n)):
        at = nxt[at]
    return at


_abc = tuple(values((5,), "float64", k) for k in (1, 2, 3))
_example("loop", "rotate", [(I(n), *_abc) for n in (0, 1, 2, 7)] + [(I(4), I(1), I(2), I(3))], _rotate, _rotate_plain)
_example("loop", "stencil", [(I(n), values((9,), "float64", 4), np.float64(0.25)) for n in (0, 1, 5)], _stencil,
         _stencil_plain)
_example("loop", "shift", [(I(3), values((6,), "float64", 5)), (I(3), np.zeros(0))], _shift, _shift_plain)
_example("loop", "running", [(values((4, 3), "float64", 6), np.float64(1)), (np.zeros((0, 3)), np.float64(2))],
         _running, _running_plain)
_example("loop", "backward", [(values((5, 2), "float64", 7), np.zeros(2)), (values((4,), "int64", 8), I(0))],
         _backward, _backward_plain)
_example("loop", "table", [(I(4), I(5), I(7)), (I(0), I(5), I(7)), (I(3), I(0), I(7))], _table, _table_plain)
_example("loop", "pointer", [(I(5), np.array([2, 0, 3, 1]), I(0))], _pointer, _pointer_plain)

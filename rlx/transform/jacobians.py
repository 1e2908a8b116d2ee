"""Jacobians and Hessians: derivatives of functions with array results, all directions at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rlx.array.array import Array
from rlx.array.build import as_array, broadcast, cast
from rlx.array.tree import flatten, unflatten
from rlx.core import dtype as dt
from rlx.core.errors import ValueIssue
from rlx.core.shape import count
from rlx.ops.derivative import zeros_as
from rlx.ops.movement import iota, reshape
from rlx.transform.batch import vmap
from rlx.transform.derive import grad, jvp, vjp
from rlx.transform.sweep import select_args, with_args

Argnums = int | Sequence[int]


def _directions(leaves: Sequence[Array]) -> list[list[Array]]:
    """For every element of every leaf the unit direction: for each leaf, arrays with a leading axis of directions."""
    out: list[list[Array]] = []
    for k, x in enumerate(leaves):
        n = count(x.shape)
        device = x._value.node.device
        rows = iota(n, dt.int64, device)
        one = cast(reshape(rows, (n, 1)) == reshape(rows, (1, n)), x.dtype)
        out.append([reshape(one, (n, *x.shape)) if j == k else broadcast(zeros_as(y), (n, *y.shape))
                    for j, y in enumerate(leaves)])
    return out


def jacobian(f: Callable[..., Any], /, argnums: Argnums = 0, *, mode: str = "auto") -> Callable[..., Any]:
    """The derivative of every element of the result by every element of the argument.

    For a result of shape ``s`` and an argument of shape ``t`` it has shape ``s + t``; for trees it is a tree of the
    result's structure whose leaves are trees of the argument's structure. ``mode`` is ``forward`` (one pass for each
    element of the argument), ``reverse`` (one for each element of the result), or ``auto``: forward unless the result
    is the smaller. Complex arguments: ``forward`` gives ``f'(z)`` of a holomorphic f, ``reverse`` its conjugate.

    >>> import rlx
    >>> rlx.jacobian(lambda x: x * x)(rlx.asarray([1.0, 3.0])).tolist()
    [[2.0, 0.0], [0.0, 6.0]]
    """
    if mode not in ("auto", "forward", "reverse"):
        raise ValueIssue(f"jacobian with mode={mode!r}", why="there are two modes, and a choice between them",
                         do="use forward, reverse or auto")

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        chosen, places = select_args(args, argnums)
        leaves, structure = flatten(chosen)
        arrays = [as_array(x) for x in leaves]

        def inner(tree: Any) -> Any:
            return f(*with_args(args, places, tree, isinstance(argnums, int)), **kwargs)

        def on_leaves(*xs: Array) -> Any:
            return inner(unflatten(structure, list(xs)))

        if mode == "forward":
            return _forward(on_leaves, arrays, structure)
        value, back = vjp(on_leaves, *arrays)
        outs, out_tree = flatten(value)
        if mode == "auto" and sum(count(a.shape) for a in arrays) <= sum(count(o.shape) for o in outs):
            return _forward(on_leaves, arrays, structure)
        rows = [vmap(lambda *cts: back(unflatten(out_tree, list(cts))))(*d) for d in _directions(outs)]
        return unflatten(out_tree, [
            unflatten(structure, [reshape(g, (*o.shape, *a.shape)) for g, a in zip(row, arrays, strict=True)])
            for row, o in zip(rows, outs, strict=True)])
    return wrapped


def _forward(f: Callable[..., Any], arrays: list[Array], structure: Any) -> Any:
    columns = []
    shape: Any = None
    for k, d in enumerate(_directions(arrays)):
        moved = vmap(lambda *ts: jvp(f, arrays, ts)[1], out_axes=-1)(*d)
        outs, shape = flatten(moved)
        columns.append([reshape(o, (*o.shape[:-1], *arrays[k].shape)) for o in outs])
    return unflatten(shape, [unflatten(structure, list(row)) for row in zip(*columns, strict=True)])


def hessian(f: Callable[..., Any], /, argnums: Argnums = 0) -> Callable[..., Any]:
    """The second derivatives of a real function: forward mode over its gradient. Shape ``t + t`` for an argument ``t``.

    >>> import rlx
    >>> rlx.hessian(lambda x: x[0] ** 2 * x[1])(rlx.asarray([1.0, 2.0])).tolist()
    [[4.0, 2.0], [2.0, 0.0]]
    """
    return jacobian(grad(f, argnums), argnums, mode="forward")


def hvp(f: Callable[..., Any], x: Any, v: Any) -> Any:
    """The Hessian of the real function ``f`` at ``x`` times ``v``, without the Hessian: forward over reverse.

    >>> import rlx
    >>> rlx.hvp(lambda x: (x**3).sum(), rlx.asarray([1.0, 2.0]), rlx.asarray([1.0, 1.0])).tolist()
    [6.0, 12.0]
    """
    return jvp(grad(f), (x,), (v,))[1]

"""Functions of scalars or vectors applied over whole arrays, by mapping: NumPy's ``vectorize`` and its relative."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast
from rlx.core.errors import ShapeError, ValueIssue
from rlx.core.shape import axis_index, broadcast_shapes
from rlx.transform.batch import vmap

_CORE = re.compile(r"\(([^()]*)\)")


def vectorize(f: Callable[..., Any], /, *, signature: str | None = None) -> Callable[..., Any]:
    """``f`` over the elements of broadcast arguments, as one program rather than a loop.

    With a ``signature`` such as ``"(n),(n)->()"`` the function takes arguments with those trailing axes, and the axes
    before them are looped over.

    >>> import rlx
    >>> rlx.vectorize(lambda x, y: rlx.where(x > y, x, -y))(rlx.asarray([1.0, 5.0]), 2.0).tolist()
    [-2.0, 5.0]
    >>> rlx.vectorize(lambda a, b: a @ b, signature="(n),(n)->()")(rlx.ones((2, 3)), rlx.ones(3)).tolist()
    [3.0, 3.0]
    """
    ranks = None if signature is None else _ranks(signature)

    @functools.wraps(f)
    def call(*args: Any) -> Any:
        arrays = [as_array(a) for a in args]
        core = ranks or [0] * len(arrays)
        if len(core) != len(arrays):
            raise ShapeError(f"a function with {len(core)} arguments called with {len(arrays)}",
                             why=f"its signature is {signature}", do="pass one array for each")
        for a, r in zip(arrays, core, strict=True):
            if a.ndim < r:
                raise ShapeError(f"an argument of shape {a.shape}", why=f"{signature} has {r} axes for it",
                                 do="add an axis with x[None]")
        lead = broadcast_shapes(*[a.shape[:a.ndim - r] for a, r in zip(arrays, core, strict=True)])
        mapped = f
        for _ in lead:
            mapped = vmap(mapped)
        return mapped(*[broadcast(a, (*lead, *a.shape[a.ndim - r:])) for a, r in zip(arrays, core, strict=True)])

    return call


def _ranks(signature: str) -> list[int]:
    """How many axes each argument has in ``"(m,n),(n)->(m)"``."""
    given, arrow, _ = signature.replace(" ", "").partition("->")
    if not arrow or _CORE.sub("", given).strip(","):
        raise ValueIssue(f"the signature {signature!r}", why="it lists the axes of arguments and results",
                         do='write for example "(m,n),(n)->(m)"')
    return [len([d for d in core.split(",") if d]) for core in _CORE.findall(given)]


def apply_along_axis(f: Callable[..., Any], axis: int, x: Any, /, *args: Any, **kwargs: Any) -> Array:
    """``f`` of each vector along an axis, as one program; its results lie where the axis was.

    >>> import rlx
    >>> rlx.apply_along_axis(lambda v: v[::-1] - v[0], 0, [[1.0, 2.0], [5.0, 9.0]]).tolist()
    [[4.0, 7.0], [0.0, 0.0]]
    """
    a = as_array(x)
    k = axis_index(axis, a.ndim)
    moved = FUNCTIONS["moveaxis"](a, k, -1)

    def one(v: Array) -> Any:
        return f(v, *args, **kwargs)

    mapped: Callable[..., Any] = one
    for _ in range(a.ndim - 1):
        mapped = vmap(mapped)
    out = as_array(mapped(moved))
    new: Sequence[int] = range(a.ndim - 1, out.ndim)
    return FUNCTIONS["moveaxis"](out, tuple(new), tuple(k + i for i in range(len(new)))) if len(new) else out

"""Arguments of the iterative solvers: operators, preconditioners, vectors and limits, checked alike by all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.array.tree import flatten, register_pytree
from rlx.core import dtype as dt
from rlx.core.errors import DeviceError, DTypeError, ShapeError, TraceError, ValueIssue
from rlx.ops.creation import asarray, zeros
from rlx.ops.elementwise import astype
from rlx.sparse.bands import bands_of
from rlx.sparse.base import SparseMatrix
from rlx.sparse.csr import CSR, DTYPES, as_csr
from rlx.transform.derive import vjp

Apply = Callable[[Array], Array]


class Function:
    """A plain function as a pytree without leaves. ``square``: it must keep the type and shape of its argument."""

    def __init__(self, f: Apply, square: bool = True) -> None:
        self.f, self.square = f, square

    def __call__(self, x: Array) -> Array:
        y = self.f(x)
        fits = isinstance(y, Array) and y.dtype == x.dtype and (y.shape == x.shape if self.square else y.ndim == 1)
        if not fits:
            got = f"{y.dtype.name}{list(y.shape)}" if isinstance(y, Array) else type(y).__name__
            raise ShapeError(f"an operator returned {got} for {x.dtype.name}{list(x.shape)}",
                             why="A and M give an array of the type and shape that they take" if self.square else
                                 "A gives a vector of the type that it takes",
                             do="return the product with its argument, in the argument's dtype")
        return y


register_pytree(Function, lambda op: ((), (op.f, op.square)), lambda data, _: Function(*data))


class Adjoint:
    """The conjugate transpose of a linear operator on vectors of ``size``, found by differentiating it; a pytree."""

    def __init__(self, of: Any, size: int) -> None:
        self.of, self.size = of, size

    def __call__(self, y: Array) -> Array:
        start = zeros((self.size,), dtype=y.dtype, device=y._value.node.device)
        out: Array = vjp(lambda x: apply(self.of, x), start)[1](y)[0]
        return out


register_pytree(Adjoint, lambda a: ((a.of,), a.size), lambda size, parts: Adjoint(parts[0], size))


def apply(op: Any, x: Array) -> Array:
    """The product of an operator, a matrix or a function, with a vector."""
    out: Array = op @ x if isinstance(op, SparseMatrix) else op(x)
    return out


def adjoint(op: Any, size: int) -> Any:
    """The conjugate transpose of an operator with ``size`` columns (None stays None)."""
    if op is None:
        return None
    if isinstance(op, CSR):
        return Adjoint(op, size) if op.indices.is_traced or op.indptr.is_traced else op.H
    turned = getattr(op, "H", None)
    return Adjoint(op, size) if turned is None else turned


def square_system(who: str, A: Any, b: Any, x0: Any, device: str | None) -> tuple[Any, Array, Array | None]:
    """A square operator, the right-hand side and the guess, in one dtype on one device."""
    operator, vector = _matched(who, A, b, x0, device)
    n = int(vector.shape[0])
    if isinstance(operator, CSR):
        if operator.shape[0] != operator.shape[1]:
            raise ShapeError(f"{who} with a matrix of shape {operator.shape}", why=f"{who} needs a square matrix",
                             do="for least squares use rlx.sparse.lsqr or rlx.sparse.lsmr")
        if operator.shape[0] != n:
            raise ShapeError(f"{who} with a matrix of shape {operator.shape} and b of length {n}",
                             why="the sizes differ", do="pass a right-hand side with one element for each row")
        operator = bands_of(operator) or operator
    return operator, vector, _guess(who, x0, vector, n)


def rectangular_system(who: str, A: Any, b: Any, x0: Any, device: str | None) -> tuple[Any, Any, Array, Any, int]:
    """An operator of any shape, its conjugate transpose, b, the guess, and the number of unknowns."""
    operator, vector = _matched(who, A, b, x0, device)
    if isinstance(operator, CSR):
        if operator.shape[0] != vector.shape[0]:
            raise ShapeError(f"{who} with a matrix of shape {operator.shape} and b of length {vector.shape[0]}",
                             why="the sizes differ", do="pass a right-hand side with one element for each row")
        n = int(operator.shape[1])
    elif x0 is None:
        raise ShapeError(f"{who} with a function and no x0", why="a function does not say how many unknowns it takes",
                         do="pass x0, for example zeros")
    else:
        n = int(_vector(who, x0, vector.device, "x0").shape[0])
        operator = Function(operator.f, False) if isinstance(operator, Function) else operator
    return operator, adjoint(operator, n), vector, _guess(who, x0, vector, n), n


def _matched(who: str, A: Any, b: Any, x0: Any, device: str | None) -> tuple[Any, Array]:
    operator = as_operator(who, A, device, "A", None)
    where = device or _common_device(who, A=A, b=b, x0=x0) or (operator.device if isinstance(operator, CSR) else None)
    if isinstance(operator, CSR) and where is not None:
        operator = operator.to_device(where) if operator.device != where else operator
    vector = _vector(who, b, where, "b")
    if isinstance(operator, CSR):
        common = dt.common_type(operator.dtype, vector.dtype)
        operator = operator if operator.dtype == common else operator.astype(common)
        vector = astype(vector, common)
    return operator, vector


def _guess(who: str, x0: Any, vector: Array, n: int) -> Array | None:
    if x0 is None:
        return None
    guess = astype(_vector(who, x0, vector.device, "x0"), vector.dtype)
    if guess.shape != (n,):
        raise ShapeError(f"{who} with x0 of length {guess.shape[0]} for {n} unknowns", why="the sizes differ",
                         do="pass a guess with one element for each unknown")
    return guess


def _common_device(who: str, **given: Any) -> str | None:
    """The device of the rlx arrays among the arguments; arrays of NumPy and SciPy follow them."""
    places = {name: v.device for name, v in given.items() if isinstance(v, (Array, SparseMatrix))}
    if len(set(places.values())) > 1:
        raise DeviceError(f"{who} with {', '.join(f'{n} on {d}' for n, d in places.items())}",
                          why="a program runs on one device", do="move them to one device, or pass device=")
    return next(iter(places.values()), None)


def as_operator(who: str, a: Any, device: str | None, name: str, size: int | None) -> Any:
    """A CSR, a callable pytree, or a :class:`Function`; None stays None for a preconditioner."""
    if a is None and name == "M":
        return None
    if isinstance(a, (list, tuple)):
        a = np.asarray(a)
    if hasattr(a, "tocsr") or (hasattr(a, "ndim") and not callable(a)):
        m = as_csr(a, device)
        if size is not None and m.shape != (size, size):
            raise ShapeError(f"{who} with {name} of shape {m.shape}", why=f"the system has {size} unknowns",
                             do="pass a matrix of the system's shape")
        return m
    if type(a).__name__.endswith("LinearOperator") and hasattr(a, "matvec"):
        raise DTypeError(f"{who} with {name} a scipy LinearOperator", why="its product runs in NumPy on the host",
                         do="pass a function of an rlx array, a CSR, or a scipy.sparse matrix")
    if not callable(a):
        raise DTypeError(f"{who} with {name} of type {type(a).__name__}", why="it is neither a matrix nor a function",
                         do="pass a CSR, a scipy.sparse matrix, an array, or a function of an array")
    return Function(a) if flatten(a)[0] == [a] else a


def _vector(who: str, x: Any, device: str | None, name: str) -> Array:
    v = as_array(x, device=device) if not isinstance(x, Array) else asarray(x, device=device)
    if v.ndim == 2 and v.shape[1] == 1:
        v = v.reshape((-1,))
    if v.ndim != 1:
        raise ShapeError(f"{who} with {name} of shape {v.shape}", why="it must be a vector",
                         do="pass one right-hand side at a time, or map over them with rlx.vmap")
    if v.dtype.kind in "biu":
        return astype(v, dt.float64)
    if v.dtype not in DTYPES:
        raise DTypeError(f"{who} with {name} of {v.dtype.name}", why="the solver takes f32, f64, c64 and c128",
                         do="cast it with .astype(rlx.float32)")
    return v


def check_limits(who: str, maxiter: Any, rtol: Any, atol: Any, default: int) -> int:
    """The iteration limit; refuses tolerances that are not numbers of at least 0."""
    for name, v in (("rtol", rtol), ("atol", atol)):
        if isinstance(v, Array) and v.is_traced:
            continue
        try:
            good = float(v) >= 0
        except (TypeError, ValueError):
            good = False
        if not good:
            raise ValueIssue(f"{who} with {name}={v!r}", why="a tolerance is one number of at least 0",
                             do="pass a small positive number")
    if maxiter is None:
        return default
    return count_of(who, "maxiter", maxiter, 0)


def count_of(who: str, name: str, value: Any, least: int) -> int:
    """An integer argument of at least ``least``."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < least:
        raise ValueIssue(f"{who} with {name}={value!r}", why="it counts iterations",
                         do=f"pass an integer of at least {least}")
    return int(value)


def check_callback(who: str, callback: Any, traced: bool) -> None:
    """A callback is a function, and not inside a traced function."""
    if callback is not None and not callable(callback):
        raise DTypeError(f"{who} with callback of type {type(callback).__name__}",
                         why="it is called after each iteration", do="pass a function of x")
    if callback is not None and traced:
        raise TraceError(f"{who} with a callback inside a traced function",
                         why="a callback is Python between iterations",
                         do="drop the callback; the residual history is in info")


def number(v: Any) -> Any:
    """A tolerance as an argument of a program."""
    return v if isinstance(v, Array) else float(v)

"""Derivative rules of primitives that are not in the elementwise table: selection, casts, complex parts, movement.

A cotangent of a complex value ``z = x + iy`` is ``dL/dx + i dL/dy`` (the direction of steepest ascent of a real
``L``), so a holomorphic step multiplies it by the conjugate of its derivative. A tangent is ``dx + i dy``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import broadcast, cast, emit, emit1, literal
from rlx.ir.op import REGISTRY, NotDifferentiable
from rlx.ops.elementwise import where
from rlx.ops.index import take_along_axis
from rlx.ops.movement import reshape
from rlx.ops.reduce import sum as _sum
from rlx.ops.sort import order_of

Tangents = Sequence[Array | None]


def zeros_as(x: Array) -> Array:
    """Zeros of the type of ``x``, as a constant of the program."""
    return broadcast(literal(0, x.dtype, x._value.node.device), x.shape)


def filled(t: Array | None, like: Array) -> Array:
    """A tangent, with zeros for one that is absent."""
    return zeros_as(like) if t is None else t


# Selection and conversion

_select, _cast, _bitcast = REGISTRY["select"], REGISTRY["cast"], REGISTRY["bitcast"]


@_select.grad
def _(ct: Array, out: Array, c: Array, x: Array, y: Array) -> tuple[None, Array, Array]:
    zero = zeros_as(ct)
    return None, emit1("select", c, ct, zero), emit1("select", c, zero, ct)


@_select.jvp
def _(t: Tangents, out: Array, c: Array, x: Array, y: Array) -> Array:
    return emit1("select", c, filled(t[1], x), filled(t[2], y))


@_cast.grad
def _(ct: Array, out: Array, x: Array, *, dtype: Any) -> tuple[Array]:
    if ct.dtype.is_complex and not x.dtype.is_complex:
        ct = FUNCTIONS["real"](ct)
    return (cast(ct, x.dtype),)


@_cast.jvp
def _(t: Tangents, out: Array, x: Array, *, dtype: Any) -> Array:
    return cast(filled(t[0], x), dtype)


_bitcast.grad(NotDifferentiable("it reads bits, not values"))


# Complex parts

@REGISTRY["complex"].grad
def _(ct: Array, out: Array, x: Array, y: Array) -> tuple[Array, Array]:
    return emit1("real", ct), emit1("imag", ct)


@REGISTRY["complex"].jvp
def _(t: Tangents, out: Array, x: Array, y: Array) -> Array:
    return emit1("complex", filled(t[0], x), filled(t[1], y))


@REGISTRY["real"].grad
def _(ct: Array, out: Array, x: Array) -> tuple[Array]:
    return (emit1("complex", ct, zeros_as(ct)) if x.dtype.is_complex else ct,)


@REGISTRY["imag"].grad
def _(ct: Array, out: Array, x: Array) -> tuple[Array]:
    return (emit1("complex", zeros_as(ct), ct),)


@REGISTRY["conj"].grad
def _(ct: Array, out: Array, x: Array) -> tuple[Array]:
    return (FUNCTIONS["conj"](ct),)


@REGISTRY["abs"].grad
def _(ct: Array, out: Array, x: Array) -> tuple[Array]:
    return (cast(ct, x.dtype) * _direction(x, out),)


@REGISTRY["abs"].jvp
def _(t: Tangents, out: Array, x: Array) -> Array:
    tangent: Array = FUNCTIONS["real"](FUNCTIONS["conj"](_direction(x, out)) * filled(t[0], x))
    return tangent


def _direction(x: Array, modulus: Array) -> Array:
    """``x / |x|``, 0 at 0."""
    zero = FUNCTIONS["equal"](modulus, 0)
    out: Array = FUNCTIONS["sign"](x) if not x.dtype.is_complex else where(
        zero, 0, x / cast(where(zero, 1, modulus), x.dtype))
    return out


@REGISTRY["sign"].grad
def _(ct: Array, out: Array, x: Array) -> tuple[Array | None]:
    return (_turn(ct, out, x),)


@REGISTRY["sign"].jvp
def _(t: Tangents, out: Array, x: Array) -> Array | None:
    return _turn(filled(t[0], x), out, x)


def _turn(v: Array, s: Array, x: Array) -> Array | None:
    """The derivative of ``z / |z|`` along ``v``: only the part across ``z`` turns it. Its own adjoint."""
    if not x.dtype.is_complex:
        return None
    along = FUNCTIONS["real"](FUNCTIONS["conj"](s) * v)
    modulus = FUNCTIONS["abs"](x)
    zero = FUNCTIONS["equal"](modulus, 0)
    out: Array = where(zero, 0, (v - s * cast(along, s.dtype)) / cast(where(zero, 1, modulus), s.dtype))
    return out


# Linear primitives carry a tangent through themselves

def _linear(name: str, *which: int) -> None:
    """The tangent of ``op(x, ...)`` is ``op(tangent of x, ...)``; ``which`` operands are linear (all by default)."""
    def rule(t: Tangents, out: Any, *args: Array, **attrs: Any) -> Any:
        places = which or range(len(args))
        moved = [filled(t[i], a) if i in places else a for i, a in enumerate(args)]
        outs = emit(name, moved, attrs)
        return outs[0] if len(outs) == 1 else outs
    REGISTRY[name].jvp(rule)


for _name in ("reshape", "permute", "broadcast", "slice", "pad", "flip", "concat", "window", "real", "imag", "conj"):
    _linear(_name)
_linear("gather", 0)


@REGISTRY["dot"].jvp
def _(t: Tangents, out: Array, x: Array, y: Array, **attrs: Any) -> Array | None:
    parts = []
    if t[0] is not None:
        parts.append(emit1("dot", t[0], y, **attrs))
    if t[1] is not None:
        parts.append(emit1("dot", x, t[1], **attrs))
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


@REGISTRY["sort"].jvp
def _(t: Tangents, out: Any, *xs: Array, axis: int, descending: bool) -> tuple[Array | None, ...]:
    order = order_of(xs[0], axis, descending)
    return tuple([None if d is None else take_along_axis(d, order, axis=axis) for d in t])


def _when(name: str, kind: str, which: tuple[int, ...]) -> None:
    """Like the linear rule, for the kind of reduction that is linear; the other kinds go by their gradient."""
    def rule(t: Tangents, out: Array, *args: Array, **attrs: Any) -> Any:
        if attrs["kind"] != kind:
            return NotImplemented
        return emit1(name, *[filled(t[i], a) if i in which else a for i, a in enumerate(args)], **attrs)
    REGISTRY[name].jvp(rule)


_when("reduce", "sum", (0,))
_when("segment_reduce", "sum", (0,))
_when("scan", "add", (0,))


@REGISTRY["scatter"].jvp
def _(t: Tangents, out: Array, x: Array, update: Array, *index: Array, kind: str) -> Any:
    if kind == "add" or (kind == "set" and index[0].shape == ()):
        return emit1("scatter", filled(t[0], x), filled(t[1], update), *index, kind=kind)
    return NotImplemented


__all__ = ["_sum", "filled", "reshape", "zeros_as"]

"""The one-file op form: ``@op`` makes a typed function whose rules are attached beside it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, cast

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, constant, emit, is_scalar, promote, trace
from rlx.array.eager import STEPPED, stepped
from rlx.array.hooks import default_device, default_float
from rlx.core.errors import RlxError, TraceError
from rlx.ir.graph import Graph, Type
from rlx.ir.op import REGISTRY, Op

P = ParamSpec("P")
R = TypeVar("R")


class OpFunction(Op, Generic[R]):
    """An op that is called with arrays. Parameters annotated ``Array`` are operands, all others are attributes."""

    def __init__(self, f: Callable[..., R], name: str | None = None) -> None:
        super().__init__(name or f.__name__, doc=inspect.getdoc(f) or "")
        self.signature: inspect.Signature = inspect.signature(f)
        self.__name__ = f.__name__
        self.__qualname__ = f.__qualname__
        self.__module__ = f.__module__
        self.__doc__ = f.__doc__
        self.__wrapped__ = f
        self.operands: dict[str, str] = {}
        for p in self.signature.parameters.values():
            note = str(p.annotation)
            if "Array" in note:
                many = p.kind is p.VAR_POSITIONAL or "Sequence" in note or "list" in note or "tuple" in note
                self.operands[p.name] = "many" if many else "optional" if "None" in note else "one"

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arrays, attrs = self._split(bound.arguments)
        graph = self.graph(tuple([a._type for a in arrays]), attrs, arrays)
        outs = emit(self.name, arrays, attrs, types=tuple([v.type for v in graph.outputs]))
        return cast(R, outs[0] if graph.name == "one" else outs)

    def _split(self, arguments: dict[str, Any]) -> tuple[list[Array], dict[str, Any]]:
        """Operands in order, and attributes; a ``layout`` attribute says which optional operands are there."""
        given: list[Any] = []
        attrs: dict[str, Any] = {}
        layout: list[tuple[str, int]] = []
        for name, value in arguments.items():
            kind = self.operands.get(name)
            if kind is None:
                attrs[name] = freeze(value)
            elif kind == "many":
                given.extend(value)
                layout.append((name, len(value)))
            elif value is not None:
                given.append(value)
                layout.append((name, -1))
            elif kind == "one":
                raise RlxError(f"{self.name}() needs an array for {name!r}, got None", why="the operand is required",
                               do="pass an array")
        if any(k != "one" for k in self.operands.values()):
            attrs["layout"] = tuple(layout)
        return _weak(given), attrs

    def arguments(self, arrays: list[Any], attrs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Inverse of the split: positional and keyword arguments for a rule, from operands and attributes."""
        rest = dict(attrs)
        layout = rest.pop("layout", tuple((n, -1) for n in self.operands))
        it = iter(arrays)
        values: dict[str, Any] = dict.fromkeys(self.operands)
        for name, count in layout:
            values[name] = next(it) if count < 0 else [next(it) for _ in range(count)]
        values.update(rest)
        positional: list[Any] = []
        keyword: dict[str, Any] = {}
        for p in self.signature.parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                positional.extend(values[p.name])
            elif p.kind is p.KEYWORD_ONLY:
                keyword[p.name] = values[p.name]
            else:
                positional.append(values[p.name])
        return positional, keyword

    def graph(self, types: tuple[Type, ...], attrs: dict[str, Any], arrays: list[Array] | None = None) -> Graph:
        """The decomposition for these types, traced once. Its name is ``one`` or ``many`` outputs."""
        device = next((a._home for a in arrays or () if a._home), None)
        floats = default_float(device or default_device())
        key = (types, tuple(sorted(attrs.items(), key=lambda kv: kv[0])), floats, device)
        found = self.traced.get(key)
        if found is None:
            found = self.traced[key] = self._trace(types, attrs, device)
        return found

    def _trace(self, types: tuple[Type, ...], attrs: dict[str, Any], device: str | None) -> Graph:
        body = self.rule("decompose") or self.__wrapped__
        many = [False]

        def run(*xs: Array) -> Any:
            positional, keyword = self.arguments(list(xs), attrs)
            out = body(*positional, **keyword)
            many[0] = not isinstance(out, Array)
            return out

        graph, _, captured = trace(run, types, device)
        if captured:
            raise TraceError(f"the decomposition of {self.name} uses an array that is not an argument",
                             why="an op must be a function of its operands", do="pass it as an operand")
        return Graph(graph.inputs, graph.outputs, "many" if many[0] else "one")


def _weak(given: list[Any]) -> list[Array]:
    """Operands as arrays; Python numbers (and arrays that stand for them) take the dtype of the others."""
    out = [x if is_scalar(x) else as_array(x) for x in given]
    firm = [a for a in out if isinstance(a, Array) and not a._weak]
    if len(firm) == len(out):
        return firm
    device = next((a._home for a in firm if a._home), None)
    return [a if isinstance(a, Array) and not a._weak else _like(a, firm, device) for a in out]


def _like(number: Any, firm: list[Array], device: str | None) -> Array:
    """A weak number in the dtype it takes beside the firm operands."""
    meeting = promote(number, *firm)[0]
    return meeting if isinstance(number, Array) else constant(number, meeting.dtype, device)


def freeze(x: Any) -> Any:
    """A hashable form of an attribute: lists become tuples, dicts sorted tuples, dtypes rlx dtypes."""
    if isinstance(x, (list, tuple)):
        return tuple(freeze(v) for v in x)
    if isinstance(x, dict):
        return tuple(sorted((k, freeze(v)) for k, v in x.items()))
    if hasattr(x, "item") and getattr(x, "ndim", None) == 0:
        return x.item()
    return x


def op(f: Callable[..., R]) -> OpFunction[R]:
    """Define an op: the decorated function gives its signature and documentation.

    Its body is used as the decomposition unless ``@name.decompose`` sets one.
    """
    return _register(OpFunction(f))


def op_named(name: str) -> Callable[[Callable[..., R]], OpFunction[R]]:
    """Like :func:`op`, with a registry name that differs from the function's (``splat.rasterize``)."""
    def wrap(f: Callable[..., R]) -> OpFunction[R]:
        return _register(OpFunction(f, name))
    return wrap


def _register(made: OpFunction[R]) -> OpFunction[R]:
    REGISTRY.add(made)
    FUNCTIONS[made.name] = cast(Callable[..., Array], made)
    return made


def primitive(name: str) -> Op:
    """Register the rules holder of a primitive."""
    made = Op(name, primitive=True)
    REGISTRY.add(made)
    return made


def apply(made: Op, args: Sequence[Any], attrs: dict[str, Any], device: str | None = None) -> Any:
    """An op, or a primitive, on arrays and attributes as its samples give them."""
    if isinstance(made, OpFunction):
        return made(*args, **attrs)
    call = made.rule("call")
    if call is not None:
        return call(*args, **attrs)
    outs = emit(made.name, [as_array(a, device=device) for a in args], attrs, device=device)
    return outs[0] if len(outs) == 1 else outs


def public(f: Callable[P, R]) -> Callable[P, R]:
    """A public function made of ops: it has no node of its own. Array methods find it by name.

    Where it has nothing to do and gives back its argument, its caller gets a box of its own, so that a later
    ``x[i] = v`` on one is never seen through the other.
    """
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        out = f(*args, **kwargs)
        if args and out is args[0] and isinstance(out, Array):
            return cast(R, Array(out._cell, out._weak))
        return out

    if f.__name__ in STEPPED:
        call = stepped(f.__name__, call)
    call = functools.wraps(f)(call)
    FUNCTIONS[f.__name__] = cast(Callable[..., Array], call)
    return call


def function(name: str) -> Callable[..., Any]:
    """A public function by name, for floors below the one that defines it."""
    return FUNCTIONS[name]

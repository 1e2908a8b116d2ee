"""``rlx.jit``: trace a function once for each specialization, then run the compiled program."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

from rlx.array.array import Array
from rlx.array.build import as_array, concrete, constant, is_scalar, tracing
from rlx.array.hooks import default_device, default_float, hooks
from rlx.array.tree import Tree, flatten, unflatten
from rlx.core import dtype as dt
from rlx.core import flags
from rlx.core.errors import DeviceError, DTypeError, RlxError, ValueIssue
from rlx.core.where import here
from rlx.ir.graph import Graph, Type, Value, bind_sizes, close, inline, parameter


@dataclass(frozen=True, slots=True)
class Traced:
    """A function traced for one specialization: its graph, captured values, and the structure of its result."""

    graph: Graph
    captured: tuple[Value, ...]
    structure: Tree
    device: str

    def bind(self, **sizes: int) -> Traced:
        """The same function with symbolic dimensions replaced by sizes."""
        return replace(self, graph=bind_sizes(self.graph, sizes))


@dataclass(slots=True)
class Specialization:
    """A traced function and the program made of it."""

    traced: Traced
    program: Any
    #: What may have failed, by the last outputs of the program.
    watches: tuple[Any, ...] = ()
    #: Storage of the captured values, and what the program keeps of them between calls.
    fixed: list[Any] | None = None
    #: Entries that the native call has been given for it.
    entries: int = 0


#: Entries for one specialization (arguments may differ in what is compared by identity), and for one function.
ENTRIES, MOST = 4, 64


Guard = tuple[Any, ...]


class Jitted:
    """A function that is compiled when it is called: see :func:`jit`.

    Where a device has native calls, ``__call__`` is one: it finds the specialization and runs it without the
    interpreter, by the table in ``_table``, and calls :meth:`call_in_python` only when nothing matches.
    """

    __slots__ = ("__dict__", "__weakref__", "_table")
    _table: tuple[Any, ...]

    __name__: str

    def __init__(self, f: Callable[..., Any], static_argnums: Sequence[int], static_argnames: Sequence[str],
                 device: str | None, dispatch: str | None, overrides: dict[str, str]) -> None:
        functools.update_wrapper(self, f)
        self._f = f
        self._static = frozenset(static_argnames) | frozenset(_names_of(f, static_argnums))
        self._static_at = frozenset(static_argnums)
        self._device, self._dispatch, self._overrides = device, dispatch, overrides
        self._specializations: dict[Guard, Specialization] = {}
        self._last: Guard | None = None
        self._entries: list[tuple[Specialization, flags.Snapshot, Any]] = []
        self._state: Any = None
        self.misses: list[str] = []

    def call_in_python(self, *args: Any, **kwargs: Any) -> Any:
        """The call in full: flatten the arguments, find or make the specialization, run it."""
        leaves, structure, static = self._split(args, kwargs)
        pending = False
        for x in leaves:
            if isinstance(x, Array) and not x.is_evaluated:
                if x.is_traced:
                    return self._inline(leaves, structure, static)
                pending = True
        guard = self._guard(leaves, structure, static)
        found = self._specializations.get(guard)
        if found is None:
            found = self._specialize(guard, leaves, structure, static)
        elif pending and found.entries and not kwargs:
            for x in leaves:
                _storage(x, found.traced.device)
            return self(*args)
        elif not kwargs:
            self._call_natively(found, args, leaves, static)
        device = found.traced.device
        inputs = [_storage(x, device) for x in leaves]
        outs = found.program.run([*inputs, *_fixed(found)])
        types = found.program.outputs
        if found.watches:
            late = len(outs) - len(found.watches)
            hooks.raise_failure(found.watches, outs[late:], device)
            outs, types = outs[:late], types[:late]
        arrays = [concrete(s, t.dtype, t.shape, device) for s, t in zip(outs, types, strict=True)]
        return unflatten(found.traced.structure, arrays)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A compiled function in a class is a method: the instance is its first argument, as any pytree or static."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call_in_python(*args, **kwargs)

    def _call_natively(self, found: Specialization, args: tuple[Any, ...], leaves: list[Any], static: Guard) -> None:
        """Give the native call an entry for arguments like these, under the present flags."""
        current, state = flags.snapshot(), flags.state()
        changed = state != self._state
        if current.check or found.watches or not (changed or found.entries < ENTRIES):
            return
        calls = hooks.calls(found.traced.device)
        if calls is None:
            found.entries = ENTRIES
            return
        if not changed or all(f is not found or s is not current for f, s, _ in self._entries):
            entry = calls.specialized(found.program.executable, args, leaves, dict(static), _fixed(found),
                                      found.program.outputs, found.traced.structure)
            found.entries = ENTRIES if entry is None else found.entries + 1
            if entry is not None:
                self._entries = [(found, current, entry), *self._entries][:MOST]
        self._table = calls.table_of([e for _, s, e in self._entries if s is current])
        self._state = state
        calls.install()

    # Specializing

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """The compiled program for these arguments, without running it: ``.report``, ``.text(level)``."""
        leaves, structure, static = self._split(args, kwargs)
        guard = self._guard(leaves, structure, static)
        found = self._specializations.get(guard) or self._specialize(guard, leaves, structure, static)
        return found.program

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """The traced graph for these arguments, before any compiling."""
        return self._trace(*self._split(args, kwargs))

    @property
    def cache_size(self) -> int:
        """How many specializations there are."""
        return len(self._specializations)

    def _specialize(self, guard: Guard, leaves: list[Any], structure: Tree, static: Guard) -> Specialization:
        self.misses.append(self._why(guard))
        traced = self._trace(leaves, structure, static)
        graph, watches = hooks.watch(traced.graph)
        program = hooks.compile(graph, traced.device, self._dispatch, self._overrides, self.__name__,
                                len(traced.captured))
        found = self._specializations[guard] = Specialization(traced, program, watches)
        self._last = guard
        return found

    def _trace(self, leaves: list[Any], structure: Tree, static: Guard) -> Traced:
        device = self._place(leaves)
        with tracing() as depth:
            params = [parameter(_type(x, device), depth, here(2), device) for x in leaves]
            weak = [is_scalar(x) or (isinstance(x, Array) and x._weak) for x in leaves]
            arrays = [Array(p, weak=w) for p, w in zip(params, weak, strict=True)]
            result = self._call(arrays, structure, static)
            out_leaves, out_structure = flatten(result)
            outputs = [self._output(x, device)._value for x in out_leaves]
            graph, captured = close(outputs, params, depth, getattr(self, "__name__", "jitted"))
        for v in captured:
            if v.node.device not in (None, device):
                raise DeviceError(f"the function runs on {device} and uses an array on {v.node.device}",
                                  where=v.node.where,
                                  why="a program runs on one device", do=f"move it with .to_device({device!r})")
        return Traced(graph, tuple(captured), out_structure, device)

    def _output(self, x: Any, device: str) -> Array:
        try:
            return as_array(x, device=device)
        except DTypeError:
            raise DTypeError(f"{self.__name__}() returns a {type(x).__name__}",
                             why="the results of a program are arrays and numbers, in lists, tuples, dicts and "
                             "registered classes", do="return the rest from a function around it") from None

    def _call(self, arrays: list[Array], structure: Tree, static: Guard) -> Any:
        args, kwargs = unflatten(structure, arrays)
        args = list(args)
        for i, v in static:
            if isinstance(i, int):
                args[i] = v
            else:
                kwargs[i] = v
        return self._f(*args, **kwargs)

    def _inline(self, leaves: list[Any], structure: Tree, static: Guard) -> Any:
        """Inside another trace the function's graph becomes part of the outer one."""
        device = self._place(leaves)
        arrays = [_number(x, device) if is_scalar(x) else as_array(x) for x in leaves]
        traced = self._trace(list(arrays), structure, static)
        values = inline(traced.graph, [*[a._value for a in arrays], *traced.captured])
        return unflatten(traced.structure, [Array(v) for v in values])

    # Guards

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Tree, Guard]:
        static: list[tuple[int | str, Any]] = []
        if self._static_at or self._static:
            static += [(i, a) for i, a in enumerate(args) if i in self._static_at]
            static += [(k, v) for k, v in kwargs.items() if k in self._static]
            args = tuple([None if i in self._static_at else a for i, a in enumerate(args)])
            kwargs = {k: None if k in self._static else v for k, v in kwargs.items()}
        leaves, structure = flatten((args, kwargs))
        return leaves, structure, tuple(static)

    def _guard(self, leaves: list[Any], structure: Tree, static: Guard) -> Guard:
        try:
            types = tuple([_spec(x) for x in leaves])
        except RlxError:
            raise
        except TypeError as e:
            raise ValueIssue(f"{self.__name__}() was given an argument, or a part of one, of type {e}",
                             why="it is neither an array nor a number, and no registered class",
                             do="pass arrays and numbers, mark hashable values with static_argnames, or register the "
                             "class with rlx.register_pytree") from None
        try:
            guard = (structure, types, static, self._place(leaves), self._dispatch, flags.snapshot().key)
            hash(guard)
        except TypeError as e:
            raise ValueIssue(f"{self.__name__}() was given a static argument that is not hashable", why=str(e),
                             do="pass a tuple for a list, or what does hash") from None
        return guard

    def _place(self, leaves: list[Any]) -> str:
        """The device all the arrays are on."""
        found = self._device
        for x in leaves:
            home = x._home if isinstance(x, Array) else None
            if home is None or home == found:
                continue
            if found is not None:
                raise DeviceError(f"{self.__name__}() runs on {found} and was given an array on {home}",
                                  why="a program runs on one device", do=f"move it with .to_device({found!r})")
            found = home
        return found or default_device()

    def _why(self, guard: Guard) -> str:
        """The first guard that differs from the last specialization."""
        if self._last is None:
            return "first call"
        names = ("argument structure", "argument types", "static arguments", "device", "dispatch policy", "flags")
        for name, old, new in zip(names, self._last, guard, strict=True):
            if old != new:
                if name == "argument types":
                    for i, (a, b) in enumerate(zip(old, new, strict=False)):
                        if a != b:
                            return f"argument {i} changed from {_spell(a)} to {_spell(b)}"
                return f"{name} changed from {old} to {new}"
        return "an earlier specialization was dropped"


def _names_of(f: Callable[..., Any], nums: Sequence[int]) -> list[str]:
    if not nums:
        return []
    names = list(inspect.signature(f).parameters)
    return [names[i] for i in nums]


def _spec(x: Any) -> Any:
    if isinstance(x, Array):
        t = x._type
        return (t.dtype, t.shape, x.device)
    if is_scalar(x):
        return type(x)
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return (dt.as_dtype(x.dtype), tuple(x.shape), None)
    raise TypeError(type(x).__name__)


def _spell(spec: Any) -> str:
    return spec.__name__ if isinstance(spec, type) else f"{spec[0].short}{list(spec[1])}"


def _type(x: Any, device: str) -> Type:
    if isinstance(x, Type):
        return x
    if isinstance(x, Array):
        return x._type
    if is_scalar(x):
        return Type(dt.default_of(x, default_float(device)), ())
    return Type(dt.as_dtype(x.dtype), tuple(x.shape))


def _storage(x: Any, device: str) -> Any:
    if not isinstance(x, Array):
        d = dt.default_of(x, default_float(device)) if is_scalar(x) else None
        x = as_array(x, d, device)
    return x._evaluate()


def _number(x: Any, device: str) -> Array:
    """A Python number as an array of the device's type that still takes the dtype of what it meets."""
    return Array(constant(x, dt.default_of(x, default_float(device)), device)._value, weak=True)


def _fixed(found: Specialization) -> list[Any]:
    """The captured values, which no call changes, and what the program makes of them alone, once."""
    if found.fixed is None:
        captured = [_concrete(v) for v in found.traced.captured]
        found.fixed = [*captured, *found.program.prepare(captured)]
    return found.fixed


def _concrete(v: Value) -> Any:
    return Array(v)._evaluate()


def jit(f: Callable[..., Any] | None = None, /, *, static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (), device: str | None = None, dispatch: str | None = None,
        overrides: dict[str, str] | None = None) -> Any:
    """Compile ``f`` as one program for each combination of argument types.

    Arrays and numbers (in any pytree) are inputs; a new number or new data never recompiles. Arguments named in
    ``static_argnames`` are part of the specialization. ``dispatch`` is the policy (``prefer_native``, ``common``,
    ``strict``), ``overrides`` the policy of single ops. The result's ``.lower(*args)`` gives report and text.

    >>> import rlx
    >>> f = rlx.jit(lambda x: (x * 2).sum())
    >>> f(rlx.arange(4)).item()
    12
    """
    if f is None:
        return lambda g: jit(g, static_argnums=static_argnums, static_argnames=static_argnames, device=device,
                             dispatch=dispatch, overrides=overrides)
    if not callable(f):
        raise RlxError(f"jit of {type(f).__name__}", why="only functions are compiled", do="pass a function")
    nums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    return Jitted(f, nums, names, device, dispatch, overrides or {})


def spec(dtype: Any, shape: Sequence[Any]) -> Type:
    """A type to trace with in place of an array; sizes are numbers or symbolic dimensions (:func:`rlx.dim`)."""
    return Type(dt.as_dtype(dtype), tuple(shape))


def make_graph(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Traced:
    """The graph of ``f`` on arguments of these types: arrays, numbers, or types made by :func:`spec`.

    >>> import rlx
    >>> n = rlx.dim("n", low=1)
    >>> t = rlx.make_graph(lambda x: rlx.concat([x, x]).sum(axis=1), rlx.spec("f32", (n, 3)))
    >>> str(t.graph.outputs[0].type), str(t.bind(n=5).graph.outputs[0].type)
    ('f32[2*n]', 'f32[10]')
    """
    return Jitted(f._f if isinstance(f, Jitted) else f, (), (), None, None, {}).trace(*args, **kwargs)

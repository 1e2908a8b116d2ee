"""A loaded model: a pytree of weights that is called with arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.array.jit import jit
from rlx.array.tree import flatten
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.formats.onnx.graph import Functions, Graph, Port
from rlx.formats.onnx.operators import TABLE
from rlx.formats.onnx.read import Reader, parse
from rlx.formats.onnx.run import Run, known
from rlx.formats.onnx.table import Value, ValuesNeeded, dtype_of, upload

#: A float constant of a node with at least as many elements is a weight: some exporters write weights so.
_LARGE = 16
#: Integer inputs of so few elements may decide shapes, and so many choices are compiled.
_SMALL, _CHOICES = 8, 16


class Program:
    """What a model computes, without its weights: hashable by identity, as a static field must be."""

    def __init__(self, graph: Graph, functions: Functions) -> None:
        self.graph, self.functions = graph, functions
        #: Shapes depend on data: nodes run one after another instead of as one program.
        self.stepwise = False
        #: Programs for choices of integers that shapes depend on.
        self.decided: dict[Any, Program] = {}
        self.compiled = jit(self.run)

    def bound(self, values: Mapping[str, np.ndarray]) -> Program:
        """The same with some inputs constant."""
        return Program(replace(self.graph, constants={**self.graph.constants, **values}), self.functions)

    def run(self, weights: Mapping[str, Array], values: Mapping[str, Value]) -> tuple[Value, ...]:
        """The outputs, in order."""
        arrays = [x for x in flatten((weights, values))[0] if isinstance(x, Array)]
        device = next((a.device for a in arrays), None)
        inputs = {n: v if isinstance(v, (list, type(None))) else as_array(v, device=device) for n, v in values.items()}
        outs = Run(self.functions, device).graph(self.graph, {**weights, **inputs})
        return tuple([upload(v, device) if isinstance(v, (np.ndarray, np.generic)) else v for v in outs])


@dataclass(frozen=True)
class Model:
    """A model: ``model(*inputs)``, or by name ``model(x=...)``, gives its output, or a tuple where it has several.

    ``weights`` (arrays by name) are the leaves of the pytree: gradients, optimizers, ``jit`` and ``vmap`` work on them,
    and :mod:`rlx.formats.safetensors` stores them. ``inputs`` and ``outputs`` say names, dtypes and shapes.
    """

    weights: dict[str, Array]
    program: Program = field(metadata={"static": True})

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What the model takes."""
        held = self.weights.keys() | self.program.graph.constants.keys()
        return tuple([p for p in self.program.graph.inputs if p.name not in held])

    @property
    def outputs(self) -> tuple[Port, ...]:
        """What it gives."""
        return self.program.graph.outputs

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The outputs for inputs given in order or by name.

        An input must be of the dtype and rank that the model says, and of its sizes where they are numbers; Python
        numbers and lists take the dtype. It is compiled for each combination of shapes; where shapes depend on small
        integers among the inputs, for each choice of them; where they depend on data, nodes run one by one. Raises
        DTypeError, ShapeError, ValueIssue for an input, FormatError for a node.
        """
        values = self._values(args, named)
        arrays = [x for x in flatten((self.weights, values))[0] if isinstance(x, Array)]
        if any(a.is_traced for a in arrays) or self.program.stepwise:
            return _single(self.program.run(self.weights, values))
        if self.program.decided:
            return _single(self._decided(values))
        try:
            return _single(self.program.compiled(self.weights, values))
        except ValuesNeeded:
            return _single(self._decided(values))

    def _decided(self, values: dict[str, Value]) -> tuple[Value, ...]:
        """The outputs where shapes depend on values: by programs for each choice of the small integers among the
        inputs, if that is enough, else node by node."""
        small = {n: np.asarray(v) for n, v in values.items() if not isinstance(v, (list, type(None)))
                 and v.size <= _SMALL and dtype_of(v).kind in "iub"}
        known = self.program.decided
        key = tuple([(n, v.tobytes()) for n, v in sorted(small.items())])
        if not small or (key not in known and len(known) >= _CHOICES):
            self.program.stepwise = True
            return self.program.run(self.weights, values)
        if key not in known:
            known[key] = self.program.bound(small)
        try:
            rest = {n: v for n, v in values.items() if n not in small}
            found: tuple[Value, ...] = known[key].compiled(self.weights, rest)
            return found
        except ValuesNeeded:
            self.program.stepwise = True
            return self.program.run(self.weights, values)

    def bind(self, **values: Any) -> Model:
        """The model with some inputs fixed, known while compiling: a sampling rate, a flag, a size.

        Branches that they decide are not part of the program.
        """
        ports = {p.name: p for p in self.inputs}
        unknown = sorted(values.keys() - ports.keys())
        if unknown:
            raise ValueIssue(f"there is no input {unknown[0]!r} to bind", why=f"the inputs are {sorted(ports)}",
                             do="check the name")
        fixed = {n: np.asarray(_fit(ports[n], v)) for n, v in values.items()}
        return replace(self, program=self.program.bound(fixed))

    def to_device(self, device: str) -> Model:
        """The model with its weights on another device."""
        return replace(self, weights={n: w.to_device(device) for n, w in self.weights.items()})

    def _values(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Value]:
        ports = self.inputs
        if len(args) > len(ports):
            raise ValueIssue(f"{len(args)} inputs", why=f"the model has {', '.join(map(str, ports)) or 'none'}",
                             do="pass those")
        given = {p.name: a for p, a in zip(ports, args, strict=False)}
        wrong = sorted((named.keys() & given.keys()) | (named.keys() - {p.name for p in ports}))
        if wrong:
            raise ValueIssue(f"input {wrong[0]!r} is unknown or given twice", why="the model has "
                             f"{', '.join(map(str, ports)) or 'no inputs'}", do="pass each input once")
        given |= named
        missing = [p.name for p in ports if p.name not in given and p.kind != "optional"]
        if missing:
            raise ValueIssue(f"input {missing[0]!r} is missing", why=f"the model has {', '.join(map(str, ports))}",
                             do="pass it")
        return {p.name: _fit(p, given.get(p.name)) for p in ports}


def _single(outs: tuple[Value, ...]) -> Any:
    return outs[0] if len(outs) == 1 else outs


def _fit(port: Port, value: Any) -> Value:
    """An input checked against what the model says of it."""
    if port.kind != "tensor":
        return [_fit(replace(port, kind="tensor"), v) for v in value] if isinstance(value, (list, tuple)) else value
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        value = np.asarray(value, port.dtype.numpy if port.dtype is not None else None)
    x = value if isinstance(value, (Array, np.ndarray)) else np.asarray(value)
    name = x.dtype.name
    if port.dtype is not None and name != port.dtype.name:
        raise DTypeError(f"input {port.name!r} is of type {name}", why=f"the model says {port}",
                         do=f"cast it to {port.dtype.name}")
    if port.shape is not None:
        fits = len(x.shape) == len(port.shape) and all(
            not isinstance(want, int) or want == got for want, got in zip(port.shape, x.shape, strict=True))
        if not fits:
            raise ShapeError(f"input {port.name!r} has shape {tuple(x.shape)}", why=f"the model says {port}",
                             do="reshape or pad it")
    return x if not isinstance(x, np.ndarray) or name != "bfloat16" else upload(x, None)


def load(source: Any, *, device: str | None = None) -> Model:
    """A model from a path, from bytes, or from an ``onnx.ModelProto``.

    Weights go to ``device``. External data are read from the model's folder only. A file that is truncated, whose
    sizes lie, or that uses an operator outside the table is a FormatError that says which; an operator that the
    standard defines by others needs no row in the table.

    >>> import numpy as np, onnx
    >>> from onnx import helper, numpy_helper
    >>> from rlx.formats import onnx as frontend
    >>> node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)
    >>> kinds = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", ["N", 2]), ("y", None))]
    >>> w, b = np.float32([[1, 2], [3, 4], [5, 6]]), np.float32([0, 0, 1])
    >>> held = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")]
    >>> model = frontend.load(helper.make_model(helper.make_graph([node], "g", kinds[:1], kinds[1:], held)))
    >>> print(model.inputs[0])
    x: float32[N, 2]
    >>> model(np.ones((1, 2), np.float32)).tolist()
    [[3.0, 7.0, 12.0]]
    """
    proto, folder, name = parse(source)
    graph, functions = Reader(folder, name).model(proto)
    _supported(graph, functions)
    graph, weights = _split(graph)
    return Model({n: upload(w, device) for n, w in weights.items()}, Program(graph, functions))


def _supported(graph: Graph, functions: Functions) -> None:
    """Raise now for an operator that no table, function or standard knows."""
    for node in graph.nodes:
        known(node, functions)
        for a in node.attributes.values():
            if isinstance(a, Graph):
                _supported(a, functions)


def _split(graph: Graph) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph without its weights, and them: float constants that no operator needs the values of.

    Those of graphs within are taken out too, under names that no other weight has.
    """
    weights: dict[str, np.ndarray] = {}
    return _taken(graph, weights, {}), weights


def _taken(graph: Graph, weights: dict[str, np.ndarray], renamed: dict[str, str]) -> Graph:
    needed = {node.inputs[i] for node in graph.nodes for i in _static(node) if i < len(node.inputs)}
    large = {n.outputs[0]: n.attributes["value"] for n in graph.nodes
             if n.op == "Constant" and isinstance(n.attributes.get("value"), np.ndarray)
             and n.attributes["value"].size >= _LARGE}
    mine = {n: x for n, x in {**graph.constants, **large}.items()
            if n not in needed and (_is_float(x) or x.size >= 1024)}
    renamed = {n: r for n, r in renamed.items() if n not in graph.constants}
    for name, x in mine.items():
        fresh = name if name not in weights else f"{name}.{len(weights)}"
        renamed[name], weights[fresh] = fresh, x
    nodes = []
    for n in graph.nodes:
        if n.op == "Constant" and n.outputs[0] in mine:
            continue
        inner = {k: _taken(a, weights, renamed) if isinstance(a, Graph) else a for k, a in n.attributes.items()}
        nodes.append(replace(n, inputs=tuple([renamed.get(i, i) for i in n.inputs]), attributes=inner))
    outputs = tuple([replace(p, name=renamed.get(p.name, p.name)) for p in graph.outputs])
    return replace(graph, nodes=tuple(nodes), outputs=outputs,
                   constants={n: x for n, x in graph.constants.items() if n not in mine})


def _static(node: Any) -> tuple[int, ...]:
    found = TABLE.get((node.domain, node.op))
    return () if found is None else found.static


def _is_float(x: np.ndarray) -> bool:
    return x.dtype.kind in "fc" or x.dtype.name == "bfloat16"

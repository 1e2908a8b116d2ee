"""Evaluating a graph: node by node, host data where they are known, arrays (traced or not) elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.core.errors import FormatError, RlxError
from rlx.formats.onnx.graph import Function, Functions, Graph, Node, Reference
from rlx.formats.onnx.read import DTYPES, Reader, package
from rlx.formats.onnx.table import TABLE, Call, Operator, Value, X, dtype_of, upload

#: Functions call functions; a model in which one calls itself is refused at this depth.
_DEPTH = 64
#: Elements of an array that no machine has the memory for: sizes that are computed may be as hostile as those said.
_LARGEST = 2 ** 40


class Run:
    """One evaluation of a model on a device."""

    def __init__(self, functions: Functions, device: str | None, depth: int = 0) -> None:
        self.functions, self.device, self.depth = functions, device, depth

    def graph(self, g: Graph, inputs: Mapping[str, Value], outer: Mapping[str, Value] | None = None,
              attributes: Mapping[str, Any] | None = None) -> list[Value]:
        """The outputs of a graph. ``outer``: the names of the graphs around it; ``attributes``: a function's."""
        env: dict[str, Value] = {**(outer or {}), **g.constants, **inputs}
        for node in g.nodes:
            outs = self.node(node, env, attributes or {})
            for name, value in zip(node.outputs, outs, strict=False):
                if name:
                    env[name] = value
        # A function's optional output may have no value.
        return [env.get(o.name) for o in g.outputs]

    def node(self, node: Node, env: Mapping[str, Value], given: Mapping[str, Any]) -> Sequence[Value]:
        """The outputs of a node."""
        attributes = _resolved(node.attributes, given)
        try:
            inputs = [env[name] if name else None for name in node.inputs]
            while inputs and inputs[-1] is None and not node.inputs[len(inputs) - 1]:
                inputs.pop()
        except KeyError as e:
            raise FormatError(f"{node.title} uses {e.args[0]!r}", why="no earlier node gives that",
                              do="get the file again, or export the model anew") from None
        own = self.functions.get((node.domain, node.op))
        if own is not None:
            return self.call(node, own, inputs, attributes)
        found = TABLE.get((node.domain, node.op))
        if found is None:
            return self.call(node, standard(node, inputs, attributes), inputs, attributes)
        try:
            return self._apply(node, found, inputs, attributes, env)
        except RlxError as e:
            if e.what.startswith(node.title) or " (giving " in e.what:
                raise
            raise type(e)(f"{node.title}: {e.what}", where=e.where, why=e.why, do=e.do) from e
        except (TypeError, ValueError, LookupError, MemoryError, ArithmeticError) as e:
            raise FormatError(f"{node.title} does not fit its inputs", why=f"{type(e).__name__}: {e}",
                              do="check the shapes and types that the model was given") from e

    def _apply(self, node: Node, found: Operator, inputs: list[Value], attributes: dict[str, Any],
               env: Mapping[str, Value]) -> Sequence[Value]:
        moving = [v for i, v in enumerate(inputs) if v is not None and i not in found.static]
        host = found.host and not any(isinstance(v, Array) or dtype_name(v) == "bfloat16" for v in moving)
        if not host:
            inputs = [v if i in found.static or not isinstance(v, (np.ndarray, np.generic)) else upload(v, self.device)
                      for i, v in enumerate(inputs)]
        out = found.run(Call(node, attributes, env, self, np if host else X), *inputs)
        outs = out if isinstance(out, tuple) else (out,)
        for v in outs:
            if isinstance(v, Array) and all(isinstance(n, int) for n in v.shape) and prod(v.shape) > _LARGEST:
                raise FormatError(f"{node.title} gives an array of shape {v.shape}", why="no memory holds it",
                                  do="check the model, and the sizes it was given")
        return [np.asarray(v) if isinstance(v, np.generic) else v for v in outs]

    def call(self, node: Node, f: Function, inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Sequence[Value]:
        """The outputs of a function."""
        if self.depth >= _DEPTH:
            raise FormatError(f"{node.title} calls functions {_DEPTH} deep", why="a function calls itself",
                              do="get the file again, or export the model anew")
        ports = f.graph.inputs
        given = {p.name: inputs[i] if i < len(inputs) else None for i, p in enumerate(ports)}
        inner = Run(self.functions, self.device, self.depth + 1)
        return inner.graph(f.graph, given, attributes={**f.defaults, **attributes})


def dtype_name(v: Value) -> str:
    """The name of the type of host data; empty for all else."""
    return str(v.dtype.name) if isinstance(v, np.ndarray) else ""


def _resolved(attributes: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with those of the call in place of references; a reference to none is no attribute."""
    out = {}
    for name, value in attributes.items():
        found = given.get(value.name) if isinstance(value, Reference) else value
        if found is not None:
            out[name] = found
    return out


def known(node: Node, functions: Functions) -> None:
    """Raise for an operator that neither the model, nor the table, nor the standard's functions have."""
    if (node.domain, node.op) in functions or (node.domain, node.op) in TABLE:
        return
    schema = _schema(node)
    if schema is None or not (_versions(schema.function_opset_versions, node)
                              or _versions(schema.context_dependent_function_opset_versions, node)):
        raise unsupported(node, schema is not None)


def unsupported(node: Node, exists: bool) -> FormatError:
    """The error for an operator without a row."""
    where = f"domain {node.domain!r}" if node.domain else "ONNX's own domain"
    has = "it; rlx does not" if exists else "no such operator"
    return FormatError(f"operator {node.op!r} of node {node.title} is not supported",
                       why=f"{where}, operator set {node.version}, has {has}",
                       do="export the model without it, or add a row with rlx.formats.onnx.operator")


def _schema(node: Node) -> Any:
    defs = package().defs
    try:
        return defs.get_schema(node.op, node.version, node.domain)
    except defs.SchemaError:
        return None


def _versions(found: Sequence[int], node: Node) -> list[int]:
    return [v for v in found if v <= node.version]


def standard(node: Node, inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Function:
    """The function that the standard defines an operator by; an error that names the operator where it does not."""
    schema = _schema(node)
    body = None if schema is None else _body(package(), schema, node, inputs, attributes)
    if body is None:
        raise unsupported(node, schema is not None)
    reader = Reader(None, node.title)
    usual = {n: reader.attribute(a.default_value) for n, a in schema.attributes.items() if a.default_value.name}
    found = reader.function(body)
    return Function(found.graph, {**usual, **found.defaults})


def _body(onnx: Any, schema: Any, node: Node, inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Any:
    versions = _versions(schema.function_opset_versions, node)
    if versions:
        body = onnx.FunctionProto()
        body.ParseFromString(_bytes(schema.get_function_with_opset_version(max(versions))))
        return body
    versions = _versions(schema.context_dependent_function_opset_versions, node)
    if not versions or any(isinstance(v, (list, Graph)) for v in (*inputs, *attributes.values())):
        return None
    given = [node.inputs[i] if v is not None else "" for i, v in enumerate(inputs)]
    message = onnx.helper.make_node(node.op, given, list(node.outputs), domain=node.domain, **attributes)
    types = [onnx.TypeProto() if v is None else onnx.helper.make_tensor_type_proto(_number(v), list(v.shape))
             for v in inputs]
    found = schema.get_context_dependent_function_with_opset_version(
        max(versions), message.SerializeToString(), [t.SerializeToString() for t in types])
    body = onnx.FunctionProto()
    body.ParseFromString(_bytes(found))
    return body


def _bytes(found: Any) -> bytes:
    return found if isinstance(found, bytes) else bytes(found.SerializeToString())


def _number(v: Value) -> int:
    """The number of a dtype in onnx.proto."""
    kind = dtype_of(v)
    return next(k for k, d in DTYPES.items() if d is kind)

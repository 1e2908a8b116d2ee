"""From ``onnx``'s messages to plain data; everything a file says about sizes and places is checked before use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from rlx.core import dtype as dt
from rlx.core.errors import FormatError
from rlx.formats.onnx.graph import Function, Functions, Graph, Node, Port, Reference

#: Element types by their number in onnx.proto (TensorProto.DataType); those of 4 and 2 bits are kept in 8.
DTYPES = {
    1: dt.float32, 2: dt.uint8, 3: dt.int8, 4: dt.uint16, 5: dt.int16, 6: dt.int32, 7: dt.int64, 9: dt.bool_,
    10: dt.float16, 11: dt.float64, 12: dt.uint32, 13: dt.uint64, 14: dt.complex64, 15: dt.complex128,
    16: dt.bfloat16, 21: dt.uint8, 22: dt.int8, 25: dt.uint8, 26: dt.int8,
}
#: Bits of an element in a file where that is not the dtype's own.
_BITS = {21: 4, 22: 4, 25: 2, 26: 2}
#: Graphs within graphs; a file with more is refused rather than read recursively.
_DEPTH = 32


def package() -> Any:
    """The ``onnx`` package, or an error that says how to get it."""
    try:
        return import_module("onnx")
    except ModuleNotFoundError:
        raise FormatError("ONNX files need a package", why="onnx cannot be imported",
                          do="pip install 'rlx[onnx]'") from None


class Reader:
    """Reads one model: ``folder`` is where its external data may be, None where it may have none."""

    def __init__(self, folder: Path | None, source: str) -> None:
        self.folder, self.source = folder, source
        self.onnx = package()

    def refuse(self, what: str, why: str, do: str = "get the file again, or export the model anew") -> FormatError:
        """A FormatError about this file."""
        return FormatError(f"{what} in {self.source}", why=why, do=do)

    def model(self, proto: Any) -> tuple[Graph, Functions]:
        """The main graph, and the functions it calls."""
        versions = self._versions(proto.opset_import)
        if not versions:
            raise self.refuse("no operator set", "the model imports none", "check that it is an ONNX model")
        functions = {(_domain(f.domain), f.name): self.function(f) for f in proto.functions}
        return self.graph(proto.graph, versions, frozenset()), functions

    def _versions(self, imports: Iterable[Any]) -> dict[str, int]:
        return {_domain(i.domain): i.version for i in imports}

    def function(self, proto: Any) -> Function:
        """A function of the model, or the body that the standard gives an operator."""
        versions = self._versions(proto.opset_import)
        known, nodes = set(proto.input), []
        for n in proto.node:
            nodes.append(self._node(n, versions, 1, frozenset(known)))
            known |= set(n.output)
        inputs, outputs = (tuple([Port(n) for n in part]) for part in (proto.input, proto.output))
        graph = Graph(proto.name, tuple(nodes), inputs, outputs, {})
        return Function(graph, {a.name: self.attribute(a, versions, 1, frozenset()) for a in proto.attribute_proto})

    def graph(self, proto: Any, versions: Mapping[str, int], outer: frozenset[str], depth: int = 0) -> Graph:
        """A graph whose nodes may use the names ``outer`` of the graphs around it."""
        if depth > _DEPTH:
            raise self.refuse(f"graphs more than {_DEPTH} deep", "no real model is")
        if proto.sparse_initializer:
            raise self.refuse("a sparse initializer", "only dense ones are read", "export the weights as dense arrays")
        constants = {t.name: self.tensor(t) for t in proto.initializer}
        known = set(outer) | constants.keys() | {i.name for i in proto.input}
        made: set[str] = set()
        nodes = []
        for n in proto.node:
            nodes.append(self._node(n, versions, depth, frozenset(known)))
            missing = [name for name in n.input if name and name not in known]
            if missing:
                raise self.refuse(f"node {nodes[-1].title} uses {missing[0]!r}", "no earlier node gives that")
            twice = [name for name in n.output if name in made]
            if twice:
                raise self.refuse(f"node {nodes[-1].title} gives {twice[0]!r}", "an earlier node gave that too")
            made |= set(n.output) - {""}
            known |= made
        missing = [o.name for o in proto.output if o.name not in known]
        if missing:
            raise self.refuse(f"output {missing[0]!r}", "no node gives it")
        return Graph(proto.name, tuple(nodes), tuple([self.port(i) for i in proto.input]),
                     tuple([self.port(o) for o in proto.output]), constants)

    def _node(self, proto: Any, versions: Mapping[str, int], depth: int, known: frozenset[str]) -> Node:
        domain = _domain(proto.domain)
        attributes = {a.name: self.attribute(a, versions, depth, known) for a in proto.attribute}
        # A function's node may be of a domain that only its model imports: then the version is not asked for.
        return Node(proto.op_type, domain, versions.get(domain, 1), proto.name, tuple(proto.input),
                    tuple(proto.output), attributes)

    def attribute(self, a: Any, versions: Mapping[str, int] | None = None, depth: int = 0,
                  known: frozenset[str] = frozenset()) -> Any:
        """An attribute's value."""
        if a.ref_attr_name:
            return Reference(a.ref_attr_name)
        kinds = a.AttributeType
        plain = {kinds.FLOAT: "f", kinds.INT: "i", kinds.FLOATS: "floats", kinds.INTS: "ints"}
        if a.type in plain:
            found = getattr(a, plain[a.type])
            return tuple(found) if a.type in (kinds.FLOATS, kinds.INTS) else found
        if a.type in (kinds.STRING, kinds.STRINGS):
            texts = [s.decode("utf-8", "replace") for s in ([a.s] if a.type == kinds.STRING else a.strings)]
            return texts[0] if a.type == kinds.STRING else tuple(texts)
        if a.type == kinds.TENSOR:
            return self.tensor(a.t)
        if a.type == kinds.GRAPH:
            return self.graph(a.g, versions or {}, known, depth + 1)
        if a.type == kinds.TYPE_PROTO:
            return self.port_of("", a.tp)
        raise self.refuse(f"attribute {a.name!r} of kind {kinds.Name(a.type)}", "rlx reads no such attributes",
                          "export the model without it")

    def port(self, value: Any) -> Port:
        """The type of an input or output."""
        return self.port_of(value.name, value.type)

    def port_of(self, name: str, kind: Any) -> Port:
        """A port of a type message."""
        which = kind.WhichOneof("value")
        if which in ("sequence_type", "optional_type"):
            inner = self.port_of(name, getattr(kind, which).elem_type)
            return Port(name, inner.dtype, inner.shape, which.removesuffix("_type"))
        if which != "tensor_type":
            return Port(name)
        tensor = kind.tensor_type
        shape = None
        if tensor.HasField("shape"):
            shape = tuple([self._size(d) for d in tensor.shape.dim])
        return Port(name, DTYPES.get(tensor.elem_type), shape)

    def _size(self, d: Any) -> int | str | None:
        if d.HasField("dim_value"):
            # Negative numbers stand for unknown sizes in files of some exporters.
            return int(d.dim_value) if d.dim_value >= 0 else None
        return d.dim_param or None

    def tensor(self, t: Any) -> np.ndarray:
        """A constant's value; what its header says must be what is there."""
        shape = tuple(t.dims)
        if t.data_type not in DTYPES:
            known = {v: k for k, v in self.onnx.TensorProto.DataType.items()}
            raise self.refuse(f"constant {t.name!r} of type {known.get(t.data_type, t.data_type)}",
                              "rlx has no such dtype", "convert the model to another type")
        if any(n < 0 for n in shape):
            raise self.refuse(f"constant {t.name!r} of shape {shape}", "a size is negative")
        count = prod(shape)
        size = (count * _BITS.get(t.data_type, DTYPES[t.data_type].bits if t.data_type != 9 else 8) + 7) // 8
        if t.data_location == t.EXTERNAL:
            return self._external(t, shape, size)
        if t.HasField("raw_data") and len(t.raw_data) != size:
            raise self.refuse(f"constant {t.name!r} of shape {shape}",
                              f"it has {len(t.raw_data)} bytes, its header says {size}")
        try:
            return _widened(np.array(self.onnx.numpy_helper.to_array(t)))
        except (ValueError, TypeError, OverflowError) as e:
            raise self.refuse(f"constant {t.name!r} of shape {shape}", str(e)) from None

    def _external(self, t: Any, shape: tuple[int, ...], size: int) -> np.ndarray:
        """The part of another file, which must lie in the model's folder."""
        said = {e.key: e.value for e in t.external_data}
        place = self._inside(t.name, said.get("location", ""))
        try:
            offset, length = int(said.get("offset", "0")), int(said.get("length", str(size)))
        except ValueError:
            raise self.refuse(f"constant {t.name!r}", "the offset or length of its data is no number") from None
        if length != size or offset < 0 or offset + size > place.stat().st_size:
            raise self.refuse(f"constant {t.name!r} of shape {shape}", f"its header says {size} bytes; the data are "
                              f"{length} bytes from {offset} of a file of {place.stat().st_size}")
        with place.open("rb") as f:
            f.seek(offset)
            raw = f.read(size)
        inner = self.onnx.TensorProto(dims=t.dims, data_type=t.data_type, raw_data=raw)
        return _widened(np.array(self.onnx.numpy_helper.to_array(inner)))

    def _inside(self, name: str, location: str) -> Path:
        if self.folder is None:
            raise self.refuse(f"constant {name!r} in another file", "bytes have no folder",
                              "load the model by its path")
        parts = PurePosixPath(location.replace("\\", "/"))
        inside = bool(location) and not parts.is_absolute() and ".." not in parts.parts and ":" not in location
        path = self.folder / parts if inside else self.folder
        # A link may lead out of the folder without a word of it in the name.
        if not inside or not path.resolve().is_relative_to(self.folder.resolve()):
            raise self.refuse(f"constant {name!r} in the file {location!r}", "data lie in the model's folder only",
                              "do not load this file; its author may want another file of yours read")
        if not path.is_file():
            raise self.refuse(f"constant {name!r} in the file {location!r}", "there is no such file",
                              "put it beside the model")
        return path


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _widened(x: np.ndarray) -> np.ndarray:
    """Integers of 4 and 2 bits as 8."""
    small = {"int4": np.int8, "int2": np.int8, "uint4": np.uint8, "uint2": np.uint8}
    return x.astype(small[x.dtype.name]) if x.dtype.name in small else x


def parse(source: Any) -> tuple[Any, Path | None, str]:
    """The model message of a path, bytes, or the message itself; its folder; and how errors name it."""
    onnx = package()
    if isinstance(source, onnx.ModelProto):
        return source, None, "the model"
    folder, name, raw = None, "the bytes", source
    if isinstance(source, (str, Path)):
        path = Path(source)
        if not path.is_file():
            raise FormatError(f"there is no file {str(path)!r}", why="it does not exist, or is not a regular file",
                              do="check the path")
        folder, name, raw = path.parent, repr(str(path)), path.read_bytes()
    if not isinstance(raw, (bytes, bytearray, memoryview)):
        raise FormatError(f"an ONNX model of type {type(source).__name__}",
                          why="it is a path, bytes, or an onnx.ModelProto", do="pass one of them")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(bytes(raw))
    except Exception as e:  # protobuf's DecodeError, which lives in a package that need not be imported
        raise FormatError(f"{name} is not an ONNX model", why=str(e), do="get the file again") from None
    if not proto.HasField("graph"):
        raise FormatError(f"{name} is not an ONNX model", why="it has no graph", do="get the file again")
    return proto, folder, name

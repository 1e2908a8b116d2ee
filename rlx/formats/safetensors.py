"""Named arrays in ``.safetensors`` files, through the ``safetensors`` package.

>>> import tempfile, rlx
>>> from rlx.formats import safetensors
>>> with tempfile.TemporaryDirectory() as folder:
...     safetensors.save(f"{folder}/a.safetensors", {"w": rlx.ones(2)}, metadata={"made by": "me"})
...     safetensors.load(f"{folder}/a.safetensors")["w"].tolist()
[1.0, 1.0]
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array, from_numpy
from rlx.array.host import from_host, to_host
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, FormatError
from rlx.core.files import replacing

#: The format's names of the dtypes that rlx has.
_DTYPES = {
    "BOOL": dt.bool_, "I8": dt.int8, "I16": dt.int16, "I32": dt.int32, "I64": dt.int64, "U8": dt.uint8,
    "U16": dt.uint16, "U32": dt.uint32, "U64": dt.uint64, "F16": dt.float16, "BF16": dt.bfloat16, "F32": dt.float32,
    "F64": dt.float64, "C64": dt.complex64,
}


def load(path: str | Path, *, device: str | None = None) -> dict[str, Array]:
    """Every array of a file, by name, on a device.

    A file that is missing, truncated, or whose header disagrees with its content is a FormatError, before any array is
    made. float8 and block types, which rlx does not have, are one too.
    """
    found = _read(Path(path))
    for name, parts in found:
        if parts["dtype"] not in _DTYPES:
            raise FormatError(f"{name!r} in {str(path)!r} is of type {parts['dtype']}", why="rlx has no such dtype",
                              do="convert the file to float16 or bfloat16 first")
    return {name: _array(parts, device) for name, parts in found}


def _read(path: Path) -> list[tuple[str, dict[str, Any]]]:
    package = _package()
    if not path.is_file():
        raise FormatError(f"there is no file {str(path)!r}", why="it does not exist, or is not a regular file",
                          do="check the path")
    try:
        out: list[tuple[str, dict[str, Any]]] = package.deserialize(path.read_bytes())
    except package.SafetensorError as e:
        raise FormatError(f"{str(path)!r} is not a sound safetensors file", why=str(e),
                          do="get the file again") from None
    return sorted(out, key=lambda item: item[0])


def _array(parts: Mapping[str, Any], device: str | None) -> Array:
    dtype = _DTYPES[parts["dtype"]]
    raw = np.frombuffer(parts["data"], dtype.numpy.newbyteorder("<")).reshape(parts["shape"])
    return from_numpy(from_host(raw, dtype), dtype, device)


def save(path: str | Path, arrays: Mapping[str, Any], *, metadata: Mapping[str, str] | None = None) -> None:
    """Write named arrays; ``metadata`` is text. The file is replaced as a whole or not at all."""
    package = _package()
    names = {kind: name for name, kind in _DTYPES.items()}
    kept, specs = [], {}
    for name, x in arrays.items():
        a = as_array(x)
        if a.dtype not in names:
            raise DTypeError(f"cannot save {name!r} of type {a.dtype.name} as safetensors",
                             why="the format has no such type", do="save its real and imaginary parts")
        host = np.asarray(to_host(np.asarray(a), a.dtype), order="C")
        host = host.astype(host.dtype.newbyteorder("<"), copy=False)
        kept.append(host)  # the package reads through the pointer
        specs[name] = package.TensorSpec(dtype=a.dtype.name, shape=a.shape, data_ptr=host.ctypes.data,
                                         data_len=host.nbytes)
    data = bytes(package.serialize(specs, metadata=dict(metadata) if metadata else None))
    with replacing(path) as file:
        file.write(data)


def _package() -> Any:
    try:
        return import_module("safetensors")
    except ModuleNotFoundError:
        raise FormatError("safetensors files need a package", why="safetensors cannot be imported",
                          do="pip install 'rlx[nn]'") from None

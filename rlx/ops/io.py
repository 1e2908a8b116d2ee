"""Files of arrays: ``.npy`` and ``.npz`` as NumPy writes them, replaced as a whole or not at all."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array, from_numpy
from rlx.array.define import public
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, FormatError
from rlx.core.files import replacing


def _host(x: Any) -> np.ndarray[Any, Any]:
    a = as_array(x)
    if a.dtype == dt.bfloat16:
        raise DTypeError(f"cannot save a bfloat16 array of shape {a.shape} as .npy", why="the format has no such type",
                         do="cast it with .astype(rlx.float32), or save it as safetensors")
    return np.asarray(a)


def _named(path: str | Path, suffix: str) -> Path:
    p = Path(path)
    return p if p.suffix == suffix else p.with_name(p.name + suffix)


@public
def save(path: str | Path, x: Any, /) -> None:
    """Write an array as ``.npy`` (the suffix is added when missing)."""
    host = _host(x)
    with replacing(_named(path, ".npy")) as file:
        np.save(file, host, allow_pickle=False)


@public
def savez(path: str | Path, /, **arrays: Any) -> None:
    """Write named arrays as ``.npz`` (the suffix is added when missing), uncompressed."""
    hosts = {k: _host(v) for k, v in arrays.items()}
    with replacing(_named(path, ".npz")) as file:
        np.savez(file, **hosts)  # type: ignore[arg-type]


@public
def savez_compressed(path: str | Path, /, **arrays: Any) -> None:
    """Write named arrays as compressed ``.npz``."""
    hosts = {k: _host(v) for k, v in arrays.items()}
    with replacing(_named(path, ".npz")) as file:
        np.savez_compressed(file, **hosts)  # type: ignore[arg-type]


@public
def load(path: str | Path, /, *, device: str | None = None) -> Any:
    """The array of a ``.npy`` file, or the arrays of a ``.npz`` file as a dict by name.

    Nothing in a file is executed: arrays of Python objects are refused. Raises FormatError for any other content.
    """
    try:
        found: Any = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return _array(found, device)
        with found:
            return {name: _array(found[name], device) for name in found.files}
    except (ValueError, EOFError, zipfile.BadZipFile, KeyError) as e:
        raise FormatError(f"{path} is not a file of arrays", why=str(e).split("\n")[0],
                          do="pass a .npy or .npz file of numbers, whole") from None


def _array(host: np.ndarray[Any, Any], device: str | None) -> Array:
    return from_numpy(host, None, device)

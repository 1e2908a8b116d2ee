"""Arrays as text and from text, buffers and iterators: NumPy reads and writes, rlx holds the result."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.array.define import public
from rlx.core import dtype as dt
from rlx.core.errors import FormatError, ValueIssue
from rlx.core.files import replacing


def _numpy(dtype: Any) -> Any:
    return dtype if dtype is None else dt.as_dtype(dtype).numpy


@public
def array2string(x: Any, /, **options: Any) -> str:
    """The values as text, with the options of NumPy's function of this name."""
    return str(np.array2string(np.asarray(as_array(x)), **options))


@public
def array_repr(x: Any, /) -> str:
    """``repr(x)``: values, dtype, shape and device."""
    return repr(as_array(x))


@public
def array_str(x: Any, /) -> str:
    """The values as text."""
    return str(np.asarray(as_array(x)))


@public
def savetxt(path: str | Path, x: Any, /, fmt: str = "%.18e", delimiter: str = " ", newline: str = "\n",
            header: str = "", footer: str = "", comments: str = "# ") -> None:
    """Write a vector or matrix as text, a row on each line; the file is replaced as a whole or not at all."""
    host = np.asarray(as_array(x))
    with replacing(Path(path)) as file:
        np.savetxt(file, host, fmt=fmt, delimiter=delimiter, newline=newline, header=header, footer=footer,
                   comments=comments)


@public
def loadtxt(path: Any, /, dtype: Any = None, *, device: str | None = None, **options: Any) -> Array:
    """The numbers of a text file, with the options of NumPy's function of this name. FormatError for other text."""
    try:
        return as_array(np.loadtxt(path, dtype=_numpy(dtype) or float, **options), device=device)
    except ValueError as error:
        raise FormatError(f"cannot read numbers from {path}", where=str(path), why=str(error),
                          do="check the delimiter, or skip lines with skiprows=") from error


@public
def genfromtxt(path: Any, /, dtype: Any = None, *, device: str | None = None, **options: Any) -> Array:
    """Like :func:`loadtxt`, with missing values as NaN (or ``filling_values``)."""
    try:
        return as_array(np.genfromtxt(path, dtype=_numpy(dtype) or float, **options), device=device)
    except ValueError as error:
        raise FormatError(f"cannot read numbers from {path}", where=str(path), why=str(error),
                          do="check the delimiter, or skip lines with skip_header=") from error


@public
def fromstring(text: str, /, dtype: Any = None, count: int = -1, *, sep: str = " ", device: str | None = None) -> Array:
    """The numbers of a text between separators."""
    return as_array(np.fromstring(text, dtype=_numpy(dtype) or float, count=count, sep=sep), device=device)


@public
def frombuffer(buffer: Any, /, dtype: Any = None, count: int = -1, offset: int = 0, *,
               device: str | None = None) -> Array:
    """The elements in the memory of a bytes-like object, copied."""
    return as_array(np.frombuffer(buffer, dtype=_numpy(dtype) or float, count=count, offset=offset).copy(),
                    device=device)


@public
def fromfile(path: Any, /, dtype: Any = None, count: int = -1, *, offset: int = 0, device: str | None = None) -> Array:
    """The elements of a file of raw bytes."""
    return as_array(np.fromfile(path, dtype=_numpy(dtype) or float, count=count, offset=offset), device=device)


@public
def fromiter(items: Iterable[Any], dtype: Any, /, count: int = -1, *, device: str | None = None) -> Array:
    """The items of an iterator in one axis."""
    return as_array(np.fromiter(items, dtype=_numpy(dtype), count=count), device=device)


@public
def asarray_chkfinite(x: Any, /, dtype: Any = None) -> Array:
    """:func:`asarray`, which looks at the values and raises for infinities and NaN."""
    host = np.asarray(as_array(x))
    if host.dtype.kind in "fc" and not np.isfinite(host).all():
        raise ValueIssue(f"an array of shape {host.shape} holds infinities or NaN", why="finite values were asked for",
                          do="use rlx.asarray to keep them, or rlx.nan_to_num")
    out = as_array(x)
    return out if dtype is None else out.astype(dtype)

"""What all sparse formats share: a size, a dtype, a device, and conversion by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from rlx.array.array import Array
from rlx.core import dtype as dt
from rlx.core.errors import ValueIssue

#: Format name -> a function from CSR. The modules of the formats fill it.
FORMATS: dict[str, Callable[..., Any]] = {}


class SparseMatrix(ABC):
    """A matrix of which only some entries are stored."""

    __slots__ = ()
    #: NumPy leaves ``array @ matrix`` and ``array * matrix`` to the matrix.
    __array_ufunc__ = None
    format: str
    data: Array
    shape: tuple[int, int]

    @property
    def ndim(self) -> int:
        """A matrix has two axes."""
        return 2

    @property
    def dtype(self) -> dt.DType:
        """Element type."""
        return self.data.dtype

    @property
    def device(self) -> str:
        """Where it lives."""
        return self.data.device

    @property
    def nnz(self) -> int:
        """How many entries are stored."""
        return int(self.data.size)

    @abstractmethod
    def tocsr(self) -> Any:
        """The same matrix in CSR form."""

    def asformat(self, name: str, **options: Any) -> Any:
        """The same matrix in the format ``csr``, ``csc``, ``coo`` or ``bsr``."""
        if name == self.format and not options:
            return self
        if name != "csr" and name not in FORMATS:
            raise ValueIssue(f"a sparse format named {name!r}", why=f"rlx has csr, {', '.join(sorted(FORMATS))}",
                             do="pass one of these names")
        m = self.tocsr()
        return m if name == "csr" else FORMATS[name](m, **options)

    def tocsc(self) -> Any:
        """The same matrix in CSC form."""
        return self.asformat("csc")

    def tocoo(self) -> Any:
        """The same matrix as a list of entries."""
        return self.asformat("coo")

    def tobsr(self, blocksize: tuple[int, int] | None = None) -> Any:
        """The same matrix in dense blocks of a size (by default the largest of at most 8 that fill well)."""
        return self.asformat("bsr") if blocksize is None else self.asformat("bsr", blocksize=blocksize)

    def todense(self) -> Array:
        """The matrix as an array of shape ``(n, m)``."""
        out: Array = self.tocsr().todense()
        return out

    def toarray(self) -> Array:
        """The matrix as an array of shape ``(n, m)``."""
        return self.todense()

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"{kind}({self.dtype.name}[{self.shape[0]}, {self.shape[1]}], {self.nnz} entries, on {self.device})"

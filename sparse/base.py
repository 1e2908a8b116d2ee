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
#: Arithmetic of CSR matrices by name. The module that defines it fills it.
OPERATIONS: dict[str, Callable[..., Any]] = {}


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

    # Products and arithmetic: results are CSR

    @property
    @abstractmethod
    def T(self) -> Any:
        """The transpose."""

    @property
    def H(self) -> Any:
        """The conjugate transpose."""
        return self.T.conj()

    def transpose(self) -> Any:
        """The transpose."""
        return self.T

    def __matmul__(self, x: Any) -> Any:
        """``A @ x``: an array for a vector or a block of columns, a CSR for a sparse matrix."""
        return self.tocsr() @ x

    def __rmatmul__(self, x: Any) -> Any:
        """``x @ A``."""
        return (self.T @ x.T).T if hasattr(x, "tocsr") or x.ndim == 2 else self.T @ x

    def dot(self, x: Any) -> Any:
        """``A @ x``."""
        return self @ x

    def matvec(self, x: Any) -> Array:
        """``A @ x``."""
        out: Array = self @ x
        return out

    def rmatvec(self, x: Any) -> Array:
        """``A^H @ x``."""
        out: Array = self.H @ x
        return out

    def __add__(self, other: Any) -> Any:
        """The sum of two sparse matrices."""
        return OPERATIONS["add"](self.tocsr(), _sparse("+", other))

    def __sub__(self, other: Any) -> Any:
        """The difference of two sparse matrices."""
        return OPERATIONS["add"](self.tocsr(), _sparse("-", other), -1)

    def multiply(self, other: Any) -> Any:
        """Entry by entry with a number, an array that broadcasts to the shape, or a sparse matrix."""
        return OPERATIONS["multiply"](self.tocsr(), other)

    def __mul__(self, other: Any) -> Any:
        """Entry by entry, as :meth:`multiply` (a product of matrices is ``@``)."""
        return self.multiply(other)

    def __rmul__(self, other: Any) -> Any:
        """Entry by entry, as :meth:`multiply`."""
        return self.multiply(other)

    def __truediv__(self, other: Any) -> Any:
        """The entries over a number, or over an array that broadcasts to the shape."""
        if hasattr(other, "tocsr"):
            raise ValueIssue("a sparse matrix over a sparse matrix", why="what is not stored is 0, and 0/0 no number",
                             do="divide the values of equal patterns")
        return self.multiply(1 / other)

    def __neg__(self) -> Any:
        """The same pattern with opposite values."""
        return self.mapped(lambda v: -v)

    def __abs__(self) -> Any:
        """The same pattern with the values' sizes."""
        return self.mapped(abs)

    def conj(self) -> Any:
        """The same pattern with conjugate values."""
        return self.mapped(lambda v: v.conj())

    def power(self, n: Any) -> Any:
        """The stored values to a power, entry by entry."""
        return self.mapped(lambda v: v ** n)

    def mapped(self, f: Callable[[Array], Array]) -> Any:
        """The same pattern with ``f`` of the stored values."""
        m = self.tocsr()
        return m.with_data(f(m.data))

    def __getitem__(self, key: Any) -> Any:
        """Rows, or rows and columns: slices, integers, lists of them and masks, as a CSR; ``A[i, j]`` is an element."""
        return OPERATIONS["select"](self.tocsr(), key)

    def sum(self, axis: int | None = None) -> Array:
        """The sum along an axis, or of all elements."""
        out: Array = OPERATIONS["reduce"](self.tocsr(), "sum", axis)
        return out

    def mean(self, axis: int | None = None) -> Array:
        """The mean along an axis, or of all elements."""
        n = self.shape[0] * self.shape[1] if axis is None else self.shape[axis]
        return self.sum(axis) / n

    def max(self, axis: int | None = None) -> Array:
        """The largest element along an axis, or of all; elements that are not stored are 0."""
        out: Array = OPERATIONS["reduce"](self.tocsr(), "max", axis)
        return out

    def min(self, axis: int | None = None) -> Array:
        """The smallest element along an axis, or of all; elements that are not stored are 0."""
        out: Array = OPERATIONS["reduce"](self.tocsr(), "min", axis)
        return out

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"{kind}({self.dtype.name}[{self.shape[0]}, {self.shape[1]}], {self.nnz} entries, on {self.device})"


def _sparse(symbol: str, x: Any) -> Any:
    if not hasattr(x, "tocsr"):
        raise ValueIssue(f"a sparse matrix {symbol} {type(x).__name__}",
                         why="every element of the result would be stored", do="add a sparse matrix, or use .todense()")
    return x

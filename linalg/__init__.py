"""Dense linear algebra: factorizations, solvers, functions of matrices.

Every function takes leading batch axes and float32, float64, complex64 and complex128. Names and conventions are the
Array API's linear algebra extension and NumPy's, with SciPy's ``lu``, ``lu_factor``, ``lu_solve``, ``cho_factor``,
``cho_solve``, ``solve_triangular`` and ``expm``. What happens to a matrix without a result is one contract,
``errors="raise" | "nan" | "info"``: see :mod:`rlx.linalg.errors`.

>>> import rlx
>>> a = rlx.asarray([[[2.0, 1.0], [1.0, 3.0]], [[1.0, 2.0], [2.0, 4.0]]])
>>> rlx.linalg.inv(a, errors="info")[1].tolist()
[0, 2]
"""

from rlx.linalg.errors import LinAlgError
from rlx.linalg.factor import cho_factor, cho_solve, cholesky, lu, lu_factor, lu_solve, permutation_of, qr
from rlx.linalg.norms import cond, matrix_norm, norm, vector_norm
from rlx.linalg.products import (
    cross,
    diagonal,
    expm,
    kron,
    matmul,
    matrix_power,
    matrix_transpose,
    multi_dot,
    outer,
    tensordot,
    trace,
    vecdot,
)
from rlx.linalg.solvers import (
    det,
    inv,
    lstsq,
    matrix_rank,
    pinv,
    slogdet,
    solve,
    solve_triangular,
    tensorinv,
    tensorsolve,
)
from rlx.linalg.spectral import eig, eigh, eigvals, eigvalsh, svd, svdvals

__all__ = [
    "LinAlgError", "cho_factor", "cho_solve", "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals",
    "eigvalsh", "expm", "inv", "kron", "lstsq", "lu", "lu_factor", "lu_solve", "matmul", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "permutation_of", "pinv", "qr", "slogdet", "solve",
    "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm",
]

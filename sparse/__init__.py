"""Sparse matrices: storage, files, products and solvers.

>>> import rlx.sparse
>>> A = rlx.sparse.CSR.from_arrays([0, 1], [0, 1], [2.0, 4.0], (2, 2))
>>> x, info = rlx.sparse.cg(A, rlx.asarray([2.0, 4.0]))
>>> x.tolist(), info.reason
([1.0, 1.0], 'converged')
"""

from rlx.sparse.amg import Multigrid as Multigrid
from rlx.sparse.amg import smoothed_aggregation as smoothed_aggregation
from rlx.sparse.assemble import block_array as block_array
from rlx.sparse.assemble import block_diag as block_diag
from rlx.sparse.assemble import bmat as bmat
from rlx.sparse.assemble import diags as diags
from rlx.sparse.assemble import eye as eye
from rlx.sparse.assemble import hstack as hstack
from rlx.sparse.assemble import identity as identity
from rlx.sparse.assemble import kron as kron
from rlx.sparse.assemble import tril as tril
from rlx.sparse.assemble import triu as triu
from rlx.sparse.assemble import vstack as vstack
from rlx.sparse.bands import Banded as Banded
from rlx.sparse.bands import bands_of as bands_of
from rlx.sparse.bands import dia_matvec as dia_matvec
from rlx.sparse.base import SparseMatrix as SparseMatrix
from rlx.sparse.bicgstab import bicgstab as bicgstab
from rlx.sparse.cg import cg as cg
from rlx.sparse.csr import CSR as CSR
from rlx.sparse.direct import Factor as Factor
from rlx.sparse.direct import cholesky as cholesky
from rlx.sparse.direct import lu as lu
from rlx.sparse.direct import spsolve as spsolve
from rlx.sparse.direct_plan import Plan as Plan
from rlx.sparse.direct_plan import analyze as analyze
from rlx.sparse.formats import BSR as BSR
from rlx.sparse.formats import COO as COO
from rlx.sparse.formats import CSC as CSC
from rlx.sparse.gmres import gmres as gmres
from rlx.sparse.incomplete import Incomplete as Incomplete
from rlx.sparse.incomplete import ic0 as ic0
from rlx.sparse.incomplete import ilu0 as ilu0
from rlx.sparse.lsqr import lsmr as lsmr
from rlx.sparse.lsqr import lsqr as lsqr
from rlx.sparse.minres import minres as minres
from rlx.sparse.mtx import read_mtx as read_mtx
from rlx.sparse.mtx import write_mtx as write_mtx
from rlx.sparse.precond import BlockJacobi as BlockJacobi
from rlx.sparse.precond import Jacobi as Jacobi
from rlx.sparse.precond import block_jacobi as block_jacobi
from rlx.sparse.precond import jacobi as jacobi
from rlx.sparse.products import bsr_matvec as bsr_matvec
from rlx.sparse.products import csr_matvec as csr_matvec
from rlx.sparse.report import SolverInfo as SolverInfo
from rlx.sparse.report import TracedInfo as TracedInfo

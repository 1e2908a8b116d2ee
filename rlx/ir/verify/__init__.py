"""Verify: the grammar of every level as checks. A failure is a VerifyError that shows the node or statement.

:func:`verify_hir` and :func:`verify_mir` check graphs (:mod:`rlx.ir.graph`, :mod:`rlx.ir.prim`); :func:`verify_program`
checks programs and :func:`verify_kernel` kernels (:mod:`rlx.ir.loop`). Each returns what it was given, so that a pass
can end in it.
"""

from __future__ import annotations

from rlx.ir.verify.graph import verify_hir, verify_mir
from rlx.ir.verify.kernel import verify_kernel
from rlx.ir.verify.program import verify_program

__all__ = ["verify_hir", "verify_kernel", "verify_mir", "verify_program"]

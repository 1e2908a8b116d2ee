"""LLVM IR: kernels as scalar text that LLVM vectorises. See :mod:`rlx.render.llvm.kernel`."""

from rlx.render.llvm.helpers import Helpers as Helpers
from rlx.render.llvm.kernel import module as module
from rlx.render.llvm.kernel import render_kernel as render_kernel
from rlx.render.llvm.types import symbol as symbol

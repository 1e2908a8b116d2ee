"""The factorizations as ops: one file a family, each with its oracle, common path, gradient and samples."""

from rlx.linalg.ops import cholesky, det, eig, eigh, expm, lu, qr, svd, triangular

__all__ = ["cholesky", "det", "eig", "eigh", "expm", "lu", "qr", "svd", "triangular"]

"""Dense linear algebra: factorizations, solvers, functions of matrices."""

"""Sparse matrices: storage, files, products and solvers."""

"""rlx: NumPy-style arrays whose every operation is an expression in one compiled IR."""

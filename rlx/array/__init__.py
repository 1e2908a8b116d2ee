"""Floor 2: the lazy Array, pytrees, tracing, and the form in which ops are defined."""

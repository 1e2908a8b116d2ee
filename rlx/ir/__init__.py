"""Floor 1: the three IR levels, the op registry, rewriting, verification and text."""

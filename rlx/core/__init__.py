"""Floor 0: data types, shapes, capabilities, flags, errors, source locations. Imports nothing of rlx."""

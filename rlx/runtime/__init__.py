"""Floor 7: compile for an opened device, cache by structure, and execute lazily built expressions."""

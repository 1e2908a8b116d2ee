"""Floor 4: from a graph of ops to a program of kernels. Knows capabilities, never a device by name."""

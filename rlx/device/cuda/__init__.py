"""NVIDIA GPUs through CuPy and CUDA's Python bindings."""

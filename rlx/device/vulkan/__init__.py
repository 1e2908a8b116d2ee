"""The vulkan device: plain Vulkan 1.1 through ctypes, kernels as SPIR-V."""

"""The gpu device, on wgpu."""

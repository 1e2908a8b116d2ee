"""The webgpu device, on wgpu."""

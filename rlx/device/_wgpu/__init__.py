"""What the devices on wgpu share: the adapter, memory, and the execution of command plans. Not a device itself."""

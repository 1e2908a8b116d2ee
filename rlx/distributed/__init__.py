"""Floor 8: meshes, shardings and collectives over several devices."""

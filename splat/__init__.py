"""Gaussian splatting: scenes, cameras, differentiable rendering."""

"""Layers, losses and optimizers."""

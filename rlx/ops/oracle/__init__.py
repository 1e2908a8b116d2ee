"""Oracles and samples of the primitives that have no row in a table: conversion, movement, index, contraction, control."""

from rlx.ops.oracle import contraction, control, conversion, index, movement

__all__ = ["contraction", "control", "conversion", "index", "movement"]

"""Renderers: kernel LIR to the text of a language. They know primitives and loop kinds, and no device."""

"""Compressed records around any store: one encoding, the dictionaries for it, and the wrapper that applies it."""

"""Exact inference: how trees are run, and by what."""

"""Optimizers for tables too large for a dense gradient."""

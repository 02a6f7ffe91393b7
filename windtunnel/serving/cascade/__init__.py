"""Cascades: a small model on cheap features first, the full model where that one is unsure (Willump)."""

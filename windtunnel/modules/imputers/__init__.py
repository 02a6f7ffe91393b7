"""Modules that replace or flag missing numbers."""

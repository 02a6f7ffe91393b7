"""Modules that look up rows of tables by category, code, bin or term."""

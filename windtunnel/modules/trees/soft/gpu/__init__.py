"""Soft trees on a GPU through Triton. Its tests run in the interpreter; no GPU has run it yet."""

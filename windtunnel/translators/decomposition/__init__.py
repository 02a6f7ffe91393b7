"""Converters of decompositions, manifolds and kernel features."""

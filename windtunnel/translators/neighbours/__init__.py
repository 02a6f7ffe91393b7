"""Converters of neighbours, clusters and mixtures."""

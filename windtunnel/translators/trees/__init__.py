"""Converters of tree ensembles."""

"""Converters of linear models, support vector machines, neural networks and their kin."""

"""Contributions of the columns and interactions of residual models to the raw score."""

"""Converters of tree ensembles."""

TRAINABLE = "leaf values, thresholds, feature weights, paths (levels L1-L4)"
"""What fine-tuning can train of trees once they are soft."""

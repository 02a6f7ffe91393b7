"""The residual model: selection of columns and interactions, training, and the significance test."""

"""Losses and metrics over raw scores."""

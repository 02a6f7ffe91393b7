"""Converters of encoders of categories and texts."""

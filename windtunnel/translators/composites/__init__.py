"""Converters of estimators that are made of other estimators."""

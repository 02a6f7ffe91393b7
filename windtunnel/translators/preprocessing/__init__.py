"""Converters of scalers, imputers, bins, powers and selectors."""

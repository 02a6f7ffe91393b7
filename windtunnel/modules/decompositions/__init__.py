"""Codes, topics and densities: transforms that iterate or decompose."""

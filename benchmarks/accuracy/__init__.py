"""Test scores side by side: what a user would pick instead, the sources, and their translations."""

"""Updates of a fitted translation with new rows; the size does not grow with these."""

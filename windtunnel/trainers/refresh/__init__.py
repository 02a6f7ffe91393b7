"""Updates of a fitted translation with new rows, at constant size."""

"""The residual model: which columns it reads, what it learns, and whether it is kept."""

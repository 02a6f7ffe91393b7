"""The arithmetic of soft trees, forward and backward, and the memory that it takes."""

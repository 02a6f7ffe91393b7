"""The residual model: selection of its columns and interactions, its training, and the test that decides whether fit keeps it."""

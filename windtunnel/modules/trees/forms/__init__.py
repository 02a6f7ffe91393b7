"""Forms in which hard trees are run: the strategies, and what they read."""

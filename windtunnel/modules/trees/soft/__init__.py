"""Trees as small tanh networks: modules, the operation that computes them, the ways from and back to hard trees."""

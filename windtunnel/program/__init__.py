"""A translated pipeline as a flat program of modules, its head, and how rows run through it."""

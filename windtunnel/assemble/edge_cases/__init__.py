"""Inputs on which a source step is hard to follow: rejected numbers, sparse zeros, values next to a threshold."""

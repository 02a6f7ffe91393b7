"""Kernels, and the models and features that are made of them."""

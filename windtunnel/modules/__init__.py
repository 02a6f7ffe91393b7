"""Modules that hold tensors and know no estimator."""

"""Modules that hold tensors and know no estimator; each is in ``base.MODULES`` under its name."""

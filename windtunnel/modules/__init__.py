"""Modules that hold tensors and know no estimator; this list is what an artefact can be rebuilt from."""

from windtunnel.modules import affine, imputer, linear, normalizer, tables, trees

__all__ = ["affine", "imputer", "linear", "normalizer", "tables", "trees"]

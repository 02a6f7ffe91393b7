"""Modules that hold tensors and know no estimator; this list is what an artefact can be rebuilt from."""

from windtunnel.modules import (
    affine,
    answers,
    at_least,
    committee,
    imputer,
    linear,
    normalizer,
    started,
    tables,
    trees,
)

__all__ = [
    "affine",
    "answers",
    "at_least",
    "committee",
    "imputer",
    "linear",
    "normalizer",
    "started",
    "tables",
    "trees",
]

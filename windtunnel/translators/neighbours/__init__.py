"""Converters of neighbours, clusters and mixtures."""

from windtunnel.translators.neighbours import (
    cluster as cluster,
    mixture as mixture,
    neighbors as neighbors,
    propagation as propagation,
)

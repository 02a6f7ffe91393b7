"""Converters of decompositions, manifolds and kernel features."""

from windtunnel.translators.decomposition import (
    cross_decomposition as cross_decomposition,
    decomposition as decomposition,
    dictionary as dictionary,
    kernel_approximation as kernel_approximation,
    kernel_centerer as kernel_centerer,
    kernel_pca as kernel_pca,
    manifold as manifold,
    matrix_factorization as matrix_factorization,
    nmf_and_topics as nmf_and_topics,
)

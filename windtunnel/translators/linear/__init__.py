"""Converters of linear models, support vector machines, neural networks and their kin."""

from windtunnel.translators.linear import (
    discriminant as discriminant,
    dummy as dummy,
    factorization_machine as factorization_machine,
    gaussian_process as gaussian_process,
    generalized_linear as generalized_linear,
    isotonic as isotonic,
    kernel_ridge as kernel_ridge,
    linear as linear,
    linear_classifiers as linear_classifiers,
    naive_bayes as naive_bayes,
    neural as neural,
    svm as svm,
)

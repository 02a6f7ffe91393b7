"""scikit-learn's naive Bayes classifiers: raw scores are joint log likelihoods."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn import naive_bayes

from windtunnel.modules.base import Module
from windtunnel.modules.linear.gaussian_classes import GaussianClasses
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.linear.thresholded import ThresholdedLinear
from windtunnel.modules.outputs.class_outputs import LogSoftmax
from windtunnel.modules.tables.code_tables import CodeTables
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.registry import translates


@translates(naive_bayes.GaussianNB, trainable="means, variances, priors")
def gaussian(fitted: naive_bayes.GaussianNB) -> Predictor:
    """The log of class_prior_, less sum_j (log(2 pi var_kj) + (x_j - theta_kj)^2 / var_kj) / 2."""
    with np.errstate(divide="ignore"):  # a prior of 0; a variance of 0, where the source divides by it as well
        offset = np.log(fitted.class_prior_) - 0.5 * np.log(2.0 * np.pi * fitted.var_).sum(axis=1)
        scale = 1 / np.sqrt(fitted.var_)
    return _predictor(fitted, GaussianClasses(tensor(fitted.theta_), tensor(scale), tensor(offset)))


@translates(naive_bayes.BernoulliNB, trainable="log probabilities, priors", notes="binarize by any threshold, or none")
def bernoulli(fitted: naive_bayes.BernoulliNB) -> Predictor:
    """class_log_prior_ + sum_j of log p_kj where x_j is above ``binarize``, and log(1 - p_kj) else.

    With binarize=None x_j itself weighs the two. Reads feature_log_prob_, the log p.
    """
    absent = np.log(1 - np.exp(fitted.feature_log_prob_))
    weight, bias = tensor(fitted.feature_log_prob_ - absent), tensor(fitted.class_log_prior_ + absent.sum(axis=1))
    if fitted.binarize is None:
        return _predictor(fitted, Linear(weight, bias))
    return _predictor(fitted, ThresholdedLinear(weight, bias, tensor(fitted.binarize)))


@translates(naive_bayes.MultinomialNB, trainable="log probabilities, priors")
def multinomial(fitted: naive_bayes.MultinomialNB) -> Predictor:
    """class_log_prior_ + sum_j x_j feature_log_prob_kj."""
    return _predictor(fitted, Linear(tensor(fitted.feature_log_prob_), tensor(fitted.class_log_prior_)))


@translates(naive_bayes.ComplementNB, trainable="weights")
def complement(fitted: naive_bayes.ComplementNB) -> Predictor:
    """sum_j x_j feature_log_prob_kj; the prior counts only where there is one class."""
    alone = len(fitted.classes_) == 1
    bias = fitted.class_log_prior_ if alone else np.zeros(len(fitted.classes_))
    return _predictor(fitted, Linear(tensor(fitted.feature_log_prob_), tensor(bias)))


@translates(
    naive_bayes.CategoricalNB,
    trainable="log probabilities, priors",
    notes="categories that were not fitted on are rejected, as the source rejects them",
)
def categorical(fitted: naive_bayes.CategoricalNB) -> Predictor:
    """class_log_prior_ + sum_j of row trunc(x_j) of the table feature_log_prob_j."""
    tables = [np.asarray(log_probability, dtype=np.float64).T for log_probability in fitted.feature_log_prob_]
    count = torch.tensor([len(table) for table in tables], dtype=torch.int64)
    rows, bias = tensor(np.concatenate(tables)), tensor(fitted.class_log_prior_)
    return _predictor(fitted, CodeTables(rows, bias, count.cumsum(0) - count, count))


def _predictor(fitted: Any, scores: Module) -> Predictor:
    methods: dict[str, Module] = {"predict_log_proba": LogSoftmax()}
    # The softmax loss is of two scores or more.
    loss = "softmax" if len(fitted.classes_) > 1 else "logistic"
    return Predictor(scores, link="softmax", loss=loss, methods=methods)

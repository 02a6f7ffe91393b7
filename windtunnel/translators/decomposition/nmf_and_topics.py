"""scikit-learn's factorizations whose transform is an iteration: NMF and topics."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn import decomposition
from torch import Tensor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.decompositions.multiplicative_updates import MultiplicativeUpdates
from windtunnel.modules.decompositions.nonnegative_descent import NonNegativeDescent
from windtunnel.modules.decompositions.topics import TopicProportions
from windtunnel.translators.arrays import indices, tensor
from windtunnel.translators.registry import translates

LOSSES = {"frobenius": 2.0, "kullback-leibler": 1.0, "itakura-saito": 0.0}
TOGETHER = "unrolled steps; as in the source, their number depends on all rows of a call"


@translates(decomposition.NMF, trainable="components", notes=TOGETHER)
def nmf(fitted: decomposition.NMF) -> NonNegativeDescent | MultiplicativeUpdates:
    """The steps of the source (solver "cd" or "mu") from its initial values to its tolerance. Reads components_."""
    if fitted.solver == "mu":
        beta = LOSSES[fitted.beta_loss] if isinstance(fitted.beta_loss, str) else float(fitted.beta_loss)
        return _multiplicative(fitted, beta, fitted.max_iter, "divergence")
    return NonNegativeDescent(tensor(fitted.components_), _order(fitted), *_penalties(fitted), tolerance=fitted.tol)


@translates(decomposition.MiniBatchNMF, trainable="components", notes=TOGETHER)
def mini_batch_nmf(fitted: decomposition.MiniBatchNMF) -> MultiplicativeUpdates:
    """The multiplicative steps of the source from its initial values to its tolerance. Reads components_.

    The loss and the number of steps are those that fit was given, as in the source.
    """
    return _multiplicative(fitted, float(fitted._beta_loss), fitted._transform_max_iter, "change")


@translates(decomposition.LatentDirichletAllocation, trainable="words of topics", notes="unrolled steps")
def latent_dirichlet_allocation(fitted: decomposition.LatentDirichletAllocation) -> TopicProportions:
    """The E-step of the source for each row. Reads exp_dirichlet_component_ and doc_topic_prior_."""
    words = fitted.exp_dirichlet_component_
    return TopicProportions(
        tensor(words),
        prior=fitted.doc_topic_prior_,
        steps=fitted.max_doc_update_iter,
        tolerance=fitted.mean_change_tol,
        epsilon=float(np.finfo(words.dtype).eps),
    )


def _multiplicative(fitted: Any, beta: float, steps: int, watches: str) -> MultiplicativeUpdates:
    options: dict[str, Any] = {"steps": steps, "tolerance": fitted.tol, "watches": watches}
    return MultiplicativeUpdates(tensor(fitted.components_), beta, *_penalties(fitted), **options)


def _penalties(fitted: Any) -> tuple[float, float]:
    """L1 and l2, which scikit-learn scales by the number of columns."""
    scaled = fitted.components_.shape[1] * fitted.alpha_W
    return scaled * fitted.l1_ratio, scaled * (1 - fitted.l1_ratio)


def _order(fitted: decomposition.NMF) -> Tensor:
    """The order of the columns in each step, int64 ``[steps, K]``; shuffled with the seed of the source."""
    count = len(fitted.components_)
    if not fitted.shuffle:
        return torch.arange(count).repeat(fitted.max_iter, 1)
    if not isinstance(fitted.random_state, Integral):
        raise UnsupportedEstimator(
            "NMF with shuffle=True and no whole number as random_state gives another output at each call; set "
            "random_state, or shuffle=False."
        )
    random = np.random.RandomState(int(fitted.random_state))
    return indices([random.permutation(count) for _ in range(fitted.max_iter)])

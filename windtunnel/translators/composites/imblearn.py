"""imbalanced-learn's ensembles, whose members are fitted on rows drawn anew; they predict as their parents do."""

from __future__ import annotations

from copy import copy
from typing import Any

from imblearn import ensemble
from sklearn.pipeline import Pipeline

from windtunnel.estimators.prediction_steps import prediction_steps
from windtunnel.translators.composites.boosting_and_bagging import ada_boost_classifier, bagging_classifier
from windtunnel.translators.conversions import Conversion
from windtunnel.translators.registry import translates
from windtunnel.translators.trees import TRAINABLE
from windtunnel.translators.trees.sklearn_trees import forest

translates(ensemble.BalancedRandomForestClassifier, trainable=TRAINABLE, notes="as RandomForestClassifier")(forest)
translates(ensemble.RUSBoostClassifier, trainable=TRAINABLE, notes="as AdaBoostClassifier")(ada_boost_classifier)


@translates(
    ensemble.BalancedBaggingClassifier,
    ensemble.EasyEnsembleClassifier,
    trainable=TRAINABLE,
    notes="as BaggingClassifier; samplers of the members are left out",
)
def balanced_bagging(fitted: Any) -> Conversion:
    """The mean of the probabilities of ``estimators_``, pipelines of a sampler and an estimator, or of their votes."""
    without_samplers = copy(fitted)
    without_samplers.estimators_ = [_what_predicts(member) for member in fitted.estimators_]
    conversion: Conversion = bagging_classifier(without_samplers)
    return conversion


def _what_predicts(member: Pipeline) -> Any:
    """The steps of a pipeline without samplers; the last one by itself, if there is no other."""
    steps = prediction_steps(member)
    return steps[0][1] if len(steps) == 1 else Pipeline(steps)

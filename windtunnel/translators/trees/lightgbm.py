"""LightGBM: trees, and the objective as a link and a loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lightgbm import Booster, LGBMClassifier, LGBMRanker, LGBMRegressor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.trees.ensemble import TreeEnsemble
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.translators.conversions import InputColumns, Predictor
from windtunnel.translators.not_fitted import NotFitted
from windtunnel.translators.registry import translates
from windtunnel.translators.trees import TRAINABLE
from windtunnel.translators.trees.lightgbm_text import (
    BoosterText,
    categorical_columns,
    category_codes,
    ensemble_of_text,
    linear_leaves,
    read_text,
)

# Objective: link, loss. Custom objectives leave none in the text. For unweighted rows the loss of cross_entropy_lambda
# is the logistic loss of its raw score, as 1 - exp(-log(1 + exp(s))) is the sigmoid of s.
_OBJECTIVES = {
    "": ("identity", "unknown"),
    "binary": ("logistic", "logistic"),
    "multiclass": ("softmax", "softmax"),
    "multiclassova": ("sigmoids", "logistic"),
    "cross_entropy": ("logistic", "logistic"),
    "cross_entropy_lambda": ("log1p_exp", "logistic"),
    "regression": ("identity", "squared"),
    "regression_l1": ("identity", "absolute"),
    "huber": ("identity", "huber"),
    "fair": ("identity", "fair"),
    "quantile": ("identity", "quantile"),
    "mape": ("identity", "mape"),
    "poisson": ("exp", "poisson"),
    "gamma": ("exp", "gamma"),
    "tweedie": ("exp", "tweedie"),
    "lambdarank": ("identity", "relevance"),
    "rank_xendcg": ("identity", "relevance"),
}

# Objective: option of the loss, the parameter that holds it, LightGBM's default.
_LOSS_OPTIONS = {
    "huber": ("delta", "alpha", 0.9),
    "quantile": ("alpha", "alpha", 0.9),
    "fair": ("c", "fair_c", 1.0),
    "tweedie": ("power", "tweedie_variance_power", 1.5),
}


@translates(
    LGBMClassifier,
    trainable=TRAINABLE,
    notes="binary, multiclass, multiclassova and cross_entropy objectives; custom ones through ``booster_``; of linear "
    "trees the leaves train, not the splits",
)
def classifier(fitted: LGBMClassifier) -> Predictor:
    """``booster_``: raw scores, and the probabilities that ``predict_proba`` makes of them."""
    model = _LightGBMModel.of(_fitted_booster(fitted))
    several = model.outputs > 1
    if several and model.outputs != fitted.n_classes_:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} was fitted with num_class={model.outputs} on {fitted.n_classes_} classes; "
            "leave num_class out, so that it follows from y, and fit again"
        )
    if model.objective == "":
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with a custom objective predicts raw scores, not labels; "
            "translate its booster_ instead (and give fit the loss of its scores, such as loss='logistic'), or fit it "
            "with a named objective"
        )
    if several:
        return model.predictor()
    if model.objective not in ("binary", "cross_entropy"):
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with objective={model.objective!r}: predict_proba takes the model's values for "
            "probabilities, which they are not; fit it with objective='binary', or use LGBMRegressor"
        )
    return replace(model.predictor(), link="sigmoid")


@translates(
    LGBMRegressor,
    LGBMRanker,
    trainable=TRAINABLE,
    notes="every objective with its link and loss (with reg_sqrt, of the squared scores); rankers are fine-tuned with "
    "the squared error of the relevance unless told otherwise, custom objectives with a given loss only; of linear "
    "trees the leaves train, not the splits",
)
def regressor(fitted: LGBMRegressor | LGBMRanker) -> Predictor:
    """``booster_``: raw scores, and the values that ``predict`` makes of them."""
    return _LightGBMModel.of(_fitted_booster(fitted)).predictor()


@translates(
    Booster,
    trainable=TRAINABLE,
    notes="predicts as Booster.predict: the probability of class 1 for binary; rankers are tuned on the squared error "
    "of the relevance unless told otherwise; of linear trees the leaves train, not the splits",
)
def booster(fitted: Booster) -> Predictor:
    """``model_to_string()``: raw scores, and the values that ``predict`` makes of them."""
    return _LightGBMModel.of(fitted).predictor()


def tree_ensemble(booster: Booster) -> TreeEnsemble:
    """Convert the trees that ``booster.predict`` uses: up to ``best_iteration`` where training stopped early.

    Leaf values of boosting=rf are divided by the number of iterations, so that scores are means as in ``predict``
    (``predict(raw_score=True)`` leaves them as sums).
    """
    return _LightGBMModel.of(booster).ensemble


@dataclass(frozen=True)
class _LightGBMModel:
    """The trees of a booster and what its objective makes of their sum."""

    ensemble: TreeEnsemble
    categories: dict[int, list[Any]]  # of each column that was a pandas category in training
    objective: str
    options: frozenset[str]
    text: BoosterText

    @classmethod
    def of(cls, booster: Booster) -> _LightGBMModel:
        text = read_text(booster)
        objective, *options = text.header.get("objective", "").split(" ")
        categories = _pandas_categories(booster.pandas_categorical or [], text)
        return cls(ensemble_of_text(text), categories, objective, frozenset(options), text)

    @property
    def outputs(self) -> int:
        return self.ensemble.outputs

    def scores(self) -> Module:
        if any(tree.get("is_linear", "0") != "0" for tree in self.text.trees):
            return linear_leaves(self.ensemble, self.text.trees)
        return HardTrees.of(self.ensemble)

    def scale_option(self) -> dict[str, float]:
        scales = [float(option.removeprefix("sigmoid:")) for option in self.options if option.startswith("sigmoid:")]
        return {"scale": scales[0]} if scales and scales[0] != 1 else {}

    def predictor(self) -> Predictor:
        """Pair the scores with the link and loss of ``Booster.predict``."""
        if self.objective not in _OBJECTIVES:
            raise UnsupportedEstimator(
                f"objective={self.objective!r} has no translation; accepted are {', '.join(filter(None, _OBJECTIVES))}"
            )
        link, loss = _OBJECTIVES[self.objective]
        scaled = self.scale_option()
        loss_options = scaled if loss == "logistic" else {}
        if self.objective in _LOSS_OPTIONS:
            option, parameter, default = _LOSS_OPTIONS[self.objective]
            loss_options = {option: float(self.text.parameters.get(parameter, default))}
        return Predictor(
            scores=self.scores(),
            link="signed_square" if "sqrt" in self.options else link,
            loss=loss,
            link_options=scaled,
            loss_options=loss_options,
            flat=self.outputs == 1,
            reads=InputColumns(self.categories, needs_names=True),
            # decision_function gives the sum of a forest's trees, the link takes their mean.
            decision_scale=self.ensemble.divisor,
        )


def _pandas_categories(categories: list[list[Any]], text: BoosterText) -> dict[int, list[Any]]:
    """Map each column that was a pandas category in training to its categories, in the order of their codes.

    The booster keeps the categories (``pandas_categorical``) and which features are categorical
    (``categorical_feature`` of its parameters) in two places, without names: they match only if they are as many.
    """
    if not categories:
        return {}
    columns = categorical_columns(text)
    if len(columns) != len(categories):
        raise UnsupportedEstimator(
            f"the booster was trained on {len(categories)} pandas category columns, but {len(columns)} of its features "
            f"are categorical (positions {columns}), so the columns cannot be matched; make ordered categories "
            "unordered and leave categorical_feature='auto' when fitting, or one-hot encode them before LightGBM"
        )
    infos = text.header["feature_infos"].split(" ")
    for column, values in zip(columns, categories, strict=True):
        highest = max(category_codes(infos[column]), default=-1)
        if highest >= len(values):
            raise UnsupportedEstimator(
                f"feature {column} has category code {highest} but the pandas column has {len(values)} categories; "
                "leave categorical_feature='auto' when fitting, or one-hot encode the categories before LightGBM"
            )
    return {column: list(values) for column, values in zip(columns, categories, strict=True)}


def _fitted_booster(fitted: LGBMClassifier | LGBMRegressor | LGBMRanker) -> Booster:
    if not fitted.__sklearn_is_fitted__():
        raise NotFitted(f"{type(fitted).__name__} is not fitted; call fit first")
    if fitted.get_params().get("pred_early_stop"):
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with pred_early_stop=True skips trees where it is sure of a row, so its scores "
            "are no sum of trees; call set_params(pred_early_stop=False)"
        )
    return fitted.booster_

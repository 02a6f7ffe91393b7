"""LightGBM: the text of a booster as flat arrays, its objective as a link and a loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from lightgbm import Booster, LGBMClassifier, LGBMRanker, LGBMRegressor
from numpy.typing import NDArray

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.trees.ensemble import MISSING_NONE, NEAR_ZERO, TreeEnsemble
from windtunnel.modules.trees.hard import HardTrees, TreeWalk
from windtunnel.modules.trees.leaves import with_numbers
from windtunnel.modules.trees.linear_leaves import LinearLeafTrees
from windtunnel.translators.conversions import InputColumns, Predictor
from windtunnel.translators.not_fitted import NotFitted
from windtunnel.translators.registry import translates
from windtunnel.translators.trees import TRAINABLE


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


def _native_categories(categories: list[list[Any]], text: _Text) -> dict[int, list[Any]]:
    """Map each column that was a pandas category in training to its categories, in the order of their codes.

    The booster keeps the categories (``pandas_categorical``) and which features are categorical
    (``categorical_feature`` of its parameters) in two places, without names: they match only if they are as many.
    """
    if not categories:
        return {}
    columns = _categorical_columns(text)
    if len(columns) != len(categories):
        raise UnsupportedEstimator(
            f"the booster was trained on {len(categories)} pandas category columns, but {len(columns)} of its features "
            f"are categorical (positions {columns}), so the columns cannot be matched; make ordered categories "
            "unordered and leave categorical_feature='auto' when fitting, or one-hot encode them before LightGBM"
        )
    infos = text.header["feature_infos"].split(" ")
    for column, values in zip(columns, categories, strict=True):
        highest = max(_codes(infos[column]), default=-1)
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


@dataclass(frozen=True)
class _Text:
    """The parts of a model's text: ``key=value`` lines of header and trees, ``[key: value]`` lines of parameters."""

    header: Mapping[str, str]
    trees: list[dict[str, str]]
    parameters: Mapping[str, str]


@dataclass(frozen=True)
class _LightGBMModel:
    """The trees of a booster and what its objective makes of their sum."""

    ensemble: TreeEnsemble
    categories: dict[int, list[Any]]  # of each column that was a pandas category in training
    objective: str
    options: frozenset[str]
    text: _Text

    @classmethod
    def of(cls, booster: Booster) -> _LightGBMModel:
        text = _text(booster)
        objective, *options = text.header.get("objective", "").split(" ")
        categories = _native_categories(booster.pandas_categorical or [], text)
        return cls(_ensemble(text), categories, objective, frozenset(options), text)

    @property
    def outputs(self) -> int:
        return self.ensemble.outputs

    def scores(self) -> Module:
        if any(tree.get("is_linear", "0") != "0" for tree in self.text.trees):
            return _linear_leaves(self.ensemble, self.text.trees)
        return HardTrees.of(self.ensemble)

    def scale_option(self) -> dict[str, float]:
        scales = [float(option[8:]) for option in self.options if option.startswith("sigmoid:")]
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


def _text(booster: Booster) -> _Text:
    best = booster.best_iteration
    whole = booster.model_to_string(num_iteration=best if best > 0 else -1)
    body, _, rest = whole.partition("\nend of trees")
    head, *trees = body.split("\nTree=")
    inside = rest.partition("\nparameters:")[2].partition("\nend of parameters")[0]
    parameters = (line[1:-1].partition(": ") for line in inside.splitlines() if line.startswith("["))
    return _Text(_fields(head), [_fields(tree) for tree in trees], {key: value for key, _, value in parameters})


def _fields(block: str) -> dict[str, str]:
    """``key=value`` lines; a bare key, such as ``average_output``, has an empty value."""
    lines = (line.partition("=") for line in block.splitlines())
    return {key: value for key, _, value in lines}


def _ensemble(text: _Text) -> TreeEnsemble:
    trees = text.trees
    outputs = int(text.header["num_tree_per_iteration"])
    leaves = np.array([int(tree["num_leaves"]) for tree in trees], np.int64)
    decision = _numbers(trees, "decision_type", np.int64)
    threshold = _numbers(trees, "threshold", np.float64)
    categories = _categories(trees, leaves - 1, threshold, (decision & 1).astype(np.bool_))
    return TreeEnsemble(
        width=int(text.header["max_feature_idx"]) + 1,
        node_start=np.cumsum([0, *(leaves - 1)]),
        leaf_start=np.cumsum([0, *leaves]),
        feature=_numbers(trees, "split_feature", np.int64),
        threshold=np.where(decision & 1, 0.0, _off_zero(threshold)),
        default_left=(decision & 2) > 0,
        # A missing category goes right, whatever the direction for missing numbers is.
        missing=np.where(decision & 1, MISSING_NONE, decision >> 2 & 3).astype(np.int8),
        left=_numbers(trees, "left_child", np.int64),
        right=_numbers(trees, "right_child", np.int64),
        leaf_value=_numbers(trees, "leaf_value", np.float64),
        output=np.arange(len(trees)) % outputs,
        base=np.zeros(outputs),
        categories=categories,
        feature_range=_feature_range(text.header["feature_infos"].split(" ")),
        leaf_cover=_leaf_cover(trees, leaves),
        divisor=float(max(1, len(trees) // outputs)) if "average_output" in text.header else 1.0,
    )


def _leaf_cover(trees: list[dict[str, str]], leaves: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Training rows of each leaf; a tree without a split stores none and gets 1. None if a tree lacks the counts."""
    split = [tree for tree, count in zip(trees, leaves.tolist(), strict=True) if count > 1]
    counts = _numbers(split, "leaf_count", np.float64)
    if len(counts) != leaves[leaves > 1].sum():
        return None
    cover = np.ones(int(leaves.sum()))
    cover[np.repeat(leaves > 1, leaves)] = counts
    return cover


def _linear_leaves(ensemble: TreeEnsemble, trees: list[dict[str, str]]) -> LinearLeafTrees:
    """Leaves that are ``leaf_const + leaf_coeff . x``, or ``leaf_value`` where one of their features is missing."""
    leaves = len(ensemble.leaf_value)
    const, coefficient = ensemble.leaf_value.copy(), np.zeros((leaves, ensemble.width))
    uses = np.zeros((leaves, ensemble.width), np.bool_)
    for tree, first in zip(trees, ensemble.leaf_start[:-1].tolist(), strict=True):
        if tree.get("is_linear", "0") == "0":
            continue
        counts = _numbers([tree], "num_features", np.int64)
        rows, columns = first + np.repeat(np.arange(len(counts)), counts), _numbers([tree], "leaf_features", np.int64)
        const[first : first + len(counts)] = _numbers([tree], "leaf_const", np.float64)
        coefficient[rows, columns] = _numbers([tree], "leaf_coeff", np.float64)
        uses[rows, columns] = True
    tensors = {
        "tree_score": ensemble.output,
        "const": const / ensemble.divisor,
        "plain": ensemble.leaf_value / ensemble.divisor,
        "coefficient": coefficient / ensemble.divisor,
        "uses": uses,
    }
    walk = TreeWalk.of(with_numbers(ensemble, np.arange(leaves)))
    values = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in tensors.items()}
    facts = walk.facts() | {"scores": ensemble.outputs}
    return LinearLeafTrees.rebuild(walk.state_dict() | values, facts)


def _numbers(trees: Iterable[Mapping[str, str]], key: str, dtype: Any) -> NDArray[Any]:
    """One array of the values of ``key`` in all the trees."""
    joined = " ".join(tree.get(key, "") for tree in trees)
    number = float if dtype is np.float64 else int
    return np.array([*map(number, joined.split())], dtype)


def _off_zero(threshold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move thresholds within ``NEAR_ZERO`` to its end, as LightGBM compares values up to there as zero."""
    rim = np.where(threshold < 0, np.nextafter(-NEAR_ZERO, -np.inf), NEAR_ZERO)
    return np.where(np.abs(threshold) <= NEAR_ZERO, rim, threshold)


def _categories(
    trees: list[dict[str, str]], counts: NDArray[np.int64], threshold: NDArray[np.float64], is_set: NDArray[np.bool_]
) -> dict[int, NDArray[np.int64]]:
    """Node -> categories that go left. ``threshold`` numbers the sets of a tree, each a run of 32-bit words of bits."""
    sets: dict[int, NDArray[np.int64]] = {}
    tree_of = np.repeat(np.arange(len(trees)), counts)
    parsed: dict[int, tuple[list[int], NDArray[np.uint8]]] = {}
    for node in np.flatnonzero(is_set).tolist():
        tree = int(tree_of[node])
        if tree not in parsed:
            words = np.array([*map(int, trees[tree]["cat_threshold"].split())], "<u4")
            parsed[tree] = [*map(int, trees[tree]["cat_boundaries"].split())], words.view(np.uint8)
        bounds, octets = parsed[tree]
        number = int(threshold[node])
        bits = np.unpackbits(octets[4 * bounds[number] : 4 * bounds[number + 1]], bitorder="little")
        sets[node] = np.flatnonzero(bits)
    return sets


def _feature_range(infos: list[str]) -> NDArray[np.float64]:
    """``[least:greatest]`` of a number, the codes of a category joined by ``:``, or ``none`` for a constant."""
    rows = []
    for info in infos:
        values = [*map(float, info[1:-1].split(":"))] if info.startswith("[") else _codes(info)
        rows.append([min(values, default=np.nan), max(values, default=np.nan)])
    return np.array(rows, np.float64)


def _codes(info: str) -> list[int]:
    """The category codes of a feature info without -1 (missing); none for a number."""
    if info.startswith("[") or info == "none":
        return []
    return [code for code in map(int, info.split(":")) if code >= 0]


def _categorical_columns(text: _Text) -> list[int]:
    """The features declared categorical; without parameters in the text, those with category codes."""
    declared = text.parameters.get("categorical_feature", "")
    if declared:
        return sorted(map(int, declared.split(",")))
    return [column for column, info in enumerate(text.header["feature_infos"].split(" ")) if _codes(info)]

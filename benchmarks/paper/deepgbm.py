"""DeepGBM in terms of this library: the trees of a pipeline, beside a factorization machine over its categories.

DeepGBM adds two networks: GBDT2NN, to which trees were distilled, and CatNN, DeepFM over the categories. Here soft
trees take the place of the first, and a factorization machine without a deep part that of the second.
"""

from __future__ import annotations

from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import StackingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder

from windtunnel import FactorizationMachineClassifier, RareCategories
from windtunnel.api.translation import Translation

TREES = "gbdt2nn"


def deepgbm(fitted: Pipeline, seed: int) -> StackingClassifier:
    """Both parts, not fitted; a logistic regression weighs their probabilities, on folds that they have not seen.

    Source
    ------
    Ke et al., DeepGBM: a deep learning framework distilled by GBDT for online prediction tasks, KDD 2019.
    """
    categories = next(columns for name, _, columns in fitted["columns"].transformers_ if name == "categories")
    one_hot = make_pipeline(RareCategories(min_count=25), OneHotEncoder(handle_unknown="ignore"))
    machine = FactorizationMachineClassifier(n_factors=20, epochs=1, random_state=seed)
    catnn = make_pipeline(ColumnTransformer([("categories", one_hot, categories)]), machine)
    return StackingClassifier([(TREES, clone(fitted)), ("catnn", catnn)], LogisticRegression(), cv=3)


def freeze_encoders_of_trees(net: Translation) -> None:
    """The trees read what they were distilled from."""
    for step, origin in zip(net.program.steps, net.origins, strict=True):
        if f"{TREES}.columns." in origin.name:
            step.module.requires_grad_(False)

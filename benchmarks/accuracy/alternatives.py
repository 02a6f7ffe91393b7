"""What a user would pick instead: one function per model, each fitted on the training rows and held to the valid ones.

Every function takes a ``Task`` and a seed, and gives a fitted model that takes raw rows. The options are constants, so
that results can tell what they were made with. Trees stop early by the metric that is compared.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from lightgbm import LGBMClassifier, LGBMRegressor, early_stopping
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, StandardScaler, TargetEncoder

from benchmarks.accuracy.combined_categories import CombinedCategories
from benchmarks.accuracy.task import Task
from windtunnel import TwoHotEncoder

LOGISTIC: dict[str, Any] = {"min_frequency": 10, "n_bins": 32, "C": [0.01, 0.03, 0.1, 0.3, 1.0, 3.0]}
LIGHTGBM: dict[str, Any] = {
    "n_estimators": 3000,
    "learning_rate": 0.03,
    "num_leaves": 31,
    "min_child_samples": 50,
    "colsample_bytree": 0.5,
    "subsample": 0.8,
    "subsample_freq": 1,
    "reg_lambda": 5.0,
}
NATIVE = LIGHTGBM | {"min_data_per_group": 100, "cat_smooth": 30.0, "cat_l2": 20.0}
XGBOOST: dict[str, Any] = {
    "n_estimators": 3000,
    "learning_rate": 0.03,
    "max_depth": 6,
    "min_child_weight": 10,
    "colsample_bytree": 0.5,
    "subsample": 0.8,
    "reg_lambda": 5.0,
    "tree_method": "hist",
    "enable_categorical": True,
}
TARGET_ENCODED = LIGHTGBM | {"combinations": 150, "folds": 5}
EBM: dict[str, Any] = {"outer_bags": 4, "n_jobs": 1}
CATBOOST: dict[str, Any] = {"iterations": 2000, "learning_rate": 0.06, "depth": 6, "l2_leaf_reg": 5.0}
PATIENCE = 50
"""Trees without a better valid score after which boosting stops."""
BOOSTING_METRICS = {
    "lightgbm": {"binary": "auc", "multiclass": "multi_logloss", "regression": "l2"},
    "xgboost": {"binary": "auc", "multiclass": "mlogloss", "regression": "rmse"},
    "catboost": {"binary": "AUC", "multiclass": "MultiClass", "regression": "RMSE"},
}
"""What the libraries call the metric that is compared."""


def logistic(task: Task, seed: int) -> Pipeline:
    """Logistic (for numbers ridge) regression on one-hot categories, bins and scaled numbers; C chosen on valid rows.

    Ridge takes alpha = 1 / C.
    """
    scaled_and_binned = FeatureUnion(
        [
            ("scaled", StandardScaler()),
            ("bins", KBinsDiscretizer(LOGISTIC["n_bins"], quantile_method="averaged_inverted_cdf")),
        ]
    )
    one_hot = OneHotEncoder(handle_unknown="ignore", min_frequency=LOGISTIC["min_frequency"])
    numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), scaled_and_binned)
    columns = by_kind(task, categories=one_hot, numbers=numbers)
    with fewer_bins():
        train = columns.fit_transform(task.train.X)
    valid = columns.transform(task.valid.X)
    found = []
    for C in LOGISTIC["C"]:
        model = Ridge(alpha=1 / C) if task.kind == "regression" else LogisticRegression(C=C, max_iter=2000)
        model.fit(train, task.train.y)
        score = task.score(task.valid.y, task.predictions(model, valid))
        found.append((score if task.kind == "binary" else -score, model))
    best = max(found, key=lambda one: one[0])[1]
    return Pipeline([("columns", columns), ("model", best)])


def lightgbm_two_hot(task: Task, seed: int) -> Pipeline:
    """LightGBM on two-hot categories."""
    return boosted(task, two_hot(task), LIGHTGBM, PATIENCE, seed)


def lightgbm_native(task: Task, seed: int) -> Any:
    """LightGBM on columns of pandas' category dtype, which it splits into sets."""
    return boosted(task, None, NATIVE, PATIENCE, seed)


def lightgbm_target_encoded(task: Task, seed: int) -> Pipeline:
    """LightGBM on two-hot categories and out-of-fold target encodings of unscreened pairs and triples of categories.

    The idea of TabPrep in AutoGluon.
    """
    folds = (KFold if task.kind == "regression" else StratifiedKFold)(
        TARGET_ENCODED["folds"], shuffle=True, random_state=seed
    )
    encodings = make_pipeline(CombinedCategories(TARGET_ENCODED["combinations"], seed), TargetEncoder(cv=folds))
    columns = FeatureUnion([("columns", two_hot(task)), ("encodings", encodings)])
    return boosted(task, columns, LIGHTGBM, PATIENCE, seed)


def ebm(task: Task, seed: int) -> Any:
    """An explainable boosting machine, which stops early on rows of its own choice among the training rows."""
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    model = ExplainableBoostingRegressor if task.kind == "regression" else ExplainableBoostingClassifier
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(Missing values detected|For multiclass)")  # about its plots
        return model(**EBM, random_state=seed).fit(*task.train)


def xgboost(task: Task, seed: int) -> Any:
    """XGBoost on columns of pandas' category dtype."""
    from xgboost import XGBClassifier, XGBRegressor

    model = (XGBRegressor if task.kind == "regression" else XGBClassifier)(
        **XGBOOST,
        eval_metric=BOOSTING_METRICS["xgboost"][task.kind],
        early_stopping_rounds=PATIENCE,
        random_state=seed,
    )
    return model.fit(*task.train, eval_set=[task.valid], verbose=False)


def catboost(task: Task, seed: int) -> Any:
    """CatBoost, told which columns are categories."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    model = (CatBoostRegressor if task.kind == "regression" else CatBoostClassifier)(
        **CATBOOST,
        eval_metric=BOOSTING_METRICS["catboost"][task.kind],
        early_stopping_rounds=PATIENCE,
        cat_features=task.categories,
        random_seed=seed,
        verbose=False,
        allow_writing_files=False,
    )
    return model.fit(*task.train, eval_set=tuple(task.valid))


@contextlib.contextmanager
def fewer_bins() -> Iterator[None]:
    """Without the warnings that columns of few distinct numbers have fewer bins, which is how it should be."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*(Bins whose width are too small|is constant and will be)")
        yield


def by_kind(task: Task, categories: Any, numbers: Any) -> ColumnTransformer:
    """A step for the categories and one for the numbers, where the set has any."""
    steps = (("categories", categories, task.categories), ("numbers", numbers, task.numbers))
    return ColumnTransformer([step for step in steps if step[2]])


def two_hot(task: Task) -> ColumnTransformer:
    """Categories as two-hots, numbers as they are."""
    return by_kind(task, categories=TwoHotEncoder(), numbers="passthrough")


def boosted(
    task: Task, columns: ColumnTransformer | None, options: Mapping[str, Any], patience: int | None, seed: int
) -> Any:
    """LightGBM, after ``columns`` if given; with ``patience`` it stops early, and has that many trees from then on.

    ``n_estimators`` of the model says how many were kept, so that a clone of it, as cross-fitting makes, fits as many.
    """
    model = (LGBMRegressor if task.kind == "regression" else LGBMClassifier)(
        **options,
        metric=BOOSTING_METRICS["lightgbm"][task.kind],
        random_state=seed,
        force_row_wise=True,  # else a race on the clock decides, and rounding with it
        verbosity=-1,
    )
    prepared = None if columns is None else clone(columns)
    # Target encoders encode training rows out of fold, in fit_transform alone.
    train = task.train.X if prepared is None else prepared.fit_transform(*task.train)
    valid = task.valid.X if prepared is None else prepared.transform(task.valid.X)
    if patience is None:
        model.fit(train, task.train.y)
    else:
        stop = early_stopping(patience, verbose=False)
        model.fit(train, task.train.y, eval_X=valid, eval_y=task.valid.y, callbacks=[stop])
        model.set_params(n_estimators=model.best_iteration_)
    return model if prepared is None else Pipeline([("columns", prepared), ("model", model)])

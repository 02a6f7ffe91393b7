"""Random pipelines over random awkward frames, for hypothesis: shape and operators are drawn, so failures shrink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import category_encoders as ce
import numpy as np
import pandas as pd
from hypothesis import strategies as st
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn import (
    calibration,
    cluster,
    compose,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    impute,
    kernel_approximation,
    linear_model,
    mixture,
    multiclass,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

from windtunnel import RareCategories, TwoHotEncoder

ROWS = 60
Make = Callable[[], Any]

# Columns


def _normal(random: np.random.Generator, rows: int) -> Any:
    return random.normal(3, 2, rows)


def _large(random: np.random.Generator, rows: int) -> Any:
    return random.lognormal(9, 1, rows).round()


def _counts(random: np.random.Generator, rows: int) -> Any:
    return random.poisson(1.0, rows)


def _decimals(random: np.random.Generator, rows: int) -> Any:
    return random.normal(0, 1, rows).round(1)


def _with_missing(random: np.random.Generator, rows: int) -> Any:
    values = random.normal(0, 1, rows)
    values[random.random(rows) < 0.2] = np.nan
    return values


def _zeros_of_both_signs(random: np.random.Generator, rows: int) -> Any:
    return random.choice([-0.0, 0.0, 1e-310, -1e-36, 1.0, -1.0], rows)


def _constant(random: np.random.Generator, rows: int) -> Any:
    return np.full(rows, 7.5)


def _huge(random: np.random.Generator, rows: int) -> Any:
    return random.normal(0, 1, rows) * 1e12


def _flags(random: np.random.Generator, rows: int) -> Any:
    return random.random(rows) < 0.4


def _around_a_large_value(random: np.random.Generator, rows: int) -> Any:
    return 1.7e9 + random.integers(0, 500, rows)


NUMBERS = {one.__name__: one for one in (
    _normal, _large, _counts, _decimals, _with_missing, _zeros_of_both_signs, _constant, _huge, _flags,
    _around_a_large_value,
)}  # fmt: skip
COMPLETE = sorted(NUMBERS.keys() - {"_with_missing"})


def _words(random: np.random.Generator, rows: int) -> Any:
    return random.choice(["a", "b", "", "Ünï ☃", "a b"], rows, p=[0.4, 0.3, 0.1, 0.15, 0.05])


def _words_with_missing(random: np.random.Generator, rows: int) -> Any:
    values = _words(random, rows).astype(object)
    values[random.random(rows) < 0.15] = np.nan
    return values


def _words_with_none(random: np.random.Generator, rows: int) -> Any:
    values = _words(random, rows).astype(object)
    values[random.random(rows) < 0.15] = None
    return values


def _codes(random: np.random.Generator, rows: int) -> Any:
    return random.choice([-3, 0, 5, 100], rows)


def _pandas_categories(random: np.random.Generator, rows: int) -> Any:
    return pd.Categorical(_words(random, rows), categories=["b", "a", "", "Ünï ☃", "a b", "new"])


TEXTS = {one.__name__: one for one in (_words, _words_with_missing, _words_with_none, _codes, _pandas_categories)}

# Operators

NUMBER_STEPS: dict[str, Make] = {
    "standard": preprocessing.StandardScaler,
    "standard without mean": lambda: preprocessing.StandardScaler(with_mean=False),
    "min-max": preprocessing.MinMaxScaler,
    "min-max clipped": lambda: preprocessing.MinMaxScaler((-1, 2), clip=True),
    "max-abs": preprocessing.MaxAbsScaler,
    "robust": preprocessing.RobustScaler,
    "normalizer": preprocessing.Normalizer,
    "power": lambda: preprocessing.PowerTransformer(),
    "quantile": lambda: preprocessing.QuantileTransformer(n_quantiles=20),
    "quantile normal": lambda: preprocessing.QuantileTransformer(n_quantiles=20, output_distribution="normal"),
    "bins": lambda: preprocessing.KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf"),
    "bin codes": lambda: preprocessing.KBinsDiscretizer(3, encode="ordinal", strategy="uniform"),
    "binarizer": lambda: preprocessing.Binarizer(threshold=0.5),
    "polynomial": lambda: preprocessing.PolynomialFeatures(2),
    "spline": lambda: preprocessing.SplineTransformer(4),
    "function": preprocessing.FunctionTransformer,
    "log1p of absolute": lambda: pipeline.make_pipeline(
        preprocessing.FunctionTransformer(np.abs, feature_names_out="one-to-one"),
        preprocessing.FunctionTransformer(np.log1p, feature_names_out="one-to-one"),
    ),
    "variance": lambda: feature_selection.VarianceThreshold(0.01),
}
IMPUTERS: dict[str, Make] = {
    "mean": impute.SimpleImputer,
    "median, indicator": lambda: impute.SimpleImputer(strategy="median", add_indicator=True),
    "constant": lambda: impute.SimpleImputer(strategy="constant", fill_value=-1.0),
    "neighbours": lambda: impute.KNNImputer(n_neighbors=3),
}
TEXT_STEPS: dict[str, Make] = {
    "one-hot": lambda: preprocessing.OneHotEncoder(handle_unknown="ignore"),
    "one-hot, infrequent": lambda: preprocessing.OneHotEncoder(
        min_frequency=8, handle_unknown="infrequent_if_exist", sparse_output=False
    ),
    "one-hot that rejects": lambda: preprocessing.OneHotEncoder(drop="if_binary"),
    "ordinal": lambda: preprocessing.OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2
    ),
    "target": lambda: preprocessing.TargetEncoder(cv=2, random_state=0),
    "two-hot": TwoHotEncoder,
    "rare, two-hot": lambda: pipeline.make_pipeline(RareCategories(min_count=8), TwoHotEncoder()),
    "most frequent, one-hot": lambda: pipeline.make_pipeline(
        impute.SimpleImputer(strategy="most_frequent"), preprocessing.OneHotEncoder(handle_unknown="ignore")
    ),
    "ce ordinal": ce.OrdinalEncoder,
    "ce one-hot": ce.OneHotEncoder,
    "ce binary": ce.BinaryEncoder,
    "ce target": ce.TargetEncoder,
    "ce count": ce.CountEncoder,
    "ce james-stein": ce.JamesSteinEncoder,
    "ce leave one out": ce.LeaveOneOutEncoder,
    "ce m-estimate": ce.MEstimateEncoder,
    "ce hashing": lambda: ce.HashingEncoder(n_components=4, max_process=1),
    "ce sum": ce.SumEncoder,
    "ce helmert": ce.HelmertEncoder,
}
SECOND_STEPS: dict[str, Make] = {
    "nothing": lambda: "passthrough",
    "standard": preprocessing.StandardScaler,
    "k best": lambda: feature_selection.SelectKBest(feature_selection.f_classif, k=2),
    "pca": lambda: decomposition.PCA(2, svd_solver="full"),
    "whitened": lambda: decomposition.PCA(1, whiten=True, svd_solver="full"),
    "svd": lambda: decomposition.TruncatedSVD(1, random_state=0),
    "fourier": lambda: kernel_approximation.RBFSampler(n_components=5, random_state=0),
    "nystroem": lambda: kernel_approximation.Nystroem(n_components=5, random_state=0),
    "k-means distances": lambda: cluster.KMeans(2, n_init=1, random_state=0),
    "union": lambda: pipeline.make_union(preprocessing.MinMaxScaler(), decomposition.PCA(1, svd_solver="full")),
    "max-abs, variance": lambda: pipeline.make_pipeline(
        preprocessing.MaxAbsScaler(), feature_selection.VarianceThreshold()
    ),
}


def _boost(cls: type, **options: Any) -> Make:
    return lambda: cls(
        **{"n_estimators": 5, "num_leaves": 6, "min_child_samples": 3, "verbosity": -1, "n_jobs": 1} | options
    )


CLASSIFIERS: dict[str, Make] = {
    "lightgbm": _boost(LGBMClassifier),
    "lightgbm, zero as missing": _boost(LGBMClassifier, zero_as_missing=True),
    "lightgbm, random forest": _boost(LGBMClassifier, boosting_type="rf", subsample=0.7, subsample_freq=1),
    "logistic": lambda: linear_model.LogisticRegression(max_iter=200),
    "sgd": lambda: linear_model.SGDClassifier(loss="modified_huber", random_state=0),
    "ridge": linear_model.RidgeClassifier,
    "linear svc": lambda: svm.LinearSVC(random_state=0, max_iter=200),
    "svc": lambda: svm.SVC(gamma="scale"),
    "tree": lambda: tree.DecisionTreeClassifier(max_depth=4, random_state=0),
    "extra tree": lambda: tree.ExtraTreeClassifier(max_depth=4, random_state=0),
    "forest": lambda: ensemble.RandomForestClassifier(4, max_depth=4, random_state=0),
    "extra trees": lambda: ensemble.ExtraTreesClassifier(4, max_depth=4, random_state=0),
    "gradient boosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=3, random_state=0),
    "histogram boosting": lambda: ensemble.HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=4),
    "adaboost": lambda: ensemble.AdaBoostClassifier(n_estimators=3, random_state=0),
    "bagging": lambda: ensemble.BaggingClassifier(
        linear_model.LogisticRegression(), 3, max_features=0.7, random_state=0
    ),
    "gaussian naive bayes": naive_bayes.GaussianNB,
    "bernoulli naive bayes": naive_bayes.BernoulliNB,
    "linear discriminant": discriminant_analysis.LinearDiscriminantAnalysis,
    "neighbours": lambda: neighbors.KNeighborsClassifier(3),
    "nearest centroid": neighbors.NearestCentroid,
    "perceptrons": lambda: neural_network.MLPClassifier((4,), max_iter=20, random_state=0),
    "voting": lambda: ensemble.VotingClassifier(
        [("a", linear_model.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=3, random_state=0))],
        voting="soft",
    ),
    "stacking": lambda: ensemble.StackingClassifier(
        [("a", _boost(LGBMClassifier)()), ("b", naive_bayes.GaussianNB())], linear_model.LogisticRegression(), cv=2
    ),
    "calibrated": lambda: calibration.CalibratedClassifierCV(linear_model.RidgeClassifier(), cv=2),
    "one against the rest": lambda: multiclass.OneVsRestClassifier(linear_model.LogisticRegression()),
    "one against one": lambda: multiclass.OneVsOneClassifier(linear_model.LogisticRegression()),
}
REGRESSORS: dict[str, Make] = {
    "lightgbm": _boost(LGBMRegressor),
    "lightgbm, quantile": _boost(LGBMRegressor, objective="quantile", alpha=0.7),
    "lightgbm, linear trees": _boost(LGBMRegressor, linear_tree=True),
    "least squares": linear_model.LinearRegression,
    "lasso": lambda: linear_model.Lasso(0.1),
    "huber": linear_model.HuberRegressor,
    "svr": svm.SVR,
    "tree": lambda: tree.DecisionTreeRegressor(max_depth=4, random_state=0),
    "forest": lambda: ensemble.RandomForestRegressor(4, max_depth=4, random_state=0),
    "gradient boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=3, random_state=0),
    "histogram boosting": lambda: ensemble.HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=4),
    "adaboost": lambda: ensemble.AdaBoostRegressor(n_estimators=3, random_state=0),
    "neighbours": lambda: neighbors.KNeighborsRegressor(3, weights="distance"),
    "perceptrons": lambda: neural_network.MLPRegressor((4,), max_iter=20, random_state=0),
    "bayesian ridge": linear_model.BayesianRidge,
    "log target": lambda: compose.TransformedTargetRegressor(
        linear_model.Ridge(), func=np.arcsinh, inverse_func=np.sinh, check_inverse=False
    ),
}
OTHERS: dict[str, Make] = {
    "nothing": lambda: "passthrough",
    "k-means": lambda: cluster.KMeans(3, n_init=1, random_state=0),
    "isolation forest": lambda: ensemble.IsolationForest(4, random_state=0),
    "one-class svm": svm.OneClassSVM,
    "gaussian mixture": lambda: mixture.GaussianMixture(2, random_state=0, reg_covar=1e-3),
}
LOST = ("_huge", "_around_a_large_value")
LABELS: dict[str, list[Any]] = {
    "words": ["no", "yes"],
    "three words": ["b", "a", ""],
    "negative numbers": [-7, 3],
    "three numbers": [10, -1, 4],
    "flags": [False, True],
}


COLUMNWISE = {
    "standard", "standard without mean", "min-max", "min-max clipped", "max-abs", "robust", "function", "variance",
    "binarizer",
}  # fmt: skip
TREES = {name for name in (*CLASSIFIERS, *REGRESSORS, *OTHERS) if any(
    word in name for word in ("lightgbm", "tree", "forest", "boosting")
)} - {"lightgbm, linear trees"}  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """One drawn example: readable when it fails."""

    seed: int
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    imputer: str
    number_step: str
    text_step: str
    second: str
    final: tuple[str, str]
    labels: str
    remainder: str
    array: bool

    @property
    def strict(self) -> bool:
        """Whether every bit counts: columns one by one, then trees, which no order of summation can change."""
        columnwise = self.number_step in COLUMNWISE and self.second in ("nothing", "standard", "k best")
        return (
            columnwise
            and self.imputer != "neighbours"
            and (not self.texts or self.text_step != "target")
            and self.final[1] in TREES
        )

    def frame(self, rows: int, offset: int = 0) -> pd.DataFrame:
        """Rows; those with an ``offset`` are others of the same kind, some with values that were not there."""
        random = np.random.default_rng(self.seed + offset)
        data: dict[str, Any] = {}
        for index, name in enumerate(self.numbers):
            data[f"n{index}"] = NUMBERS[name](random, rows)
            if name in LOST and not self.strict:
                # Products and distances of such columns keep few digits, in the source as well.
                data[f"n{index}"] = data[f"n{index}"] % 1000.0
        for index, name in enumerate(self.texts):
            data[f"t{index}"] = TEXTS[name](random, rows)
        frame = pd.DataFrame(data)
        # NumPy's functions answer booleans in float16, and scikit-learn looks for infinity in no column of objects,
        # which booleans beside floats become; neither is known of a fitted pipeline.
        plain = "log1p" in self.number_step or self.number_step == "function"
        return frame.astype({n: float for n in frame if frame[n].dtype == bool}) if plain else frame

    def target(self, rows: int = ROWS, offset: int = 0) -> Any:
        """What to fit on, of the rows that ``frame`` gives."""
        random = np.random.default_rng(self.seed + 1000 + offset)
        frame = self.frame(rows, offset)
        latent = np.nan_to_num(frame.iloc[:, 0].rank().to_numpy() if self.numbers else np.zeros(rows)) / rows
        if self.texts:
            latent = latent + (frame["t0"].astype(object).map(str).isin(["a", "5"])).to_numpy()
        latent = latent + 0.3 * random.normal(size=rows)
        if self.final[0] == "regressor":
            return latent
        labels = LABELS[self.labels]
        edges = np.quantile(latent, np.linspace(0, 1, len(labels) + 1)[1:-1])
        return np.array(labels)[np.digitize(latent, edges)]

    def pipeline(self) -> Any:
        """The unfitted pipeline."""
        parts: list[Any] = []
        if self.numbers:
            steps = [IMPUTERS[self.imputer]()] if "_with_missing" in self.numbers and self.imputer != "none" else []
            names = [f"n{index}" for index in range(len(self.numbers))]
            parts.append(("numbers", pipeline.make_pipeline(*steps, NUMBER_STEPS[self.number_step]()), names))
        if self.texts:
            names = [f"t{index}" for index in range(len(self.texts))]
            parts.append(("texts", TEXT_STEPS[self.text_step](), names))
        columns = compose.ColumnTransformer(parts, remainder=self.remainder, sparse_threshold=0)
        kind, name = self.final
        last = {"classifier": CLASSIFIERS, "regressor": REGRESSORS, "other": OTHERS}[kind][name]()
        return pipeline.Pipeline([("columns", columns), ("second", SECOND_STEPS[self.second]()), ("last", last)])


FINALS = [
    *(("classifier", name) for name in CLASSIFIERS),
    *(("regressor", name) for name in REGRESSORS),
    *(("other", name) for name in OTHERS),
]


@st.composite
def pipelines(draw: st.DrawFn) -> Drawn:
    """Draw a pipeline and its rows."""
    numbers = draw(st.lists(st.sampled_from(sorted(NUMBERS)), min_size=1, max_size=3))
    return Drawn(
        seed=draw(st.integers(0, 10_000)),
        numbers=tuple(numbers),
        texts=tuple(draw(st.lists(st.sampled_from(sorted(TEXTS)), max_size=2))),
        imputer=draw(st.sampled_from(["none", *IMPUTERS])),
        number_step=draw(st.sampled_from(sorted(NUMBER_STEPS))),
        text_step=draw(st.sampled_from(sorted(TEXT_STEPS))),
        second=draw(st.sampled_from(sorted(SECOND_STEPS))),
        final=draw(st.sampled_from(FINALS)),
        labels=draw(st.sampled_from(sorted(LABELS))),
        remainder=draw(st.sampled_from(["drop", "passthrough"])),
        array=False,
    )

"""The reasons why some estimator classes have no translation; docs/coverage.md and its tests use them."""

from __future__ import annotations

import sys

_NO_NEW_ROWS = "its output is about the rows that it was fitted on; it has no predict or transform for others"
_COVARIANCE = "it estimates a matrix and has no predict or transform for rows"
_SPARK = "it lives in Spark's JVM and reads Spark's rows, not a table in memory"
_DASK = "it is fitted on a Dask cluster; its to_local() gives the estimator that is translated"
_BASE = "it is the base class of its library's estimators; fit one of these"

_GRAPH = "it gives a sparse graph from rows to the rows that it was fitted on, a column for each of these"

REASONS: dict[str, str] = {
    **dict.fromkeys(
        (
            "sklearn.cluster.AgglomerativeClustering",
            "sklearn.cluster.DBSCAN",
            "sklearn.cluster.HDBSCAN",
            "sklearn.cluster.OPTICS",
            "sklearn.cluster.SpectralBiclustering",
            "sklearn.cluster.SpectralClustering",
            "sklearn.cluster.SpectralCoclustering",
            "sklearn.manifold.ClassicalMDS",
            "sklearn.manifold.MDS",
            "sklearn.manifold.SpectralEmbedding",
            "sklearn.manifold.TSNE",
        ),
        _NO_NEW_ROWS,
    ),
    **dict.fromkeys(
        (
            "sklearn.covariance.EmpiricalCovariance",
            "sklearn.covariance.GraphicalLasso",
            "sklearn.covariance.GraphicalLassoCV",
            "sklearn.covariance.LedoitWolf",
            "sklearn.covariance.MinCovDet",
            "sklearn.covariance.OAS",
            "sklearn.covariance.ShrunkCovariance",
        ),
        _COVARIANCE,
    ),
    "sklearn.feature_extraction.image.PatchExtractor": "it gives several rows, the patches of an image, for each row",
    "sklearn.neighbors.NearestNeighbors": (
        "it lists neighbours (kneighbors) and has no predict or transform; the estimators that predict from them have"
    ),
    "sklearn.neighbors.KNeighborsTransformer": _GRAPH,
    "sklearn.neighbors.RadiusNeighborsTransformer": _GRAPH,
    "category_encoders.MultiHotEncoder": "its cells are sets of categories, written as one text each",
    "category_encoders.GLMMEncoder": "it needs statsmodels, which the tests do not have: its outputs are not checked",
    "lightgbm.LGBMModel": _BASE,
    "lightgbm.DaskLGBMClassifier": _DASK,
    "lightgbm.DaskLGBMRanker": _DASK,
    "lightgbm.DaskLGBMRegressor": _DASK,
    "xgboost.XGBModel": _BASE,
    "xgboost.Booster": "it predicts from a DMatrix, not from rows; XGBClassifier or XGBRegressor load_model it",
    "windtunnel.Lookup": "it asks a store, which no file can hold, for the features of each row",
    "prophet.Prophet": "it forecasts one series from its dates, by simulating its trend, and is no step over columns",
    "pyspark.ml.classification.LogisticRegressionModel": _SPARK,
    "pyspark.ml.feature.Bucketizer": _SPARK,
    "pyspark.ml.feature.VectorAssembler": _SPARK,
    "pyspark.ml.pipeline.PipelineModel": _SPARK,
}
"""Public name of a class without a converter -> the reason, which follows "no translation, as"."""


def public_name(cls: type) -> str:
    """The name that a class is imported by, such as ``"sklearn.linear_model.Ridge"``: the shortest one there is."""
    parts = cls.__module__.split(".")
    for depth in range(1, len(parts)):
        module = ".".join(parts[:depth])
        if getattr(sys.modules.get(module), cls.__name__, None) is cls:
            return f"{module}.{cls.__name__}"
    return f"{cls.__module__}.{cls.__name__}"

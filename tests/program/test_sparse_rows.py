"""Sparse matrices as rows: the source's output, without a dense copy of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import LinearSVC

import windtunnel
from windtunnel.encode import rows as encode_rows
from windtunnel.errors import BadInput
from windtunnel.program import scoring_pipeline, translated
from windtunnel.trainers.data import loader

RANDOM = np.random.default_rng(0)
X = sparse.csr_matrix(sparse.random_array((300, 60), density=0.05, rng=RANDOM))
Y = (X @ RANDOM.normal(size=60) + RANDOM.normal(size=300) / 9).round(2)
MODELS = {
    "logistic": LogisticRegression(),
    "svc": LinearSVC(),
    "ridge": Ridge(),
    "bayes": MultinomialNB(),
    "tfidf": make_pipeline(TfidfTransformer(), LogisticRegression()),
    "scaled": make_pipeline(MaxAbsScaler(), LogisticRegression()),
    "lightgbm": LGBMClassifier(n_estimators=5, min_child_samples=3, verbose=-1),
    "forest": RandomForestClassifier(5, random_state=0),
    "svd": make_pipeline(TruncatedSVD(5, random_state=0), LogisticRegression()),
}
FORMS = {
    "csc": X.tocsc(),
    "coo, numbers in two parts": sparse.coo_matrix(
        (np.tile(X.data / 2, 2), (np.tile(X.tocoo().row, 2), np.tile(X.indices, 2))), X.shape
    ),
    "float32": X.astype(np.float32),
    "integers": (X * 9).astype(np.int32),
    "array": sparse.csr_array(X),
    "one row": X[:1],
}


def fitted(name: str) -> Any:
    return MODELS[name].fit(X, Y if name == "ridge" else np.digitize(Y, [-0.5, 0.5]))


def outputs(model: Any, rows: Any) -> list[Any]:
    methods = ("predict", "predict_proba", "decision_function")
    return [getattr(model, method)(rows) for method in methods if hasattr(model, method)]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("function", [windtunnel.compile, windtunnel.translate])
@pytest.mark.parametrize("name", MODELS)
def test_sparse_rows_are_dense_in_slices(name: str, function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = fitted(name)
    net = function(source)
    monkeypatch.setattr(scoring_pipeline, "SPARSE_BYTES", 7 * 8 * 60)
    monkeypatch.setattr(encode_rows, "DENSE_BYTES", 7 * 8 * 60)
    for ours, expected in zip(outputs(net, X), outputs(source, X), strict=True):
        np.testing.assert_allclose(ours, expected, 1e-9, 1e-9)
    with pytest.raises(BadInput, match="take 0.0 GiB as dense numbers"):
        net.encode(X)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["logistic", "tfidf", "forest"])
def test_forms_of_sparse_rows(name: str, form: str) -> None:
    rows, before = FORMS[form], FORMS[form].copy()
    source = fitted(name)
    for net in (windtunnel.compile(source), windtunnel.compile(source, dtype="float32")):
        tolerance = 1e-9 if net.encoder.dtype == "float64" and form != "float32" else 1e-5
        for ours, expected in zip(outputs(net, rows), outputs(source, rows), strict=True):
            np.testing.assert_allclose(ours, expected, tolerance, tolerance)
    assert (rows != before).nnz == 0


@pytest.mark.parametrize("name", ["logistic", "lightgbm", "forest"])
def test_sparse_rows_that_are_not_ordinary(name: str) -> None:
    source = fitted(name)
    net = windtunnel.compile(source)
    missing = X.copy()
    missing.data[3] = np.nan
    if name == "logistic":
        with pytest.raises(BadInput, match="1 of 300 rows have no finite score"):
            net.predict(missing)
    else:  # forests of scikit-learn take missing values in dense rows alone
        expected = source.predict(missing.toarray() if name == "forest" else missing)
        np.testing.assert_array_equal(net.predict(missing), expected)
    with pytest.raises(BadInput, match="got 59 columns; the pipeline was fitted on 60"):
        net.predict(X[:, :59])
    with pytest.raises(BadInput, match="got 0 rows"):
        net.predict(X[:0])


def test_a_transformer_of_sparse_rows() -> None:
    net = windtunnel.compile(MaxAbsScaler().fit(X))
    np.testing.assert_allclose(net.transform(X), X.toarray() / np.maximum(X.max(axis=0).toarray(), 1e-300))


def test_training_makes_batches_dense_not_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, target, histories = X[:, :40], np.digitize(Y, [0]), []
    source = make_pipeline(TfidfTransformer(), LogisticRegression()).fit(rows, target)
    monkeypatch.setattr(translated, "MOST_RESIDUAL_COLUMNS", 20)
    for dense_bytes in (loader.DENSE_BYTES_OF_FIT, 64 * 8 * 40):
        monkeypatch.setattr(loader, "DENSE_BYTES_OF_FIT", dense_bytes)
        monkeypatch.setattr(loader, "SPARSE_BYTES", dense_bytes)
        net = windtunnel.translate(source, calibrate=rows[:50])
        train, valid = (rows[:200], target[:200]), (rows[200:], target[200:])
        with monkeypatch.context() as context:
            if histories:
                context.setattr(encode_rows, "DENSE_BYTES", dense_bytes)  # rejects more dense rows at once
            histories.append(net.fit(train, valid, epochs=3, progress=False).history)
    losses = [[(epoch.train_loss or 0.0, epoch.val_loss) for epoch in history.epochs] for history in histories]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)

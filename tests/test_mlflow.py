"""A translation as an MLflow model."""

from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import windtunnel
import windtunnel.mlflow

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow warns of integer columns, and of libraries that it uses


def test_a_loaded_model_predicts_what_the_source_predicts(tmp_path: Path) -> None:
    X = pd.DataFrame({"city": ["Oslo", "Rome", "Lima"] * 20, "x": np.linspace(0, 1, 60)})
    y = np.where(X["x"] + (X["city"] == "Rome") > 0.7, "yes", "no")
    columns = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    source = make_pipeline(columns, LogisticRegression()).fit(X, y)
    windtunnel.mlflow.save_model(windtunnel.compile(source), tmp_path / "model", input_example=X.head(3))
    model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    predictions = model.predict(X)
    assert predictions["prediction"].tolist() == source.predict(X).tolist()
    np.testing.assert_allclose(predictions[["probability_no", "probability_yes"]], source.predict_proba(X), rtol=1e-9)
    assert [each.name for each in model.metadata.signature.inputs] == ["city", "x"]
    assert model.input_example.equals(X.head(3))
    with pytest.raises(mlflow.exceptions.MlflowException, match="missing inputs"):
        model.predict(X[["x"]])
    loaded = windtunnel.mlflow.load_model(str(tmp_path / "model"))
    assert (loaded.predict(X) == source.predict(X)).all()


def test_categories_of_pandas_are_accepted_as_they_are_and_as_text(tmp_path: Path) -> None:
    X = pd.DataFrame({"city": pd.Categorical(["Oslo", "Rome", "Lima"] * 20), "x": np.linspace(0, 1, 60)})
    columns = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    source = make_pipeline(columns, LogisticRegression()).fit(X, np.arange(60) % 2)
    windtunnel.mlflow.save_model(windtunnel.compile(source), tmp_path / "model", input_example=X.head(3))
    model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    for rows in (X, X.astype({"city": str})):
        np.testing.assert_allclose(model.predict(rows)["probability_1"], source.predict_proba(X)[:, 1], rtol=1e-9)


def test_a_fitted_estimator_is_saved_as_its_translation(tmp_path: Path) -> None:
    X, y = pd.DataFrame({"x": np.linspace(0, 1, 60)}), np.arange(60) % 2
    estimator = windtunnel.WindTunnelClassifier(LogisticRegression(), recipe=windtunnel.Recipe(epochs=1)).fit(X, y)
    windtunnel.mlflow.save_model(estimator, tmp_path / "model", input_example=X.head(3))
    loaded = windtunnel.mlflow.load_model(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), estimator.predict_proba(X))


def test_further_arguments_and_an_example_without_names(tmp_path: Path) -> None:
    X = np.linspace(0, 1, 60).reshape(-1, 1)
    net = windtunnel.compile(LogisticRegression().fit(X, X[:, 0] > 0.5))
    with pytest.raises(windtunnel.BadInput, match="input_example is a ndarray; give a DataFrame"):
        windtunnel.mlflow.save_model(net, tmp_path / "model", input_example=X)
    example = pd.DataFrame(X[:3], columns=["x"])
    windtunnel.mlflow.save_model(net, tmp_path / "model", input_example=example, pip_requirements=["numpy"])
    assert "windtunnel" not in (tmp_path / "model" / "requirements.txt").read_text()

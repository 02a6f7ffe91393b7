"""MLflow: a translation as a model that ``mlflow.pyfunc.load_model`` loads and predicts with; needs ``mlflow``."""

from __future__ import annotations

from importlib.metadata import version
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import pandas as pd
from mlflow.models import ModelSignature, infer_signature
from mlflow.types.schema import AnyType, ColSpec, Schema

from windtunnel.api.load import load
from windtunnel.api.translation import Translation
from windtunnel.errors import BadInput
from windtunnel.experiment.files import predict_frame

FILE = "model.windtunnel"
"""The name of the translation among the files of the MLflow model."""


def save_model(net: Translation, path: str | PathLike[str], *, input_example: pd.DataFrame, **options: Any) -> None:
    """Save a translation as an MLflow model in a folder.

    Parameters
    ----------
    net : Translation
        A fitted ``WindTunnelClassifier`` or ``WindTunnelRegressor`` stands for its ``translation_``.
    path : path
        A folder that does not exist.
    input_example : DataFrame
        A few raw rows, from which the signature comes. MLflow rejects missing values in a column
        of integers: give it as float where values may be missing.
    **options
        Further arguments of ``mlflow.pyfunc.save_model``.
    """
    with TemporaryDirectory() as folder:
        mlflow.pyfunc.save_model(str(path), **{**_model(net, Path(folder), input_example), **options})


def log_model(net: Translation, name: str = "model", *, input_example: pd.DataFrame, **options: Any) -> Any:
    """Log a translation as a model of the active MLflow run, as ``save_model`` saves it.

    Parameters
    ----------
    net : Translation
        A fitted ``WindTunnelClassifier`` or ``WindTunnelRegressor`` stands for its ``translation_``.
    name : str
    input_example : DataFrame
        A few raw rows.
    **options
        Further arguments of ``mlflow.pyfunc.log_model``, such as ``registered_model_name``.

    Returns
    -------
    mlflow.models.model.ModelInfo
    """
    with TemporaryDirectory() as folder:
        return mlflow.pyfunc.log_model(name=name, **{**_model(net, Path(folder), input_example), **options})


def load_model(uri: str) -> Translation:
    """Load the translation of an MLflow model, which can be fitted further; ``uri`` may be a folder."""
    return load(Path(mlflow.artifacts.download_artifacts(uri)) / "data" / FILE)


class TablePredictor:
    """The model that ``mlflow.pyfunc.load_model`` wraps."""

    def __init__(self, net: Translation) -> None:
        self.net = net

    def predict(self, rows: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """The columns that ``windtunnel predict`` writes: ``prediction``, ``probability_<class>`` for each class."""
        return predict_frame(self.net, rows)


def _load_pyfunc(path: str) -> TablePredictor:
    """MLflow's entry point: ``path`` is the saved file."""
    return TablePredictor(load(path))


def _translation(model: Any) -> Any:
    from windtunnel.assemble import translation_in  # not at the top: to load a model needs no converters

    if (net := translation_in(model)) is None:
        raise BadInput(
            f"MLflow is given a {type(model).__name__}; give a translation, or a fitted WindTunnelClassifier or "
            "WindTunnelRegressor"
        )
    return net


def _model(net: Translation, folder: Path, example: pd.DataFrame) -> dict[str, Any]:
    """Arguments of MLflow's ``save_model`` and ``log_model``."""
    net = _translation(net)
    if not isinstance(example, pd.DataFrame):
        raise BadInput(f"input_example is a {type(example).__name__}; give a DataFrame of a few raw rows")
    net.save(folder / FILE)
    return {
        "loader_module": "windtunnel.mlflow",
        "data_path": str(folder / FILE),
        "signature": ModelSignature(_schema(example), infer_signature(predict_frame(net, example)).inputs),
        "input_example": example,
        "pip_requirements": [f"windtunnel=={version('windtunnel')}"],
    }


def _schema(rows: pd.DataFrame) -> Schema:
    """The types of the columns; any type for categories of pandas, which MLflow would not convert to text itself."""
    categories = {name: object for name, dtype in rows.dtypes.items() if isinstance(dtype, pd.CategoricalDtype)}
    columns = infer_signature(rows.astype(categories)).inputs.inputs
    any_type: Any = AnyType
    return Schema([ColSpec(any_type(), each.name, False) if each.name in categories else each for each in columns])

"""Columns of members of an estimator: sources may take them by name, or by position."""

from __future__ import annotations

from typing import Any, Literal

from sklearn import get_config
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import FunctionTransformer

from windtunnel.assemble.context import Context
from windtunnel.encode.columns import quote_names
from windtunnel.errors import UnsupportedEstimator
from windtunnel.pipeline.expressions import Columns, Concatenated, Expression, MethodOutput, Raw, Step, Weighted
from windtunnel.pipeline.fitted_columns import fitted_columns
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.translators.conversions import Composite


def check_columns(step: Step, net: TranslatedPipeline, count: int, raw_names: list[str] | None) -> None:
    """Reject another number of columns, or another order: a source may take them by name or by position.

    ``WindTunnelClassifier`` and ``WindTunnelRegressor`` themselves reject a table with other names. ``raw_names`` are
    the names of the raw columns.
    """
    names, where = net.encoder.names, f"step {step.name!r} ({step.estimator_name})"
    if count != net.encoder.width:
        raise UnsupportedEstimator(f"{where} reads {net.encoder.width} columns, and is given {count}.")
    if names is None:
        return
    input_names = _names(step.inputs, raw_names)
    # Names that are no texts are not checked.
    checks_names = step.estimator is not net and hasattr(step.estimator, "feature_names_in_")
    if input_names == "unknown" and not checks_names:
        raise UnsupportedEstimator(
            f"{where} reads columns by name, and what it is given does not tell whether it has names, and which. "
            "Translate a pipeline that was fitted on an array, or the whole pipeline with the steps before."
        )
    if isinstance(input_names, list) and input_names != names:
        raise UnsupportedEstimator(
            f"{where} was fitted on the columns {quote_names(names)}, and is given {quote_names(input_names)}; fit all "
            "on tables with the same columns, in the same order."
        )


def _names(expression: Expression, raw_names: list[str] | None) -> list[str] | Literal["array", "unknown"]:
    """The names of the columns of an expression; "array" if the source's steps give none."""
    match expression:
        case Raw():
            return raw_names or "unknown"
        case Columns(inputs=inputs, positions=positions):
            names = _names(inputs, raw_names)
            return [names[position] for position in positions] if isinstance(names, list) else names
        case Concatenated(composite=None) | MethodOutput() | Step(estimator=TranslatedPipeline()):
            return "array"
        case Concatenated(composite=estimator) | Step(estimator=estimator):
            # Only these classes of scikit-learn know ``set_output``; others return what an inner step does.
            if "transform" not in getattr(estimator, "_sklearn_auto_wrap_output_keys", ()):
                return "unknown"
            if _gives_table(estimator):
                return [str(name) for name in estimator.get_feature_names_out()]
            known = type(estimator).__module__.startswith("sklearn.")
            return "array" if known and not isinstance(estimator, FunctionTransformer) else "unknown"
    return "unknown"


def _gives_table(estimator: Any) -> bool:
    """Whether a transformer that knows ``set_output`` returns a table."""
    if not hasattr(estimator, "get_feature_names_out"):
        return False
    config = getattr(estimator, "_sklearn_output_config", {})
    return config.get("transform", get_config()["transform_output"]) in ("pandas", "polars")


def check_first_readers(context: Context) -> None:
    """Reject a translation that takes raw columns by name beside an estimator that was fitted on other names, or none.

    Votes, stacks and unions of scikit-learn take their names from one of their members, and check none.
    """
    readers = [reader for step in context.composites.steps(context.graph) for reader in _first_readers(step, context)]
    nets = [reader for reader in readers if isinstance(reader, TranslatedPipeline) and reader.encoder.names is not None]
    for net in nets:
        for other in readers:
            if (names := _fitted_names(other)) != net.encoder.names:
                beside = "passthrough" if isinstance(other, Raw) else type(other).__name__
                raise UnsupportedEstimator(
                    f"a translation was fitted on the columns {quote_names(net.encoder.names or [])}, and {beside} "
                    f"beside it on {'an array' if names is None else quote_names(names)}; fit all on tables with the "
                    "same columns, in the same order."
                )


def check_member_columns(expression: Concatenated, context: Context) -> None:
    """Reject members that were fitted on tables with other columns, or another order of them.

    Each would take the columns by its own names, what is passed on goes by position, and all read the same rows here.
    """
    names = (_fitted_names(reader) for reader in _first_readers(expression, context))
    orders = sorted({tuple(each) for each in names if each is not None})
    if len(orders) > 1:
        raise UnsupportedEstimator(
            f"members were fitted on the columns {quote_names(orders[0])} and on {quote_names(orders[1])}; fit all on "
            "tables with the same columns, in the same order."
        )


def _first_readers(expression: Expression, context: Context) -> list[Any]:
    """The fitted estimators that read the raw rows first, but for those that are made of others."""
    match expression:
        case Step(inputs=Raw(), estimator=estimator):
            return [] if isinstance(context.conversions.find(expression), Composite) else [estimator]
        case Concatenated(composite=ColumnTransformer() as columns, inputs=Raw()):
            return [columns]
        case Concatenated(parts=parts):  # raw columns among them are taken by position
            passed: list[Any] = [part for part in parts if isinstance(part, Raw)]
            return passed + [reader for part in parts for reader in _first_readers(part, context)]
        case Step(inputs=inputs) | Columns(inputs=inputs) | Weighted(inputs=inputs) | MethodOutput(inputs=inputs):
            return _first_readers(inputs, context)
    return []


def _fitted_names(reader: Any) -> list[str] | None:
    """The names of the columns that an estimator was fitted on; None for an array, and for passed columns."""
    if isinstance(reader, Raw):
        return None
    try:
        return fitted_columns(reader)[0]
    except UnsupportedEstimator:  # a step of a user that knows no columns
        return None

"""Requests and responses with rows as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from windtunnel.encode import Rows
from windtunnel.encode.rows import columns_of_dicts
from windtunnel.errors import BadInput
from windtunnel.serving.schema import Schema


def parse_json(body: bytearray) -> Any:
    """The value of a JSON text; ``BadInput`` for anything else."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadInput(f'the body is no JSON: {error}. Send rows such as [{{"age": 31}}].') from error


def rows_of_json(value: Any, schema: Schema) -> Rows:
    """Rows from a list of rows, or an object with that list as "rows".

    A row is an object of columns, a list of numbers where the source was fitted on an array, or a text where it was
    fitted on texts.

    Raises
    ------
    BadInput
        Anything else, or rows with different columns.
    """
    rows = value.get("rows") if isinstance(value, dict) else value
    if not isinstance(rows, list) or not rows:
        raise BadInput(
            'the body must be a list of rows with at least one row, such as [{"age": 31}], or {"rows": [{"age": 31}]}.'
        )
    if not schema.named:
        try:
            return np.array(rows, dtype=_array_type(schema)) if isinstance(rows[0], list) else rows
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInput(f"rows must be lists of equally many numbers: {error}") from error
    if wrong := [type(row).__name__ for row in rows if not isinstance(row, dict)]:
        raise BadInput(f'a row must be an object of columns, such as {{"age": 31}}; got a {wrong[0]}.')
    if len(rows) == 1:
        return {name: [cell] for name, cell in rows[0].items()}
    return columns_of_dicts(rows)


def _array_type(schema: Schema) -> Any:
    return float if schema.inputs[0].datatype == "FP64" else object


def response_json(methods: Sequence[str], outputs: Sequence[Any], labels: list[Any]) -> dict[str, Any]:
    """Predictions, and of a classifier the probabilities and the labels in their order."""
    names = {"predict": "predictions", "predict_proba": "probabilities"}
    message: dict[str, Any] = {names[method]: output for method, output in zip(methods, outputs, strict=True)}
    return message | ({"classes": labels} if "predict_proba" in methods else {})

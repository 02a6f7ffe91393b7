"""Requests and responses with rows as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson

from windtunnel.encode import Rows
from windtunnel.encode.rows import columns_of_dicts
from windtunnel.errors import BadInput, join_some
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
    wanted = 'the body must be a list of rows with at least one row, such as [{"age": 31}], or {"rows": [{"age": 31}]}'
    if isinstance(value, dict) and (others := [name for name in value if name != "rows"]):
        raise BadInput(f"{wanted}; it is an object with {join_some([*map(repr, others)])}.")
    if not isinstance(rows, list) or not rows:
        raise BadInput(f"{wanted}.")
    if not schema.named:
        return _array(rows, schema) if isinstance(rows[0], list) else rows
    if wrong := [position for position, row in enumerate(rows) if not isinstance(row, dict)]:
        got = _json_type(rows[wrong[0]])
        raise BadInput(f'a row must be an object of columns, such as {{"age": 31}}; row {wrong[0]} is {got}.')
    if len(rows) == 1:
        return schema.read_columns({name: [cell] for name, cell in rows[0].items()})
    return schema.read_columns(columns_of_dicts(rows))


def _array(rows: list[Any], schema: Schema) -> Any:
    """An array of rows as lists; ``BadInput`` for other rows, different lengths, and texts in the place of numbers."""
    width, numbers = len(rows[0]), schema.inputs[0].datatype == "FP64"
    for position, row in enumerate(rows):
        if not isinstance(row, list):
            raise BadInput(f"a row must be a list, as row 0 is; row {position} is {_json_type(row)}.")
        if len(row) != width:
            raise BadInput(f"row 0 has {width} values and row {position} has {len(row)}; give each row all columns.")
    accepted = {int, float, bool, type(None)} | ({str} if not numbers else set())
    if set(map(type, chain.from_iterable(rows))) - accepted:
        position, cell = next((at, cell) for at, row in enumerate(rows) for cell in row if type(cell) not in accepted)
        kinds = "numbers" if numbers else "numbers and texts"
        raise BadInput(f"a row must be a list of {kinds}; row {position} holds {_json_type(cell)}.")
    return np.array(rows, dtype=float if numbers else object)


def _json_type(value: Any) -> str:
    """What a value is in JSON's words."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def response_json(methods: Sequence[str], outputs: Sequence[Any], labels: list[Any]) -> dict[str, Any]:
    """Predictions, and of a classifier the probabilities and the labels in their order."""
    names = {"predict": "predictions", "predict_proba": "probabilities"}
    message: dict[str, Any] = {names[method]: output for method, output in zip(methods, outputs, strict=True)}
    return message | ({"classes": labels} if "predict_proba" in methods else {})

"""Requests and responses: JSON rows, Arrow, and the Open Inference Protocol V2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from windtunnel.encode import Rows
from windtunnel.errors import BadInput
from windtunnel.serving.schema import Schema, datatype_of

ARROW = "application/vnd.apache.arrow.stream"
_TYPES = {"FP64": "f8", "FP32": "f4", "INT64": "i8", "INT32": "i4", "INT16": "i2", "INT8": "i1", "BOOL": "?"}
_TYPES |= {"UINT64": "u8", "UINT32": "u4", "UINT16": "u2", "UINT8": "u1"}


def parse_json(body: bytes) -> Any:
    """The value of a JSON text; ``BadInput`` for anything else."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"the body is no JSON: {error}. Send rows such as [{{'age': 31}}].") from error


def to_json(value: Any) -> bytes:
    """JSON with NumPy's arrays and numbers; NaN becomes null."""
    return orjson.dumps(value, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


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
        raise BadInput('the body must be a list of rows, or {"rows": [...]} with at least one row.')
    if not schema.named:
        try:
            return np.array(rows, dtype=_array_type(schema)) if isinstance(rows[0], list) else rows
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInput(f"rows must be lists of equally many numbers: {error}") from error
    if wrong := [type(row).__name__ for row in rows if not isinstance(row, dict)]:
        raise BadInput(f"a row must be an object of columns, such as {{'age': 31}}; got a {wrong[0]}.")
    names = rows[0].keys()
    for position, row in enumerate(rows):
        if row.keys() != names:
            different = ", ".join(sorted(map(repr, row.keys() ^ names))[:5])
            raise BadInput(f"row {position} and row 0 differ in the columns {different}; give each row all columns.")
    return {name: [row[name] for row in rows] for name in names}


def rows_of_arrow(body: bytes) -> pa.Table:
    """Rows from an Arrow stream."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            table = reader.read_all().replace_schema_metadata(None)  # pandas reads its own from there
        table.validate(full=True)
        return table
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"the body is no Arrow stream: {error}") from error


def rows_of_tensors(message: Any, schema: Schema) -> Rows:
    """Rows from an inference request of the Open Inference Protocol V2.

    Raises
    ------
    BadInput
        A tensor of an unknown type, of a shape that does not fit its data, or of another shape than the schema's.
    """
    tensors = message.get("inputs") if isinstance(message, dict) else None
    if not isinstance(tensors, list) or not tensors:
        raise BadInput('the body must have "inputs": a list of tensors with name, shape, datatype and data.')
    columns = {}
    for tensor in tensors:
        if not isinstance(tensor, Mapping) or not {"name", "shape", "datatype", "data"} <= tensor.keys():
            raise BadInput("a tensor must have name, shape, datatype and data.")
        columns[str(tensor["name"])] = _values(tensor)
    if not schema.named:
        if len(columns) != 1:
            raise BadInput(f"got {len(columns)} tensors; this model takes one tensor of all columns.")
        (values,) = columns.values()
        return values if schema.inputs[0].shape != (-1,) else values.reshape(-1).tolist()
    return {name: values.reshape(-1).tolist() for name, values in columns.items()}


def _values(tensor: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    datatype, shape, name = tensor["datatype"], tensor["shape"], str(tensor["name"])[:100]
    if not isinstance(datatype, str) or (datatype != "BYTES" and datatype not in _TYPES):
        raise BadInput(
            f"tensor {name!r} has datatype {str(datatype)[:100]!r}; accepted are {', '.join(_TYPES)}, BYTES."
        )
    if not isinstance(shape, list) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise BadInput(f"tensor {name!r} has no shape; give a list of whole numbers.")
    flat = _flat(tensor["data"])
    if len(flat) != int(np.prod(shape, dtype=object)):
        raise BadInput(f"tensor {name!r} has {len(flat)} values and shape {shape}.")
    missing = any(value is None for value in flat)
    dtype = object if datatype == "BYTES" else "f8" if missing else _TYPES[datatype]
    try:
        return np.array(flat, dtype=dtype).reshape(shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"tensor {name!r} has values that are no {datatype}: {error}") from error


def _flat(data: Any) -> list[Any]:
    """The values of nested lists in row-major order."""
    flat = data if isinstance(data, list) else [data]
    while any(isinstance(value, list) for value in flat):
        flat = [item for value in flat for item in (value if isinstance(value, list) else [value])]
    return flat


def _array_type(schema: Schema) -> Any:
    return float if schema.inputs[0].datatype == "FP64" else object


def response_json(methods: Sequence[str], outputs: Sequence[Any], labels: list[Any]) -> dict[str, Any]:
    """Predictions, and of a classifier the probabilities and the labels in their order."""
    names = {"predict": "predictions", "predict_proba": "probabilities"}
    message: dict[str, Any] = {names[method]: output for method, output in zip(methods, outputs, strict=True)}
    return message | ({"classes": labels} if "predict_proba" in methods else {})


def response_tensors(model: str, request_id: Any, methods: Sequence[str], outputs: Sequence[Any]) -> dict[str, Any]:
    """The response of the Open Inference Protocol V2."""
    tensors = []
    for method, output in zip(methods, outputs, strict=True):
        values = np.concatenate(output, axis=1) if isinstance(output, list) else np.asarray(output)
        datatype = datatype_of(values)
        data = values.ravel().tolist() if datatype != "BYTES" else [str(value) for value in values.ravel()]
        tensors.append({"name": method, "datatype": datatype, "shape": list(values.shape), "data": data})
    message = {"model_name": model, "outputs": tensors}
    return message if request_id is None else message | {"id": request_id}

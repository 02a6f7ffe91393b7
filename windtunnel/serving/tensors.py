"""Messages of the Open Inference Protocol V2: a tensor per column, as JSON or as binary data behind it."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from starlette.responses import Response

from windtunnel.encode import Rows
from windtunnel.encode.vocabulary import EXACT_INTEGERS
from windtunnel.errors import BadInput
from windtunnel.serving.messages import parse_json
from windtunnel.serving.responses import json_response, to_json
from windtunnel.serving.schema import Schema, datatype_of

JSON_BYTES = "Inference-Header-Content-Length"
"""The header that gives the length of the JSON in front of binary data."""
_TYPES = {"FP64": "<f8", "FP32": "<f4", "FP16": "<f2", "INT64": "<i8", "INT32": "<i4", "INT16": "<i2", "INT8": "i1"}
_TYPES |= {"UINT64": "<u8", "UINT32": "<u4", "UINT16": "<u2", "UINT8": "u1", "BOOL": "?"}


def parse_request(body: bytearray, json_bytes: str | None) -> tuple[dict[str, Any], memoryview]:
    """The JSON of a request, and the binary data behind it; ``json_bytes`` is the header ``JSON_BYTES``."""
    if json_bytes is None:
        message, data = parse_json(body), memoryview(b"")
    elif json_bytes.isdecimal() and len(json_bytes) <= 20 and int(json_bytes) <= len(body):
        message, data = parse_json(body[: int(json_bytes)]), memoryview(body)[int(json_bytes) :]
    else:
        raise BadInput(f"{JSON_BYTES} is {json_bytes[:50]!r}, of a body of {len(body)} bytes.")
    if not isinstance(message, dict) or not isinstance(message.get("inputs"), list) or not message["inputs"]:
        raise BadInput('the body must have "inputs": a list of tensors with name, shape, datatype and data.')
    return message, data


def requested_outputs(message: Mapping[str, Any], methods: Sequence[str]) -> dict[str, bool]:
    """The outputs that a request names, or all -> whether as binary data."""
    binary = bool(_parameter(message, "binary_data_output"))
    requested: dict[str, bool] = {}
    outputs = message.get("outputs") or methods
    if not isinstance(outputs, list | tuple):
        raise BadInput(f'"outputs" is {str(outputs)[:100]}; give a list such as [{{"name": "predict"}}].')
    for output in outputs:
        name: Any = output.get("name") if isinstance(output, dict) else output
        if name not in methods:
            raise BadInput(f"no output {str(name)[:100]!r}; the model has {', '.join(methods)}.")
        of_output = _parameter(output, "binary_data")
        requested[name] = binary if of_output is None else bool(of_output)
    return requested


def rows_of_tensors(message: Mapping[str, Any], data: memoryview, schema: Schema) -> Rows:
    """Rows from the tensors of a request.

    Raises
    ------
    BadInput
        A tensor of an unknown type, with values that the type does not hold, of a shape that does not fit its data or
        the schema; two tensors of one name.
    """
    columns: dict[str, np.ndarray[Any, Any]] = {}
    exact = {column.name: column.datatype for column in schema.inputs if "INT" in column.datatype}
    for tensor in message["inputs"]:
        if not isinstance(tensor, Mapping) or not {"name", "shape", "datatype"} <= tensor.keys():
            raise BadInput("a tensor must have name, shape, datatype and data.")
        size = _parameter(tensor, "binary_data_size")
        if size is not None and not (isinstance(size, int) and 0 <= size <= len(data)):
            raise BadInput(
                f"a tensor has a binary_data_size of {size!r:.50}; give a number up to the {len(data)} bytes left."
            )
        if (name := str(tensor["name"])) in columns:
            raise BadInput(f"tensor {name[:100]!r} is given twice.")
        columns[name] = values = _values(tensor, None if size is None else data[:size])
        if name in exact and values.dtype.kind == "f" and bool((np.abs(values) >= EXACT_INTEGERS).any()):
            raise BadInput(
                f"tensor {name[:100]!r} has numbers of 2^53 and more as {tensor['datatype']}, which does not tell them "
                f"apart; send it as {exact[name]}."
            )
        data = data[size or 0 :]
    if len(data):
        raise BadInput(f"{len(data)} bytes are left behind the tensors; give each its binary_data_size.")
    if schema.named:
        if wide := [name for name, values in columns.items() if values.ndim > 1 and values.shape[1] != 1]:
            raise BadInput(
                f"tensor {wide[0][:100]!r} is one column of this model; its shape must be [rows] or [rows, 1]"
            )
        return {name: values.reshape(-1).tolist() for name, values in columns.items()}
    if len(columns) != 1:
        raise BadInput(f"got {len(columns)} tensors; this model takes one tensor of all columns.")
    (values,) = columns.values()
    return values if schema.inputs[0].shape != (-1,) else values.reshape(-1).tolist()


def _values(tensor: Mapping[str, Any], data: memoryview | None) -> np.ndarray[Any, Any]:
    """The values of a tensor, from binary data or from its own."""
    datatype, shape, name = tensor["datatype"], tensor["shape"], str(tensor["name"])[:100]
    if not isinstance(datatype, str) or (datatype != "BYTES" and datatype not in _TYPES):
        raise BadInput(
            f"tensor {name!r} has datatype {str(datatype)[:100]!r}; accepted are {', '.join(_TYPES)}, BYTES."
        )
    sizes = shape if isinstance(shape, list) else []
    if len(sizes) not in (1, 2) or not all(type(size) is int and size >= 0 for size in sizes):
        raise BadInput(f"tensor {name!r} has shape {str(shape)[:100]}; give a list of one or two whole numbers.")
    if data is None and not isinstance(tensor.get("data"), list):
        raise BadInput(f"tensor {name!r} has no list as its data; give one, or binary_data_size.")
    try:
        if data is None:
            flat = _of_json(tensor["data"], datatype, len(shape))
        else:
            flat = np.frombuffer(data, _TYPES[datatype]) if datatype != "BYTES" else np.array(_texts(data), object)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise BadInput(f"tensor {name!r} has values that are no {datatype}: {error}") from error
    if flat.size != math.prod(shape):
        raise BadInput(f"tensor {name!r} has {flat.size} values and shape {shape}.")
    return flat.reshape(shape)


def _of_json(data: list[Any], datatype: str, dimensions: int) -> np.ndarray[Any, Any]:
    """The values of a list, or of lists within a list, in row-major order; null is a missing value.

    BYTES are texts, and the numbers of a column that has both.
    """
    flat = data
    if dimensions == 2:
        flat = [item for value in data for item in (value if isinstance(value, list) else [value])]
    if datatype == "BYTES":
        if wrong := [value for value in flat if isinstance(value, dict | list)]:
            raise ValueError(str(wrong[0])[:100])
        return np.array(flat, dtype=object)
    if wrong := [value for value in flat if value is not None and not _holds(datatype, value)]:
        raise ValueError(str(wrong[0])[:100])
    if not any(value is None for value in flat):
        return np.array(flat, dtype=_TYPES[datatype])
    large = any(value is not None and abs(value) >= EXACT_INTEGERS for value in flat)
    return np.array(flat, dtype=object if large and "INT" in datatype else "f8")  # float64 would round whole numbers


def _holds(datatype: str, value: Any) -> bool:
    """Whether a type of numbers holds a value of JSON as it is, but for rounding."""
    if datatype == "BOOL" or isinstance(value, bool):
        return datatype == "BOOL" and isinstance(value, bool)
    if not isinstance(value, int | float):
        return False
    if datatype.startswith("FP"):
        return abs(value) <= float(np.finfo(_TYPES[datatype]).max)
    return value == int(value)


def _texts(data: memoryview) -> list[str]:
    """Texts that each follow their length."""
    texts, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        if (end := at + 4 + length) > len(data):
            raise ValueError(f"a text of {length} bytes, of which {len(data) - at - 4} are there")
        texts.append(str(data[at + 4 : end], "utf-8"))
        at = end
    return texts


def tensors_response(
    model: str, message: Mapping[str, Any], requested: Mapping[str, bool], outputs: Sequence[Any]
) -> Response:
    """The response to a request, with the outputs that ``requested`` names."""
    tensors: list[dict[str, Any]] = []
    data: list[bytes] = []
    for (method, binary), output in zip(requested.items(), outputs, strict=True):
        values = np.concatenate(output, axis=1) if isinstance(output, list) else np.asarray(output)
        datatype = datatype_of(values)
        flat = values.ravel().tolist() if datatype != "BYTES" else [str(value) for value in values.ravel()]
        tensor = {"name": method, "datatype": datatype, "shape": list(values.shape)}
        if binary:
            data.append(_to_bytes(flat, datatype))
            tensors.append(tensor | {"parameters": {"binary_data_size": len(data[-1])}})
        else:
            tensors.append(tensor | {"data": flat})
    named = {"id": message["id"]} if isinstance(message.get("id"), str | int) else {}
    content = {"model_name": model, "outputs": tensors, **named}
    if not data:
        return json_response(content)
    head = to_json(content)
    headers = {JSON_BYTES: str(len(head))}
    return Response(b"".join([head, *data]), headers=headers, media_type="application/octet-stream")


def _to_bytes(values: list[Any], datatype: str) -> bytes:
    if datatype != "BYTES":
        return np.array(values, _TYPES[datatype]).tobytes()
    texts = [value.encode() for value in values]
    return b"".join(part for text in texts for part in (struct.pack("<I", len(text)), text))


def _parameter(message: Any, name: str) -> Any:
    """A parameter of a request, of a tensor or of an output."""
    parameters = message.get("parameters") if isinstance(message, Mapping) else None
    return parameters.get(name) if isinstance(parameters, Mapping) else None

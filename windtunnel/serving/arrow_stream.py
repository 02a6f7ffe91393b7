"""Rows of an Arrow stream that take no more memory than its size suggests."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windtunnel.errors import BadInput

ARROW = "application/vnd.apache.arrow.stream"
MAX_TEXT = 2**28
"""The most bytes of text in a column of a dictionary or view type, whose rows may all repeat one long text."""
_TEXTS = ("string", "large_string", "binary", "large_binary")
_HEADER, _BATCH_OF_DICTIONARY, _COMPRESSION = 2, 1, 3
"""Fields of the tables Message, DictionaryBatch and RecordBatch in Arrow's Message.fbs."""


def rows_of_arrow(body: bytearray) -> pa.Table:
    """Rows from an Arrow stream.

    Raises
    ------
    BadInput
        No Arrow stream, one whose buffers are compressed, a column of nested values or runs, or too much text.
    """
    buffer = pa.py_buffer(body)
    try:
        for message in pa.ipc.MessageReader.open_stream(buffer):
            if message.type in ("record batch", "dictionary") and _is_compressed(message):
                raise BadInput("the Arrow stream is compressed; send it without compression.")
        with pa.ipc.open_stream(buffer) as reader:
            _check_types(reader.schema)
            table = reader.read_all().replace_schema_metadata(None)  # pandas reads its own from there
        table.validate(full=True)
        for name, column in zip(table.column_names, table.columns, strict=True):
            if sum(map(_text_bytes, column.chunks)) > MAX_TEXT:
                raise BadInput(f"column {name[:100]!r} has more than {MAX_TEXT} bytes of text; send fewer rows.")
        return table
    except (pa.ArrowException, OSError, struct.error, UnicodeDecodeError) as error:  # names may be no UTF-8
        raise BadInput(f"the body is no Arrow stream: {error}") from error


def _check_types(schema: pa.Schema) -> None:
    for field in schema:
        values = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        repeats = isinstance(values, pa.RunEndEncodedType) or (values is not field.type and "view" in str(values))
        if repeats or pa.types.is_nested(values):
            raise BadInput(f"column {field.name[:100]!r} has type {field.type}; send numbers, texts or dates.")


def _text_bytes(chunk: pa.Array) -> int:
    """The bytes of the texts of a column of a dictionary or view type, if each row had its own; 0 for others."""
    if str(chunk.type) in ("string_view", "binary_view"):
        views = np.frombuffer(chunk.buffers()[1], np.int32).reshape(-1, 4)  # the length comes first
        return int(views[chunk.offset : chunk.offset + len(chunk), 0].sum(dtype=np.int64))
    if not pa.types.is_dictionary(chunk.type) or str(chunk.type.value_type) not in _TEXTS:
        return 0
    return int(pc.sum(pc.take(pc.binary_length(chunk.dictionary), chunk.indices)).as_py() or 0)


def _is_compressed(message: pa.Message) -> bool:
    """Whether the buffers of a batch are compressed, read from the flatbuffer that describes them."""
    data = message.metadata

    def field(table: int, number: int) -> int:
        """The place of a field of a table; 0 if it is left out."""
        fields = table - struct.unpack_from("<i", data, table)[0]
        place = 4 + 2 * number
        inside = place < struct.unpack_from("<H", data, fields)[0]
        offset = struct.unpack_from("<H", data, fields + place)[0] if inside else 0
        return table + offset if offset else 0

    def target(place: int) -> int:
        return place + int(struct.unpack_from("<I", data, place)[0])

    batch = target(field(target(0), _HEADER))
    if message.type == "dictionary":
        batch = target(field(batch, _BATCH_OF_DICTIONARY))
    return field(batch, _COMPRESSION) > 0

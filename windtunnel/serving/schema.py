"""The inputs and outputs of a model, in the types of the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.encode import RowEncoder
from windtunnel.encode.vocabulary import EXACT_INTEGERS
from windtunnel.program.head import Head
from windtunnel.program.translated import TranslatedPipeline

SERVED_METHODS = ("predict", "predict_proba")
"""The methods that a request gets the outputs of."""

CHOICES = 100
"""The most categories of a column that a page offers."""


@dataclass(frozen=True)
class Column:
    """An input or output tensor of one or more columns."""

    name: str
    datatype: str  # "FP64", "INT64", "UINT64", "BOOL" or "BYTES" (text)
    shape: tuple[int, ...]  # -1 is the number of rows

    def to_json(self) -> dict[str, Any]:
        """The tensor as the protocol describes it."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


@dataclass(frozen=True)
class Schema:
    """The tensors that a model takes and gives."""

    # a tensor per raw column that the model reads; one tensor of all columns if the source was fitted on an array
    inputs: tuple[Column, ...]
    outputs: tuple[Column, ...]
    named: bool  # whether columns have names

    def read_columns(self, columns: dict[str, Any]) -> dict[str, Any]:
        """The columns that the model reads; all of them if one is missing, so that the error shows what was given."""
        names = [column.name for column in self.inputs]
        return {name: columns[name] for name in names} if all(name in columns for name in names) else columns

    @classmethod
    def of(cls, net: TranslatedPipeline, readers: Sequence[TranslatedPipeline]) -> Schema:
        """The schema of a model with the outputs of ``net``, and the columns that any of ``readers`` reads."""
        encoder, head = net.encoder, net.head
        texts = set[int]().union(*(reader.encoder.columns_by_kind()[1] | reader.counted_columns for reader in readers))
        if encoder.names is not None and not encoder.flat:
            columns = sorted(set[int]().union(*(reader.read_columns for reader in readers)))
            types = _types_of_large_integers(encoder) | dict.fromkeys(texts, "BYTES")
            inputs = [Column(encoder.names[at], types.get(at, "FP64"), (-1,)) for at in columns]
        else:
            shape = (-1,) if encoder.flat else (-1, encoder.width)
            inputs = [Column("rows", "BYTES" if texts or encoder.flat else "FP64", shape)]
        labels = head.labels_in_order
        kinds = {"predict": _label_type(head) if labels else "FP64"}
        several = head.has_several_targets or (head.classes is None and not head.flat)
        shapes = {"predict": (-1, -1) if several else (-1,), "predict_proba": (-1, len(labels))}
        served = [name for name in SERVED_METHODS if name in head.methods]
        outputs = [Column(name, kinds.get(name, "FP64"), shapes[name]) for name in served]
        return cls(tuple(inputs), tuple(outputs), encoder.names is not None and not encoder.flat)


def choices(net: TranslatedPipeline) -> dict[str, list[Any]]:
    """The first ``CHOICES`` categories of each column that has a vocabulary, by the name of the column."""
    encoder = net.encoder
    return {
        encoder.names[category.column]: [*category.vocabulary.values[:CHOICES]]
        for category in encoder.categories
        if encoder.names is not None and category.column < encoder.width
    }


def datatype_of(values: np.ndarray[Any, Any]) -> str:
    """The type of the protocol for an array."""
    return {"f": "FP64", "i": "INT64", "u": "UINT64", "b": "BOOL"}.get(values.dtype.kind, "BYTES")


def _types_of_large_integers(encoder: RowEncoder) -> dict[int, str]:
    """The types of columns with whole numbers among their categories that FP64 does not tell apart."""
    types = {}
    for category in encoder.categories:
        integers = [value for value in category.vocabulary.values if isinstance(value, int)]
        if max(map(abs, integers), default=0) >= EXACT_INTEGERS:
            types[category.column] = "UINT64" if max(integers) >= 2**63 else "INT64"
    return types


def _label_type(head: Head) -> str:
    types = {datatype_of(labels) for labels in head.labels_of_targets}
    return types.pop() if len(types) == 1 else "BYTES"

"""Scorers: a method of the source for ordinary rows, from Python's values to the output without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.compiler.engine import module_tables
from windtunnel.compiler.native.build import library
from windtunnel.compiler.native.head import finish
from windtunnel.compiler.native.image import ImageWriter
from windtunnel.compiler.native.part import NativePart
from windtunnel.encode import CategoryColumn, RowEncoder
from windtunnel.encode.rows import python_columns
from windtunnel.program.head import LABELS_AND_PROBABILITIES, Head
from windtunnel.program.program import NUMBERS, Take
from windtunnel.program.scoring_pipeline import ScoringPipeline

Scorer = Callable[[Any, Head], Any]
"""``scorer(rows, head)`` gives the output of a method, or None for rows that it does not take."""


def make_scorer(net: ScoringPipeline, method: str, part: NativePart | None, has_step: bool) -> Scorer | None:
    """The scorer of a method; None if only torch can decide which rows the source rejects.

    ``method`` is one of the source, or ``LABELS_AND_PROBABILITIES``. ``part`` is the whole program of the method, or of
    the raw scores. ``has_step`` tells whether the method has a step of its own, so that the output of the part is its
    output.
    """
    encoder, head, facts = net.encoder, net.head, net.facts()
    categories = [_category(category) for category in encoder.categories]
    only_rows = part is not None and part.inputs == [NUMBERS]
    if (
        part is None
        or not only_rows
        or net.hosts
        or encoder.flat
        or facts.may_reject_computed_values
        or None in categories
    ):
        return None
    ((_, slot),) = part.outputs
    if len(slot.shape) > 1:
        return None
    scores = list(range(slot.width))
    image = ImageWriter(slot.width, 0)
    if method == LABELS_AND_PROBABILITIES:
        if not isinstance(head.classes, np.ndarray) or head.dtypes.get("predict_proba", "float64") != "float64":
            return None
        columns = [*finish(image, head, "predict_proba", scores), *finish(image, head, "predict", scores)]
    else:
        columns = scores if has_step else finish(image, head, method, scores)
    flat = slot.shape == () if has_step else _is_flat(head, method, len(columns))
    positions = method == "predict" and head.classes is not None
    single_output = not positions and not head.has_several_targets and head.dtypes.get(method) == "float32"
    dtype = np.int64 if positions else np.float32 if single_output else np.float64
    made: Scorer = library().Scorer(
        {
            # From encoded rows to raw scores; from these to the output; from that to labels, or another dtype.
            "program": part.program,
            "head": None if columns == scores else library().Program(image.image(columns)),
            "finish": _finish(head, method),
            # What the scorer was made for: a call with another head gives None.
            "subject": head,
            **_state(net, encoder),
            # Rows: arrays of this type, or lists; the names of the columns; what the encoder reads of them.
            "array": np.ndarray,
            "names": None if encoder.names is None else tuple(encoder.names),
            "needs_names": encoder.needs_names,
            "width": encoder.width,
            "number_columns": tuple(encoder.numbers),
            "categories": tuple(categories),
            "takes_missing": facts.takes_missing,
            # Threads share many rows. A warning of float32 needs several rows.
            "threads": torch.get_num_threads,
            "one_row_only": encoder.dtype == "float32",
            # Whether numbers, raw scores, and the output are float32.
            "float32_numbers": encoder.dtype == "float32",
            "float32_scores": slot.dtype == torch.float32,
            "float32_output": single_output,
            # The output: what makes an empty array, its shape for one row, whether it holds positions of labels.
            "empty": np.empty if dtype == np.float64 else partial(np.empty, dtype=dtype),
            "shape": (1,) if flat else (1, len(columns)),
            "flat": flat,
            "positions": positions,
        }
    )
    return made


def values_of(rows: Any) -> Any:
    """The columns of a table of few rows, as a dict of lists of Python's values; other rows as they are."""
    if not isinstance(rows, pd.DataFrame) or (labelled := python_columns(rows)) is None:
        return rows
    labels, columns = labelled
    named = dict(zip(labels or (), columns, strict=True))
    return named if len(named) == len(columns) else rows


def _is_flat(head: Head, method: str, columns: int) -> bool:
    if method == "predict":
        return columns == 1 and not head.has_several_targets and (head.flat or head.classes is not None)
    return method == "decision_function" and columns == 1


def _finish(head: Head, method: str) -> Callable[[Any], Any] | None:
    """What makes the output of an array of numbers, or of the positions of labels; None for the array itself."""
    if isinstance(head.classes, np.ndarray) and method in ("predict", LABELS_AND_PROBABILITIES):
        labels = head.classes.astype(head.dtypes.get("predict", head.classes.dtype), copy=False)
        return labels.__getitem__ if method == "predict" else partial(_labels_and_probabilities, labels)
    if method == "predict" and head.classes is not None:
        return head.labels
    plain = head.dtypes.get(method, "float64") in ("float64", "float32") and not head.has_several_targets
    return None if plain else partial(head.typed, method)


def _labels_and_probabilities(labels: NDArray[Any], values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both outputs from an array of probabilities and, in the last column, positions of labels."""
    return labels[values[:, -1].astype(np.intp)], np.ascontiguousarray(values[:, :-1])


def _category(category: CategoryColumn) -> tuple[Any, ...] | None:
    """The fields of ``category`` in ``c/scorer.c``; None for a vocabulary that has no plain look-up.

    Values whose id depends on the type of their column too count as rejected, so that ``RowEncoder`` decides.
    """
    vocabulary = category.vocabulary
    texts, plain = vocabulary.kind == "text", vocabulary.has_plain_lookup
    if not plain and not texts:
        return None
    takes_unknown, takes_missing = plain and not category.rejects_unknown, plain and not category.rejects_missing
    takes = takes_unknown, takes_missing, not category.rejects_infinite, not category.rejects_fractions
    return category.column, texts, *takes, vocabulary.id_by_value


def _state(net: ScoringPipeline, encoder: RowEncoder) -> dict[str, tuple[Any, ...]]:
    """What a scorer was made of, and checks in every call.

    It checks that the tensors and modules are the same, that no parameter moved or was written to, and that no buffer
    of floats was written to. Buffers of whole numbers are facts, which only ``load_state_dict`` writes to in place.
    """
    tables = [*module_tables(net.program), vars(encoder), *map(vars, encoder.categories)]
    parameters = [parameter for parameter in net.program.parameters() if not parameter.is_inference()]
    tensors = [
        *chain.from_iterable(_written_to(module) for module in net.program.modules() if not isinstance(module, Take))
    ]
    return {
        "tables": tuple(tables),
        "members": tuple(chain.from_iterable(map(dict.values, tables))),
        "tensors": tuple(tensors),
        "versions": tuple(tensor._version for tensor in tensors),
        "parameters": tuple(parameters),
        "pointers": tuple(parameter.data_ptr() for parameter in parameters),
    }


def _written_to(module: torch.nn.Module) -> Iterator[Tensor]:
    """The tensors that show whether a module was written to: those of floats, or the first tensor if there are none."""
    tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    tensors = [tensor for tensor in tensors if not tensor.is_inference()]  # those do not count writes
    yield from [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel()] or tensors[:1]

"""A translation as one module of tensor operators, which exporters can take a graph of."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from windtunnel.compiler.graphs import EXAMPLE_ROWS, made_up_rows
from windtunnel.export.columns import names, none_columns, raw_columns, text_slots, told_by_text
from windtunnel.export.lookups import NumberLookup
from windtunnel.export.outputs import output_modules
from windtunnel.program.program import Program, ProgramStep
from windtunnel.program.translated import TranslatedPipeline

REJECTED_ID = -1
"""The id of a text that an encoder of the source rejects."""
REJECTED_POSITION = -1
"""The label position of a row that the source rejects; its numbers are NaN."""


class GraphProgram(nn.Module):
    """Raw numbers and ids of raw texts to all outputs of a file.

    A graph cannot raise. So a row that the source rejects (a category that its encoder rejects, a missing or infinite
    number in a step that takes none) gets NaN in scores, probabilities and values, and the label position -1.

    Shape
    -----
    forward : numbers float64 [B, number columns], ids int64 [B, id columns of texts] -> a tensor for each output:
    "scores" ``[B, K]`` in the type that the program computes in; "predict_proba" float64 ``[B, classes]`` and "predict"
    (int64 position of a label ``[B]`` or ``[B, targets]``, or float64 values ``[B]`` or ``[B, K]``) where the source
    has them.
    """

    def __init__(self, net: TranslatedPipeline) -> None:
        super().__init__()
        encoder, head = net.encoder, net.head
        self.program: Program = copy.deepcopy(net.program).eval().requires_grad_(False)
        number_columns, _ = raw_columns(encoder)
        self.dtype = getattr(torch, encoder.dtype)
        self.register_buffer("read", torch.tensor([number_columns.index(column) for column in encoder.numbers]).long())
        self.texts = {slot: place for place, (slot, _) in enumerate(text_slots(encoder))}
        self.lookups = nn.ModuleDict(
            {
                str(slot): NumberLookup(
                    number_columns.index(category.column), slot, encoder.column_name(category.column), category
                )
                for slot, category in enumerate(encoder.categories)
                if slot not in self.texts
            }
        )
        self.width = len(encoder.categories)
        self.labelled = head.classes is not None
        # Copies: a graph takes no module twice.
        self.output_modules = nn.ModuleDict(copy.deepcopy(output_modules(self.program, head)))
        self.program.method_steps.clear()  # the file has only ``outputs``
        self.outputs = ["scores", *self.output_modules]

    read: Tensor

    def forward(self, numbers: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        """All outputs, the scores first."""
        values, rejected = self.encoded(numbers, ids)
        for step in self.program.steps:
            rejected = _also(rejected, step, values)
            values.append(step(values))
        scores = values[-1]
        outputs = [_where(rejected, scores, math.nan)]
        for method, module in self.output_modules.items():
            if isinstance(module, ProgramStep):
                output, failed = module(values), _also(rejected, module, values)
            else:
                output, failed = module(scores), rejected
            outputs.append(self._typed(method, output, scores, failed))
        return tuple(outputs)

    def encoded(self, numbers: Tensor, ids: Tensor) -> tuple[list[Tensor], Tensor | None]:
        """The numbers and ids of the program, and whether an encoder rejects a row, bool ``[B]``."""
        rejected = (ids < 0).any(dim=1) if self.texts else None
        columns = []
        for slot in range(self.width):
            if slot in self.texts:
                columns.append(ids[:, self.texts[slot]].clamp_min(0))
                continue
            lookup: Any = self.lookups[str(slot)]
            column = numbers[:, lookup.place]
            columns.append(lookup.ids_of(column))
            rejected = _either(rejected, _rejected(lookup, column, columns[-1]))
        all_ids = torch.stack(columns, dim=1) if columns else ids[:, :0]
        return [numbers.index_select(1, self.read).to(self.dtype), all_ids], rejected

    def _typed(self, method: str, output: Tensor, scores: Tensor, rejected: Tensor | None) -> Tensor:
        if method == "predict" and self.labelled:
            failed = _either(rejected, torch.isnan(scores).any(dim=1))
            return _where(failed, output.to(torch.int64), REJECTED_POSITION)
        return _where(rejected, output.to(torch.float64), math.nan)


def file_metadata(net: TranslatedPipeline, outputs: list[str]) -> dict[str, Any]:
    """The facts of a file that a server needs, as JSON values."""
    numbers, strings = (names(net.encoder, columns) for columns in raw_columns(net.encoder))
    return {
        "torch": torch.__version__,
        "number_columns": numbers,
        "string_columns": strings,
        "none_columns": none_columns(net.encoder),
        "told_by_text": told_by_text(net.encoder),
        "outputs": outputs,
        "classes": [str(label) for label in net.head.labels_in_order],
        "task": net.head.task if "predict" in net.head.methods else "transform",
        "rows_at_once": 0 if net.program.needs_all_rows() else net.batch_size,
    }


def example(net: TranslatedPipeline, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Made-up rows to take a graph from, see ``EXAMPLE_ROWS``."""
    sizes = [len(category.vocabulary) for _, category in text_slots(net.encoder)]
    numbers, ids = made_up_rows(EXAMPLE_ROWS, len(raw_columns(net.encoder)[0]), sizes, torch.float64)
    return numbers.to(device), ids.to(device)


def _rejected(lookup: Any, numbers: Tensor, ids: Tensor) -> Tensor | None:
    """Whether an encoder rejects a number, bool ``[B]``; None where it rejects none."""
    rejected = None
    if lookup.rejects_unknown or lookup.has_buckets:  # Python's text of a number is hashed
        rejected = ids == lookup.unknown
    if lookup.rejects_missing:
        rejected = _either(rejected, ids == 1)
    if lookup.rejects_infinite:
        rejected = _either(rejected, torch.isinf(numbers))
    if lookup.rejects_fractions:
        fraction = (torch.trunc(numbers) != numbers) | (numbers.abs() >= 2.0**63)
        rejected = _either(rejected, fraction & ~torch.isnan(numbers))
    return rejected


def _also(rejected: Tensor | None, step: ProgramStep, values: list[Tensor]) -> Tensor | None:
    return _either(rejected, step.rejected(values)) if step.may_reject() else rejected


def _either(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    return right if left is None else left if right is None else left | right


def _where(rejected: Tensor | None, output: Tensor, sentinel: float) -> Tensor:
    """The output, with ``sentinel`` in rejected rows."""
    if rejected is None:
        return output
    rows = rejected.view([-1] + [1] * (output.dim() - 1))
    return torch.where(rows, torch.full_like(output, sentinel), output)

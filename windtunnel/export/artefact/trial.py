"""Made-up rows through what a file holds: what does not fit together shows before anybody relies on it."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor

from windtunnel.compiler.backends import native_engine
from windtunnel.encode import Batch, RowEncoder
from windtunnel.errors import BadFile, BadInput
from windtunnel.export.artefact.layout import GraphData, StepData
from windtunnel.program.head import METHODS, Head
from windtunnel.program.program import Program, ProgramStep
from windtunnel.program.translated import TranslatedPipeline


def try_out(program: Program, encoder: RowEncoder, head: Head, graph: GraphData) -> None:
    """Run two made-up rows, with the least and the greatest ids: everything that does not fit together shows here."""
    values: list[Tensor] = [*_made_up_rows(encoder)]
    for step, data in zip(program.steps, graph.steps, strict=True):
        values.append(_try_step(step, data, values))
    for method, data in graph.method_steps.items():
        if method not in METHODS:
            raise BadFile(f"unknown method {method!r}; known are {', '.join(METHODS)}.")
        _try_step(program.method_steps[method], data, values)
    if "predict" not in graph.method_steps:
        _try_head(head, values[-1])


def _made_up_rows(encoder: RowEncoder, count: int = 2) -> Batch:
    """Zeros, with the least ids in the first row and the greatest in the others."""
    greatest = torch.tensor([len(category.vocabulary) - 1 for category in encoder.categories], dtype=torch.int64)
    numbers = torch.zeros(count, len(encoder.numbers), dtype=getattr(torch, encoder.dtype))
    return Batch(numbers, torch.stack([torch.zeros_like(greatest), *[greatest] * (count - 1)]))


def try_net(net: TranslatedPipeline, native: bool) -> None:
    """Choose the engine and predict these rows: labels and rejections depend on more than the steps' outputs."""
    rows = _made_up_rows(net.encoder, 3)  # a tensor with two rows would fit two rows by chance
    try:
        if native:
            net.configure(engine=native_engine(net))
        facts = net.facts()
        assert facts.takes_missing in (True, False) and facts.cleared_by_scores is not None  # worked out when read
        for method in ("scores", *net.head.methods):
            with suppress(BadInput):
                getattr(net, method)(rows)
        if not facts.needs_all_rows:  # iterations that stop together would never stop early
            with suppress(BadInput):
                net.scores(Batch(torch.full_like(rows.numbers, torch.nan), rows.ids))
    except Exception as error:  # torch and NumPy raise many types
        raise BadFile(f"its rows cannot be predicted ({type(error).__name__}: {error}).") from error


def _try_step(step: ProgramStep, data: StepData, values: list[Tensor]) -> Tensor:
    for take in data.takes:
        width = values[take.slot].reshape(2, -1).shape[1]
        if take.columns and max(take.columns) >= width:
            raise BadFile(f"step {data.name!r} takes column {max(take.columns)} of {width}.")
    try:
        with torch.inference_mode():
            output: Tensor = step(values)
    except Exception as error:  # torch raises many types for shapes or indices that do not fit
        raise BadFile(f"the tensors of step {data.name!r} do not fit together ({error}).") from error
    if output.dim() < 1 or output.shape[0] != 2:
        raise BadFile(f"step {data.name!r} gives shape {list(output.shape)} for two rows.")
    return output


def _try_head(head: Head, scores: Tensor) -> None:
    classes = len(head.labels_in_order)
    if head.has_several_targets:
        if scores.shape[1] != classes:
            targets = len(head.labels_of_targets)
            raise BadFile(f"{scores.shape[1]} scores for {classes} classes of {targets} targets.")
        return
    if classes > 1 and scores.shape[1] not in ({1, 2} if classes == 2 else {classes}):
        raise BadFile(f"{scores.shape[1]} scores for {classes} classes.")
    try:
        head.linked(scores)
    except Exception as error:  # a forged file may have options of any name and type
        raise BadFile(f"the link {head.link!r} does not take {head.link_options} ({error}).") from error

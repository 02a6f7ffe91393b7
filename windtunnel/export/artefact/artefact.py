"""The safe artefact: a translation as JSON and tensors; loading builds modules by name and runs no code."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError
from torch import Tensor, nn

from windtunnel.atomic_write import write_atomically
from windtunnel.compiler.native.engine import NativeEngine
from windtunnel.encode import RowEncoder
from windtunnel.errors import BadFile, UnfaithfulOption
from windtunnel.export.artefact import container
from windtunnel.export.artefact.layout import SCHEMA, CategoriesData, GraphData, Manifest
from windtunnel.export.artefact.parts import (
    check_hosts,
    encoder_data,
    find_hosts,
    head_data,
    host_data,
    read_encoder,
    read_head,
)
from windtunnel.export.artefact.profile import profile_data, profile_tensors, read_profile
from windtunnel.export.artefact.steps import check_tensors, read_step, step_data, under
from windtunnel.export.artefact.trial import try_net, try_out
from windtunnel.modules.base import Module
from windtunnel.program.head import Head
from windtunnel.program.program import Program, ProgramStep
from windtunnel.program.records.history import History
from windtunnel.program.records.origin import Origin
from windtunnel.program.translated import TranslatedPipeline

GROUPS = WEIGHTS, START, EXACT, PROFILE = "weights", "start", "exact", "profile"
"""How the names of tensors begin."""
CATEGORIES = "categories"
"""The tensor uint8 that holds ``CategoriesData`` as JSON."""
Data = TypeVar("Data", bound=BaseModel)


def save(net: TranslatedPipeline, path: str | PathLike[str]) -> None:
    """Write a translation as one file that ``load`` reads; the same translation always gives the same bytes.

    The file is a safetensors file. Its metadata is one JSON text (``GraphData``): schema, versions, steps by the names
    of their modules, wiring, head, columns. Its tensors are the categories as JSON bytes, the weights, and the
    initial values of those that training has changed; counts, quantiles and means of bins of the training rows, but no
    row. While soft steps are untrained, their exact forms are there too. A SHA-256 covers the text and all tensors. The
    file is moved into place when it is complete. The code of steps that stay on the host is not in it: ``load`` takes
    these steps from the fitted pipeline. Vectorizers of a raw column of texts are in the file if plain options describe
    their tokenizer.

    Raises
    ------
    UnfaithfulOption
        A part that data cannot hold: labels of an unusual type, text that is no Unicode, a module that is not in the
        table of modules, or too many names.
    """
    write_atomically(path, pack(net))


def pack(net: TranslatedPipeline) -> bytes:
    """The bytes that ``save`` writes."""
    exact = {
        str(position): net.program.steps[position].with_module(module) for position, module in net.exact_modules.items()
    }
    weights, initial = net.program.state_dict(), dict(net.initial_weights)
    changed = {name: initial[name] for name, value in weights.items() if _bytes(initial[name]) != _bytes(value)}
    zero = [name for name, value in changed.items() if not value.any()]
    graph = _graph_data(net, exact, zero)
    try:
        text = graph.model_dump_json()
        categories_text = CategoriesData(categories=net.encoder.categories).model_dump_json()
    except PydanticSerializationError as error:
        raise UnfaithfulOption(
            f"a name, label or category of the translation is no valid Unicode text ({error}), and an artefact holds "
            "UTF-8 alone. Replace it in the rows before fitting."
        ) from error
    tensors = _named(WEIGHTS, weights)
    tensors[CATEGORIES] = torch.frombuffer(bytearray(categories_text, "utf-8"), dtype=torch.uint8)
    tensors |= _named(START, {name: value for name, value in changed.items() if name not in zero})
    tensors |= _named(EXACT, nn.ModuleDict(exact).state_dict())
    tensors |= {} if net.profile is None else _named(PROFILE, profile_tensors(net.profile))
    return container.pack(text, tensors)


def _graph_data(net: TranslatedPipeline, exact: Mapping[str, ProgramStep], zero: list[str]) -> GraphData:
    """All facts of a translation but its categories and tensors."""
    return GraphData(
        format="windtunnel",
        schema_number=SCHEMA,
        versions={"windtunnel": version("windtunnel"), "torch": str(torch.__version__)},
        steps=[step_data(step, origin) for step, origin in zip(net.program.steps, net.origins, strict=True)],
        method_steps={method: step_data(step, Origin("", "")) for method, step in net.program.method_steps.items()},
        exact={position: step_data(step, Origin("", "")) for position, step in exact.items()},
        softening=net.softening if net.softening_pending else None,
        initially_zero=zero,
        trainable=[name for name, parameter in net.program.named_parameters() if parameter.requires_grad],
        head=head_data(net.head),
        encoder=encoder_data(net.encoder),
        hosts=[host_data(host) for host in net.hosts],
        untranslated=net.untranslated,  # type: ignore[arg-type]  # checked when it is made
        records=net.records,
        choices=net.strategy_choices,
        profile=None if net.profile is None else profile_data(net.profile),
        native=isinstance(net.engine, NativeEngine),
    )


Built = TypeVar("Built", bound=TranslatedPipeline)


def load(path: str | PathLike[str], build: type[Built], *, host: Any = None, trusted: bool = False) -> Built:
    """Read a translation that ``save`` wrote, as an object of class ``build``; see ``windtunnel.load``."""
    return unpack(path, Path(path).read_bytes(), build, host=host, trusted=trusted)


def unpack(path: str | PathLike[str], data: bytes, build: type[Built], *, host: Any, trusted: bool) -> Built:
    """Build what the bytes of a file hold; messages name the path."""
    text, tensors = container.unpack(path, data)
    try:
        return _rebuilt(text, tensors, host, trusted, build)
    except BadFile as error:
        raise BadFile(f"{fspath(path)!r}: {error}") from error


def _rebuilt(text: str, tensors: Mapping[str, Tensor], host: Any, trusted: bool, build: type[Built]) -> Built:
    graph = _read_graph(text)
    weights, start, exact, counts = (under(group, tensors) for group in GROUPS)
    if len(tensors) != 1 + len(weights) + len(start) + len(exact) + len(counts) or CATEGORIES not in tensors:
        raise BadFile(f"an artefact has the tensors {CATEGORIES}, {', '.join(f'{group}.*' for group in GROUPS)} alone.")
    categories = _checked(CategoriesData, _bytes(tensors[CATEGORIES]), CATEGORIES).categories
    program = _read_program(graph, weights)
    encoder, head = read_encoder(graph.encoder, categories), read_head(graph.head)
    check_hosts(graph, categories)
    _check_history(graph.records.history)
    try_out(program, encoder, head, graph)
    net = build(
        program,
        encoder,
        head,
        [data.origin for data in graph.steps],
        find_hosts(graph, host, trusted),
        graph.untranslated,
        exact_modules=_read_exact(program, encoder, head, graph, exact),
        softening=graph.softening,
        initial_weights=_initial_weights(graph, start, weights),
        strategy_choices=graph.choices,
        records=graph.records,
        profile=read_profile(graph.profile, counts),
    )
    try_net(net, graph.native)
    return net


def _check_history(history: History | None) -> None:
    """Check that one candidate was kept."""
    if history is None:
        return
    if [candidate.kept for candidate in history.candidates].count(True) != 1:
        raise BadFile("the history must have one candidate that was kept.")


def _read_graph(text: str) -> GraphData:
    if (number := _checked(Manifest, text, "the metadata").schema_number) != SCHEMA:
        older, newer = (
            "Translate or compile the fitted pipeline again, and save that.",
            "The file needs a newer windtunnel.",
        )
        raise BadFile(
            f"written in schema {number}; this windtunnel {version('windtunnel')} reads schema {SCHEMA}. "
            f"{older if number < SCHEMA else newer}"
        )
    return _checked(GraphData, text, "the metadata")


def _read_program(graph: GraphData, weights: Mapping[str, Tensor]) -> Program:
    """The program, with the parameters trainable that the graph calls so."""
    count, method_steps = len(graph.steps), graph.method_steps.items()
    program = Program(
        [read_step(f"steps.{position}.", position, data, weights) for position, data in enumerate(graph.steps)],
        {method: read_step(f"method_steps.{method}.", count, data, weights) for method, data in method_steps},
    )
    check_tensors(program, weights, WEIGHTS)
    _restore_flags(program, [*graph.trainable, *(graph.softening.trainable if graph.softening else ())])
    if graph.softening is not None:
        program.requires_grad_(False)
    return program


def _initial_weights(
    graph: GraphData, changed: Mapping[str, Tensor], weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The initial values of the weights that training has changed."""
    zero = {name: torch.zeros_like(weights[name]) for name in graph.initially_zero if name in weights}
    initial = {**changed, **zero}
    if any(name not in weights or value.shape != weights[name].shape for name, value in initial.items()):
        raise BadFile(f"{START} holds other tensors than {WEIGHTS}.")
    return initial


def _checked(model: type[Data], text: str | bytes, name: str) -> Data:
    """Take a JSON text as a model; ``BadFile`` with the first places where it does not fit."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        places = [f"{'.'.join(map(str, each['loc'])) or 'top'}: {each['msg']}" for each in error.errors()[:3]]
        raise BadFile(f"the JSON of {name} is not what windtunnel writes ({'; '.join(places)}).") from error


def _restore_flags(program: Program, trainable: list[str]) -> None:
    parameters = dict(program.named_parameters())
    wrong = [name for name in trainable if name not in parameters or not parameters[name].is_floating_point()]
    if wrong:
        raise BadFile(f"the graph calls {wrong[:5]} trainable; no such parameters.")
    for name, parameter in parameters.items():
        parameter.requires_grad_(name in trainable)


def _read_exact(
    program: Program, encoder: RowEncoder, head: Head, graph: GraphData, tensors: Mapping[str, Tensor]
) -> dict[int, Module]:
    steps = {name: read_step(f"{name}.", int(name), data, tensors) for name, data in graph.exact.items()}
    check_tensors(nn.ModuleDict(steps), tensors, EXACT)
    for name, data in graph.exact.items():
        soft = graph.steps[int(name)] if int(name) < len(graph.steps) else None
        if soft is None or (soft.takes, soft.rejects) != (data.takes, data.rejects):
            raise BadFile(f"the graph has an exact form of step {name}, which is not there or takes other columns.")
    exact = {int(name): step.module for name, step in steps.items()}
    try_out(program.with_modules(exact), encoder, head, graph)
    return exact


def _named(group: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{group}.{name}": value for name, value in tensors.items()}


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().numpy().tobytes()

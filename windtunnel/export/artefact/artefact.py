"""The safe artefact: a translation as JSON, vocabularies and tensors; loading builds modules by name, runs no code."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from difflib import get_close_matches
from os import PathLike, fspath
from typing import Any, get_type_hints

import safetensors.torch
import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from safetensors import SafetensorError
from torch import Tensor, nn

from windtunnel.api.translation import Translation
from windtunnel.assemble import Origin
from windtunnel.encode import RowEncoder
from windtunnel.errors import BadFile, UnfaithfulOption
from windtunnel.export.artefact import container
from windtunnel.export.artefact.layout import (
    ChoiceData,
    GraphData,
    HistoryData,
    OriginData,
    StepData,
    TakeData,
    VocabulariesData,
)
from windtunnel.export.artefact.parts import (
    check_hosts,
    encoder_data,
    find_hosts,
    head_data,
    host_data,
    read_encoder,
    read_head,
)
from windtunnel.modules.base import MODULES, Module
from windtunnel.modules.linear import residual_model as residual_model  # no converter imports it, and files hold it
from windtunnel.program.head import METHODS, Head
from windtunnel.program.program import Program, ProgramStep, Take

GRAPH, VOCABULARIES = "graph.json", "vocabularies.json"
WEIGHTS, START, EXACT = "weights.safetensors", "start.safetensors", "exact.safetensors"


def save(net: Translation, path: str | PathLike[str]) -> None:
    """Write a translation as one file that ``load`` reads; the same translation always gives the same bytes.

    The file is a zip of ``manifest.json`` (schema, versions, size and SHA-256 of each member), ``graph.json`` (steps
    by the names of their modules, wiring, head, columns), ``vocabularies.json``, ``weights.safetensors`` and, once
    training has moved them, ``start.safetensors``, the weights before. While soft steps are as they came,
    ``exact.safetensors`` has what the source computes there. It is moved into place when it is whole. The code of
    steps that stay on the host is not in it: ``load`` takes them from the fitted pipeline, but for vectorizers of a
    raw column of texts whose tokenizer is told by plain options, which are in the file.

    Raises
    ------
    UnfaithfulOption
        A part that data cannot hold: labels of an unusual type, or a module that is not in the table of modules.
    """
    graph = GraphData(
        steps=[_step_data(step, origin) for step, origin in zip(net.program.steps, net.origins, strict=True)],
        answers={method: _step_data(step, Origin("", "")) for method, step in net.program.answers.items()},
        exact={str(position): _step_data(_exact(net, position), Origin("", "")) for position in net.exact},
        trainable=[name for name, parameter in net.program.named_parameters() if parameter.requires_grad],
        head=head_data(net.head),
        encoder=encoder_data(net.encoder),
        hosts=[host_data(host) for host in net.hosts],
        untranslated=net.untranslated,  # type: ignore[arg-type]  # checked when it is made
        faithful=net.faithful,
        history=None if net.history is None else HistoryData.model_validate(asdict(net.history)),
        choices=[ChoiceData.model_validate(asdict(choice)) for choice in net.choices],
    )
    vocabularies = [
        {"values": list(known.values), "buckets": known.buckets, "hashes": known.hashes}
        for known in (category.vocabulary for category in net.encoder.categories)
    ]
    weights = _held(net.program.state_dict())
    members = {
        GRAPH: container.to_json(graph.model_dump()),
        VOCABULARIES: container.to_json({"vocabularies": vocabularies}),
        WEIGHTS: safetensors.torch.save(weights),
    }
    start = _held(net.start)
    if not _same(start, weights):
        members[START] = safetensors.torch.save(start)
    if net.exact:
        exact = {str(position): _exact(net, position) for position in net.exact}
        members[EXACT] = safetensors.torch.save(_held(nn.ModuleDict(exact).state_dict()))
    container.write(path, members)


def load(path: str | PathLike[str], *, host: Any = None) -> Translation:
    """Read a translation that ``save`` wrote; its scores are the same bits, and it can be fitted further.

    Nothing in the file is executed: modules are built from data by their names in windtunnel's own table.

    Parameters
    ----------
    path : path
    host : fitted pipeline, optional
        The pipeline that was translated; needed where steps of it stayed on the host, which are taken from it, and
        the file does not hold what they do.

    Raises
    ------
    BadFile
        The file is damaged, cut short, too large, from another schema, or not what ``save`` writes.
    UnfaithfulOption
        Steps stayed on the host, and ``host`` is missing or is another pipeline.
    """
    members = container.read(path)
    try:
        return _rebuilt(members, host)
    except BadFile as error:
        raise BadFile(f"{fspath(path)!r}: {error}") from error


def _rebuilt(members: Mapping[str, bytes], host: Any) -> Translation:
    graph = container.checked(GraphData, container.from_json(GRAPH, members[GRAPH]), GRAPH)
    content = container.from_json(VOCABULARIES, members[VOCABULARIES])
    vocabularies = container.checked(VocabulariesData, content, VOCABULARIES).vocabularies
    weights = _tensors(members, WEIGHTS)
    last = len(graph.steps)
    program = Program(
        [_step(f"steps.{position}.", position, data, weights) for position, data in enumerate(graph.steps)],
        {method: _step(f"answers.{method}.", last, data, weights) for method, data in graph.answers.items()},
    )
    _check_weights(program, weights)
    _restore_flags(program, graph.trainable)
    encoder = read_encoder(graph.encoder, vocabularies)
    head = read_head(graph.head)
    check_hosts(graph)
    _try_out(program, encoder, head, graph)
    net = Translation(
        program,
        encoder,
        head,
        [Origin(data.origin.name, data.origin.estimator) for data in graph.steps],
        find_hosts(graph, host),
        graph.untranslated,
        graph.faithful,
    )
    net.history = None if graph.history is None else graph.history.history()
    net.choices = [data.choice() for data in graph.choices]
    net.exact = _read_exact(net, graph, members)
    if START in members:
        start = _tensors(members, START)
        if {name: value.shape for name, value in start.items()} != {n: v.shape for n, v in weights.items()}:
            raise BadFile(f"{START} holds other tensors than {WEIGHTS}.")
        net.start.update(start)
    return net


def _exact(net: Translation, position: int) -> ProgramStep:
    """A soft step with what the source computes in its place."""
    step: Any = net.program.steps[position]
    return step.having(net.exact[position])  # type: ignore[no-any-return]


def _read_exact(net: Translation, graph: GraphData, members: Mapping[str, bytes]) -> dict[int, Module]:
    if bool(graph.exact) != (EXACT in members):
        raise BadFile(f"{GRAPH} and the members differ in whether there is {EXACT}.")
    if not graph.exact:
        return {}
    tensors = _tensors(members, EXACT)
    steps = {name: _step(f"{name}.", int(name), data, tensors) for name, data in graph.exact.items()}
    _check_weights(nn.ModuleDict(steps), tensors, EXACT)
    for name, data in graph.exact.items():
        soft = graph.steps[int(name)] if int(name) < len(graph.steps) else None
        if soft is None or (soft.takes, soft.rejects) != (data.takes, data.rejects):
            raise BadFile(f"{GRAPH} has an exact form of step {name}, which is not there or takes other columns.")
    exact = {int(name): step.module for name, step in steps.items()}
    _try_out(net.program.having(exact), net.encoder, net.head, graph)
    return exact


def _step_data(step: Any, origin: Origin) -> StepData:
    module = step.module
    name = type(module).__name__
    if MODULES.get(name) is not type(module):
        raise UnfaithfulOption(
            f"step {step.name!r} is a {type(module).__module__}.{name}, which is not in the table of modules that an "
            "artefact can name; derive it from windtunnel.modules.base.Module under a name of its own."
        )
    return StepData(
        name=step.name,
        origin=OriginData(name=origin.name, estimator=origin.estimator),
        module=name,
        facts=module.facts(),
        takes=[TakeData(slot=take.slot, columns=take.columns.tolist()) for take in step.takes],
        rejects=list(step.rejects),
    )


def _step(place: str, position: int, data: StepData, weights: Mapping[str, Tensor]) -> ProgramStep:
    where = f"step {data.name!r}"
    if not data.takes:
        raise BadFile(f"{where} takes nothing.")
    for take in data.takes:
        if take.slot > position + 1:
            raise BadFile(f"{where} takes from slot {take.slot}, which is not before it.")
    prefix = f"{place}module."
    tensors = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    module = _module(_class(data.module), data, tensors, where)
    return ProgramStep(module, [Take(take.slot, take.columns) for take in data.takes], data.name, data.rejects)


def _class(name: str) -> type[Module]:
    if name not in MODULES:
        close = get_close_matches(name, MODULES, n=1)
        nearest = f"; the nearest known one is {close[0]!r}" if close else ""
        raise BadFile(
            f"unknown module {name!r}{nearest}. If it is your own, import the file that defines it before loading; "
            f"otherwise the file needs a newer windtunnel. Known are {', '.join(sorted(MODULES))}."
        )
    return MODULES[name]


def _module(cls: type[Module], data: StepData, tensors: Mapping[str, Tensor], where: str) -> Module:
    hints = get_type_hints(cls.__init__)
    parameters = inspect.signature(cls.__init__).parameters.values()
    wanted = {
        one.name for one in parameters if one.name != "self" and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    }
    if set(data.facts) != set(cls.FACTS) or set(tensors) | set(cls.FACTS) != wanted:
        raise BadFile(
            f"{where}: {cls.__name__} takes {sorted(wanted)}; "
            f"the file has the facts {sorted(data.facts)} and the tensors {sorted(tensors)}."
        )
    try:
        for name, value in data.facts.items():
            TypeAdapter(hints[name], config=ConfigDict(strict=True)).validate_python(value)
        return cls.rebuild(tensors, data.facts)
    except ValidationError as error:
        raise BadFile(f"{where}: facts of {cls.__name__} of the wrong type ({error.errors()[0]['msg']}).") from error
    except Exception as error:  # whatever a constructor says of tensors and facts that do not fit together
        raise BadFile(f"{where}: no {cls.__name__} can be made of its tensors and facts ({error}).") from error


def _check_weights(program: nn.Module, weights: Mapping[str, Tensor], file: str = WEIGHTS) -> None:
    rebuilt = program.state_dict()
    if unknown := sorted(set(weights) ^ set(rebuilt)):
        raise BadFile(f"{file} and the steps differ in {unknown[:5]}.")
    for name, value in weights.items():
        if rebuilt[name].shape != value.shape or rebuilt[name].dtype != value.dtype:
            raise BadFile(
                f"{file}: {name} is {value.dtype} {list(value.shape)}, "
                f"its module takes {rebuilt[name].dtype} {list(rebuilt[name].shape)}."
            )


def _restore_flags(program: Program, trainable: list[str]) -> None:
    parameters = dict(program.named_parameters())
    wrong = [name for name in trainable if name not in parameters or not parameters[name].is_floating_point()]
    if wrong:
        raise BadFile(f"{GRAPH} calls {wrong[:5]} trainable; no such parameters.")
    for name, parameter in parameters.items():
        parameter.requires_grad_(name in trainable)


def _try_out(program: Program, encoder: RowEncoder, head: Head, graph: GraphData) -> None:
    """Run two made-up rows, with the least and the greatest ids: everything that does not fit together shows here."""
    greatest = torch.tensor([len(category.vocabulary) - 1 for category in encoder.categories], dtype=torch.int64)
    numbers = torch.zeros(2, len(encoder.numbers), dtype=getattr(torch, encoder.dtype))
    answers = [numbers, torch.stack([torch.zeros_like(greatest), greatest])]
    for step, data in zip(program.steps, graph.steps, strict=True):
        answers.append(_try_step(step, data, answers))
    for method, data in graph.answers.items():
        if method not in METHODS:
            raise BadFile(f"unknown method {method!r}; known are {', '.join(METHODS)}.")
        _try_step(program.answers[method], data, answers)
    if "predict" not in graph.answers:
        _try_head(head, answers[-1])


def _try_step(step: Any, data: StepData, answers: list[Tensor]) -> Tensor:
    for take in data.takes:
        width = answers[take.slot].reshape(2, -1).shape[1]
        if take.columns and max(take.columns) >= width:
            raise BadFile(f"step {data.name!r} takes column {max(take.columns)} of {width}.")
    try:
        with torch.inference_mode():
            answer: Tensor = step(answers)
    except Exception as error:  # torch has many ways to say that shapes or indices do not fit
        raise BadFile(f"the tensors of step {data.name!r} do not fit together ({error}).") from error
    if answer.dim() < 1 or answer.shape[0] != 2:
        raise BadFile(f"step {data.name!r} answers two rows with shape {list(answer.shape)}.")
    return answer


def _try_head(head: Head, scores: Tensor) -> None:
    if isinstance(head.classes, list):
        classes, targets = sum(map(len, head.classes)), len(head.classes)
        if scores.shape[1] != classes:
            raise BadFile(f"{scores.shape[1]} scores for {classes} classes of {targets} targets.")
        return
    classes = 0 if head.classes is None else len(head.classes)
    if classes > 1 and scores.shape[1] not in ({1, 2} if classes == 2 else {classes}):
        raise BadFile(f"{scores.shape[1]} scores for {classes} classes.")
    try:
        head.linked(scores)
    except Exception as error:  # options that the link does not take, of names and types that anyone may have written
        raise BadFile(f"the link {head.link!r} does not take {head.link_options} ({error}).") from error


def _held(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors as they go into a file: on the CPU, each with memory of its own."""
    return {name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}


def _tensors(members: Mapping[str, bytes], name: str) -> dict[str, Tensor]:
    try:
        return {key: value.clone() for key, value in safetensors.torch.load(members[name]).items()}
    except (SafetensorError, KeyError, ValueError, RuntimeError, OverflowError) as error:
        raise BadFile(f"{name} is no safetensors file that can be read ({error}).") from error


def _same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two sets of tensors hold the same bits."""
    return all(_bytes(value) == _bytes(other[name]) for name, value in one.items())


def _bytes(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()

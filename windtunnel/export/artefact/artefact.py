"""The safe artefact: a translation as JSON and tensors; loading builds modules by name and runs no code."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from importlib.metadata import version
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import torch
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError
from torch import Tensor, nn

from windtunnel.atomic_write import write_atomically
from windtunnel.compiler.backends import native_engine
from windtunnel.compiler.native.engine import NativeEngine
from windtunnel.encode import Batch, RowEncoder
from windtunnel.errors import BadFile, BadInput, UnfaithfulOption
from windtunnel.export.artefact import container
from windtunnel.export.artefact.layout import (
    SCHEMA,
    STRICT,
    CategoriesData,
    GraphData,
    Manifest,
    StepData,
    TakeData,
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
from windtunnel.export.artefact.profile import profile_data, profile_tensors, read_profile
from windtunnel.modules import import_all
from windtunnel.modules.base import MODULES, Module
from windtunnel.program.head import METHODS, Head
from windtunnel.program.program import Program, ProgramStep, Take
from windtunnel.program.records.origin import Origin
from windtunnel.program.translated import TranslatedPipeline

WEIGHTS, START, EXACT, PROFILE = "weights", "start", "exact", "profile"
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
        A part that data cannot hold: labels of an unusual type, text that is no Unicode, or a module that is not in the
        table of modules.
    """
    write_atomically(path, pack(net))


def pack(net: TranslatedPipeline) -> bytes:
    """The bytes that ``save`` writes."""
    exact = {str(position): _exact(net, position) for position in net.exact_modules}
    weights, initial = net.program.state_dict(), dict(net.initial_weights)
    changed = {name: initial[name] for name, value in weights.items() if _bytes(initial[name]) != _bytes(value)}
    zero = [name for name, value in changed.items() if not value.any()]
    graph = GraphData(
        format="windtunnel",
        schema_number=SCHEMA,
        versions={"windtunnel": version("windtunnel"), "torch": str(torch.__version__)},
        steps=[_step_data(step, origin) for step, origin in zip(net.program.steps, net.origins, strict=True)],
        method_steps={method: _step_data(step, Origin("", "")) for method, step in net.program.method_steps.items()},
        exact={position: _step_data(step, Origin("", "")) for position, step in exact.items()},
        softening=net.softening if net.pending else None,
        initially_zero=zero,
        trainable=[name for name, parameter in net.program.named_parameters() if parameter.requires_grad],
        head=head_data(net.head),
        encoder=encoder_data(net.encoder),
        hosts=[host_data(host) for host in net.hosts],
        untranslated=net.untranslated,  # type: ignore[arg-type]  # checked when it is made
        fidelity=net.fidelity,
        simplification=net.simplification,
        hardened=net.hardened,
        hardening=net.hardening,
        history=net.history,
        choices=net.strategy_choices,
        profile=None if net.profile is None else profile_data(net.profile),
        native=isinstance(net.engine, NativeEngine),
    )
    categories = [
        replace(one, rejects_unknown=bool(one.rejects_unknown), rejects_missing=bool(one.rejects_missing))
        for one in net.encoder.categories
    ]
    try:
        text = graph.model_dump_json()
        categories_text = CategoriesData(categories=categories).model_dump_json()
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
    if (number := _checked(Manifest, text, "the metadata").schema_number) != SCHEMA:
        raise BadFile(
            f"written in schema {number}; this windtunnel {version('windtunnel')} reads schema {SCHEMA}. "
            + (
                "Translate or compile the fitted pipeline again, and save that."
                if number < SCHEMA
                else "The file needs a newer windtunnel."
            )
        )
    graph = _checked(GraphData, text, "the metadata")
    groups = (WEIGHTS, START, EXACT, PROFILE)
    weights, start, exact, counts = (_under(group, tensors) for group in groups)
    if len(tensors) != 1 + len(weights) + len(start) + len(exact) + len(counts) or CATEGORIES not in tensors:
        raise BadFile(f"an artefact has the tensors {CATEGORIES}, {', '.join(f'{group}.*' for group in groups)} alone.")
    categories = _checked(CategoriesData, _bytes(tensors[CATEGORIES]), CATEGORIES).categories
    last = len(graph.steps)
    program = Program(
        [_step(f"steps.{position}.", position, data, weights) for position, data in enumerate(graph.steps)],
        {method: _step(f"method_steps.{method}.", last, data, weights) for method, data in graph.method_steps.items()},
    )
    _check_weights(program, weights, WEIGHTS)
    _restore_flags(program, [*graph.trainable, *(graph.softening.trainable if graph.softening else ())])
    if graph.softening is not None:
        program.requires_grad_(False)
    encoder = read_encoder(graph.encoder, categories)
    head = read_head(graph.head)
    check_hosts(graph, categories)
    _try_out(program, encoder, head, graph)
    hosts, exact_modules = find_hosts(graph, host, trusted), _read_exact(program, encoder, head, graph, exact)
    start |= {name: torch.zeros_like(weights[name]) for name in graph.initially_zero if name in weights}
    if any(name not in weights or value.shape != weights[name].shape for name, value in start.items()):
        raise BadFile(f"{START} holds other tensors than {WEIGHTS}.")
    net = build(
        program,
        encoder,
        head,
        [data.origin for data in graph.steps],
        hosts,
        graph.untranslated,
        exact_modules=exact_modules,
        softening=graph.softening,
        initial_weights=start,
        strategy_choices=graph.choices,
        fidelity=graph.fidelity,
        simplification=graph.simplification,
        hardened=graph.hardened,
        hardening=graph.hardening,
        history=graph.history,
        profile=read_profile(graph.profile, counts),
    )
    _try_net(net, graph.native)
    return net


def _checked(model: type[Data], text: str | bytes, name: str) -> Data:
    """Take a JSON text as a model; ``BadFile`` with the first places where it does not fit."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        places = [f"{'.'.join(map(str, one['loc'])) or 'top'}: {one['msg']}" for one in error.errors()[:3]]
        raise BadFile(f"the JSON of {name} is not what windtunnel writes ({'; '.join(places)}).") from error


def _under(group: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a group, by their names without it."""
    prefix = f"{group}."
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _exact(net: TranslatedPipeline, position: int) -> ProgramStep:
    """A soft step with the module that computes what the source computes there."""
    step: Any = net.program.steps[position]
    return step.with_module(net.exact_modules[position])  # type: ignore[no-any-return]


def _read_exact(
    program: Program, encoder: RowEncoder, head: Head, graph: GraphData, tensors: Mapping[str, Tensor]
) -> dict[int, Module]:
    steps = {name: _step(f"{name}.", int(name), data, tensors) for name, data in graph.exact.items()}
    _check_weights(nn.ModuleDict(steps), tensors, EXACT)
    for name, data in graph.exact.items():
        soft = graph.steps[int(name)] if int(name) < len(graph.steps) else None
        if soft is None or (soft.takes, soft.rejects) != (data.takes, data.rejects):
            raise BadFile(f"the graph has an exact form of step {name}, which is not there or takes other columns.")
    exact = {int(name): step.module for name, step in steps.items()}
    _try_out(program.with_modules(exact), encoder, head, graph)
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
        origin=origin,
        module=name,
        facts=module.facts(),
        takes=[TakeData(slot=take.slot, columns=take.columns.tolist()) for take in step.takes],
        rejects=list(step.rejects),
    )


def _step(place: str, position: int, data: StepData, weights: Mapping[str, Tensor]) -> ProgramStep:
    where = f"step {data.name!r}"
    if not data.takes:
        raise BadFile(f"{where} takes no columns.")
    for take in data.takes:
        if take.slot > position + 1:
            raise BadFile(f"{where} takes from slot {take.slot}, which is not before it.")
    module = _module(_class(data.module), data, _under(f"{place}module", weights), where)
    return ProgramStep(module, [Take(take.slot, take.columns) for take in data.takes], data.name, data.rejects)


def _class(name: str) -> type[Module]:
    if name not in MODULES:
        import_all()
    if name not in MODULES:
        close = get_close_matches(name, MODULES, n=1)
        nearest = f"; the nearest is {close[0]!r}" if close else ""
        raise BadFile(
            f"unknown module {name!r}{nearest}. Import the file that defines a custom module before loading; otherwise "
            f"the file needs a newer windtunnel. This one has {', '.join(sorted(MODULES))}."
        )
    return MODULES[name]


def _module(cls: type[Module], data: StepData, tensors: Mapping[str, Tensor], where: str) -> Module:
    hints = get_type_hints(cls.__init__)
    parameters = inspect.signature(cls.__init__).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    accepted = {parameter.name: parameter for parameter in parameters if parameter.kind not in variadic}
    wanted = set(accepted) - {"self"}
    optional = {name for name in wanted if accepted[name].default is not inspect.Parameter.empty}
    if set(data.facts) != set(cls.FACTS) or not wanted - optional <= set(tensors) | set(cls.FACTS) <= wanted:
        raise BadFile(
            f"{where}: {cls.__name__} takes {sorted(wanted)}; "
            f"the file has the facts {sorted(data.facts)} and the tensors {sorted(tensors)}."
        )
    try:
        for name, value in data.facts.items():
            TypeAdapter(hints[name], config=STRICT).validate_python(value)
        return cls.rebuild(tensors, data.facts)
    except ValidationError as error:
        raise BadFile(f"{where}: facts of {cls.__name__} of the wrong type ({error.errors()[0]['msg']}).") from error
    except Exception as error:  # a constructor may raise anything for tensors and facts that do not fit together
        raise BadFile(f"{where}: no {cls.__name__} can be made of its tensors and facts ({error}).") from error


def _check_weights(program: nn.Module, weights: Mapping[str, Tensor], group: str) -> None:
    rebuilt = program.state_dict()
    # An optional tensor that the file does not have is empty.
    missing = {name for name in set(rebuilt) - set(weights) if rebuilt[name].numel()}
    if different := sorted(set(weights) - set(rebuilt) | missing):
        raise BadFile(f"{group} and the steps differ in {different[:5]}.")
    for name, value in weights.items():
        if rebuilt[name].shape != value.shape or rebuilt[name].dtype != value.dtype:
            raise BadFile(
                f"{group}: {name} is {value.dtype} {list(value.shape)}, "
                f"its module takes {rebuilt[name].dtype} {list(rebuilt[name].shape)}."
            )


def _restore_flags(program: Program, trainable: list[str]) -> None:
    parameters = dict(program.named_parameters())
    wrong = [name for name in trainable if name not in parameters or not parameters[name].is_floating_point()]
    if wrong:
        raise BadFile(f"the graph calls {wrong[:5]} trainable; no such parameters.")
    for name, parameter in parameters.items():
        parameter.requires_grad_(name in trainable)


def _try_out(program: Program, encoder: RowEncoder, head: Head, graph: GraphData) -> None:
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


def _try_net(net: TranslatedPipeline, native: bool) -> None:
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


def _try_step(step: Any, data: StepData, values: list[Tensor]) -> Tensor:
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
    except Exception as error:  # a forged file may have options of any name and type
        raise BadFile(f"the link {head.link!r} does not take {head.link_options} ({error}).") from error


def _named(group: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{group}.{name}": value for name, value in tensors.items()}


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().numpy().tobytes()

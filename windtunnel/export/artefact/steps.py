"""The steps of a program as data and tensors, and back: modules are built by their names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from typing import get_type_hints

from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from windtunnel.errors import BadFile, UnfaithfulOption
from windtunnel.export.artefact.layout import STRICT, StepData, TakeData
from windtunnel.modules import import_all
from windtunnel.modules.base import MODULES, Module
from windtunnel.program.program import ProgramStep, Take
from windtunnel.program.records.origin import Origin


def step_data(step: ProgramStep, origin: Origin) -> StepData:
    """Data of a step but its tensors; ``UnfaithfulOption`` for a module that is not in the table of modules."""
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
        rejects=list(step.rejects),  # type: ignore[arg-type]  # pydantic checks them
    )


def read_step(place: str, position: int, data: StepData, weights: Mapping[str, Tensor]) -> ProgramStep:
    """Build the step at a position from its data and the tensors under ``place``; ``BadFile`` where they do not fit."""
    where = f"step {data.name!r}"
    if not data.takes:
        raise BadFile(f"{where} takes no columns.")
    for take in data.takes:
        if take.slot > position + 1:
            raise BadFile(f"{where} takes from slot {take.slot}, which is not before it.")
    module = _module(_class(data.module), data, under(f"{place}module", weights), where)
    return ProgramStep(module, [Take(take.slot, take.columns) for take in data.takes], data.name, data.rejects)


def under(group: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a group, by their names without it."""
    prefix = f"{group}."
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


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


def check_tensors(program: nn.Module, weights: Mapping[str, Tensor], group: str) -> None:
    """Check that the tensors of a group are those of the rebuilt steps."""
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

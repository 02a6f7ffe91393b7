"""Methods of a source whose own steps read raw scores; they follow the scores, which a residual model changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.outputs.label_rules import ProbabilityThreshold
from windtunnel.modules.outputs.links import PROBABILITIES
from windtunnel.modules.tables.category_table import Identity
from windtunnel.program.head import Head
from windtunnel.program.program import Program, ProgramStep, Take, last_slot

METHODS = ("decision_function", "predict", "predict_log_proba")
"""The methods that may follow. ``predict_proba`` never does: a lower loss of the scores need not improve what its step
computes."""


@dataclass(frozen=True)
class ScoreRule:
    """The step of a method as a function of raw scores."""

    module: Module
    columns: list[int]  # the columns of the scores that it reads

    def __call__(self, scores: Tensor) -> Tensor:
        """Raw scores ``[B, K]`` -> the output of the method."""
        output: Tensor = self.module(scores[:, self.columns].cpu())
        return output.to(scores.device)


def score_rules(program: Program, head: Head) -> dict[str, ScoreRule]:
    """The steps of the methods that follow the scores which a residual model is added to.

    Where the program outputs probabilities, these scores are their logarithms.
    """
    modules = {method: program.method_steps[method].module for method in score_methods(program)}
    if head.link in PROBABILITIES:
        modules = on_log_probabilities(modules)
    columns = score_methods(program)
    return {method: ScoreRule(module, columns[method]) for method, module in modules.items()}


def on_log_probabilities(modules: Mapping[str, Module]) -> dict[str, Module]:
    """The modules of methods that read probabilities, for their logarithms instead; without those that cannot."""
    return {
        method: ProbabilityThreshold(module.bound, "softmax", positive=module.positive)
        for method, module in modules.items()
        if isinstance(module, ProbabilityThreshold)
    }


def score_methods(program: Program) -> dict[str, list[int]]:
    """The methods whose steps read nothing but raw scores, each with the columns of the scores that it reads."""
    last = program.steps[-1]
    columns = {place: column for column, place in enumerate(last.places())} if isinstance(last.module, Identity) else {}
    found = {}
    for method, step in program.method_steps.items():
        read = [column if slot == last_slot(program) else columns.get((slot, column)) for slot, column in step.places()]
        if method in METHODS and None not in read:
            found[method] = [column for column in read if column is not None]
    return found


def append(program: Program, step: ProgramStep) -> None:
    """Append a step, whose output becomes the raw scores."""
    following = score_methods(program)
    program.steps.append(step)
    program.method_steps.update(_moved(program, following, last_slot(program)))


def steps_before(program: Program, position: int) -> Program:
    """The program without the steps from a position on; the output of its last step becomes the raw scores."""
    shorter = Program(list(program.steps)[:position])
    moved = _moved(program, score_methods(program), last_slot(shorter))
    shorter.method_steps.update({**program.method_steps, **moved})
    return shorter


def _moved(program: Program, methods: dict[str, list[int]], slot: int) -> dict[str, ProgramStep]:
    """The steps of these methods, reading these columns of a slot."""
    steps = {method: program.method_steps[method] for method in methods}
    return {
        method: ProgramStep(step.module, [Take(slot, methods[method])], step.name, step.rejects)
        for method, step in steps.items()
    }

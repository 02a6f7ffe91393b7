"""Methods whose own step reads nothing but raw scores, so that a residual model changes their outputs too."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace

from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.ensembles.log_pool import LEAST_PROBABILITY
from windtunnel.modules.outputs.label_rules import ProbabilityThreshold
from windtunnel.modules.outputs.links import PROBABILITIES
from windtunnel.modules.tables.category_table import Identity
from windtunnel.program.head import Head
from windtunnel.program.program import Program, ProgramStep, Take, last_slot

METHODS = ("decision_function", "predict", "predict_log_proba")
"""The methods that may follow the scores. ``predict_proba`` is left out: its step may get worse while the loss of the
scores falls."""


@dataclass(frozen=True)
class ScoreRule:
    """The step of a method as a function of raw scores."""

    module: Module
    columns: list[int]  # the columns of the scores that it reads

    def __call__(self, scores: Tensor) -> Tensor:
        """Raw scores ``[B, K]`` -> the output of the method."""
        output: Tensor = self.module(scores[:, self.columns].cpu())
        return output.to(scores.device)


def score_rules(program: Program) -> dict[str, ScoreRule]:
    """The step of each method in ``score_methods`` as a function of what the program outputs; copies on the CPU."""
    return {
        method: ScoreRule(deepcopy(program.method_steps[method].module).cpu(), columns)
        for method, columns in score_methods(program).items()
    }


def residual_rules(program: Program, head: Head) -> dict[str, ScoreRule]:
    """The step of each method in ``residual_methods`` as a function of the scores that a residual model is added to."""
    rules, methods = score_rules(program), residual_methods(program, head)
    if head.link not in PROBABILITIES:
        return rules
    return {method: replace(rules[method], module=on_log_probabilities(rules[method].module)) for method in methods}


def on_log_probabilities(threshold: Module) -> Module:
    """The same threshold for the logarithms of the probabilities that it reads.

    The votes of a forest are often equal to the bound. The bound is a little lower here, as logarithms round and have a
    floor (``log_probabilities``).
    """
    assert isinstance(threshold, ProbabilityThreshold)
    bound = threshold.bound.clamp(max=1 / (1 + LEAST_PROBABILITY)) * (1 - 1e-12)
    return ProbabilityThreshold(bound, "softmax", positive=threshold.positive)


def residual_methods(program: Program, head: Head) -> list[str]:
    """The methods whose steps can read the scores with those of a residual model.

    Where the program outputs probabilities, a residual model is added to their logarithms, of which only thresholds on
    probabilities have a form.
    """
    modules = {method: program.method_steps[method].module for method in score_methods(program)}
    only_thresholds = head.link in PROBABILITIES
    return [name for name, each in modules.items() if not only_thresholds or isinstance(each, ProbabilityThreshold)]


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

"""Methods whose own step reads nothing but raw scores, so that a residual model changes their outputs too."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.tables.category_table import Identity
from windtunnel.program.program import Program, ProgramStep, Take, last_slot, slot_of

METHODS_OF_SCORES = ("decision_function", "predict", "predict_log_proba")
"""The methods that may follow the scores. ``predict_proba`` is left out: training lowers the loss of the scores, and
its step may get worse."""


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


def score_methods(program: Program) -> dict[str, list[int]]:
    """The methods whose steps read nothing but raw scores, each with the columns of the scores that it reads."""
    copied, found = _copied_scores(program), {}
    for method, step in program.method_steps.items():
        read = [column if slot == last_slot(program) else copied.get((slot, column)) for slot, column in step.places()]
        if method in METHODS_OF_SCORES and None not in read:
            found[method] = [column for column in read if column is not None]
    return found


def _copied_scores(program: Program) -> dict[tuple[int, int], int]:
    """The column of the scores at each place that identities copy to the end."""
    copied: dict[tuple[int, int], int] = {}
    for slot, step in reversed([*enumerate(program.steps, start=slot_of(0))]):
        if not isinstance(step.module, Identity):
            continue
        for position, place in enumerate(step.places()):
            column = position if slot == last_slot(program) else copied.get((slot, position))
            if column is not None:
                copied[place] = column
    return copied


def append(program: Program, step: ProgramStep) -> None:
    """Append a step, whose output becomes the raw scores."""
    following = score_methods(program)
    program.steps.append(step)
    program.method_steps.update(_moved(program, following, last_slot(program)))


def program_before(program: Program, position: int) -> Program:
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

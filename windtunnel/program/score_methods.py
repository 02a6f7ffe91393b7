"""Methods of a source whose own steps read raw scores; they follow the scores, which a residual model changes."""

from __future__ import annotations

from windtunnel.modules.base import Module
from windtunnel.modules.outputs.label_rules import LabelIndex, LabelIndexColumn, LabelThreshold
from windtunnel.modules.tables.category_table import Identity
from windtunnel.program.program import Program, ProgramStep, Take, last_slot

METHODS = ("decision_function", "predict", "predict_log_proba")
"""The methods that may follow. ``predict`` follows only if it returns the label of the greatest score, which metrics
take in the training of a residual model. ``predict_proba`` never follows: a lower loss of the scores need not improve
what its step computes."""


def score_methods(program: Program) -> dict[str, list[int]]:
    """The methods whose steps read nothing but raw scores, each with the columns of the scores that it reads."""
    last = program.steps[-1]
    columns = {place: column for column, place in enumerate(last.places())} if isinstance(last.module, Identity) else {}
    found = {}
    for method, step in program.method_steps.items():
        read = [column if slot == last_slot(program) else columns.get((slot, column)) for slot, column in step.places()]
        takes_greatest = method != "predict" or _is_greatest(step.module)
        if method in METHODS and None not in read and takes_greatest:
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


def _is_greatest(rule: Module) -> bool:
    """Whether a rule gives the label of the greatest score, of two labels that of a score from 0 on."""
    if isinstance(rule, LabelThreshold):
        return float(rule.bound) == 0 and rule.positive == 1 and rule.sign == 1
    return isinstance(rule, LabelIndex | LabelIndexColumn)


def _moved(program: Program, methods: dict[str, list[int]], slot: int) -> dict[str, ProgramStep]:
    """The steps of these methods, reading these columns of a slot."""
    steps = {method: program.method_steps[method] for method in methods}
    return {
        method: ProgramStep(step.module, [Take(slot, methods[method])], step.name, step.rejects)
        for method, step in steps.items()
    }

"""The program whose raw scores a residual model is added to, so that every output follows from the sum."""

from __future__ import annotations

from dataclasses import dataclass, replace

from windtunnel.modules.ensembles.log_pool import LEAST_PROBABILITY, LogProbabilities
from windtunnel.modules.outputs.class_outputs import ScoreDifference
from windtunnel.modules.outputs.label_rules import LabelThreshold, ProbabilityThreshold
from windtunnel.modules.outputs.links import PROBABILITIES
from windtunnel.program.head import Head
from windtunnel.program.program import Program, ProgramStep, Take, last_slot
from windtunnel.program.score_methods import METHODS_OF_SCORES, append, score_methods

STEP_NAME = "residual"
"""The name of the program steps that the source does not have."""
METHODS_OF_THE_SUM = {*METHODS_OF_SCORES, "predict_proba"}
"""The methods whose outputs have to follow from the sum."""


@dataclass(frozen=True)
class ResidualBase:
    """A program without a residual model, and its head."""

    program: Program
    head: Head

    @classmethod
    def of(cls, program: Program, head: Head) -> ResidualBase | None:
        """The program itself if all outputs follow from its raw scores; else one that ends in log-probabilities.

        The raw scores of the latter are log max(p, 1e-7) of the probabilities p of the source; their softmax is p
        again, but for that floor, where p adds up to 1. It predicts the most probable label, or that of a threshold on
        p. Its decision between two classes is the log-odds. Returns None for a source with ``score_samples``, without
        probabilities, for several targets, and if ``predict`` compares anything but p with a threshold.
        """
        if "score_samples" in program.method_steps or head.has_several_targets:
            return None
        with_steps = METHODS_OF_THE_SUM & {*program.method_steps}
        if head.link not in PROBABILITIES and with_steps <= score_methods(program).keys():
            return cls(program, head)
        has_probabilities = head.link in PROBABILITIES or "predict_proba" in with_steps
        if head.classes is None or not has_probabilities or not _labels_follow_probabilities(program):
            return None
        return _on_log_probabilities(program, head, len(head.classes))


def _labels_follow_probabilities(program: Program) -> bool:
    """Whether labels are the most probable ones, or those of a threshold on the probabilities that a program ends in.

    A threshold of 0 on a decision, as support vectors have, stands for the most probable label.
    """
    if "predict" not in program.method_steps:
        return True
    rule, of_scores = program.method_steps["predict"].module, "predict" in score_methods(program)
    if isinstance(rule, ProbabilityThreshold):
        return of_scores and "predict_proba" not in program.method_steps
    return not isinstance(rule, LabelThreshold) or (of_scores and float(rule.bound) == 0)


def _on_log_probabilities(program: Program, head: Head, classes: int) -> ResidualBase:
    """The program with the logarithms of its probabilities as raw scores."""
    steps, base = program.method_steps, Program(list(program.steps))
    base.method_steps.update({method: step for method, step in steps.items() if method not in METHODS_OF_THE_SUM})
    if "predict_proba" in steps:
        append(base, steps["predict_proba"])
    append(base, ProgramStep(LogProbabilities(), [Take(last_slot(base), range(classes))], STEP_NAME))
    scores = [Take(last_slot(base), range(classes))]
    if "predict" in steps and isinstance(steps["predict"].module, ProbabilityThreshold):
        threshold = _on_logarithms(steps["predict"].module)
        base.method_steps["predict"] = ProgramStep(threshold, scores, steps["predict"].name)
    if "decision_function" in head.methods and classes == 2:
        base.method_steps["decision_function"] = ProgramStep(ScoreDifference(), scores, STEP_NAME)
    of_scores = replace(head, link="softmax", loss="softmax", link_options={}, loss_options={}, decision_scale=1.0)
    return ResidualBase(base, of_scores)


def _on_logarithms(threshold: ProbabilityThreshold) -> ProbabilityThreshold:
    """The same threshold for the logarithms of the probabilities that it reads.

    The votes of a forest are often equal to the bound. The bound is a little lower here, as logarithms round and have a
    floor (``log_probabilities``).
    """
    bound = threshold.bound.clamp(max=1 / (1 + LEAST_PROBABILITY)) * (1 - 1e-12)
    return ProbabilityThreshold(bound, "softmax", positive=threshold.positive)

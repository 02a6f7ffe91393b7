"""The output head natively: links, and the position of the predicted label."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windtunnel.compiler.native.image import ImageWriter
from windtunnel.compiler.native.lowering.traced import UNARY
from windtunnel.program.head import Head


def finish(image: ImageWriter, head: Head, method: str, scores: Sequence[int]) -> list[int]:
    """Add the steps from raw scores to the output of a method; gives its columns.

    Labels are given by their positions: a column per target.
    """
    scores = list(scores)
    if method == "decision_function":
        return scores if head.decision_scale == 1 else image.step("scaled", scores, len(scores), head.decision_scale)
    if method == "predict" and head.classes is not None:
        return [position for target in _targets(head, scores) for position in image.step("position", target, 1)]
    if method in ("predict", "predict_proba"):
        return _LINKED[head.link](image, scores, *map(float, head.link_options.values()))
    return scores


def _targets(head: Head, scores: list[int]) -> list[list[int]]:
    """The scores of each target; none of a target with one class."""
    if not head.has_several_targets:
        return [scores if len(head.labels_in_order) > 1 else []]
    parts, start = [], 0
    for labels in head.labels_of_targets:
        parts.append(scores[start : (start := start + len(labels))])
    # A target of a list has a score per class, whose greatest counts also where there is only one.
    return [part if len(part) > 1 else [] for part in parts]


def _each(operation: str) -> Callable[..., list[int]]:
    return lambda image, scores, *options: image.step(operation, scores, len(scores), *options)


def _logistic(image: ImageWriter, scores: list[int], scale: float = 1.0) -> list[int]:
    return image.step("scaled_logistic", scores, len(scores), scale)


def _sigmoid(image: ImageWriter, scores: list[int], scale: float = 1.0) -> list[int]:
    return image.step("two_classes", _logistic(image, scores, scale), 2)


def _one_vs_rest(image: ImageWriter, scores: list[int]) -> list[int]:
    return _each("shares")(image, _logistic(image, scores))


def _modified_huber(image: ImageWriter, scores: list[int]) -> list[int]:
    halves = image.step("clipped_half", scores, len(scores))
    return image.step("two_classes", halves, 2) if len(scores) == 1 else _each("shares")(image, halves)


_LINKED: dict[str, Callable[..., list[int]]] = {
    "identity": lambda image, scores: scores,
    "probabilities": lambda image, scores: scores,
    "shares": _each("shares"),
    "sigmoid": _sigmoid,
    "softmax": _each("softmax"),
    "one_vs_rest": _one_vs_rest,
    "modified_huber": _modified_huber,
    "exp": _each("exponential"),
    "expm1": lambda image, scores: image.step("unary", scores, len(scores), UNARY.index("expm1")),
    "logistic": _logistic,
    "sigmoids": _logistic,
    "log1p_exp": _each("log1p_exp"),
    "signed_square": _each("signed_square"),
}
"""The steps of each link in ``windtunnel.modules.outputs.links.LINKS``."""

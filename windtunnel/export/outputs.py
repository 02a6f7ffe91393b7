"""The outputs of a file besides the raw scores."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import torch
from torch import Tensor, nn

from windtunnel.modules.outputs.label_rules import LabelIndex
from windtunnel.modules.outputs.method_outputs import LinkOutput
from windtunnel.program.head import Head
from windtunnel.program.program import Program


def output_modules(program: Program, head: Head) -> dict[str, nn.Module]:
    """The modules of ``predict_proba`` and ``predict``, as far as there are such methods.

    Each is a function of the raw scores or, where the method has a step of its own, this ``ProgramStep``.
    """
    if head.task == "transform" or "predict" not in head.methods:
        return {}
    modules: dict[str, nn.Module] = {}
    if "predict_proba" in head.methods:
        modules["predict_proba"] = LinkInDouble(head, flat=False)
    modules["predict"] = LinkInDouble(head, head.flat) if head.classes is None else _label_position(head)
    return {name: program.method_steps[name] if name in program.method_steps else modules[name] for name in modules}


def _label_position(head: Head) -> nn.Module:
    if head.has_several_targets:
        return TargetPositions([len(labels) for labels in head.labels_of_targets])
    return LabelIndex() if len(head.labels_in_order) > 1 else SinglePosition()


class LinkInDouble(nn.Module):
    """The link of the raw scores, computed in float64 as the methods of a translation do."""

    def __init__(self, head: Head, flat: bool) -> None:
        super().__init__()
        self.link, self.flat = LinkOutput(head.link, **head.link_options), flat

    def forward(self, scores: Tensor) -> Tensor:
        """``[B, K]`` -> float64 ``[B, classes]`` or ``[B, K]``; ``[B]`` of a single value that is ``flat``."""
        values: Tensor = self.link(scores.to(torch.float64))
        return values[:, 0] if self.flat and values.shape[1] == 1 else values


class TargetPositions(nn.Module):
    """The position of the label of each of several targets, whose scores are concatenated."""

    def __init__(self, counts: list[int]) -> None:
        super().__init__()
        self.counts = counts

    def forward(self, scores: Tensor) -> Tensor:
        """``[B, K]`` -> int64 ``[B, targets]``."""
        parts = torch.split(scores, self.counts, dim=1)
        return torch.stack([part.argmax(dim=1) for part in parts], dim=1)


class SinglePosition(nn.Module):
    """The position of the label if there is only one label."""

    def forward(self, scores: Tensor) -> Tensor:
        """``[B, K]`` -> int64 ``[B]``."""
        return torch.zeros_like(scores[:, 0], dtype=torch.int64)

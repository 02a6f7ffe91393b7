from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from windtunnel.trainers.evidence import GROUPS, clear, evenly, gains


def loss(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    return binary_cross_entropy_with_logits(scores[:, 0], target, weight)


def judged(count: int = 4000) -> tuple[Tensor, Tensor, Tensor]:
    """Scores that are too large by half, the same scores cut to size, and labels."""
    draws = torch.Generator().manual_seed(0)
    scores = torch.randn(count, 1, generator=draws, dtype=torch.float64)
    target = torch.rand(count, generator=draws, dtype=torch.float64) < torch.sigmoid(scores[:, 0])
    return 1.5 * scores, scores, target.double()


@pytest.mark.parametrize("kinds", [2, 3, 7])
def test_every_stretch_has_the_classes_of_the_whole(kinds: int) -> None:
    target = (torch.arange(1000) * 31 % 997 % kinds).sort().values
    order = evenly(target)
    assert order.sort().values.tolist() == list(range(1000))
    share = target.bincount() / 1000
    for part in target[order].tensor_split(20):
        assert (part.bincount(minlength=kinds) - share * len(part)).abs().max() <= 1
    for kind in range(kinds):
        of_kind = order[target[order] == kind]
        assert of_kind.tolist() == sorted(of_kind.tolist())


def test_numbers_come_evenly_too_and_rows_in_the_order_of_time_stay() -> None:
    order = evenly(torch.arange(5000.0))
    means = torch.stack([part.double().mean() for part in order.tensor_split(GROUPS)])
    assert means.std() < torch.arange(5000.0).std() / 8
    alternating = torch.arange(1000) % 2
    assert evenly(alternating).tolist() == list(range(1000))


def test_a_file_sorted_by_its_answer_is_as_sure_as_any_order() -> None:
    before, after, target = judged()
    by_label = target.argsort(stable=True)
    found = {
        name: gains(loss, before[order], after[order], target[order])
        for name, order in {"any": torch.arange(len(target)), "by label": by_label}.items()
    }
    assert clear(found["any"]) and clear(found["by label"])
    assert found["by label"].std() < 1.3 * found["any"].std()


def test_gains_that_come_and_go_with_the_days_are_unsure() -> None:
    before, after, target = judged()
    days = torch.arange(len(target)) // 400  # ten; scores get better on six and worse on four
    mixed = torch.where((days % 5 < 3).unsqueeze(1), after, 2 * before - after)
    shuffled = torch.randperm(len(target), generator=torch.Generator().manual_seed(1))
    apart = gains(loss, before, mixed, target).std()
    assert apart > 1.2 * gains(loss, before[shuffled], mixed[shuffled], target[shuffled]).std()

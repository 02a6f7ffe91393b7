from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from windtunnel.objectives.losses import LOSSES
from windtunnel.objectives.metrics import Metric
from windtunnel.program.head import Head
from windtunnel.trainers.residual.significance import GROUPS, Groups, counted, evenly, gains, metric


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
    assert found["any"].clear() and found["by label"].clear()
    assert found["by label"].error < 1.3 * found["any"].error


def test_gains_that_come_and_go_with_the_days_are_unsure() -> None:
    before, after, target = judged()
    days = torch.arange(len(target)) // 400  # ten; scores get better on six and worse on four
    mixed = torch.where((days % 5 < 3).unsqueeze(1), after, 2 * before - after)
    shuffled = torch.randperm(len(target), generator=torch.Generator().manual_seed(1))
    apart = gains(loss, before, mixed, target).error
    assert apart > 1.2 * gains(loss, before[shuffled], mixed[shuffled], target[shuffled]).error


def test_groups_of_equal_weight_have_the_usual_standard_error() -> None:
    each = torch.randn(60, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for weight in (1.0, 7.0):
        groups = Groups(each, torch.full_like(each, weight))
        assert groups.mean == pytest.approx(each.mean())
        assert groups.error == pytest.approx(each.std() / 60**0.5)


def test_the_standard_error_counts_weights() -> None:
    """Beside that of leaving out one group after the other (the jackknife)."""
    draws = torch.Generator().manual_seed(3)
    each = torch.randn(GROUPS, generator=draws, dtype=torch.float64)
    weight = torch.rand(GROUPS, generator=draws, dtype=torch.float64) ** 3 + 0.01
    groups = Groups(each, weight)
    left = torch.tensor([Groups(each[one], weight[one]).mean for one in ~torch.eye(GROUPS, dtype=torch.bool)])
    jackknife = float(((left - left.mean()).square().sum() * (GROUPS - 1) / GROUPS).sqrt())
    assert groups.error == pytest.approx(jackknife, rel=0.05)
    assert groups.error > 1.2 * Groups(each, torch.ones_like(weight)).error
    assert Groups(each, 1000 * weight).error == pytest.approx(groups.error)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_groups_where_the_loss_is_undefined_do_not_count(count: int) -> None:
    """One group says nothing against a gain, and none says nothing at all."""
    each = torch.full((5,), torch.nan)
    each[:count] = 0.1 + 0.01 * torch.arange(count)
    assert Groups(each, torch.ones(5)).clear() is (count > 0)


def test_rows_of_weight_0_are_as_if_they_were_not_there() -> None:
    before, after, target = judged()
    weight = torch.rand(len(target), generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    weight[::3] = 0
    target[::3], there = 1 - target[::3], weight > 0
    found = gains(loss, before, after, target, weight)
    wanted = gains(loss, before[there], after[there], target[there], weight[there])
    assert torch.equal(found.loss, wanted.loss) and torch.equal(found.weight, wanted.weight)
    order = counted((None, target, weight), torch.Generator().manual_seed(0))
    assert order.sort().values.tolist() == there.nonzero()[:, 0].tolist() and order.tolist() != sorted(order.tolist())


def test_the_mean_loss_over_batches_counts_weights() -> None:
    before, _, target = judged(300)
    weight = torch.rand(300, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    batches = [((before[part],), target[part], weight[part]) for part in (slice(0, 10), slice(10, None))]
    judge = Metric("loss", Head("binary", "sigmoid", "logistic"))
    wanted = float(LOSSES["logistic"](before, target, weight))
    assert metric(judge, LOSSES["logistic"], lambda scores: scores, batches) == pytest.approx(wanted, rel=1e-12)

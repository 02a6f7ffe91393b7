from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from windtunnel.encode import Batch
from windtunnel.objectives.losses import LOSSES
from windtunnel.objectives.metrics import Metric
from windtunnel.objectives.row_blocks import balanced_order
from windtunnel.program.head import Head
from windtunnel.trainers.data.labelled_rows import LabelledRows, Targets
from windtunnel.trainers.loop.evaluation import Evaluator
from windtunnel.trainers.significance.group_losses import GROUPS, GroupLosses, group_losses
from windtunnel.trainers.significance.significance_test import compare_losses, compare_losses_and_metrics
from windtunnel.trainers.significance.validation_halves import ValidationHalves, split_in_halves

AUROC = Metric("auroc", Head("binary", "sigmoid", "logistic"))


def loss(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    return binary_cross_entropy_with_logits(scores[:, 0], target, weight)


EVALUATOR = Evaluator(AUROC, loss)


def scores_and_labels(count: int = 4000) -> tuple[Tensor, Tensor, Tensor]:
    """Scores that are too large by half, the same scores cut to size, and labels."""
    draws = torch.Generator().manual_seed(0)
    scores = torch.randn(count, 1, generator=draws, dtype=torch.float64)
    target = torch.rand(count, generator=draws, dtype=torch.float64) < torch.sigmoid(scores[:, 0])
    return 1.5 * scores, scores, target.double()


def hashed(scores: Tensor, target: Tensor) -> ValidationHalves:
    """Halves of rows whose only number is a score."""
    rows = Batch(scores, torch.zeros(len(target), 0, dtype=torch.int64))
    return split_in_halves(LabelledRows(rows, Targets(target)), 0)


def standard_error(before: Tensor, after: Tensor, target: Tensor) -> float:
    return compare_losses(loss, hashed(before, target).shuffled, before, after, Targets(target)).standard_error


@pytest.mark.parametrize("kinds", [2, 3, 7])
def test_every_stretch_has_the_classes_of_the_whole(kinds: int) -> None:
    target = (torch.arange(1000) * 31 % 997 % kinds).sort().values
    order = balanced_order(target)
    assert order.sort().values.tolist() == list(range(1000))
    share = target.bincount() / 1000
    for part in target[order].tensor_split(20):
        assert (part.bincount(minlength=kinds) - share * len(part)).abs().max() <= 1
    for kind in range(kinds):
        of_kind = order[target[order] == kind]
        assert of_kind.tolist() == sorted(of_kind.tolist())


def test_numbers_come_evenly_too_and_rows_in_the_order_of_time_stay() -> None:
    order = balanced_order(torch.arange(5000.0))
    means = torch.stack([part.double().mean() for part in order.tensor_split(GROUPS)])
    assert means.std() < torch.arange(5000.0).std() / 8
    alternating = torch.arange(1000) % 2
    assert balanced_order(alternating).tolist() == list(range(1000))


def test_a_file_sorted_by_its_target_has_the_standard_error_of_any_order() -> None:
    before, after, target = scores_and_labels()
    by_label = target.argsort(stable=True)
    tests = {
        name: compare_losses(
            loss, hashed(before[order], target[order]).shuffled, before[order], after[order], Targets(target[order])
        )
        for name, order in {"any": torch.arange(len(target)), "by label": by_label}.items()
    }
    assert tests["any"].significant and tests["by label"].significant
    assert tests["by label"].standard_error < 1.3 * tests["any"].standard_error


def test_the_order_of_uncorrelated_rows_does_not_matter() -> None:
    before, after, target = scores_and_labels()
    orders = [torch.randperm(len(target), generator=torch.Generator().manual_seed(seed)) for seed in range(5)]
    errors = [standard_error(before[o], after[o], target[o]) for o in orders]
    assert errors == pytest.approx([errors[0]] * 5, rel=1e-9)


def test_the_order_of_rows_does_not_matter_to_the_metric() -> None:
    _, right, target = scores_and_labels()
    before, after = 4 * right, right + 0.5 * torch.randn(right.shape, generator=torch.Generator().manual_seed(1))
    orders = [torch.randperm(len(target), generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    reasons = {
        compare_losses_and_metrics(
            EVALUATOR, hashed(right[o], target[o]), before[o], after[o], Targets(target[o])
        ).reason
        for o in orders
    }
    assert len(reasons) == 1 and "auroc changes by -" in reasons.pop()


def test_rounding_of_scores_does_not_matter() -> None:
    before, after, target = scores_and_labels()
    shuffled = hashed(before, target).shuffled
    errors = [
        compare_losses(loss, shuffled, before + by, after + by, Targets(target)).standard_error for by in (0, 1e-8)
    ]
    assert errors[1] == pytest.approx(errors[0], rel=1e-5)


def test_the_standard_error_includes_correlation_over_time() -> None:
    before, after, target = scores_and_labels()
    days = torch.arange(len(target)) // 400  # ten; scores get better on six and worse on four
    mixed = torch.where((days % 5 < 3).unsqueeze(1), after, 2 * before - after)
    shuffled = torch.randperm(len(target), generator=torch.Generator().manual_seed(1))
    in_order = standard_error(before, mixed, target)
    assert in_order > 1.2 * standard_error(before[shuffled], mixed[shuffled], target[shuffled])


def test_groups_of_equal_weight_have_the_usual_standard_error() -> None:
    each = torch.randn(60, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for weight in (1.0, 7.0):
        groups = GroupLosses(each, torch.full_like(each, weight))
        assert groups.mean == pytest.approx(each.mean())
        assert groups.standard_error == pytest.approx(each.std() / 60**0.5)


def test_the_standard_error_counts_weights() -> None:
    """Compare with leaving out one group after the other (the jackknife)."""
    draws = torch.Generator().manual_seed(3)
    each = torch.randn(GROUPS, generator=draws, dtype=torch.float64)
    weight = torch.rand(GROUPS, generator=draws, dtype=torch.float64) ** 3 + 0.01
    groups = GroupLosses(each, weight)
    left = torch.tensor([GroupLosses(each[one], weight[one]).mean for one in ~torch.eye(GROUPS, dtype=torch.bool)])
    jackknife = float(((left - left.mean()).square().sum() * (GROUPS - 1) / GROUPS).sqrt())
    assert groups.standard_error == pytest.approx(jackknife, rel=0.05)
    assert groups.standard_error > 1.2 * GroupLosses(each, torch.ones_like(weight)).standard_error
    assert GroupLosses(each, 1000 * weight).standard_error == pytest.approx(groups.standard_error)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_groups_where_the_loss_is_undefined_do_not_count(count: int) -> None:
    """One group has no standard error, so that any gain exceeds it; none says nothing at all."""
    each = torch.full((5,), torch.nan)
    each[:count] = 0.1 + 0.01 * torch.arange(count)
    assert GroupLosses(each, torch.ones(5)).exceeds_standard_error() is (count > 0)
    assert not GroupLosses(-each, torch.ones(5)).exceeds_standard_error()


def test_rows_of_weight_0_are_as_if_they_were_not_there() -> None:
    before, after, target = scores_and_labels()
    weight = torch.rand(len(target), generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    weight[::3] = 0
    target[::3], there = 1 - target[::3], weight > 0
    found = group_losses(loss, after, Targets(target, weight))
    wanted = group_losses(loss, after[there], Targets(target[there], weight[there]))
    assert torch.equal(found.loss, wanted.loss) and torch.equal(found.weight, wanted.weight)
    rows = Batch(after, torch.zeros(len(target), 0, dtype=torch.int64))
    split = split_in_halves(LabelledRows(rows, Targets(target, weight)), 0)
    assert torch.cat(split.halves).sort().values.tolist() == there.nonzero()[:, 0].tolist()


def test_the_halves_are_the_same_rows_in_any_order() -> None:
    _, scores, target = scores_and_labels(1001)
    scores = scores.round(decimals=1)  # many equal rows, which both halves share
    order = torch.randperm(len(target), generator=torch.Generator().manual_seed(6))

    def split(index: Tensor, seed: int) -> list[list[tuple[float, float]]]:
        rows = Batch(scores[index], torch.zeros(len(index), 0, dtype=torch.int64))
        halves = split_in_halves(LabelledRows(rows, Targets(target[index])), seed).halves
        pairs = [(scores[index][half, 0], target[index][half]) for half in halves]
        return [sorted(zip(*(part.tolist() for part in pair), strict=True)) for pair in pairs]

    first, second = split(torch.arange(len(target)), 0)
    assert [first, second] == split(order, 0) != split(order, 1)
    assert abs(len(first) - len(second)) == 1 and len({*first} & {*second}) > 20


def test_the_mean_loss_over_batches_counts_weights() -> None:
    before, _, target = scores_and_labels(300)
    weight = torch.rand(300, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    batches = [((before[part],), target[part], weight[part]) for part in (slice(0, 10), slice(10, None))]
    metric = Metric("loss", Head("binary", "sigmoid", "logistic"))
    wanted = float(LOSSES["logistic"](before, target, weight))
    assert Evaluator(metric, LOSSES["logistic"]).evaluate(lambda scores: scores, batches).metric == pytest.approx(
        wanted, rel=1e-12
    )


def test_a_metric_is_worse_if_it_changes_by_more_than_its_error() -> None:
    """Scores of the right size with a little noise are significant; with so much noise that ranks are lost, not."""
    _, right, target = scores_and_labels()
    rows = torch.arange(len(target))
    of_halves = ValidationHalves([*rows.chunk(2)], rows)
    noise = torch.randn(right.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    little, much = (
        compare_losses_and_metrics(EVALUATOR, of_halves, 4 * right, right + size * noise, Targets(target))
        for size in (0.02, 0.5)
    )
    assert little.significant
    assert not much.significant and "auroc changes by -" in much.reason


def test_scores_of_two_models_are_not_ranked_together() -> None:
    """The model of each half has an offset of its own, which no ranking within a half can see."""
    _, right, target = scores_and_labels()
    rows = torch.arange(len(target))
    of_halves = ValidationHalves([*rows.chunk(2)], rows)
    offset = torch.where(torch.arange(len(target)) < len(target) // 2, 0.6, -0.6).unsqueeze(1)
    for scores in (right, right + offset):
        assert compare_losses_and_metrics(EVALUATOR, of_halves, 4 * right, scores, Targets(target)).significant
    pooled = [EVALUATOR.evaluate_scores(scores, Targets(target)).metric for scores in (right, right + offset)]
    assert pooled[1] < pooled[0] - 0.02


def test_a_change_with_an_infinite_loss_is_worse() -> None:
    def log_loss(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        p = scores[:, 0].float().sigmoid()
        return -(target * p.log() + (1 - target) * (1 - p).log()).mean()

    target = (torch.rand(1000, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    before, after = torch.zeros(1000, 1, dtype=torch.float64), (2 * target - 1).unsqueeze(1).double()
    after[:300:5] *= -200
    test = compare_losses(log_loss, torch.arange(1000), before, after, Targets(target))
    assert not test.significant and test.worse and test.gain == -torch.inf
    reverse = compare_losses(log_loss, torch.arange(1000), after, before, Targets(target))
    assert not reverse.significant and not reverse.worse and "infinite" in reverse.reason

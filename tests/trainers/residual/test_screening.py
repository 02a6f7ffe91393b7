"""Screening of interactions: mean residuals, significance on validation rows, weights."""

from __future__ import annotations

import math
from typing import Any

import torch

from windtunnel.modules.linear.residual_model import interaction_cells
from windtunnel.trainers.data.labelled_rows import Targets
from windtunnel.trainers.residual.mean_residuals import PRIOR_ROWS, Interaction, Residuals, summand_weights
from windtunnel.trainers.residual.screening import select_interactions


def test_cells_of_residuals_are_those_that_the_residual_model_reads() -> None:
    size, rows = [40, 7, 90, 3], 50
    generator = torch.Generator().manual_seed(0)
    codes = torch.stack([torch.randint(0, each, (rows,), generator=generator) for each in size], 1)
    hashed = set()
    for columns in ((2,), (1, 3), (0, 2), (0, 1, 2, 3)):
        interaction = Interaction.of(columns, size, rows if len(columns) > 1 else 5)
        count = torch.tensor([interaction.cell_count])
        expected = interaction_cells(codes, torch.tensor(size), torch.tensor([columns]), count)[:, 0]
        assert torch.equal(interaction.cells(codes), expected)
        hashed.add(math.prod(interaction.sizes) > interaction.cell_count)
    assert hashed == {True, False}


def codes_and_residuals(seed: int, planted: Any) -> Residuals:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 6, (8000, 4), generator=generator)
    return Residuals(codes, planted(codes).unsqueeze(1) + torch.randn(8000, 1, generator=generator))


def parity(codes: torch.Tensor, *columns: int) -> torch.Tensor:
    return ((codes[:, list(columns)].sum(dim=1) % 2) * 2 - 1).float()


def test_screening_finds_a_pair_and_a_column() -> None:
    def planted(codes: torch.Tensor) -> torch.Tensor:
        return 0.3 * parity(codes, 0, 2) + 0.2 * (codes[:, 1] - 2.5)

    train, valid = (codes_and_residuals(seed, planted) for seed in (0, 1))
    selected = select_interactions(train, valid, [6] * 4, [0, 1, 2, 3])
    assert {0, 1, 2} <= set(selected.columns)
    assert {(1,), (0, 2)} <= {each.columns for each in selected.interactions}


def test_screening_extends_a_significant_pair_to_three_columns() -> None:
    def planted(codes: torch.Tensor) -> torch.Tensor:
        return (0.3 + 0.6 * (codes[:, 3] > 2)) * parity(codes, 0, 2)

    train, valid = (codes_and_residuals(seed, planted) for seed in (0, 1))
    assert (0, 2, 3) in {each.columns for each in select_interactions(train, valid, [6] * 4, [0, 1, 2, 3]).interactions}


def test_screening_rejects_what_validation_rows_contradict() -> None:
    train = codes_and_residuals(0, lambda codes: 0.5 * parity(codes, 0, 2))
    valid = codes_and_residuals(1, lambda codes: -0.5 * parity(codes, 0, 2))
    assert not select_interactions(train, valid, [6] * 4, [0, 1, 2, 3]).interactions


def test_mean_residuals_leave_the_row_itself_out() -> None:
    rows = codes_and_residuals(0, lambda codes: 0.5 * parity(codes, 0, 2))
    interaction = Interaction.of((0, 2), [6] * 4, len(rows.codes))
    fitted = interaction.mean_residuals(rows)
    for row in (0, 17, 4242):
        same = (rows.codes[:, [0, 2]] == rows.codes[row, [0, 2]]).all(dim=1)
        total = rows.values[same].sum(dim=0)
        torch.testing.assert_close(fitted.table[interaction.cells(rows.codes)[row]], total / (same.sum() + PRIOR_ROWS))
        others = (total - rows.values[row]) / (same.sum() - 1 + PRIOR_ROWS)
        torch.testing.assert_close(fitted.leave_one_out[row], others)


def test_weights_of_parts_are_those_of_least_squares_where_these_are_above_0() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = torch.randn(500, 1, 3, generator=generator)
    target = parts[:, :, :2] @ torch.tensor([2.0, 0.5]) - parts[:, :, 2] + torch.randn(500, 1, generator=generator)

    def squared(scores: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        return (scores - target).square().mean()

    weights = summand_weights(squared, torch.ones(1), torch.zeros(500, 1), parts, Targets(target))
    least = torch.linalg.lstsq(parts[:, 0, :2], target).solution[:, 0]
    torch.testing.assert_close(weights[:2], least, atol=1e-2, rtol=1e-2)
    assert 0 <= weights[2] < 1e-3

from __future__ import annotations

import torch

from windtunnel.trainers.residual.mean_residuals import PRIOR_ROWS, Interaction, Residuals, fit_in_sequence

GENERATOR = torch.Generator().manual_seed(0)
CODES = torch.randint(4, (300, 2), generator=GENERATOR)
VALUES = torch.randn(300, 1, generator=GENERATOR, dtype=torch.float64)
COUNT = torch.randint(1, 5, (300,), generator=GENERATOR)
INTERACTIONS = [Interaction.of((0,), [4, 4], 300), Interaction.of((0, 1), [4, 4], 300)]


def test_a_row_of_weight_w_is_w_rows() -> None:
    weight = COUNT.double()
    weighted = Residuals(CODES, VALUES * weight.unsqueeze(1), weight)
    repeated = Residuals(CODES.repeat_interleave(COUNT, 0), VALUES.repeat_interleave(COUNT, 0))
    first = INTERACTIONS[1].mean_residuals(weighted)
    torch.testing.assert_close(first.table, INTERACTIONS[1].mean_residuals(repeated).table)
    cell, row = INTERACTIONS[1].cells(CODES), 7
    others = (cell == cell[row]) & (torch.arange(300) != row)
    total, rows = (VALUES[others, 0] * weight[others]).sum(), weight[others].sum()
    torch.testing.assert_close(first.leave_one_out[row, 0], total / (rows + PRIOR_ROWS))


def test_equal_weights_are_none() -> None:
    plain, weighted = (
        [*fit_in_sequence(Residuals(CODES, VALUES, weight), INTERACTIONS)]
        for weight in (None, torch.ones(300, dtype=torch.float64))
    )
    for one, other in zip(plain, weighted, strict=True):
        torch.testing.assert_close(one.table, other.table)
        torch.testing.assert_close(one.leave_one_out, other.leave_one_out)

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from windtunnel.program.records.history import CandidateResult, Epoch, History

REASON = "needs more than 1 standard error. More validation rows would help"
HISTORY = History(
    [Epoch(0, None, 0.7, 0.6, 0.1, 1.0, 0), Epoch(1, 0.6, 0.69, 0.61, 0.1, 1.0, 5)],
    *("auroc", True, 0.6, 0.7, 0.6, 0, "held-out rows", 2.0),
    [
        CandidateResult("source pipeline", 0.6, 0.7, None, None, True, "best auroc"),
        CandidateResult("residual model", 0.61, 0.69, 0.037, 0.04, False, REASON, 1000, 1),
    ],
    validation_rows=1000,
)


def test_a_candidate_is_a_sentence() -> None:
    text = f"residual model: loss -0.037 ± 0.040 on 1,000 rows; {REASON}."
    assert str(HISTORY.candidates[1]) == text and text in str(HISTORY)
    assert "more validation rows" in HISTORY.notes()[-1]
    assert repr(HISTORY) == "History(auroc 0.600000 -> 0.600000 on 1,000 held-out rows in 2.0 s; kept: source pipeline)"


def test_frames_and_plot_have_every_row() -> None:
    epochs, candidates = HISTORY.to_frame(), HISTORY.to_frame("candidates")
    assert epochs["auroc"].tolist() == [0.6, 0.61] and not epochs["kept"].any()
    assert candidates["kept"].tolist() == [True, False] and candidates["rows"].tolist()[1] == 1000
    assert "residual model" in HISTORY._repr_html_()
    axes = HISTORY.plot()
    assert [label.get_text() for label in axes[2].get_yticklabels()] == ["residual model"]
    plt.close(axes[0].figure)

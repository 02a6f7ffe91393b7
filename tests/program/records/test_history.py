from __future__ import annotations

from dataclasses import replace

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from windtunnel.program.records.history import CandidateResult, Epoch, History

REASON = "needs more than 1 standard error. More validation rows would help"
NOT_TESTED = (None, None, True, "best auroc", None)
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
    assert HISTORY.notes()[-1].startswith("Next: give rows that the source has not seen")
    assert "more validation rows" in replace(HISTORY, validated_on="validation rows").notes()[-1]
    few = replace(HISTORY, validated_on="validation rows", validation_rows=60)
    assert few.notes()[-1] == "Next: give at least 100 validation rows: 60 are too few to test a change."
    assert (
        repr(HISTORY)
        == "History(auroc 0.600000 -> 0.600000 on 1,000 held-out rows in 2.0 s; kept: source pipeline (unchanged))"
    )


def test_a_candidate_names_what_it_is_tested_against_and_what_it_has() -> None:
    extending = replace(HISTORY.candidates[1], tested_against="tree-block weights", details="weights 1, 0.5")
    start = "residual model: loss -0.037 ± 0.040 against tree-block weights on 1,000 rows; weights 1, 0.5; needs"
    assert str(extending).startswith(start)
    rounded = replace(HISTORY.candidates[1], gain=3e-12, standard_error=6e-13)
    assert str(rounded).startswith("residual model: loss unchanged on 1,000 rows; ")


def test_notes_say_what_epoch_0_is_and_that_a_recipe_has_no_test() -> None:
    rule = replace(HISTORY, epoch_rule="the best auroc", stopped="early", start=0.58)
    assert [note for note in rule.notes() if note.startswith("Epoch 0 is the source pipeline, without")]
    before = replace(rule, candidates=[replace(HISTORY.candidates[0], metric=0.58), HISTORY.candidates[1]])
    assert [note for note in before.notes() if note.startswith("Epoch 0 is the residual model before its training")]
    assert "The best epoch has the best auroc. Training ended early." in rule.notes()
    kept = [replace(HISTORY.candidates[0], kept=False), CandidateResult("joint training", 0.7, 0.6, *NOT_TESTED, 1)]
    joint = replace(rule, candidates=kept, best=0.7, best_epoch=1)
    assert "The epochs are those of joint training." in joint.notes()
    assert [note for note in joint.notes() if note.startswith("What is kept was not tested")]


def test_frames_and_plot_have_every_row() -> None:
    epochs, candidates = HISTORY.to_frame(), HISTORY.to_frame("candidates")
    assert epochs["auroc"].tolist() == [0.6, 0.61] and not epochs["kept"].any()
    assert candidates["kept"].tolist() == [True, False] and candidates["rows"].tolist()[1] == 1000
    assert "residual model" in HISTORY._repr_html_()
    axes = HISTORY.plot()
    assert [label.get_text() for label in axes[2].get_yticklabels()] == ["residual model"]
    plt.close(axes[0].figure)

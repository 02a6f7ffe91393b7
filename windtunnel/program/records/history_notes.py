"""The notes of a history: how to read its numbers, and what to do next, in sentences."""

from __future__ import annotations

from windtunnel.errors import join_some
from windtunnel.program.records.fit_record import (
    AT_LIMIT,
    FEWEST_ROWS,
    HARMS_OLD_ROWS,
    HELD_OUT,
    JOINT,
    NEEDS_MORE_ROWS,
    PREFERRED,
    FitRecord,
)
from windtunnel.program.records.number_text import value_text
from windtunnel.program.records.refresh_details import LARGE_DRIFT, RefreshDetails

SEEN_ROWS = "If the source was fitted on the held-out rows too, its scores on them are too good"
LOSS_MEANINGS = {
    "logistic": "the log loss of two classes, ",
    "softmax": "the log loss of several classes, ",
    "probabilities": "the log loss of the predicted probabilities, ",
    "squared": "the mean squared error, ",
    "absolute": "the mean absolute error, ",
}
"""What a loss is, by the name that ``loss=`` takes."""
DRIFTING = 8
"""Columns that a note on drift names."""
MUCH_SHARED = 0.3
"""From this fraction of shared rows on, validation rows are said to be training rows."""


def history_notes(record: FitRecord) -> list[str]:
    """How to read the numbers, and what to do next, in sentences."""
    if record.refresh is not None:
        return _refresh_notes(record, record.refresh)
    notes = _objective_notes(record)
    notes += _epoch_notes(record)
    if len(record.candidates) > 1:
        notes.append(f"Of the candidates not rejected or replaced, the one with the best {record.metric} is kept.")
    tested = [candidate for candidate in record.candidates if candidate.gain is not None]
    if tested:
        joint = (
            " That of joint training is of the rows that selected its epoch."
            if any(candidate.name == JOINT for candidate in tested)
            else ""
        )
        notes.append(
            "Loss a ± b: change of the mean loss per row and its standard error, against the source pipeline or what "
            "the line names. Each half of the validation rows tests what was selected on the other half. So a is not "
            f"the difference of two losses in the table, whose models were selected on all of these rows.{joint}"
        )
    if any(PREFERRED in candidate.reason for candidate in record.candidates):
        notes.append(
            "A boosted residual that passes its test is preferred to what it extends: in our measurements it was as "
            "good or better on new rows."
        )
    if record.changed and record.kept.gain is None:
        notes.append(
            f"What is kept was not tested: this recipe keeps the epoch with the best {record.metric}, by however "
            "little it is better."
        )
    if any(candidate.installed_part < 1 for candidate in record.candidates):
        notes.append(
            "Of a change with gain a and standard error b, fit installs the part 1 - (b / a)^2, of a residual model at "
            f"least a half. The {record.metric} of the kept candidate is that of the installed part."
        )
    return [*notes, f"Next: {advice(record)}"]


def _epoch_notes(record: FitRecord) -> list[str]:
    """What the epochs are of, which one is the best, and how training ended."""
    if not record.epoch_rule:
        return [f"Training ended {record.stopped}."] if record.stopped else []
    notes = []
    if any(candidate.name == JOINT for candidate in record.candidates):
        notes.append("The epochs are those of joint training.")
    elif not _same(record.epochs[0].metric, record.start):
        source = next((each.metric for each in record.candidates if each.name == "source pipeline"), None)
        if source is not None and _same(record.epochs[0].metric, source):
            what = "the source pipeline, without what an earlier fit added"
        else:
            what = (
                "the residual model before its training, with tree-block weights and interactions if they passed "
                "their tests"
            )
        notes.append(f"Epoch 0 is {what}: so its {record.metric} is not the {value_text(record.start)} before fit.")
    none = "" if any(candidate.epoch for candidate in record.candidates) else "; there is none"
    return [*notes, f"The best epoch has {record.epoch_rule}{none}. Training ended {record.stopped}."]


def _same(first: float, second: float) -> bool:
    """Whether two metrics are equal, or both undefined."""
    return first == second or (first != first and second != second)


def shared_rows_note(fraction: float) -> str:
    """What to do about validation rows that are training rows."""
    return (
        f"{fraction:.0%} of the validation rows are training rows too, so that what is selected on them may be worse "
        "than the source on new rows. Give other rows as valid=, or leave it out."
    )


def _objective_notes(record: FitRecord) -> list[str]:
    """The loss, and the weights of classes."""
    meaning = LOSS_MEANINGS.get(record.loss_name, "")
    notes = [f"The loss is {meaning}{record.loss_name!r}."] if record.loss_name else []
    if record.class_weights is not None:
        notes.append(f"Loss and {record.metric} weigh the classes as the source does ({class_weights_text(record)}).")
    return notes


def class_weights_text(record: FitRecord) -> str:
    """The weight of each class, such as "no: 0.665, yes: 2.01"."""
    return join_some(f"{label}: {weight:.3g}" for label, weight in (record.class_weights or {}).items())


def _refresh_notes(record: FitRecord, refresh: RefreshDetails) -> list[str]:
    """The notes of a refresh."""
    changes = [f"{'Refresh' if record.changed else 'No change'}: {row.text(record.metric)}." for row in refresh.changes]
    notes = [*changes, "Of the attempts that were not rejected, the one with the lowest validation loss is kept."]
    notes.append("Loss a ± b: change of the mean loss per validation row and its standard error.")
    notes += _objective_notes(record)
    notes.append("Anchor n: each old value counts as n rows; in a forest as its leaf's training rows, times n / 50.")
    if record.changed and record.validated_on == HELD_OUT:
        unless = ", unless this raised the loss of the old rows" if refresh.old_rows else ""
        notes.append(f"After these numbers were taken, the held-out rows took part in a last fit{unless}.")
    notes.append(f"Drift of the inputs: {refresh.drift_text(DRIFTING)}.")
    return [*notes, f"Next: {advice(record)}"]


def _refresh_advice(record: FitRecord, refresh: RefreshDetails) -> str:
    """What to do after a refresh, in sentences."""
    steps = []
    if record.changed:
        steps.append(
            f"measure {record.metric} on later rows. {value_text(record.best)} is optimistic, "
            "as these rows chose the attempt."
        )
    elif any(candidate.reason == HARMS_OLD_ROWS for candidate in record.candidates):
        steps.append("if what is predicted has changed, keep_old=False accepts a higher loss of old rows.")
    else:
        steps.append("nothing; on these rows refresh found no gain. More new rows tell smaller gains apart.")
    if any(column.index >= LARGE_DRIFT for column in refresh.drifting):
        steps.append(
            f"Inputs drift much (from {LARGE_DRIFT} on): compare with the source fitted again on recent rows, which "
            "finds new splits; a refresh moves values only."
        )
    return " ".join(steps)


def advice(record: FitRecord) -> str:
    """What to do after a fit or refresh, in sentences."""
    if record.refresh is not None:
        return _refresh_advice(record, record.refresh)
    if record.shared_fraction is not None and record.shared_fraction >= MUCH_SHARED:
        return shared_rows_note(record.shared_fraction)
    if record.validated_on == "training rows":
        return f"give validation rows; on training rows {record.metric} says little about new rows."
    if not record.changed:
        return _advice_without_gain(record)
    steps = [
        f"measure {record.metric} on test rows. {value_text(record.best)} is optimistic, as these rows chose the "
        "candidate and the epoch."
    ]
    if record.best_epoch and record.best_epoch == len(record.epochs) - 1 and record.stopped.startswith(AT_LIMIT):
        more = f"epochs={2 * record.best_epoch}"
        if record.stopped.endswith("steps"):
            more = f"max_steps={2 * record.epochs[-1].step}"
        steps.append(f"The last epoch is the best one, so longer training may help: {more}.")
    if record.validated_on == HELD_OUT:
        steps.append(f"{SEEN_ROWS}; validation rows that it has not seen, or windtunnel.crossfit, may show more.")
    return " ".join(steps)


def _advice_without_gain(record: FitRecord) -> str:
    """What to do after a fit that kept the model before it."""
    if record.validated_on == HELD_OUT:
        return (
            f"give rows that the source has not seen as valid=, or use windtunnel.crossfit. {SEEN_ROWS}, so that no "
            "gain can show."
        )
    if record.validation_rows is not None and record.validation_rows < FEWEST_ROWS:
        return f"give at least {FEWEST_ROWS} validation rows: {record.validation_rows} are too few to test a change."
    if any(NEEDS_MORE_ROWS in candidate.reason for candidate in record.candidates):
        return (
            'give more validation rows, so that smaller gains can be told from chance; select="best_epoch" '
            "keeps what epochs train without a test."
        )
    return "nothing; on these rows fit found no gain over the model before it."

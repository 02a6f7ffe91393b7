"""The notes of a history: how to read its numbers, and what to do next, in sentences."""

from __future__ import annotations

from windtunnel.errors import join_some
from windtunnel.program.records.fit_record import AT_LIMIT, HARMS_OLD_ROWS, NEEDS_MORE_ROWS, FitRecord
from windtunnel.program.records.number_text import value_text
from windtunnel.program.records.refresh_details import LARGE_DRIFT, RefreshDetails

DRIFTING = 8
"""Columns that a note on drift names."""
MUCH_SHARED = 0.3
"""From this fraction of shared rows on, validation rows are said to be training rows."""


def history_notes(record: FitRecord) -> list[str]:
    """How to read the numbers, and what to do next, in sentences."""
    if record.refresh is not None:
        return _refresh_notes(record, record.refresh)
    notes = _objective_notes(record)
    names = [candidate.name for candidate in record.candidates]
    if any(candidate.name == "interactions" and candidate.epoch == 0 for candidate in record.candidates):
        notes.append(
            f"Epoch 0 includes the interactions, which need no training: so its {record.metric} is not the "
            f"{value_text(record.start)} before fit."
        )
    if record.epoch_rule:
        notes.append(f"The best epoch has {record.epoch_rule}. Training ended {record.stopped}.")
    elif record.stopped:
        notes.append(f"Training ended {record.stopped}.")
    if len(names) > 1:
        notes.append(f"Of the candidates not rejected or replaced, the one with the best {record.metric} is kept.")
    if any(candidate.gain is not None for candidate in record.candidates):
        notes.append(
            "Loss a ± b: change of the mean loss per row, compared with the model that the candidate extends, and "
            "its standard error. Each half of the validation rows tests what was selected on the other half."
        )
    if any(candidate.installed_part < 1 for candidate in record.candidates):
        notes.append(
            "Of a change with gain a and standard error b, fit installs the part 1 - (b / a)^2, of a residual model at "
            f"least a half. The {record.metric} of the kept candidate is that of the installed part."
        )
    if record.validated_on == "held-out rows":
        notes.append(
            "If the source pipeline was fitted on the held-out rows, its scores on them are too good, which hides "
            "gains: give validation rows that it has not seen, or use windtunnel.crossfit, whose members score them "
            "out of fold."
        )
    return [*notes, _advice(record)]


def shared_rows_note(fraction: float) -> str:
    """What to do about validation rows that are training rows."""
    return (
        f"{fraction:.0%} of the validation rows are training rows too, so that what is selected on them may be worse "
        "than the source on new rows. Give other rows as valid=, or leave it out."
    )


def _objective_notes(record: FitRecord) -> list[str]:
    """The loss, and the weights of classes."""
    notes = [f"The loss is {record.loss_name}."] if record.loss_name else []
    if record.class_weights is not None:
        weights = join_some(f"{label}: {weight:.3g}" for label, weight in record.class_weights.items())
        notes.append(f"Loss and {record.metric} weigh the classes as the source does ({weights}).")
    return notes


def _refresh_notes(record: FitRecord, refresh: RefreshDetails) -> list[str]:
    """The notes of a refresh."""
    changes = [f"{'Refresh' if record.changed else 'No change'}: {row.text(record.metric)}." for row in refresh.changes]
    notes = [*changes, "Of the attempts that were not rejected, the one with the lowest validation loss is kept."]
    notes.append("Loss a ± b: change of the mean loss per validation row and its standard error.")
    notes += _objective_notes(record)
    notes.append("Anchor n: each old value counts as n rows; in a forest as its leaf's training rows, times n / 50.")
    if record.changed and record.validated_on == "held-out rows":
        unless = ", unless this raised the loss of the old rows" if refresh.old_rows else ""
        notes.append(f"After these numbers were taken, the held-out rows took part in a last fit{unless}.")
    notes.append(f"Drift of the inputs: {refresh.drift_text(DRIFTING)}.")
    return [*notes, _refresh_advice(record, refresh)]


def _refresh_advice(record: FitRecord, refresh: RefreshDetails) -> str:
    advice = []
    if record.changed:
        advice.append(
            f"Next: measure {record.metric} on later rows. {value_text(record.best)} is optimistic, "
            "as these rows chose the attempt."
        )
    elif any(candidate.reason == HARMS_OLD_ROWS for candidate in record.candidates):
        advice.append("Next: if what is predicted has changed, keep_old=False accepts a higher loss of old rows.")
    else:
        advice.append("Next: nothing; on these rows refresh found no gain. More new rows tell smaller gains apart.")
    if any(column.index >= LARGE_DRIFT for column in refresh.drifting):
        advice.append(
            f"Inputs drift much (from {LARGE_DRIFT} on): compare with the source fitted again on recent rows, which "
            "finds new splits; a refresh moves values only."
        )
    return " ".join(advice)


def _advice(record: FitRecord) -> str:
    if record.shared_fraction is not None and record.shared_fraction >= MUCH_SHARED:
        return shared_rows_note(record.shared_fraction)
    if record.validated_on == "training rows":
        return f"Next: give validation rows; on training rows {record.metric} says little about new rows."
    if record.changed:
        if record.best_epoch and record.best_epoch == len(record.epochs) - 1 and record.stopped.startswith(AT_LIMIT):
            more = f"epochs={2 * record.best_epoch}"
            if record.stopped.endswith("steps"):
                more = f"max_steps={2 * record.epochs[-1].step}"
            return f"Next: the last epoch is the best one, so longer training may help: {more}."
        return (
            f"Next: measure {record.metric} on test rows. {value_text(record.best)} is optimistic, "
            "as these rows chose the candidate and the epoch."
        )
    if any(NEEDS_MORE_ROWS in candidate.reason for candidate in record.candidates):
        return (
            'Next: give more validation rows, so that smaller gains can be told from chance; select="best_epoch" '
            "keeps what epochs train without a test."
        )
    return "Next: nothing; on these rows fit found no gain over the model before it."

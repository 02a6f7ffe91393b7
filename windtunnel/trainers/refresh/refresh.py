"""``refresh``: the checks and options of an update with new rows, before anything slow is imported."""

from __future__ import annotations

from numbers import Real
from typing import Any, TypeVar

from windtunnel.errors import BadInput, InvalidOption, is_whole_number
from windtunnel.program.translated import TranslatedPipeline

Net = TypeVar("Net", bound=TranslatedPipeline)

ANCHORS = (5.0, 50.0, 500.0, 5000.0)


def refresh(
    net: Net,
    new: Any,
    *,
    replay: Any = None,
    valid: Any = None,
    anchor: float | None = None,
    keep_old: bool = True,
    loss: str | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Net:
    """Update with new rows: leaf values of trees and the residual model move, new categories get rows.

    Values move by Newton steps with a quadratic penalty towards the old ones, which weighs as much as ``anchor``
    rows; leaf values of a forest are means, into which new rows are averaged. The attempts are the anchors 5, 50,
    500 and 5,000 (or ``anchor``), each on the new rows alone and, with ``replay``, on both. An attempt must lower
    the loss of the validation rows by more than one standard error, and, with ``keep_old``, not raise that of the
    held-out old rows by more than one. ``refresh`` installs the passing attempt with the lowest validation loss. If
    it held validation rows out of the new rows, they then take part in a last fit with the same anchor, which must
    not raise the loss of the held-out old rows either. If no attempt passes, the translation stays as it is.

    The size stays as it is, but for new categories; the first refresh adds a value per category and bin of every
    column to the residual model. ``history`` and ``report`` hold loss and metric before and after, the attempts, and
    the drift of each column against the training rows.

    Parameters
    ----------
    net : Translation
        Changed in place; ``Translation.refresh`` is this function.
    new : (X, y), (X, y, weight) or loader
        New rows. All rows of a loader are read into memory. A loader that yields encoded rows has no new categories.
    replay : (X, y), (X, y, weight) or loader, optional
        Old rows, all or a sample: a translation keeps none, so that no fraction of them can be named. Each anchor is
        then tried with and without them, and a fifth of them is held out.
    valid : (X, y), (X, y, weight) or loader, optional
        Validation rows, never trained on. Without them a fifth of the new rows is held out.
    anchor : float, optional
        How many rows each old value counts for; larger ones change less. In a forest it counts as the training rows of
        its leaf, times anchor / 50. None chooses on the validation rows.
    keep_old : bool
        Whether a refresh must not raise the loss of the held-out old rows by more than one standard error. If what is
        predicted changes with time, this holds the refresh back.
    loss : str, optional
        The name of a loss as for ``fit``, such as "logistic"; by default that of the source, if it is known.
    seed : int
        Seed of the rows that are held out.
    progress : bool
        Whether to show a progress bar, and to log the result in a line.

    Returns
    -------
    Translation
        The same one, with the history of this call in ``history``.

    Raises
    ------
    BadInput
        For rows that ``fit`` rejects, for arguments that are neither tuples of rows and targets nor loaders, and for a
        translation that takes no residual model.
    InvalidOption
        For an anchor, a loss or a seed that is not accepted, and for a translation on a fixed backend.
    """
    _check(net, anchor, seed)
    if loss is not None and not isinstance(loss, str):
        raise InvalidOption(f"loss={loss!r}; give the name of a loss, such as 'logistic', or None for the source's own")

    import torch

    from windtunnel.progress import log, show_progress
    from windtunnel.trainers.refresh.update import update

    anchors = ANCHORS if anchor is None else (float(anchor),)
    inputs = {"new": new, "valid": valid, "replay": replay}
    with show_progress(progress), torch.inference_mode(False), torch.enable_grad():
        history = update(net, inputs, anchors, keep_old=keep_old, loss=loss, seed=seed)
    net.record(history=history)
    if progress:
        log(history.summary)
    return net


def _check(net: TranslatedPipeline, anchor: float | None, seed: int) -> None:
    net.head.check_has_target()
    if net.fixed:
        raise InvalidOption(
            'this translation runs on a backend that is fixed; compile with backend="torch" to refresh.'
        )
    number = isinstance(anchor, Real) and not isinstance(anchor, bool)
    if anchor is not None and not (number and 0 < anchor < float("inf")):
        raise InvalidOption(f"anchor={anchor!r}; give a finite number of rows above 0, or None to choose it")
    if not is_whole_number(seed, 0):
        raise InvalidOption(f"seed={seed!r}; give a whole number from 0")
    if reason := net.why_no_residual_model():
        raise BadInput(f"this translation cannot be refreshed: {reason}. Fit the source again.")

"""What fine-tuning did, epoch by epoch; plain data, without Lightning, so that a loaded artefact has it too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Epoch:
    """One row of the history.

    Attributes
    ----------
    epoch : int
        0 for the translation before training.
    train_loss : float or None
        Mean over the epoch's steps; None for epoch 0.
    val_loss, metric : float
        On the rows that the epochs are judged on.
    learning_rate : float
        Of this epoch.
    seconds : float
        Wall time of the epoch with its validation.
    """

    epoch: int
    train_loss: float | None
    val_loss: float
    metric: float
    learning_rate: float
    seconds: float


@dataclass(frozen=True)
class History:
    """What fine-tuning did.

    Attributes
    ----------
    epochs : list of Epoch
        Epoch 0, before training, and every epoch since; a residual model has its combinations of columns at epoch 0.
    metric : str
        The name of the metric that the epochs are judged by.
    greater_is_better : bool
        Its direction.
    start, best : float
        The metric of the translation as it came and as it is now, with the weights of the best epoch.
    best_epoch : int
        0 where no epoch made anything better than it was at epoch 0.
    validated_on : str
        "validation rows", "held-out rows" (a share of the training rows) or "training rows".
    seconds : float
        Wall time, with encoding.
    """

    epochs: list[Epoch]
    metric: str
    greater_is_better: bool
    start: float
    best: float
    best_epoch: int
    validated_on: str
    seconds: float

    def __str__(self) -> str:
        lines = [f"epoch  train_loss    val_loss  {self.metric:>10}  seconds"]
        for one in self.epochs:
            train = "-" if one.train_loss is None else f"{one.train_loss:.6f}"
            mark = "  kept" if one.epoch == self.best_epoch and one.metric == self.best else ""
            lines.append(
                f"{one.epoch:5d}  {train:>10}  {one.val_loss:10.6f}  {one.metric:10.6f}  {one.seconds:7.2f}{mark}"
            )
        lines.append(
            f"{self.metric} on {self.validated_on}: {self.start:.6f} -> {self.best:.6f} in {self.seconds:.1f} s"
        )
        return "\n".join(lines)

"""The LightningModule of fine-tuning."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import MixedPrecision
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from windtunnel.errors import BadInput
from windtunnel.modules.base import Module
from windtunnel.objectives.losses import loss_for
from windtunnel.trainers.data.labelled_rows import LabelledRows
from windtunnel.trainers.loop.compiled import check_accumulation, check_tables, compiled, explained
from windtunnel.trainers.loop.evaluation import RunningEvaluation
from windtunnel.trainers.loop.net_to_train import NetToTrain
from windtunnel.trainers.loop.running_mean import RunningMean
from windtunnel.trainers.optimizers.row_adam import RowAdam
from windtunnel.trainers.optimizers.visited_rows import VisitedRows
from windtunnel.trainers.processes import check_equal_weights, gather, process_weight, rank, world
from windtunnel.trainers.recipe import Recipe


class FineTuning(pl.LightningModule):
    """Minimises the loss of a net; logs ``train_loss``, ``val_loss`` and ``val_<metric>`` once per epoch.

    ``tables`` are the rows of large tables that are trained by rows, by the name of the parameter.
    """

    def __init__(self, trained: NetToTrain, recipe: Recipe, tables: Mapping[str, VisitedRows] | None = None) -> None:
        super().__init__()
        self.net, self.metric = trained.module, trained.metric
        self._trained = trained  # no module, so that its program is not in the weights a second time
        self.recipe = recipe
        self.tables = dict(tables or {})
        if recipe.compile is not None:
            check_tables(recipe.compile, self.tables)
        self.loss = loss_for(recipe.loss, trained.head)
        self.save_hyperparameters(recipe.facts())
        self._train_loss = RunningMean()
        self._validation = RunningEvaluation(self.metric, self.loss)
        self._compiled: Callable[[Tensor, Tensor], Tensor] | None = None

    def setup(self, stage: str) -> None:
        """Check that all processes train the same weights, and compile the training step if ``compile`` is set."""
        check_equal_weights(self.net)
        if self.recipe.compile is not None and stage == "fit":
            self._compiled = compiled(self.net, self.recipe.compile)

    def on_train_epoch_start(self) -> None:
        """Reject accumulated gradients in compiled steps; a callback may have set them since the last epoch."""
        if self.recipe.compile is not None:
            check_accumulation(self.recipe.compile, self.trainer.accumulate_grad_batches)

    def training_step(self, batch: Any, index: int) -> Tensor:
        """The loss of a batch ``(rows, target)`` or ``(rows, target, weight)``."""
        labelled = LabelledRows.of(batch)
        targets = labelled.targets
        loss = self.loss((self._compiled or self.net)(*labelled.rows), *targets)
        if not loss.requires_grad:
            raise BadInput(
                "no gradient of the scores reaches a parameter, as a step behind all trainable ones has none, such as "
                "compiled nearest neighbours; leave out recipe= and joint=, which trains a residual model instead"
            )
        # ``self.log`` would take as long as a small training step.
        self._train_loss.add(loss, targets)
        # Gradients are averaged over the processes, whose weights may differ.
        return loss if targets.weight is None or world() == 1 else loss * process_weight(targets.weight)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute the gradients of the loss divided by the scale of the gradients.

        Weight decay and the constants of the optimizer suit gradients like those of a log loss; the gradients of a
        squared error grow with the square of the unit of the target.
        """
        loss = loss / self._trained.gradient_scale
        with explained(self.recipe.compile) if self.recipe.compile else contextlib.nullcontext():
            super().backward(loss, *args, **kwargs)

    def validation_step(self, batch: Any, index: int) -> None:
        """Add a batch to the validation loss and metric, without autocast."""
        labelled = LabelledRows.of(batch)
        with torch.autocast(self.device.type, enabled=False):
            output = None
            if self.metric.method is not None:
                assert self._trained.program is not None  # only a translation has a metric with a method
                output = self._trained.program.output(self.metric.method, *labelled.rows)
            self._validation.add(self.net(*labelled.rows), labelled.targets, output)

    def on_train_epoch_end(self) -> None:
        """Log the mean loss of the epoch."""
        loss = self._train_loss.compute()
        self._log_value("train_loss", math.nan if loss is None else loss)
        self._train_loss.reset()

    def on_validation_epoch_start(self) -> None:
        """Reset loss and metric, of which an interrupted epoch may have left sums."""
        self._validation.reset()

    def on_validation_epoch_end(self) -> None:
        """Log the mean loss and the metric over all validation rows."""
        loss, metric = self._validation.compute()
        self._log_value("val_loss", loss)
        if self.metric.name != "loss":
            self._log_value(f"val_{self.metric.name}", metric)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the visited rows of tables, and the sums of an unfinished epoch's training loss in each process."""
        checkpoint["tables"] = {name: visited.state_dict() for name, visited in self.tables.items()}
        checkpoint["train_loss"] = gather(self._train_loss.state_dict())

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the visited rows of tables, and the sums of an unfinished epoch's training loss.

        The optimizer keeps the options of the recipe, but for the rate, which a schedule moves.
        """
        for state in checkpoint["optimizer_states"]:
            for saved, group in zip(state["param_groups"], self._optimizer().param_groups, strict=True):
                saved.update({name: value for name, value in group.items() if name not in ("params", "lr")})
        if (before := sorted(checkpoint.get("tables", {}))) != (now := sorted(self.tables)):
            raise BadInput(
                f"the checkpoint has large tables {before} trained by rows, and now they are {now}; resume with as "
                "many processes as before, and clipping as before"
            )
        for name, visited in self.tables.items():
            visited.load_state_dict(checkpoint["tables"][name])
        # A checkpoint from the end of an epoch may be of another number of processes.
        sums = checkpoint.get("train_loss", [])
        if len(sums) > rank():
            self._train_loss.load_state_dict(sums[rank()])

    def configure_optimizers(self) -> Any:
        """The optimizer of the trainable parameters, and the recipe's schedule, which steps after each validation."""
        optimizer = self._optimizer()
        if self.recipe.schedule == "constant":
            return optimizer
        epochs = self.trainer.max_epochs or self.recipe.epochs or 1
        cosine = LambdaLR(optimizer, lambda epoch: (1 + math.cos(math.pi * min(epoch / epochs, 1))) / 2)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": cosine, "interval": "epoch"}}

    def _optimizer(self) -> Optimizer:
        groups = self._groups()
        rate, decay = self.recipe.learning_rate, self.recipe.weight_decay
        if self.recipe.optimizer == "sgd":
            return SGD(groups, lr=rate, weight_decay=decay, momentum=0.9)
        # On a CPU the fused step is several times faster; on a GPU torch updates all tensors together by default. In
        # 16-bit mode Lightning does not clip the gradients of a fused step. The weights may be on the CPU still, as for
        # a checkpoint.
        clips_16_bits = self.trainer.gradient_clip_val and isinstance(self.trainer.precision_plugin, MixedPrecision)
        fused = True if self.trainer.strategy.root_device.type == "cpu" and not clips_16_bits else None
        if self.tables:
            decoupled = self.recipe.optimizer == "adamw"
            options = {"weight_decay": decay, "decoupled_weight_decay": decoupled, "fused": fused}
            return RowAdam(groups, self.tables.values(), lr=rate, **options)
        family = Adam if self.recipe.optimizer == "adam" else AdamW
        return family(groups, lr=rate, weight_decay=decay, fused=fused)

    def _groups(self) -> list[dict[str, Any]]:
        """Parameter groups: the trainable parameters by kind, each kind with its learning rate."""
        groups: dict[str, list[nn.Parameter]] = {}
        for module in self.net.modules():
            kinds = module.KINDS if isinstance(module, Module) else {}
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.requires_grad:
                    groups.setdefault(kinds.get(name, ""), []).append(parameter)
        rates = {"table": self.recipe.table_rate, "tree": self.recipe.tree_rate, "leaf": self.recipe.leaf_rate}
        return [
            {"params": parameters, "lr": self.recipe.learning_rate * rates.get(kind, 1.0)}
            for kind, parameters in groups.items()
        ]

    def _log_value(self, name: str, value: float) -> None:
        # All processes have the same value already; without sync_dist Lightning warns.
        self.log(name, value, prog_bar=True, sync_dist=True)

"""How a translation is fine-tuned: one frozen record of the options, and the ones that have a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from torch import Tensor

from windtunnel.errors import BadInput, nearest
from windtunnel.objectives.metrics import Metric, extra_methods
from windtunnel.trainers.loop.compiled import MODES

OPTIMIZERS = ("adam", "adamw", "sgd")
SCHEDULES = ("constant", "cosine")
LARGEST_BATCH = 4096
"""The paper's batch size, which small data cuts."""
BRANCH_BATCH = 1024
"""The same for a residual model, whose steps are small."""

_NAMED: dict[str, dict[str, Any]] = {
    "default": {},
    # All that is trainable in the translation itself, trees as soft as they come, from small rates on their leaves.
    "joint": {
        "residual": False,
        "epochs": 10,
        "learning_rate": 1e-3,
        "table_rate": 5.0,
        "tree_rate": 1.0,
        "leaf_rate": 0.1,
        "weight_decay": 1e-6,
        "ema": 0.9,
    },
    # Section 5.4 of the paper; 1e-5 was its rate on Criteo, and "until convergence" its number of epochs.
    "paper": {
        "residual": False,
        "epochs": 100,
        "learning_rate": 1e-4,
        "patience": 10,
        "batch_size": 4096,
        "weight_decay": 1e-6,
        "dropout": 0.1,
        "schedule": "constant",
        "ema": None,
        "table_rate": 1.0,
        "tree_rate": 1.0,
        "leaf_rate": 1.0,
    },
}


@dataclass(frozen=True)
class Recipe:
    """The options of fine-tuning, checked when they are given.

    Parameters
    ----------
    residual model : bool
        Whether a residual model is trained beside the pipeline, which stays as the source has it, its trees at most scaled
        down where they went on for too long: a scalar per value of a column and per pair of values, and a
        factorization machine, over the columns and pairs that show on half of the validation rows too. It starts at
        zero, and is kept where it makes the metric better on all validation rows, and on their other half the metric
        no worse and the loss clearly lower. Where no residual model can be had (fewer than two validation rows, counts of
        words, nothing that shows), and with False, the translation itself is trained, its trees as soft networks.
    epochs : int
        Passes over the training rows, at most.
    learning_rate : float
        Step size of the optimizer; with the cosine schedule, that of the first epoch.
    table_rate, tree_rate, leaf_rate : float
        What the learning rate is multiplied by for the rows of category tables, for thresholds and weights of soft
        trees, and for their leaf values; 0 leaves them as they are. Leaf values are small numbers that memorise rows
        when they move as fast as everything else; a row of a table meets few rows of data and may move faster.
    residual_rank : int
        Width of the factors of the residual model; 0 for none.
    batch_size : int or None
        Rows per step, where rows and not ready batches are given; None is 1024 beside a residual model and else 4096, the
        paper's, or so few that an epoch has 20 steps.
    weight_decay : float
        Factor of the squared weights in the objective (decoupled with "adamw"); in a residual model, relative to the size of
        the loss's slopes at the start (0.4 being that of two classes).
    dropout : float
        Probability of zeroing, for the layers that have a ``dropout``; in [0, 1). The paper's is 0.1, for
        tens of millions of rows; at a warm start of deep trees it undoes what the source knows, and the default is 0.
    patience : int or None
        Epochs without a better metric after which training stops; None never stops early.
    seed : int
        Of the order of the rows, of dropout and of the hold-out.
    optimizer : str
        "adam", "adamw" or "sgd" (momentum 0.9).
    schedule : str
        "constant", or "cosine" from the full rate in the first epoch towards 0 after the last.
    ema : float or None
        Decay per step of a moving average of the weights, in (0, 1); the average is what is judged and kept.
    loss : str, callable or None
        A name in ``LOSSES`` or ``loss(scores [B, K], target, weight [B] or None) -> scalar``; None takes the
        translation's own.
    metric : str or None
        "auroc", "average_precision", "log_loss", "accuracy", "f1", "r2", "rmse" or "loss", the mean of the loss
        itself; "roc_auc", "roc_auc_ovr", "neg_log_loss" and "neg_root_mean_squared_error" are taken for the same. With
        more than two classes, auroc, average_precision and f1 are means over the classes. Rows count by their weights.
        None is "loss" where a loss is given and where a regressor's own is not the squared error, and else goes by the
        task: auroc for two classes (accuracy where the source answers with labels alone), log_loss for more (accuracy
        where there are no probabilities), rmse for regression.
    validation_fraction : float
        Share of the training rows, in (0, 1), held out to judge the epochs where no validation rows are given.
    clip : float or None
        Largest norm of the gradient.
    compile : str or None
        A mode of ``torch.compile`` for the forward and backward passes of training: "default", "reduce-overhead",
        "max-autotune" or "max-autotune-no-cudagraphs"; "reduce-overhead" and "max-autotune" replay CUDA graphs on a
        GPU. None compiles nothing. Compiling takes seconds, and a C++ compiler.

    Raises
    ------
    BadInput
        Naming every option that is wrong.
    """

    residual: bool = True
    epochs: int = 20
    learning_rate: float = 2e-3
    table_rate: float = 2.5
    tree_rate: float = 0.5
    leaf_rate: float = 0.05
    residual_rank: int = 8
    batch_size: int | None = None
    weight_decay: float = 3e-4
    dropout: float = 0.0
    patience: int | None = 3
    seed: int = 0
    optimizer: str = "adam"
    schedule: str = "cosine"
    ema: float | None = 0.99
    loss: str | Callable[[Tensor, Tensor, Tensor | None], Tensor] | None = None
    metric: str | None = None
    validation_fraction: float = 0.1
    clip: float | None = None
    compile: str | None = None

    def __post_init__(self) -> None:
        for field in fields(self):  # a checkpoint holds no numbers of NumPy
            if isinstance(given := getattr(self, field.name), np.generic):
                object.__setattr__(self, field.name, given.item())
        wrong = [
            f"{name}={getattr(self, name)!r} must be {rule}"
            for name, (rule, holds) in _RULES.items()
            if not holds(getattr(self, name))
        ]
        if wrong:
            raise BadInput("recipe: " + "; ".join(wrong))

    @classmethod
    def named(cls, name: str) -> Recipe:
        """Give the recipe of that name: "default", "joint" without a residual model, or "paper" for the paper's numbers."""
        if name not in _NAMED:
            raise BadInput(f"recipe={name!r} is not known; {nearest(name, list(_NAMED))}")
        return cls(**_NAMED[name])

    @classmethod
    def resolve(cls, recipe: Recipe | str | None, overrides: dict[str, Any]) -> Recipe:
        """Take a recipe by name, as it is, or the default one, with some options replaced.

        Raises
        ------
        BadInput
            For an option that does not exist; the nearest one is named.
        """
        if not isinstance(recipe, Recipe | str | None):
            raise BadInput(f"recipe={recipe!r} must be a Recipe, one of {', '.join(_NAMED)}, or None")
        known = [field.name for field in fields(cls)]
        if "sample_weight" in overrides:
            raise BadInput("weights come with their rows: fit((X, y, weight), valid), or a loader of such batches")
        if unknown := [name for name in overrides if name not in known]:
            raise BadInput(
                "; ".join(
                    f"{name}={_short(overrides[name])} is not an option: {nearest(name, known)}" for name in unknown
                )
            )
        base = recipe if isinstance(recipe, Recipe) else cls.named(recipe or "default")
        return replace(base, **overrides)

    def rows_per_step(self, rows: int) -> int:
        """The batch size over so many training rows."""
        return self.batch_size or min(BRANCH_BATCH if self.residual else LARGEST_BATCH, max(1, rows // 20))

    def metric_for(self, net: Any) -> Metric:
        """The validation metric of a net; a custom loss is its own metric."""
        return Metric(self.metric or ("loss" if self.loss else None), net.head, extra_methods(net))

    def facts(self) -> dict[str, Any]:
        """Give the options as JSON values; a loss that is a function goes by its name."""
        facts = asdict(self)
        if callable(self.loss):
            facts["loss"] = getattr(self.loss, "__name__", type(self.loss).__name__)
        return facts


def reject(unknown: Mapping[str, Any], of: str, known: Iterable[str]) -> None:
    """Reject arguments that there are none of; options of fine-tuning come as a recipe.

    Raises
    ------
    BadInput
        Naming each, with the nearest one that there is.
    """
    options = {field.name for field in fields(Recipe)}
    known = [*known]
    of_recipe = ", ".join(f"{name}={value!r}" for name, value in unknown.items() if name in options)
    said = [f"{name}= is no argument of {of}: {nearest(name, known)}" for name in unknown if name not in options]
    if of_recipe:
        said.append(f"options of fine-tuning come to {of} as a recipe: recipe=windtunnel.Recipe({of_recipe})")
    if said:
        raise BadInput("; ".join(said))


def _short(value: Any) -> str:
    """A value as it is written, or its type where that takes more than a line, as of rows."""
    written = repr(value)
    return written if len(written) <= 80 and "\n" not in written else f"<{type(value).__name__}>"


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _number(value: Any, low: float, high: float, *, low_too: bool = False) -> bool:
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return real and (low < value or (low_too and low == value)) and value < high


_INF = float("inf")
_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "residual": ("True or False", lambda v: isinstance(v, bool)),
    "epochs": ("a whole number from 1", lambda v: _whole(v, 1)),
    "learning_rate": ("a finite number above 0", lambda v: _number(v, 0, _INF)),
    "table_rate": ("a finite number from 0", lambda v: _number(v, 0, _INF, low_too=True)),
    "tree_rate": ("a finite number from 0", lambda v: _number(v, 0, _INF, low_too=True)),
    "leaf_rate": ("a finite number from 0", lambda v: _number(v, 0, _INF, low_too=True)),
    "residual_rank": ("a whole number from 0", lambda v: _whole(v, 0)),
    "batch_size": ("a whole number from 1, or None", lambda v: v is None or _whole(v, 1)),
    "weight_decay": ("a finite number from 0", lambda v: _number(v, 0, _INF, low_too=True)),
    "dropout": ("in [0, 1)", lambda v: _number(v, 0, 1, low_too=True)),
    "patience": ("a whole number from 1, or None", lambda v: v is None or _whole(v, 1)),
    "seed": ("a whole number from 0", lambda v: _whole(v, 0)),
    "optimizer": (f"one of {', '.join(OPTIMIZERS)}", lambda v: v in OPTIMIZERS),
    "schedule": (f"one of {', '.join(SCHEDULES)}", lambda v: v in SCHEDULES),
    "ema": ("in (0, 1), or None", lambda v: v is None or _number(v, 0, 1)),
    "loss": ("the name of a loss, a function, or None", lambda v: v is None or isinstance(v, str) or callable(v)),
    "metric": ("the name of a metric, or None", lambda v: v is None or isinstance(v, str)),
    "validation_fraction": ("in (0, 1)", lambda v: _number(v, 0, 1)),
    "clip": ("a finite number above 0, or None", lambda v: v is None or _number(v, 0, _INF)),
    "compile": (f"one of {', '.join(MODES)}, or None", lambda v: v is None or v in MODES),
}

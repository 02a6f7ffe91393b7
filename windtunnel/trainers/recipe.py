"""The options of fine-tuning as one frozen record, and the recipes with a name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from windtunnel.errors import InvalidOption, is_whole_number, nearest
from windtunnel.trainers.loop.compiled import MODES

if TYPE_CHECKING:
    from windtunnel.objectives.metrics import Metric
    from windtunnel.program.head import Head
    from windtunnel.program.score_methods import ScoreRule
    from windtunnel.program.translated import TranslatedPipeline

OPTIMIZERS = ("adam", "adamw", "sgd")
SCHEDULES = ("constant", "cosine")
SELECTIONS = ("test", "best_epoch")
LARGEST_BATCH = 4096
"""The paper's batch size."""
SMALLEST_BATCH = 64
STEPS_PER_PASS = 256
"""Steps of joint training in a pass, where batches of ``SMALLEST_BATCH`` to ``LARGEST_BATCH`` rows allow it."""
RESIDUAL_BATCH = 1024
"""Largest batch of a residual model, whose steps are small."""
SHARED = ("residual_rank", "seed", "loss", "metric", "class_weight", "select", "validation_fraction", "loader_memory")
"""The options of both trainings, where ``fit`` trains the translation and a residual model on top of it."""
OTHER_NAMES = {
    "early_stopping": "patience",
    "early_stopping_rounds": "patience",
    "eval_set": "valid",
    "max_epochs": "epochs",
    "max_iter": "epochs",
    "random_state": "seed",
    "validation_data": "valid",
    "verbose": "progress",
}
"""Names of options in other libraries -> those of ``fit``."""
_NAMED: dict[str, dict[str, Any]] = {
    "default": {},
    # Trains everything that is trainable in the translation itself, leaves at a small rate.
    "joint": {
        "joint": True,
        "residual": False,
        "epochs": None,
        "max_steps": 3000,
        "val_check_interval": 200,
        "patience": 5,
        "learning_rate": 1e-3,
        "table_rate": 5.0,
        "tree_rate": 1.0,
        "leaf_rate": 0.1,
        "weight_decay": 1e-6,
        "ema": 0.9,
    },
    # Section 5.4 of the paper; 1e-5 was its rate on Criteo. It trains "until convergence", in batches of 4,096 rows.
    "paper": {
        "joint": True,
        "residual": False,
        "epochs": None,
        "max_steps": 20_000,
        "val_check_interval": 200,
        "learning_rate": 1e-4,
        "patience": 10,
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
    """The options of fine-tuning.

    Parameters
    ----------
    residual : bool
        Whether to train a residual model on top of the pipeline. The steps of the pipeline stay as the source has
        them; only tree-block weights may scale its trees down. False trains the translation itself, its trees as soft
        networks. If no residual model is possible, as for more than 1,000 columns, True does so too, and keeps the
        result only if it is significantly better on validation rows. With a single validation row True trains
        nothing.

        The residual model has a weight per value of a column and of an interaction, and a factorization machine. From
        3,000 training rows on a boosted residual may extend it: trees and a small network over numbers and target
        statistics, averaged with the scores; it is rejected only if it is worse by more than one standard error.
        Where no column explains residuals, the boosted residual alone is trained.
        Interactions must be significant on the training rows and on the validation rows; further columns need mean
        residuals that correlate with the residuals of the validation rows.

        The residual model must improve the metric on all validation rows. In its test, each half of these rows has a
        model that was selected on the other half: these models must lower the loss, and may worsen the metric by at
        most one standard error. Interactions must lower the loss by more than one standard error. At least half of the
        change of the scores is installed; more of it if the gain is many times its standard error.
    joint : bool
        With ``residual=True``, whether to train the translation itself too: fit tries a residual model on top of the
        source pipeline, then joint training, then a residual model on top of the result, and keeps what is best. The
        other options are then those of joint training (if ``recipe`` is the default, those of the recipe "joint"); the
        residual models take the default ones, with residual_rank, seed, loss, metric, class_weight, select,
        validation_fraction, loader_memory and, if it is not None, batch_size of this recipe. With ``residual=False``
        fit trains the translation anyway. The options of "joint" replace every option that a ``Recipe`` leaves at its
        default, but no argument of ``fit``.
    epochs : int or None
        Largest number of passes over the training rows; None for no limit but ``max_steps``. Training ends with a
        validation, the first one at or after this limit. An override of ``epochs`` drops the recipe's ``max_steps`` and
        ``val_check_interval``, one of ``max_steps`` its ``epochs``.
    max_steps : int or None
        Largest number of optimizer steps, with the same rule for the end; None for no limit but ``epochs``. The recipes
        "joint" and "paper" plan steps, as a pass over few rows has few of them.
    val_check_interval : int or None
        Steps between two validations, over as many passes as they need; ``history.epochs`` then has a row per
        validation, and ``patience`` counts validations. None validates after each pass, or after ``max_steps`` if a
        pass has more.
    learning_rate : float
        Step size of the optimizer; with the cosine schedule, that of the first epoch.
    table_rate, tree_rate, leaf_rate : float
        Factors of the learning rate for the rows of category tables, for thresholds and weights of soft trees, and for
        their leaf values; 0 freezes them. Leaf values memorise rows when they move as fast as everything else. Each
        table row gets gradients from few training rows, so its rate may be higher.
    residual_rank : int
        Width of the factors of the residual model; 0 for none.
    batch_size : int or None
        Rows per step, where fit makes the batches. None takes 1024 for a residual model, or so few that a pass has 20
        steps. For joint training it takes a 256th of the rows, from 64 to the paper's 4096, or so few that a pass has
        20 steps.
    weight_decay : float
        Factor of the squared weights in the objective (decoupled with "adamw"). For a residual model it is relative to
        the root mean square of the loss's initial gradients (0.4 for two classes).
    dropout : float
        Probability of dropping, in [0, 1), an output of a trainable step of the pipeline, nodes and leaves of soft
        trees included; not of the step that gives the scores. Nodes and leaves become 0, which is neither true nor
        false. An output of another step becomes the mean of its column in the batch. The paper's is 0.1, for tens of
        millions of rows; on a warm start of deep trees it destroys what the source has fitted, so the default is 0.
    patience : int or None
        Training stops after this many epochs, or validations with ``val_check_interval``, without a better metric;
        with a residual model and ``select="test"``, without a lower loss. None never stops early.
    seed : int
        Seed of the order of the rows, of dropout and of the hold-out.
    optimizer : str
        "adam", "adamw" or "sgd" (momentum 0.9).
    schedule : str
        "constant", or "cosine" from the full rate in the first epoch towards 0 after the last.
    ema : float or None
        Decay per step, in (0, 1), of an exponential moving average of the weights, which is validated and kept.
    loss : str, callable or None
        A name in ``LOSSES`` or ``loss(scores [B, K], target, weight [B] or None) -> scalar``; None takes the loss of
        the source.
    metric : str, callable or None
        "auroc", "average_precision", "log_loss", "accuracy", "f1", "r2", "rmse", "mae" or "loss", the mean of the loss;
        or a scorer of scikit-learn: its name, such as "balanced_accuracy", or what
        ``sklearn.metrics.make_scorer(function, ...)`` returns. With more than two classes, auroc, average_precision and
        f1 are means over the classes. Rows count by their weights, so where rows have some, the function of a scorer
        needs an argument ``sample_weight``. None takes "loss" if a loss is given or a regressor's loss is not the
        squared error. Else it takes auroc for two classes (accuracy if the source predicts labels only), log_loss for
        more (accuracy without probabilities) and rmse for regression.
    class_weight : str or None
        "source": if the source was fitted with class weights, or on rows that a sampler of imbalanced-learn drew, fit
        multiplies the row weights by a weight per class, so that probabilities and labels keep to the frequencies of
        the source. Loss and metric are then over weighted rows, and ``net.history`` has the weights. None weighs the
        classes alike: probabilities move to the frequencies of the rows.
    select : str
        "test" or "best_epoch". With "test", the residual model of the epoch with the lowest loss is kept if it passes
        the significance test. With "best_epoch", the epoch with the best metric is kept without that test, if its
        metric is better than that of the source pipeline. Tree-block weights and interactions are tested all the same.
    validation_fraction : float
        Fraction of the training rows, in (0, 1), that fit holds out if no validation rows are given.
    loader_memory : float or None
        Largest size in GiB of the encoded rows of a loader that fit keeps in memory. fit encodes them once and treats
        them as ``(X, y)``. A larger loader is read and encoded anew in each epoch, and so is every loader with 0. None
        takes a quarter of the machine's memory, at most 4 GiB.
    clip : float or None
        Largest norm of the gradient.
    compile : str or None
        A mode of ``torch.compile`` for the forward and backward passes of training: "default", "reduce-overhead",
        "max-autotune" or "max-autotune-no-cudagraphs"; "reduce-overhead" and "max-autotune" replay CUDA graphs on a
        GPU. None compiles nothing. Compiling takes seconds, and needs a C++ compiler.

    Raises
    ------
    InvalidOption
        For every invalid option, by name.
    """

    residual: bool = True
    joint: bool = False
    epochs: int | None = 20
    max_steps: int | None = None
    val_check_interval: int | None = None
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
    metric: str | Callable[..., float] | None = None
    class_weight: str | None = "source"
    select: str = "test"
    validation_fraction: float = 0.1
    loader_memory: float | None = None
    clip: float | None = None
    compile: str | None = None

    def __post_init__(self) -> None:
        for field in fields(self):  # checkpoints cannot hold NumPy numbers
            if isinstance(value := getattr(self, field.name), np.generic):
                object.__setattr__(self, field.name, value.item())
        wrong = [
            f"{name}={getattr(self, name)!r} must be {rule}"
            for name, (rule, is_valid) in _RULES.items()
            if not is_valid(getattr(self, name))
        ]
        if self.epochs is None and self.max_steps is None:
            wrong.append("epochs=None and max_steps=None set no end; give a whole number for one of them")
        if wrong:
            raise InvalidOption("recipe: " + "; ".join(wrong))
        self._check_names()

    def _check_names(self) -> None:
        """Reject unknown names of metrics and losses before members are fitted; ``fit`` asks whether they suit."""
        from windtunnel.objectives.losses import loss_named
        from windtunnel.objectives.metrics import metric_named

        if isinstance(self.metric, str):
            metric_named(self.metric)
        if isinstance(self.loss, str):
            loss_named(self.loss)

    @classmethod
    def named(cls, name: str) -> Recipe:
        """The recipe of a name: "default", "joint" without a residual model, or "paper" with the paper's numbers."""
        if name not in _NAMED:
            raise InvalidOption(f"recipe={name!r} is not known; {nearest(name, list(_NAMED))}")
        return cls(**_NAMED[name])

    @classmethod
    def resolve(cls, recipe: Recipe | str | None, overrides: dict[str, Any]) -> Recipe:
        """The given or the default recipe with some options replaced.

        Raises
        ------
        InvalidOption
            For an unknown option, with the nearest known one.
        """
        if not isinstance(recipe, Recipe | str | None):
            raise InvalidOption(f"recipe={recipe!r} must be a Recipe, one of {', '.join(_NAMED)}, or None")
        names = [field.name for field in fields(cls)]
        if "sample_weight" in overrides:
            raise InvalidOption("weights come with their rows: fit((X, y, weight), valid), or a loader of such batches")
        if unknown := [name for name in overrides if name not in names]:
            suggestions = [nearest(name, names, OTHER_NAMES) for name in unknown]
            values = [f"{name}={_short(overrides[name])}" for name in unknown]
            raise InvalidOption(
                "; ".join(f"{value} is not an option: {text}" for value, text in zip(values, suggestions, strict=True))
            )
        base = recipe if isinstance(recipe, Recipe) else cls.named(recipe or "default")
        if overrides.get("epochs") is not None:
            overrides = {"max_steps": None, "val_check_interval": None, **overrides}
        elif overrides.get("max_steps") is not None:
            overrides = {"epochs": None, **overrides}
        return replace(base, **overrides)

    @classmethod
    def resolve_joint(cls, recipe: Recipe | str | None, overrides: dict[str, Any]) -> Recipe:
        """What ``resolve`` gives, for training the translation itself: without a residual model.

        It is the recipe "joint", with the options in which a ``Recipe`` differs from the default one, and then with the
        overrides. A recipe that has joint training alone, such as "paper", stays as it is.
        """
        given = cls.resolve(recipe, {})
        if given.joint and not given.residual:
            return cls.resolve(given, {**overrides, "residual": False})
        joint = cls.resolve("joint", given.changed())
        return cls.resolve(joint, {**overrides, "residual": False})

    def changed(self) -> dict[str, Any]:
        """The options that differ from the default ones; none of a recipe as its name gives it."""
        if self in map(Recipe.named, _NAMED):
            return {}
        base = Recipe()
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(base, name)}

    def rows_per_step(self, rows: int) -> int:
        """The batch size for a number of training rows."""
        if self.batch_size is not None:
            return self.batch_size
        if self.residual and not self.joint:
            return min(RESIDUAL_BATCH, max(1, rows // 20))
        return min(max(rows // STEPS_PER_PASS, SMALLEST_BATCH), LARGEST_BATCH, max(1, rows // 20))

    def metric_for(self, net: TranslatedPipeline) -> Metric:
        """The validation metric of a translation."""
        return self.metric_of(net.head, net.program.method_steps)

    def metric_of(self, head: Head, extra_methods: Collection[str] = (), rules: Mapping[str, ScoreRule] = {}) -> Metric:
        """The validation metric of a head, by the arguments of ``Metric``.

        By default the mean of ``loss`` if that is given, else the metric of the task.
        """
        from windtunnel.objectives.metrics import Metric

        return Metric(self.metric or ("loss" if self.loss else None), head, extra_methods, rules)

    def residual_recipe(self) -> Recipe:
        """The default recipe with the options of this one that are not about the training of the translation."""
        return Recipe(**{name: getattr(self, name) for name in SHARED})

    @property
    def epoch_by_loss(self) -> bool:
        """Whether the lowest loss decides among the epochs that improve the metric, not the best metric."""
        return self.residual and self.select == "test"

    def facts(self) -> dict[str, Any]:
        """The options as JSON values, a custom loss by its name, a scorer with its options."""
        from windtunnel.objectives.scorers import scorer_text

        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        if callable(self.loss):
            facts["loss"] = getattr(self.loss, "__name__", type(self.loss).__name__)
        if callable(self.metric):
            facts["metric"] = scorer_text(self.metric)
        return facts


def reject_unknown(unknown: Mapping[str, Any], function: str, known: Iterable[str]) -> None:
    """Reject unknown arguments of a function; options of fine-tuning belong in a recipe.

    Raises
    ------
    InvalidOption
        For each, with the nearest known one.
    """
    options = {field.name for field in fields(Recipe)}
    known = [*known]
    recipe_options = ", ".join(f"{name}={value!r}" for name, value in unknown.items() if name in options)
    errors = [
        f"{name}= is no argument of {function}: {nearest(name, known)}" for name in unknown if name not in options
    ]
    if recipe_options:
        errors.append(f"pass options of fine-tuning to {function} as recipe=windtunnel.Recipe({recipe_options})")
    if errors:
        raise InvalidOption("; ".join(errors))


def _short(value: Any) -> str:
    """The repr of a value, or its type where that is longer than a line."""
    written = repr(value)
    return written if len(written) <= 80 and "\n" not in written else f"<{type(value).__name__}>"


def _number(value: Any, low: float, high: float, *, low_too: bool = False) -> bool:
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return real and (low < value or (low_too and low == value)) and value < high


_INF = float("inf")
_Rule = tuple[str, Callable[[Any], bool]]
_FROM_0: _Rule = ("a finite number from 0", lambda v: _number(v, 0, _INF, low_too=True))
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("table_rate", "tree_rate", "leaf_rate", "weight_decay"), _FROM_0),
    "residual_rank": ("a whole number from 0", lambda v: is_whole_number(v, 0)),
    "seed": ("a whole number from 0 to below 2**31", lambda v: is_whole_number(v, 0) and int(v) < 2**31),
    **dict.fromkeys(("residual", "joint"), ("True or False", lambda v: isinstance(v, bool))),
    "learning_rate": ("a finite number above 0", lambda v: _number(v, 0, _INF)),
    **dict.fromkeys(
        ("epochs", "max_steps", "val_check_interval", "batch_size", "patience"),
        ("a whole number from 1, or None", lambda v: v is None or is_whole_number(v, 1)),
    ),
    "dropout": ("in [0, 1)", lambda v: _number(v, 0, 1, low_too=True)),
    "optimizer": (f"one of {', '.join(OPTIMIZERS)}", lambda v: v in OPTIMIZERS),
    "schedule": (f"one of {', '.join(SCHEDULES)}", lambda v: v in SCHEDULES),
    "ema": ("in (0, 1), or None", lambda v: v is None or _number(v, 0, 1)),
    "loss": ("the name of a loss, a function, or None", lambda v: v is None or isinstance(v, str) or callable(v)),
    "metric": ("the name of a metric, a scorer, or None", lambda v: v is None or isinstance(v, str) or callable(v)),
    "class_weight": ("'source' or None", lambda v: v in ("source", None)),
    "select": ("one of " + ", ".join(SELECTIONS), lambda v: v in SELECTIONS),
    "validation_fraction": ("in (0, 1)", lambda v: _number(v, 0, 1)),
    "loader_memory": ("a finite number from 0, or None", lambda v: v is None or _number(v, 0, _INF, low_too=True)),
    "clip": ("a finite number above 0, or None", lambda v: v is None or _number(v, 0, _INF)),
    "compile": (f"one of {', '.join(MODES)}, or None", lambda v: v is None or v in MODES),
}

"""What a sweep varies: options of ``translate`` and of the recipe, each a range, a choice or a fixed value."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from windtunnel.api.translate import check_options, translate
from windtunnel.errors import BadInput, WindTunnelError, nearest
from windtunnel.modules.base import Module
from windtunnel.trainers.recipe import Recipe

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

    from windtunnel.api.translation import Translation

TRANSLATE = tuple(
    name for name in inspect.signature(translate).parameters if name not in ("pipeline", "calibrate", "untranslated")
)
"""The options of ``translate`` that a space may name."""
_NOT_SWEPT = {
    "metric": "trials are compared by one metric; give it as metric=...",
    "validation_fraction": "the validation rows are given, so none are held out",
}
RECIPE = tuple(field.name for field in fields(Recipe) if field.name not in _NOT_SWEPT)
"""The options of the recipe that a space may name."""
_WHOLE = frozenset(name for name, hint in get_type_hints(Recipe).items() if int in (hint, *get_args(hint)))
_RANGE = ("low", "high", "log", "step")

DEFAULT: dict[str, Any] = {
    "residual": [True, False],
    "residual_rank": [0, 4, 8, 16],
    "level": ["L1", "L2", "L3", "L4"],
    "temperature": ["auto", 0.1, 1.0],
    "start": ["warm", "cold"],
    "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
    "table_rate": {"low": 0.5, "high": 20.0, "log": True},
    "tree_rate": {"low": 0.05, "high": 5.0, "log": True},
    "leaf_rate": {"low": 0.01, "high": 1.0, "log": True},
    "weight_decay": {"low": 1e-8, "high": 1e-2, "log": True},
    "dropout": {"low": 0.0, "high": 0.3},
    "ema": [0.9, 0.99],
}
"""What is swept where no space is given; the batch size joins, from a quarter of the recipe's to four times it."""
WITHOUT_BRANCH = (*TRANSLATE, "table_rate", "tree_rate", "leaf_rate", "dropout")
"""Options of what a residual model leaves as it is; suggested where there is none."""
OF_BRANCH = ("residual_rank",)
"""Options of a residual model; suggested where there is one."""
RISKY = ("temperature", "start")
"""Most values of these lose what the source knows, so the first trials of the default space keep the default's."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole ones for options that count something."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    whole: bool = False

    def distribution(self) -> BaseDistribution:
        """Give the same as Optuna's distribution."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.whole:
            return IntDistribution(int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
        return FloatDistribution(self.low, self.high, log=self.log, step=self.step)

    def suggest(self, trial: Trial, name: str) -> float:
        """Let a trial suggest a number."""
        if self.whole:
            step = int(self.step or 1)
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log, step=step)
        return trial.suggest_float(name, self.low, self.high, log=self.log, step=self.step)

    def holds(self, value: Any) -> bool:
        """Whether a value is one of these numbers."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        steps = (value - self.low) / self.step if self.step else 0.0
        return abs(steps - round(steps)) < 1e-8

    def wrong(self) -> str | None:
        """Say what no range may be."""
        if not self.low < self.high:
            return f"low={self.low} must be below high={self.high}"
        if self.log and (self.low <= 0 or self.step is not None):
            return "a log range starts above 0 and has no step"
        if self.step is not None and self.step <= 0:
            return f"step={self.step} must be above 0"
        whole = all(float(one).is_integer() for one in (self.low, self.high, self.step or 1))
        return "low, high and step must be whole numbers" if self.whole and not whole else None


@dataclass(frozen=True)
class Choice:
    """One of some plain values."""

    values: tuple[Any, ...]

    def distribution(self) -> BaseDistribution:
        """Give the same as Optuna's distribution."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.values)

    def suggest(self, trial: Trial, name: str) -> Any:
        """Let a trial suggest one of the values."""
        return trial.suggest_categorical(name, self.values)

    def holds(self, value: Any) -> bool:
        """Whether a value is one of these."""
        return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in self.values)

    def wrong(self) -> str | None:
        """Say what no choice may hold."""
        odd = [one for one in self.values if not isinstance(one, str | int | float | bool | None)]
        if odd:
            return f"{odd[0]!r} cannot be stored; choose among text, numbers, true, false and null"
        return None if self.values else "an empty list; give at least one value"


@dataclass(frozen=True)
class Space:
    """The options that trials suggest, and those that all of them share.

    Attributes
    ----------
    swept : dict
        Name to ``Range`` or ``Choice``.
    fixed : dict
        Name to value.
    careful : bool
        Whether the first trials keep the default's values of the options in ``RISKY``.
    """

    swept: dict[str, Range | Choice]
    fixed: dict[str, Any]
    careful: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any], *, careful: bool = False) -> Space:
        """Read a space.

        Parameters
        ----------
        given : mapping
            Name to a list (one of its values), a mapping of low, high and perhaps log or step (a range), a distribution
            of Optuna's, or a plain value (fixed).

        Raises
        ------
        BadInput
            Naming all that is wrong: unknown names with the nearest known one, values that the option does not take.
        """
        if not isinstance(given, Mapping):
            raise BadInput(
                f"space={given!r} must be a mapping, such as {{'learning_rate': {{'low': 1e-5, 'high': 1e-2}}}}"
            )
        swept: dict[str, Range | Choice] = {}
        fixed: dict[str, Any] = {}
        wrong = []
        for name, one in given.items():
            try:
                part = _part(str(name), one)
            except WindTunnelError as error:
                wrong.append(str(error))
                continue
            if isinstance(part, Range | Choice):
                swept[name] = part
            else:
                fixed[name] = part
        if wrong:
            raise BadInput("space: " + "; ".join(wrong))
        return cls(swept, fixed, careful)

    def active(self, residual: bool) -> list[str]:
        """Names of the swept options that have an effect with a residual model, or without one."""
        idle = WITHOUT_BRANCH if residual else OF_BRANCH
        return [name for name in self.swept if name != "residual" and name not in idle]

    def check_effect(self, residual: bool) -> None:
        """Reject to sweep what has no effect where ``residual`` says whether all trials have one.

        Raises
        ------
        BadInput
        """
        idle = [name for name in self.swept if name not in self.active(residual)]
        if idle and "residual" not in self.swept:
            where = "beside a residual model, which the recipe trains" if residual else "without a residual model"
            told = "residual: false, or [true, false]" if residual else "residual: true, or [true, false]"
            raise BadInput(f"space: {', '.join(idle)} without effect {where}; add {told}")

    def distributions(self) -> dict[str, BaseDistribution]:
        """Give the swept options as Optuna's distributions."""
        return {name: part.distribution() for name, part in self.swept.items()}


def default_space(net: Translation, recipe: Recipe, rows: int) -> Space:
    """Sweep what has an effect on this translation, trained on so many rows.

    Without trees there is no level, no temperature and no rate for them, without category tables no rate for those;
    whether to train a residual model is swept where the recipe trains one.
    """
    branched = recipe.residual and net.takes_residual_model()
    modules = [module for module in net.modules() if isinstance(module, Module)]
    kinds = {
        module.KINDS.get(name, "")
        for module in modules
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.requires_grad
    }
    without = {
        "residual": not branched,
        "residual_rank": not branched,
        "level": "leaf" not in kinds,
        "temperature": "leaf" not in kinds,
        "tree_rate": "tree" not in kinds,
        "leaf_rate": "leaf" not in kinds,
        "table_rate": "table" not in kinds,
        "start": not kinds & {"leaf", "table"},
        "dropout": not any(isinstance(getattr(module, "dropout", None), float) for module in modules),
    }
    usual = recipe.rows_per_step(rows)
    batch = {"low": max(1, usual // 4), "high": min(rows, usual * 4), "log": True}
    given = {name: one for name, one in DEFAULT.items() if not without.get(name, False)}
    return Space.of({**given, **({"batch_size": batch} if batch["low"] < batch["high"] else {})}, careful=True)


def _part(name: str, given: Any) -> Any:
    """A ``Range``, a ``Choice``, or the fixed value itself."""
    if name in _NOT_SWEPT:
        raise BadInput(f"{name}: {_NOT_SWEPT[name]}")
    if name not in TRANSLATE + RECIPE:
        raise BadInput(f"{name} is no option: {nearest(name, TRANSLATE + RECIPE)}")
    part = _read(name, given)
    if isinstance(part, Range | Choice):
        if fault := part.wrong():
            raise BadInput(f"{name}: {fault}")
        values = part.values if isinstance(part, Choice) else (part.low, part.high)
        if isinstance(part, Choice) and len(values) == 1:
            part = values[0]
    else:
        values = (part,)
    for value in values:
        _check_value(name, int(value) if isinstance(part, Range) and part.whole else value)
    return part


def _read(name: str, given: Any) -> Any:
    if hasattr(given, "choices"):  # Optuna's categorical distribution
        return Choice(tuple(given.choices))
    if all(hasattr(given, part) for part in _RANGE):  # its ranges, where whole numbers always have a step
        step = None if given.step == 1 and name in _WHOLE else given.step
        return Range(given.low, given.high, given.log, step, whole=name in _WHOLE)
    if isinstance(given, list | tuple):
        return Choice(tuple(given))
    if isinstance(given, Mapping) and (name != "level" or set(given) & set(_RANGE)):
        return _range(name, given)
    return given


def _range(name: str, given: Mapping[str, Any]) -> Range:
    if unknown := [key for key in given if key not in _RANGE]:
        raise BadInput(f"{name}: unknown key {unknown[0]!r} of a range: {nearest(str(unknown[0]), _RANGE)}")
    if missing := [key for key in ("low", "high") if key not in given]:
        raise BadInput(f"{name}: a range needs low and high; {' and '.join(missing)} is missing")
    if name == "level" or name == "start":
        raise BadInput(f"{name}: its values have no order; give a list of them")
    for key in ("low", "high", "step"):
        value = given.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise BadInput(f"{name}: {key}={value!r} must be a number")
    if not isinstance(given.get("log", False), bool):
        raise BadInput(f"{name}: log={given['log']!r} must be true or false")
    return Range(given["low"], given["high"], given.get("log", False), given.get("step"), whole=name in _WHOLE)


def _check_value(name: str, value: Any) -> None:
    """Ask whoever takes the option."""
    if name in RECIPE:
        Recipe.resolve(None, {name: value})
        return
    usual = {"level": "L4", "start": "warm", "temperature": "auto", "untranslated": "cache"}
    if name in usual:
        check_options(**{**usual, name: value})

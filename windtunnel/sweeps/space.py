"""The search space of a sweep: options of ``translate`` and ``Recipe`` as Optuna's distributions or fixed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from windtunnel.errors import InvalidOption, WindTunnelError, nearest
from windtunnel.modules.base import Module
from windtunnel.program.translate_options import check_options
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.loop.dropout import dropped_modules, has_dropout
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.preparation import residual_base_for_loss

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

TRANSLATE_OPTIONS = ("level", "start", "temperature")
_NOT_SWEPT = {
    "metric": "trials are compared by one metric; give it as metric=...",
    "validation_fraction": "the validation rows are given, so none are held out",
    "loader_memory": "a sweep takes rows, not loaders",
    "joint": "a trial trains either the translation or a residual model; sweep residual: [true, false]",
}
RECIPE_OPTIONS = tuple(field.name for field in fields(Recipe) if field.name not in _NOT_SWEPT)
_INTEGERS = frozenset(name for name, hint in get_type_hints(Recipe).items() if int in (hint, *get_args(hint)))
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
"""The default space; ``default_space`` adds the batch size, from a quarter to four times the recipe's."""
ONLY_WITHOUT_RESIDUAL = (*TRANSLATE_OPTIONS, "table_rate", "tree_rate", "leaf_rate", "dropout")
"""Options that have an effect only without a residual model."""
ONLY_WITH_RESIDUAL = ("residual_rank",)
"""Options that have an effect only with a residual model."""
RISKY = ("temperature", "start")
"""Most values of these options lose accuracy, so the first trials of the default space do not vary them."""


@dataclass(frozen=True)
class Space:
    """The options that trials suggest (name to distribution), and those that all trials share (name to value).

    ``is_default`` says that no space was given: the first trials then leave the options in ``RISKY`` as they are.
    """

    swept: dict[str, BaseDistribution]
    fixed: dict[str, Any]
    is_default: bool = False

    def active(self, residual: bool) -> list[str]:
        """Names of the swept options that have an effect with or without a residual model."""
        without_effect = ONLY_WITHOUT_RESIDUAL if residual else ONLY_WITH_RESIDUAL
        return [name for name in self.swept if name not in without_effect]

    def check_effect(self, residual: bool) -> None:
        """Raise ``InvalidOption`` for swept options without effect, if ``residual`` holds for all trials."""
        idle = [name for name in self.swept if name not in self.active(residual)]
        if idle and "residual" not in self.swept:
            have, trains = "have" if len(idle) > 1 else "has", "a" if residual else "no"
            raise InvalidOption(
                f"space: {', '.join(idle)} {have} no effect, as the recipe trains {trains} residual model; add "
                f"residual: {str(not residual).lower()}, or [true, false]"
            )

    def contains(self, name: str, value: Any) -> bool:
        """Whether a swept option may have this value."""
        from optuna.trial import create_trial

        try:
            create_trial(params={name: value}, distributions={name: self.swept[name]}, value=0.0)
        except ValueError:
            return False
        return True


def given_space(space: Mapping[str, Any]) -> Space:
    """Parse a space, and reject one in which every option is fixed.

    Raises
    ------
    InvalidOption
        As ``parse_space``, and where every option is fixed.
    """
    parsed = parse_space(space)
    if not parsed.swept:
        raise InvalidOption(
            "space fixes everything and leaves nothing to try; give at least one option a list or a range"
        )
    return parsed


def parse_space(space: Mapping[str, Any], *, is_default: bool = False) -> Space:
    """Convert a space as users write it.

    Parameters
    ----------
    space : mapping
        Name to a list (one of its values), a mapping of low, high and optionally log or step (a range), a distribution
        of Optuna, or a single value (fixed).

    Raises
    ------
    InvalidOption
        Names all errors: unknown names with the nearest valid one, values that the option does not accept.
    """
    from optuna.distributions import BaseDistribution

    if not isinstance(space, Mapping):
        raise InvalidOption(
            f"space={space!r} must be a mapping, such as {{'learning_rate': {{'low': 1e-5, 'high': 1e-2}}}}"
        )
    swept: dict[str, BaseDistribution] = {}
    fixed: dict[str, Any] = {}
    errors = []
    for name, value in space.items():
        try:
            option = _parse_option(str(name), value)
        except (WindTunnelError, ValueError) as error:  # ValueError: from Optuna's distributions
            errors.append(str(error) if isinstance(error, WindTunnelError) else f"{name}: {error}")
            continue
        if isinstance(option, BaseDistribution):
            swept[name] = option
        else:
            fixed[name] = option
    if errors:
        raise InvalidOption("space: " + "; ".join(errors))
    return Space(swept, fixed, is_default)


def _parse_option(name: str, value: Any) -> Any:
    """A distribution, or the fixed value; a distribution over a single value is that value."""
    from optuna.distributions import BaseDistribution, CategoricalDistribution

    if name in _NOT_SWEPT:
        raise InvalidOption(f"{name}: {_NOT_SWEPT[name]}")
    if name not in TRANSLATE_OPTIONS + RECIPE_OPTIONS:
        raise InvalidOption(f"{name} is no option: {nearest(name, TRANSLATE_OPTIONS + RECIPE_OPTIONS)}")
    option = value
    if isinstance(value, tuple):
        raise InvalidOption(f"{name}: {value!r} could be a range or values; give {{'low': ..., 'high': ...}} or a list")
    if isinstance(value, list):
        if unstored := [choice for choice in value if not isinstance(choice, str | int | float | bool | None)]:
            raise InvalidOption(f"{name}: {unstored[0]!r} cannot be stored; use text, numbers, true, false and null")
        option = CategoricalDistribution(value)
    elif isinstance(value, Mapping) and (name != "level" or set(value) & set(_RANGE)):
        option = _parse_range(name, value)
    values = [option]
    if isinstance(option, BaseDistribution):
        values = [*option.choices] if isinstance(option, CategoricalDistribution) else [option.low, option.high]  # type: ignore[attr-defined]
    for each in values:
        check_options(**{name: each}) if name in TRANSLATE_OPTIONS else Recipe.resolve(None, {name: each})
    return values[0] if isinstance(option, BaseDistribution) and option.single() else option


def _parse_range(name: str, bounds: Mapping[str, Any]) -> BaseDistribution:
    from optuna.distributions import FloatDistribution, IntDistribution

    if unknown := [key for key in bounds if key not in _RANGE]:
        raise InvalidOption(f"{name}: unknown key {unknown[0]!r} of a range: {nearest(str(unknown[0]), _RANGE)}")
    if missing := [key for key in ("low", "high") if key not in bounds]:
        raise InvalidOption(f"{name}: a range needs low and high; {' and '.join(missing)} is missing")
    numbers = {key: bounds[key] for key in ("low", "high", "step") if bounds.get(key) is not None or key != "step"}
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidOption(f"{name}: {key}={value!r} must be a number")
    if not isinstance(log := bounds.get("log", False), bool):
        raise InvalidOption(f"{name}: log={log!r} must be true or false")
    if name not in _INTEGERS:
        return FloatDistribution(**numbers, log=log)
    if not all(float(value).is_integer() for value in numbers.values()):
        raise InvalidOption(f"{name}: low, high and step must be whole numbers")
    return IntDistribution(**{key: int(value) for key, value in numbers.items()}, log=log)


def default_space(net: TranslatedPipeline, recipe: Recipe, rows: int) -> Space:
    """The options that have an effect on this translation, trained on ``rows`` rows.

    Without trees there is no level, temperature, tree or leaf rate, without category tables no table rate. ``residual``
    is swept where the recipe trains a residual model.
    """
    residual = recipe.residual and residual_base_for_loss(net, recipe) is not None
    modules = [module for module in net.modules() if isinstance(module, Module)]
    kinds = {
        module.KINDS.get(name, "")
        for module in modules
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.requires_grad
    }
    without = {
        "residual": not residual,
        "residual_rank": not residual,
        "level": "leaf" not in kinds,
        "temperature": "leaf" not in kinds,
        "tree_rate": "tree" not in kinds,
        "leaf_rate": "leaf" not in kinds,
        "table_rate": "table" not in kinds,
        "start": not kinds & {"leaf", "table"},
        "dropout": not dropped_modules(net.program) and not any(map(has_dropout, modules)),
    }
    size = recipe.rows_per_step(rows)
    space = {name: option for name, option in DEFAULT.items() if not without.get(name, False)}
    space["batch_size"] = {"low": max(1, size // 4), "high": min(rows, size * 4), "log": True}
    return parse_space(space, is_default=True)

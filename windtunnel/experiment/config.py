"""The config of an experiment: one frozen pydantic model per section of a YAML file."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, field_validator, model_validator

from windtunnel.errors import BadInput, nearest
from windtunnel.experiment.steps import (
    COMPOSITIONS,
    PASSTHROUGH,
    Section,
    StepConfig,
    estimator_class,
)
from windtunnel.experiment.yaml_text import parse_yaml
from windtunnel.sweeps.settings import SweepOptions

Fraction = Annotated[float, Field(gt=0, lt=1)]
Names = Annotated[tuple[str, ...], BeforeValidator(lambda names: [names] if isinstance(names, str) else names)]
"""Names of columns: a list, or one name."""


class DataConfig(Section):
    """The files, the target and the split of the rows."""

    folder: Path = Path()  # file names are relative to it; ``--data`` on the command line
    # train, valid, test: CSV, CSV.gz or Parquet files. Without ``valid`` or ``test``, a fraction of ``train`` is
    # held out
    train: str
    valid: str | None = None
    test: str | None = None
    target: str  # the column to predict
    split: str | None = None
    """A column of ``train`` that holds "train", "valid" or "test" in every row, instead of further files."""
    drop: Names = ()  # columns to leave out
    categorical: Names = ()  # columns to read as text, even if they hold numbers
    # validation_fraction, test_fraction: fractions of the rows of ``train`` to hold out, in (0, 1)
    validation_fraction: Fraction = 0.15
    test_fraction: Fraction = 0.15
    seed: int = Field(default=0, ge=0)  # seed of the rows held out, and of the calibration rows
    positive: Any = None
    """The class to predict, the second one of the model. The first is the other value of the column, or "not
    <positive>" if there are more."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.split is not None and (self.valid is not None or self.test is not None):
            raise BadInput(f"split={self.split!r} with valid or test; give the column or the files, not both")
        if needed := [name for name in (self.target, self.split) if name in self.drop]:
            raise BadInput(f"drop has {needed[0]!r}, which is the target or the split; leave it out of drop")
        if self.positive is not None and not isinstance(self.positive, str | int | float):
            raise BadInput(f"positive={self.positive!r}; give one value of the target")
        if self.validation_fraction + self.test_fraction >= 1:
            raise BadInput(
                f"validation_fraction={self.validation_fraction} and test_fraction={self.test_fraction} leave no rows "
                "for training; together they must be below 1"
            )
        return self


def _as_list(steps: Any) -> Any:
    if steps == PASSTHROUGH:
        return []
    return steps if isinstance(steps, Sequence) and not isinstance(steps, str) else [steps]


Steps = Annotated[tuple[StepConfig, ...], BeforeValidator(_as_list)]


class PipelineConfig(Section):
    """Steps for text columns, steps for the other columns, and a model on both."""

    categories: Steps = ()  # for text columns; the last one has to output numbers
    numbers: Steps = ()  # for the other columns; empty, or "passthrough" in a file, leaves them unchanged
    model: StepConfig  # a classifier or a regressor, or a list of steps that ends in one (a ``Pipeline``)

    @field_validator("model", mode="before")
    @classmethod
    def _list_to_pipeline(cls, step: Any) -> Any:
        return {"Pipeline": step} if isinstance(step, Sequence) and not isinstance(step, str) else step

    @field_validator("model")
    @classmethod
    def _predicts(cls, step: StepConfig) -> StepConfig:
        if (name := step.last.name) in (*COMPOSITIONS, PASSTHROUGH) or not _is_predictor(estimator_class(name)):
            raise BadInput(f"{name} is no classifier or regressor; put it under categories or numbers")
        return step


def _is_predictor(estimator: type[Any]) -> bool:
    from sklearn.base import ClassifierMixin, RegressorMixin

    of_catboost = getattr(estimator, "_estimator_type", None) in ("classifier", "regressor")
    return issubclass(estimator, (ClassifierMixin, RegressorMixin)) or of_catboost


class TranslateConfig(Section):
    """Arguments of ``windtunnel.translate``, and the number of training rows that calibrate it (0 for none)."""

    level: Any = "L4"
    start: Literal["warm", "cold"] = "warm"
    temperature: Any = "auto"
    calibrate_rows: int = Field(default=5000, ge=0)

    @model_validator(mode="after")
    def _accepted_options(self) -> Self:
        from windtunnel.program.translate_options import check_options

        check_options(self.level, self.start, self.temperature)
        return self


class SweepConfig(SweepOptions):
    """Arguments of ``windtunnel.sweep``; recipe, level, start and temperature have other sections.

    ``storage`` is ``sweep.db`` in the output folder by default.
    """

    storage: str | None = None
    space: dict[str, Any] | None = None

    @field_validator("space")
    @classmethod
    def _accepted_space(cls, space: dict[str, Any] | None) -> dict[str, Any] | None:
        if space is not None and find_spec("optuna") is not None:
            from windtunnel.sweeps.space import given_space

            given_space(space)
        return space


class Config(Section):
    """One experiment: data, pipeline, translation, recipe, sweep, and the output folder."""

    data: DataConfig
    pipeline: PipelineConfig
    translate: TranslateConfig = Field(default_factory=TranslateConfig)
    recipe: dict[str, Any] = {}
    """Options of ``windtunnel.Recipe``, and under ``name`` the recipe that they change. In a file, a name alone stands
    for that recipe."""
    sweep: SweepConfig = SweepConfig()
    output: Path = Path("runs/fit")

    @field_validator("recipe", mode="before")
    @classmethod
    def _name_to_recipe(cls, recipe: Any) -> Any:
        return {"name": recipe} if isinstance(recipe, str) else recipe

    @field_validator("recipe")
    @classmethod
    def _accepted_recipe(cls, recipe: dict[str, Any]) -> dict[str, Any]:
        from windtunnel.trainers.recipe import Recipe

        Recipe.resolve(recipe.get("name"), {key: value for key, value in recipe.items() if key != "name"})
        return recipe

    @property
    def fit_options(self) -> dict[str, Any]:
        """The recipe as arguments of ``Translation.fit``."""
        options = dict(self.recipe)
        return {"recipe": options.pop("name", None), **options}

    @classmethod
    def from_yaml(cls, path: str | Path, overrides: Mapping[str, Any] | None = None) -> Self:
        """Read a config from a file.

        Parameters
        ----------
        path : path
        overrides : mapping, optional
            Dotted key to the value that replaces the file's, such as ``{"recipe.epochs": 3}``.

        Raises
        ------
        BadInput
            Names all missing keys, and unknown ones with the nearest valid ones; or else all wrong values.
        FileNotFoundError
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is no text in UTF-8 ({error}); save it as UTF-8") from error
        values = parse_yaml(text, str(path))
        if not isinstance(values, dict):
            raise BadInput(
                f"{path} holds {reprlib.repr(values)}; a config is a mapping with the keys "
                f"{', '.join(cls.model_fields)}"
            )
        for key, value in (overrides or {}).items():
            _replace(values, key, value)
        if errors := list(_wrong_keys(cls, values)):
            raise BadInput(f"{path}: " + "; ".join(errors))
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise BadInput(f"{path}: " + "; ".join(map(_message, error.errors()))) from error


def _replace(values: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for key in parents:
        section = values.setdefault(key, {})
        if not isinstance(section, dict):
            raise BadInput(f"{dotted!r} cannot be set: {key!r} is {section!r}, no mapping")
        values = section
    values[last] = value


def _wrong_keys(section: type[BaseModel], values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The messages about unknown and missing keys of a section and those in it; nothing slow is imported for them."""
    fields = section.model_fields
    for key, field in fields.items():
        if field.is_required() and key not in values:
            yield f"key {f'{prefix}{key}'!r} is missing"
    for key, value in values.items():
        kind = fields[key].annotation if key in fields else None
        if key not in fields:
            yield f"unknown key {f'{prefix}{key}'!r}: {nearest(str(key), fields)}"
        elif isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, BaseModel):
            if kind is not StepConfig:  # whose only key is the name of an estimator
                yield from _wrong_keys(kind, value, f"{prefix}{key}.")


def _message(error: Any) -> str:
    """The message of one of pydantic's errors, with its key."""
    key = ".".join(map(str, error["loc"]))
    if error["type"] == "value_error":
        return f"{key}: {str(error['ctx']['error']).removeprefix(f'{key}: ')}"
    return f"{key}={error['input']!r}: {error['msg'][:1].lower()}{error['msg'][1:]}"

"""What ``windtunnel fit`` reads: one frozen model per section of a YAML file, unknown keys rejected by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from lightgbm.basic import _ConfigAliases
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.pipeline import make_pipeline, make_union

from windtunnel.errors import BadInput
from windtunnel.experiment.sweep_config import SweepConfig
from windtunnel.modules.trees.soft.trees import LEVELS
from windtunnel.trainers.recipe import Recipe
from windtunnel.translators import supported

Share = Annotated[float, Field(gt=0, lt=1)]
COMPOSITIONS: dict[str, Callable[..., Any]] = {"Pipeline": make_pipeline, "FeatureUnion": make_union}
"""Estimators made of a list of steps, which a config writes as a list: one after the other, or side by side."""
INNER = ("estimator", "encoder", "final_estimator", "regressor", "transformer")
"""Options of estimators that take another estimator."""


class Section(BaseModel):
    """A mapping whose keys are all known, with values that do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataConfig(Section):
    """Where the rows are, and which of them are for what.

    Attributes
    ----------
    folder : path
        What file names are relative to; ``--data`` on the command line.
    train, valid, test : str
        CSV, CSV.gz or Parquet files. Where ``valid`` or ``test`` is missing, a share of ``train`` is held out.
    target : str
        The column to predict.
    split : str or None
        A column of ``train`` with "train", "valid" or "test" in every row, instead of other files.
    drop : list of str
        Columns to leave out.
    categorical : list of str
        Columns to read as text, whatever they look like.
    validation_fraction, test_fraction : float
        Shares of the rows of ``train`` to hold out, in (0, 1).
    seed : int
        Of the rows held out, and of those that calibrate the translation.
    positive : scalar or None
        The target becomes 1 where the column is this value, else 0.
    """

    folder: Path = Path()
    train: str
    valid: str | None = None
    test: str | None = None
    target: str
    split: str | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    validation_fraction: Share = 0.15
    test_fraction: Share = 0.15
    seed: int = Field(default=0, ge=0)
    positive: Any = None

    @model_validator(mode="after")
    def _one_way_to_split(self) -> Self:
        if self.split is not None and (self.valid is not None or self.test is not None):
            raise BadInput(f"split={self.split!r} beside valid or test; give the column or the files, not both")
        if self.validation_fraction + self.test_fraction >= 1:
            raise BadInput(
                f"validation_fraction={self.validation_fraction} and test_fraction={self.test_fraction} leave no rows "
                "for training; together they must be below 1"
            )
        return self


class StepConfig(Section):
    """One estimator: a class with a translation, by name, and the options of its constructor.

    Written as ``Name`` or ``Name: {option: value, ...}``. A name that two libraries use is written with its library,
    such as ``category_encoders.OneHotEncoder``. An option that takes another estimator is written as a step again:
    ``LeafEncoder: {estimator: {LGBMClassifier: {num_leaves: 64}}}``. ``Pipeline: [step, ...]`` puts steps one after
    the other, ``FeatureUnion: [step, ...]`` their answers side by side, where ``passthrough`` stands for the columns
    as they are.
    """

    name: str
    options: dict[str, Any] = {}
    estimators: dict[str, StepConfig] = {}
    steps: tuple[StepConfig, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"name": given}
        if isinstance(given, Mapping) and "name" in given and set(given) <= set(cls.model_fields):
            return given  # as a summary.json writes it
        if isinstance(given, Mapping) and len(given) == 1 and all(isinstance(name, str) for name in given):
            ((name, options),) = given.items()
            if name in COMPOSITIONS and isinstance(options, Sequence) and not isinstance(options, str):
                return {"name": name, "steps": options}
            if name not in COMPOSITIONS and (options is None or isinstance(options, Mapping)):
                return {"name": name, **_apart(options or {})}
        raise BadInput(
            f"{given!r} is no step; write Name, or Name: {{option: value}}; {_listed(COMPOSITIONS)} take lists of steps"
        )

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.name in COMPOSITIONS:
            if not self.steps:
                raise BadInput(f"{self.name} has no steps; write {self.name}: [step, ...]")
            return self
        if self.steps:
            raise BadInput(f"{self.name} takes no list of steps; {_listed(COMPOSITIONS)} do")
        if self.name == PASSTHROUGH:
            return self
        cls = estimator_class(self.name)
        known, given = _options(cls), {**self.options, **self.estimators}
        wrong = [f"{self.name} has no option {one!r}{_nearest(one, known)}" for one in given if one not in known]
        wrong += [
            f"{self.name} needs the option {one!r}, a step such as {one}: LGBMClassifier"
            for one in _required(cls)
            if one not in given
        ]
        if wrong:
            raise BadInput("; ".join(wrong))
        return self

    @model_serializer(mode="wrap")
    def _written(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what few steps have."""
        values: dict[str, Any] = written(self)
        return {key: value for key, value in values.items() if value or key in ("name", "options")}

    @property
    def last(self) -> StepConfig:
        """The step itself, or the last one of a ``Pipeline``."""
        return self.steps[-1].last if self.name == "Pipeline" else self

    def build(self) -> Any:
        """Make the estimator, not fitted."""
        if self.name == PASSTHROUGH:
            return PASSTHROUGH
        if self.name in COMPOSITIONS:
            return COMPOSITIONS[self.name](*(step.build() for step in self.steps))
        inner = {option: step.build() for option, step in self.estimators.items()}
        return estimator_class(self.name)(**self.options, **inner)


PASSTHROUGH = "passthrough"


def _apart(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Options that are estimators apart from plain ones."""
    inner = {name: value for name, value in options.items() if name in INNER and value is not None}
    return {"options": {name: value for name, value in options.items() if name not in inner}, "estimators": inner}


def _as_list(given: Any) -> Any:
    if given == PASSTHROUGH:
        return []
    return given if isinstance(given, Sequence) and not isinstance(given, str) else [given]


Steps = Annotated[tuple[StepConfig, ...], BeforeValidator(_as_list)]


class PipelineConfig(Section):
    """Steps for the columns that hold categories, steps for those that hold numbers, and a model over both.

    Attributes
    ----------
    categories : list of steps
        For text columns; the last one has to give numbers.
    numbers : list of steps
        For the other columns; empty, or "passthrough" in a file, leaves them as they are.
    model : step
        A classifier or a regressor, or a list of steps that ends in one, which is a ``Pipeline``.
    """

    categories: Steps = ()
    numbers: Steps = ()
    model: StepConfig

    @field_validator("model", mode="before")
    @classmethod
    def _chained(cls, given: Any) -> Any:
        return {"Pipeline": given} if isinstance(given, Sequence) and not isinstance(given, str) else given

    @field_validator("model")
    @classmethod
    def _predicts(cls, step: StepConfig) -> StepConfig:
        name = step.last.name
        if name in (*COMPOSITIONS, PASSTHROUGH) or not issubclass(
            estimator_class(name), (ClassifierMixin, RegressorMixin)
        ):
            raise BadInput(f"{name} is no classifier or regressor; put it under categories or numbers")
        return step


class TranslateConfig(Section):
    """The arguments of ``windtunnel.translate``, and how many training rows calibrate it (0 for none)."""

    level: Any = "L4"
    start: Literal["warm", "cold"] = "warm"
    temperature: Any = "auto"
    calibrate_rows: int = Field(default=5000, ge=0)

    @field_validator("level")
    @classmethod
    def _a_level(cls, given: Any) -> Any:
        for level in given.values() if isinstance(given, dict) else [given]:
            if level not in LEVELS:
                raise BadInput(f"{level!r} is no level; take one of {', '.join(LEVELS)}, or {{step: level}}")
        return given

    @field_validator("temperature")
    @classmethod
    def _a_temperature(cls, given: Any) -> Any:
        number = isinstance(given, (int, float)) and not isinstance(given, bool)
        if given != "auto" and not (number and 0 < given < float("inf")):
            raise BadInput(f"{given!r} is no temperature; take auto or a number above 0")
        return given


class Config(Section):
    """One experiment: data, pipeline, translation, recipe, and the folder for what comes out.

    Attributes
    ----------
    recipe : dict
        Options of ``windtunnel.Recipe``, which have been checked, and under ``name`` the recipe that they change;
        a name alone stands for that recipe as it is.
    output : path
    """

    data: DataConfig
    pipeline: PipelineConfig
    translate: TranslateConfig = TranslateConfig()
    recipe: dict[str, Any] = {}
    sweep: SweepConfig = SweepConfig()
    output: Path = Path("runs/fit")

    @field_validator("recipe", mode="before")
    @classmethod
    def _by_name(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given

    @field_validator("recipe")
    @classmethod
    def _a_recipe(cls, given: dict[str, Any]) -> dict[str, Any]:
        Recipe.resolve(given.get("name"), {key: value for key, value in given.items() if key != "name"})
        return given

    @property
    def fit_options(self) -> dict[str, Any]:
        """The recipe as arguments of ``Translation.fit``."""
        options = dict(self.recipe)
        return {"recipe": options.pop("name", None), **options}

    @classmethod
    def from_yaml(cls, path: str | Path, overrides: Mapping[str, Any] | None = None) -> Self:
        """Read a file.

        Parameters
        ----------
        path : path
        overrides : mapping, optional
            Values that replace the file's, by dotted key, such as ``{"recipe.epochs": 3}``.

        Raises
        ------
        BadInput
            Naming all that is wrong: unknown keys with the nearest valid ones, missing keys, wrong values.
        FileNotFoundError
        """
        given = parse_yaml(Path(path).read_text(encoding="utf-8"), str(path))
        if not isinstance(given, dict):
            raise BadInput(f"{path} holds {given!r}; a config is a mapping with the keys {_listed(cls.model_fields)}")
        for key, value in (overrides or {}).items():
            _put(given, key, value)
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            wrong = [_told(one) for one in error.errors()]
            raise BadInput(f"{path}: " + "; ".join(wrong)) from error


def _told(error: Any) -> str:
    """One of pydantic's errors, with the key it is about."""
    *parents, last = error["loc"] or ("",)
    where = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        known = _section(parents).model_fields
        return f"unknown key {where!r}{_nearest(str(last), known)}"
    if error["type"] == "missing":
        return f"key {where!r} is missing"
    if error["type"] == "value_error":
        return f"{where}: {str(error['ctx']['error']).removeprefix(f'{where}: ')}"
    return f"{where}={error['input']!r}: {error['msg'][:1].lower()}{error['msg'][1:]}"


def _section(path: Sequence[Any]) -> type[BaseModel]:
    section: type[BaseModel] = Config
    for key in path:
        inner = section.model_fields[key].annotation
        assert isinstance(inner, type) and issubclass(inner, BaseModel)  # steps take their keys apart themselves
        section = inner
    return section


@cache
def _estimators() -> dict[str, type]:
    """Classes with a translation, by the name that a config writes; those made of lists of others are left out."""
    every = [
        (entry.library, entry.estimator)
        for entry in supported()
        if hasattr(entry.estimator, "fit") and not _needs_arguments(entry.estimator)
    ]
    names = [estimator.__name__ for _, estimator in every]
    return {
        estimator.__name__ if names.count(estimator.__name__) == 1 else f"{library}.{estimator.__name__}": estimator
        for library, estimator in every
    }


def _needs_arguments(estimator: type) -> bool:
    """Whether the constructor asks for something that a config cannot write."""
    return any(name not in INNER for name in _required(estimator))


def _required(estimator: type) -> list[str]:
    """Arguments of the constructor without a default."""
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    parameters = signature(estimator).parameters.values()
    return [one.name for one in parameters if one.default is Parameter.empty and one.kind in named]


def estimator_class(name: str) -> type:
    """Find the class that a config means by a name; ``BadInput`` for names that are not on the list."""
    known = _estimators()
    if name in known:
        return known[name]
    bare = {full: full.rpartition(".")[2] for full in known}
    if same := [full for full, one in bare.items() if one == name]:
        raise BadInput(f"{name!r} is in more than one library; write {' or '.join(same)}")
    if name.rpartition(".")[2] in known:
        raise BadInput(f"{name!r} is written {name.rpartition('.')[2]!r} here")
    raise BadInput(f"no estimator {name!r} with a translation{_nearest(name, known)}")


OF_OBJECTIVES = ("huber_slope", "quantile_alpha", "tweedie_variance_power")
"""Options of XGBoost's objectives, which its estimators take and do not name."""


def _options(estimator: type) -> list[str]:
    """Names that the constructor takes."""
    parameters = signature(estimator).parameters.values()
    names = [one.name for one in parameters if one.kind is not Parameter.VAR_KEYWORD]
    if len(names) == len(parameters):
        return names
    if not _required(estimator):
        names += [name for name in estimator().get_params() if name not in names]  # XGBoost names few of its own
    if estimator.__module__.startswith("lightgbm"):
        # LightGBM swallows options that it does not know, so a slip of the pen would go unnoticed.
        aliases = _ConfigAliases._get_all_param_aliases()
        names += [name for group in aliases.values() for name in group if name not in names]
    if estimator.__module__.startswith("xgboost"):
        names += OF_OBJECTIVES
    return names


def _nearest(name: str, known: Any) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else f"; there are {_listed(known)}"


def _listed(names: Any) -> str:
    names = list(names)
    return ", ".join(names[:40]) + (f" and {len(names) - 40} more" if len(names) > 40 else "")


class _Loader(yaml.SafeLoader):
    """Safe YAML that reads 1e-3 as a number, not as text, and rejects a key that is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key, _ in node.value:
            if keys.count(key.value) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def parse_yaml(text: str, name: str) -> Any:
    """Read a YAML text; ``BadInput`` with line and column where it is not YAML."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  # a SafeLoader
    except yaml.YAMLError as error:
        raise BadInput(f"{name} is not valid YAML: {' '.join(str(error).split())}") from error


def _put(given: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for key in parents:
        inner = given.setdefault(key, {})
        if not isinstance(inner, dict):
            raise BadInput(f"{dotted!r} cannot be set: {key!r} is {inner!r}, no mapping")
        given = inner
    given[last] = value

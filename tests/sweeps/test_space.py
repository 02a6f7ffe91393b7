"""Search spaces of sweeps, and the errors for spaces and arguments that are not accepted."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sweep_case import RESIDUAL, SPACE, TRAIN, VALID, logistic, trees
from sweep_runs import OPTIONS, auroc, sweep

import windtunnel
from windtunnel.errors import BadInput, InvalidOption
from windtunnel.sweeps.space import DEFAULT, RECIPE_OPTIONS, TRANSLATE_OPTIONS, Space, default_space, parse_space


def test_the_default_space_leaves_out_options_without_effect() -> None:
    def names(fitted: Any, recipe: str) -> set[str]:
        return set(default_space(windtunnel.translate(fitted).soften(), windtunnel.Recipe.named(recipe), 200).swept)

    assert names(logistic(), "default") == {
        "residual", "residual_rank", "learning_rate", "weight_decay", "batch_size", "ema", "dropout"
    }  # fmt: skip
    assert names(logistic(), "joint") == {"learning_rate", "weight_decay", "batch_size", "ema", "dropout"}
    assert names(trees(), "default") == {*DEFAULT, "batch_size"} - {"table_rate"}


def test_a_loss_of_the_source_scores_leaves_no_residual_model_to_sweep() -> None:
    net = windtunnel.translate(OneVsRestClassifier(LogisticRegression()).fit(*TRAIN)).soften()
    assert "residual" in default_space(net, windtunnel.Recipe(), 200).swept
    assert "residual" not in default_space(net, windtunnel.Recipe(loss="logistic"), 200).swept


@pytest.mark.parametrize("option", [*TRANSLATE_OPTIONS, *RECIPE_OPTIONS])
def test_every_option_can_be_fixed(option: str) -> None:
    defaults = {"level": "L4", "start": "warm", "temperature": "auto"}
    value = defaults[option] if option in defaults else getattr(windtunnel.Recipe(), option)
    assert parse_space({option: value}).fixed == {option: value}


def test_a_space_is_the_same_from_yaml_and_from_optuna() -> None:
    text = """
    learning_rate: {low: 0.00001, high: 0.01, log: true}
    level: [L1, L4]
    batch_size: {low: 256, high: 4096, step: 256}
    dropout: {low: 0.0, high: 0.5, step: 0.1}
    temperature: {low: 0.1, high: 1}
    weight_decay: [0.0]
    epochs: 5
    """
    distributions: dict[str, Any] = {
        "learning_rate": FloatDistribution(1e-5, 1e-2, log=True),
        "level": CategoricalDistribution(["L1", "L4"]),
        "batch_size": IntDistribution(256, 4096, step=256),
        "dropout": FloatDistribution(0.0, 0.5, step=0.1),
        "temperature": FloatDistribution(0.1, 1),
    }
    fixed = {"weight_decay": 0.0, "epochs": 5}
    written = {**distributions, "weight_decay": CategoricalDistribution([0.0]), "epochs": 5}
    assert parse_space(yaml.safe_load(text)) == Space(distributions, fixed)
    assert parse_space(written) == Space(distributions, fixed)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"learning_rat": [1e-3]}, "learning_rat is no option: did you mean learning_rate?"),
        (
            {"levl": ["L1"], "epoch": [1, 2]},
            "levl is no option: did you mean level?; epoch is no option: did you mean epochs?",
        ),
        ({"untranslated": ["cache"]}, "untranslated is no option"),
        ({"metric": ["auroc"]}, "give it as metric=..."),
        ({"level": ["L1", "L9"]}, "level='L9'; accepted are L0, L1, L2, L3, L4"),
        ({"level": {"low": 1, "high": 2}}, "level=1.0; accepted are L0, L1"),
        ({"dropout": {"lo": 0.1, "high": 0.2}}, "unknown key 'lo' of a range: did you mean low?"),
        ({"dropout": {"low": 0.1}}, "a range needs low and high; high is missing"),
        ({"dropout": {"low": 0.5, "high": 0.1}}, "dropout: `low <= high` must hold, but got (low=0.5, high=0.1)"),
        ({"dropout": {"low": 0.5, "high": 1.0}}, "dropout=1.0 must be in [0, 1)"),
        ({"dropout": {"low": "0", "high": 0.5}}, "low='0' must be a number"),
        ({"weight_decay": {"low": 0.0, "high": 0.1, "log": True}}, "weight_decay: `low > 0` must hold for `log=True`"),
        ({"batch_size": {"low": 1.5, "high": 8}}, "must be whole numbers"),
        ({"batch_size": [32, "many"]}, "batch_size='many' must be a whole number from 1, or None"),
        ({"optimizer": []}, "optimizer: The `choices` must contain one or more elements"),
        ({"ema": [0.9, (1,)]}, "cannot be stored"),
        ({"temperature": [1.0, -1.0]}, "temperature=-1.0; accepted are 'auto' and finite numbers above 0"),
        ({"epochs": 3}, "leaves nothing to try"),
        ({"loss": ["logistic", "hinge"]}, "name a metric"),
        ([("level", "L1")], "must be a mapping"),
    ],
)
def test_errors_of_a_space_name_the_option(space: Any, message: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        sweep(None, space=space)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials=0: Input should be greater than or equal to 1"),
        ({"timeout": 0}, "timeout=0: Input should be greater than 0"),
        ({"timeout": "1h", "jobs": True}, "timeout='1h': Input should be a valid number; jobs=True: Input should be"),
        ({"jobs": 2}, "processes share their trials by a URL"),
        ({"jobs": 2, "storage": "sqlite:///:memory:"}, "processes share their trials by a URL"),
        ({"storage": "sweep.db"}, "give a URL such as sqlite:///sweep.db"),
        ({"storage": "sqlite:////no/such/folder/sweep.db"}, "in a folder that exists"),
        (
            {"objectives": ("metric", "inference_costs")},
            "objectives=('metric', 'inference_costs'): accepted are ('metric',) and",
        ),
        ({"objectives": "metric"}, "accepted are ('metric',)"),
        ({"objectives": ("metric", "inference_cost"), "pruner": optuna.pruners.NopPruner()}, "leave it out"),
        ({"metric": "gini"}, "metric='gini' is not known"),
        ({"space": {"level": ["L1", "L4"]}, "recipe": None}, "level has no effect, as the recipe trains a residual"),
        (
            {"space": {"leaf_rate": [0.1, 1.0], "residual": True}, "recipe": "joint"},
            "leaf_rate has no effect, as the recipe trains a residual model; add residual: false",
        ),
        (
            {"space": {"residual_rank": [0, 4]}, "recipe": "joint"},
            "residual_rank has no effect, as the recipe trains no residual model; add residual: true",
        ),
    ],
)
def test_wrong_arguments_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        sweep(logistic(), **options)
    assert message in str(raised.value)


def test_rows_are_pairs_and_options_of_translate_are_checked() -> None:
    with pytest.raises(BadInput, match=r"valid is a list; a sweep takes \(X, y\)"):
        windtunnel.sweep(logistic(), TRAIN, [VALID], **OPTIONS)
    with pytest.raises(InvalidOption, match="start='hot'"):
        sweep(logistic(), start="hot")


# Options with an effect


def test_options_are_suggested_where_they_have_an_effect() -> None:
    space = {**SPACE, "residual": [True, False], "residual_rank": [0, 8], "level": ["L1", "L4"]}
    result = sweep(trees(), 8, space=space, recipe=RESIDUAL)
    residual = result.history["residual"]
    assert set(residual) == {True, False} and residual.iloc[0]
    assert result.history["level"].isna().tolist() == residual.tolist()
    assert result.history["residual_rank"].isna().tolist() == (~residual).tolist()
    assert {len(trial.params) for trial in result.study.trials} == {4}
    assert auroc(result.net) == pytest.approx(result.best_value, abs=1e-6)
    assert result.best_value > result.history[~residual]["auroc"].max()
    assert "residual" in [origin.name for origin in result.net.origins]

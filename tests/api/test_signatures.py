"""The signatures that completion and ``help`` show."""

from dataclasses import fields
from inspect import Parameter, signature
from typing import get_args, get_type_hints

import windtunnel
from windtunnel import Recipe
from windtunnel.export import FORMATS, Format
from windtunnel.trainers.recipe_options import RecipeOptions


def test_fit_shows_every_option_with_its_default() -> None:
    shown = signature(windtunnel.Translation.fit).parameters
    recipe = {field.name: field.default for field in fields(Recipe)}
    assert {name: shown[name].default for name in recipe} == recipe
    assert {"train", "valid", "recipe", "trainer", "progress"} <= set(shown)
    assert not any(each.kind is Parameter.VAR_KEYWORD for each in shown.values())


def test_other_functions_show_the_options_that_they_hand_on() -> None:
    crossfit, serve, sweep = (
        signature(each).parameters for each in (windtunnel.crossfit, windtunnel.serve, windtunnel.sweep)
    )
    assert {"folds", "progress", "log_dir", "epochs", "metric"} <= set(crossfit) and "train" not in crossfit
    assert serve["max_batch"].default == signature(windtunnel.Server).parameters["max_batch"].default
    assert not any(each.kind is Parameter.VAR_KEYWORD for shown in (crossfit, serve, sweep) for each in shown.values())


def test_type_checkers_read_the_fields_of_the_recipe() -> None:
    assert get_type_hints(RecipeOptions) == get_type_hints(Recipe)


def test_type_checkers_read_the_names_of_the_formats() -> None:
    assert get_args(Format) == tuple(FORMATS)

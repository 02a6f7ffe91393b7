"""Recipes: names, options, and the errors for options that are not accepted."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from small_net import QUICK, TASKS, SmallNet, finetune, rows

from windtunnel.errors import InvalidOption
from windtunnel.trainers.recipe import Recipe


def test_all_invalid_options_are_named_at_once() -> None:
    with pytest.raises(InvalidOption) as caught:
        Recipe(epochs=0, learning_rate=float("nan"), dropout=1.0, optimizer="adm", patience=0, ema=1, seed=True)
    message = str(caught.value)
    for part in (
        "epochs=0 must be a whole number from 1",
        "learning_rate=nan must be a finite number above 0",
        "dropout=1.0 must be in [0, 1)",
        "optimizer='adm' must be one of adam, adamw, sgd",
        "patience=0 must be",
        "ema=1 must be in (0, 1)",
        "seed=True must be",
    ):
        assert part in message


def test_recipes_by_name() -> None:
    paper = Recipe.named("paper")
    assert (paper.learning_rate, paper.weight_decay, paper.dropout) == (1e-4, 1e-6, 0.1)
    assert Recipe.resolve("paper", {"epochs": 7}) == Recipe.resolve(paper, {"epochs": 7})
    with pytest.raises(InvalidOption, match="recipe='papr' is not known; did you mean paper"):
        Recipe.named("papr")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("learning_rat", "learning_rate"), ("lr", "learning_rate"), ("n_epochs", "epochs"), ("random_state", "seed")],
)
def test_unknown_options_name_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(InvalidOption, match=rf"{name}=1 is not an option: did you mean {nearest}\?"):
        finetune(SmallNet(TASKS["binary"]), rows(), **{name: 1})


def test_a_long_value_of_an_unknown_option_is_not_printed() -> None:
    X, y = rows()
    with pytest.raises(InvalidOption, match=r"^folds=<list> is not an option: choose from residual, [a-z_, ]+$"):
        finetune(SmallNet(TASKS["binary"]), (X, y), folds=[(X, y)], **QUICK)


def test_a_recipe_is_json() -> None:
    recipe = Recipe(loss=lambda s, y, w: s.sum())
    assert json.loads(json.dumps(recipe.facts())) == {**asdict(recipe), "loss": "<lambda>"}


@pytest.mark.parametrize("name", ["joint", "paper"])
def test_a_recipe_of_joint_training_stays_as_it_is_for_a_translation(name: str) -> None:
    assert Recipe.resolve_joint(name, {}) == Recipe.resolve_joint(Recipe.named(name), {}) == Recipe.named(name)


def test_a_translation_is_trained_by_the_recipe_joint_however_the_recipe_is_given() -> None:
    joint = Recipe.named("joint")
    assert Recipe.resolve_joint(None, {}) == Recipe.resolve_joint(Recipe(), {}) == Recipe.resolve_joint("default", {})
    assert Recipe.resolve_joint(Recipe(joint=True), {}) == Recipe.resolve_joint(None, {"joint": True}) == joint
    given = Recipe.resolve_joint(Recipe(epochs=5, seed=3), {"learning_rate": 0.002})
    assert (given.epochs, given.max_steps, given.seed, given.learning_rate) == (5, None, 3, 0.002)
    assert given.table_rate == joint.table_rate


def test_an_override_of_the_end_replaces_that_of_the_recipe_in_joint_training_too() -> None:
    for recipe, override, ends in (
        (Recipe(epochs=5), {"max_steps": 100}, (None, 100)),
        (Recipe(epochs=None, max_steps=50), {"epochs": 3}, (3, None)),
    ):
        for resolve in (Recipe.resolve, Recipe.resolve_joint):
            resolved = resolve(recipe, override)
            assert (resolved.epochs, resolved.max_steps) == ends


def test_a_seed_is_a_number_that_all_libraries_take() -> None:
    assert Recipe(seed=2**31 - 1).seed == 2**31 - 1
    with pytest.raises(InvalidOption, match="a whole number from 0 to below"):
        Recipe(seed=2**31)

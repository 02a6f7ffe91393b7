"""Trees of the native engine: the bits of the modules, and the outputs of the libraries."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import CASES as PIPELINES, LONG_RUN
from families.trees import boosters, leaves, lightgbm, trees as families
from lightgbm import LGBMRegressor
from parity import assert_case, compiled
from sklearn.ensemble import RandomForestRegressor
from tree_ensembles import CASES, OBLIVIOUS, asked_by_level, boosted, rows, stump

from windtunnel.compiler.backends import tree_runner
from windtunnel.compiler.native import build
from windtunnel.compiler.native.image import ImageWriter, operations_of
from windtunnel.compiler.native.lowering import lower
from windtunnel.modules.trees.ensemble import MISSING_NAN, MISSING_NONE, MISSING_ZERO
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.leaves import LeafOneHot, TreeLeaves

TREES = [case.id for family in (boosters, leaves, lightgbm, families) for case in family.CASES]
FEW = [
    "trees of three classes",
    "trees, zero as missing",
    "trees, random forest of classes",
    "booster over pandas categories",
    "xgboost of leaves with two targets",
    "xgboost sets of categories",
    "catboost of three classes",
    "leaves of catboost over categories",
]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-35, 1e-34, -1.0, -0.5, 2.0**31, 2.0**40, 5e-324, 1.7e308]


def awkward_rows(module, count):
    """Thresholds, their neighbours and special numbers, in random order."""
    generator = np.random.default_rng(0)
    splits = module.threshold.numpy()
    splits = splits[np.isfinite(splits)]
    values = [splits, np.nextafter(splits, np.inf), np.nextafter(splits, -np.inf), SPECIAL, np.arange(50.0)]
    drawn = np.concatenate(values)
    x = generator.normal(size=(count, module.width))
    x[:, :4] = rows(count)[:, : module.width]
    return np.where(generator.random(x.shape) < 0.5, generator.choice(drawn, x.shape), x)


def assert_equal_bits(module, counts=(0, 1, 2, 9, 70, 150, 300, 700)):
    run = tree_runner("native").prepare(module)
    for count in counts:
        x = torch.from_numpy(awkward_rows(module, count))
        np.testing.assert_array_equal(run(x).numpy(), module(x).numpy())
        single = x[: min(count, 20)]
        for at in range(len(single)):
            np.testing.assert_array_equal(run(single[at : at + 1]).numpy(), module(single[at : at + 1]).numpy())


@pytest.mark.parametrize("reads", ["float64", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_scores(name, reads):
    assert_equal_bits(HardTrees.of(replace(CASES[name](), reads=reads)))


OF_LEVELS = OBLIVIOUS | {
    "many trees": lambda: asked_by_level([6] * 130),
    "trees of 128 and 256 leaves": lambda: asked_by_level([7, 8] * 70),
    "sets": lambda: replace(
        asked_by_level([1, 1, 1], missing=(MISSING_NAN,)),
        categories={0: np.array([0, 3]), 1: np.array([0, 3]), 2: np.array([70_000])},
    ),
    **{
        f"{width} columns": lambda width=width: asked_by_level([8] * 70, width=width, thresholds=3)
        for width in (100, 200, 400)
    },
}


@pytest.mark.parametrize("name", OF_LEVELS)
def test_trees_that_ask_by_level(name):
    module = HardTrees.of(OF_LEVELS[name]())
    assert operations(module) == ["oblivious_trees"]
    assert_equal_bits(module, counts=(0, 1, 2, 3, 4, 9, 11, 12, 70, 150, 700))


def operations(module):
    image = ImageWriter(module.width, 0)
    return operations_of(image.image(lower(module, image, image.numbers, torch.float64)))


def test_several_values_in_a_leaf():
    ensemble = boosted(categories=[2])
    values = np.random.default_rng(0).normal(size=(len(ensemble.leaf_value), 4))
    zeros = np.zeros(ensemble.trees, np.int64)
    assert_equal_bits(
        HardTrees.of(replace(ensemble, leaf_value=values, output=zeros, base=np.arange(4.0), divisor=15.0))
    )


def test_leaf_numbers():
    ensemble = boosted()
    numbers = np.arange(len(ensemble.leaf_value))
    assert_equal_bits(TreeLeaves.numbered(ensemble, numbers, [5, 3]))
    assert_equal_bits(LeafOneHot.numbered(ensemble, numbers))


@pytest.mark.parametrize("missing", [MISSING_NONE, MISSING_NAN, MISSING_ZERO])
@pytest.mark.parametrize("default_left", [False, True])
@pytest.mark.parametrize("threshold", [0.1, 0.0, -1.0, np.inf, -np.inf, 1.7e308, 5e-324])
def test_decisions(threshold, missing, default_left):
    assert_equal_bits(HardTrees.of(stump(threshold, missing, default_left)), counts=(1, 700))


@pytest.mark.parametrize("members", [[], [0, 3], [70_000, 1 << 20]])
def test_sets_of_categories(members):
    assert_equal_bits(HardTrees.of(stump(0.0, MISSING_NAN, True, categories=members)))


@pytest.mark.parametrize(
    "unfitted",
    [
        LGBMRegressor(n_estimators=30, num_leaves=64, min_child_samples=2, n_jobs=1, verbosity=-1),
        LGBMRegressor(n_estimators=5, num_leaves=400, min_child_samples=1, n_jobs=1, verbosity=-1),
        LGBMRegressor(n_estimators=20, num_leaves=256, max_depth=8, min_child_samples=1, n_jobs=1, verbosity=-1),
        RandomForestRegressor(n_estimators=5, random_state=0),
        RandomForestRegressor(n_estimators=5, max_depth=5, random_state=0),
    ],
    ids=lambda model: f"{type(model).__name__} of {model.n_estimators}",
)
def test_larger_trees(unfitted, columns=6):
    X = np.random.default_rng(0).normal(size=(3000, columns))
    model = unfitted.fit(X, np.sin(3 * X[:, 0]) + X @ np.linspace(1, 0.5, columns) + X[:, 1] * X[:, 2])
    from windtunnel import compile

    (module,) = (step for step in compile(model).program.modules() if isinstance(step, HardTrees))
    run = tree_runner("native").prepare(module)
    for count in (1, 7, 255, 3000):
        x = torch.from_numpy(X[:count])
        np.testing.assert_array_equal(run(x).numpy(), module(x).numpy())


@pytest.mark.parametrize("columns", [50, 100, 200])
def test_trees_of_many_columns(columns):
    test_larger_trees(LGBMRegressor(n_estimators=20, num_leaves=64, max_bin=31, n_jobs=1, verbosity=-1), columns)


@pytest.fixture(params=["-march=x86-64", "-march=x86-64-v3"])
def other_processor(request, monkeypatch, tmp_path):
    """The library without AVX-512, and without AVX2."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-O1", "-DWT_PORTABLE", request.param))
    build.library.cache_clear()
    yield
    build.library.cache_clear()


@pytest.mark.slow
def test_other_processors_give_the_same_bits(other_processor):
    for case in (CASES | OF_LEVELS).values():
        assert_equal_bits(HardTrees.of(case()))
    assert_equal_bits(HardTrees.of(boosted(num_leaves=64, min_data_in_leaf=1)))


@pytest.mark.parametrize("name", TREES if LONG_RUN else FEW)
def test_libraries(name):
    assert_case(PIPELINES[name], compiled(name, backend="native"))

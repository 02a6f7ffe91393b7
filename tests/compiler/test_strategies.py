"""The forms of hard trees: bit for bit what the walk gives, on everything that the walk is right on."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import CASES
from catboost import CatBoostClassifier, CatBoostRegressor
from lightgbm import LGBMClassifier, LGBMRegressor
from tree_ensembles import CASES as ENSEMBLES, OBLIVIOUS, asked_by_level, boosted, rows, scripted, stump

import windtunnel
from windtunnel.compiler import strategies
from windtunnel.compiler.backends import tree_runner
from windtunnel.compiler.cost_model import TREE_STRATEGIES, EnsembleShape, strategies_of
from windtunnel.compiler.strategies import convert_trees
from windtunnel.compiler.tree_costs import coefficients
from windtunnel.errors import InvalidOption
from windtunnel.modules.trees import GemmTrees, HardTrees, PerfectTrees
from windtunnel.modules.trees.ensemble import MISSING_NAN, MISSING_NONE, MISSING_ZERO
from windtunnel.modules.trees.forms.bitvector_tables import RankLookup, TableLookup
from windtunnel.modules.trees.forms.bitvectors import BitvectorTrees
from windtunnel.modules.trees.forms.oblivious import ObliviousTrees
from windtunnel.modules.trees.forms.ranked_walk import RankedWalkTrees
from windtunnel.modules.trees.forms.ranks import Ranks

OTHERS = [GemmTrees, PerfectTrees, RankedWalkTrees, BitvectorTrees]


def joined(*ensembles, outputs):
    """Trees of several ensembles over the same columns, for one score after the other."""
    nodes = np.cumsum([0, *(len(one.feature) for one in ensembles)])
    leaves = np.cumsum([0, *(len(one.leaf_value) for one in ensembles)])
    merged = {
        name: np.concatenate([getattr(one, name) for one in ensembles])
        for name in ("feature", "threshold", "default_left", "missing", "left", "right", "leaf_value")
    }
    return replace(
        ensembles[0],
        width=max(one.width for one in ensembles),
        node_start=np.concatenate([[0], *(one.node_start[1:] + n for one, n in zip(ensembles, nodes, strict=False))]),
        leaf_start=np.concatenate([[0], *(one.leaf_start[1:] + n for one, n in zip(ensembles, leaves, strict=False))]),
        output=np.concatenate([np.arange(one.trees) % outputs for one in ensembles]),
        base=np.linspace(-0.5, 0.5, outputs),
        categories={
            n + node: c for one, n in zip(ensembles, nodes, strict=False) for node, c in one.categories.items()
        },
        leaf_cover=None,
        **merged,
    )


def chain(depth):
    """A tree whose left child is always a leaf."""
    return replace(
        stump(0.0),
        node_start=np.array([0, depth]),
        leaf_start=np.array([0, depth + 1]),
        feature=np.zeros(depth, np.int64),
        threshold=np.linspace(-1, 1, depth),
        default_left=np.ones(depth, bool),
        missing=np.full(depth, MISSING_NAN, np.int8),
        left=-1 - np.arange(depth),
        right=np.append(np.arange(1, depth), -1 - depth),
        leaf_value=np.arange(depth + 1) / 3,
    )


def vector():
    one = boosted()
    values = np.random.default_rng(3).normal(size=(len(one.leaf_value), 4))
    return replace(one, leaf_value=values, output=np.zeros(one.trees, np.int64), base=np.zeros(4), divisor=7.0)


ENSEMBLES = ENSEMBLES | {
    "depths of every kind": lambda: joined(stump(0.1), chain(9), boosted(), boosted(min_data_in_leaf=1000), outputs=2),
    "sets beside zeros": lambda: joined(boosted(categories=[2]), boosted(zero_as_missing=True), outputs=3),
    "leaves of several values": vector,
    "rows rounded": lambda: replace(boosted(), reads="float32"),
    "few thresholds": lambda: replace(boosted(), threshold=np.sign(boosted().threshold)),
    "infinite leaves": lambda: replace(stump(0.5), leaf_value=np.array([np.inf, -np.inf])),
    "unlike numbers of trees": lambda: replace(boosted(), output=np.array([0, 1, 1, 2, 2] * 3)),
}


@pytest.fixture(params=ENSEMBLES.values(), ids=ENSEMBLES, scope="module")
def ensemble(request):
    return request.param()


def awkward(ensemble, dtype):
    """Rows with every odd value, the thresholds and their neighbours."""
    near = ensemble.threshold[:40]
    odd = np.array(
        [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-36, -1e-35, 2e-35, 1e300, -1e300, 5e-324, 3.99, 2**31, 2**63]
    )
    values = np.concatenate([odd, near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf)])
    drawn = np.random.default_rng(1).choice(values, (200, ensemble.width))
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.concatenate([drawn, rows()[:, : ensemble.width]])).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("form", OTHERS)
def test_same_bits_as_the_walk(form, dtype, ensemble):
    x = awkward(ensemble, dtype)
    found, wanted = form.of(ensemble)(x), HardTrees.of(ensemble)(x)
    assert found.dtype == dtype and torch.equal(found, wanted)
    assert all(torch.equal(form.of(ensemble)(x[:count]), wanted[:count]) for count in (0, 1, 2))


@pytest.mark.parametrize("form", OTHERS)
def test_script_equals_eager(form, ensemble):
    module = form.of(ensemble)
    script, x = scripted(module), awkward(ensemble, torch.float64)
    assert all(torch.equal(script(x[:count]), module(x[:count])) for count in (0, 1, 2, 300))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", OBLIVIOUS)
def test_oblivious_trees(name, dtype, monkeypatch):
    ensemble = OBLIVIOUS[name]()
    walk, module, x = HardTrees.of(ensemble), ObliviousTrees.of(ensemble), awkward(ensemble, dtype)
    monkeypatch.setattr(ObliviousTrees, "ROWS", 64)
    small, wanted = ObliviousTrees.of(ensemble), walk(x)
    program = torch.export.export(module, (x[:3],), dynamic_shapes=({0: torch.export.Dim("rows")},)).module()
    rebuilt = ObliviousTrees.rebuild(module.state_dict(), module.facts())
    for run in (module, small, rebuilt, scripted(module), scripted(small), program):
        assert all(torch.equal(run(x[:count]), wanted[:count]) for count in (0, 1, 2, 300))
    assert module(x).dtype == dtype and torch.equal(module.leaf_values(x), walk.leaf_values(x))


def test_trees_that_are_not_oblivious_are_rejected(monkeypatch):
    for ensemble in (boosted(), chain(2)):
        with pytest.raises(InvalidOption, match="ask the same at all nodes of a level"):
            ObliviousTrees.of(ensemble)
    monkeypatch.setattr(ObliviousTrees, "MOST", 31)
    with pytest.raises(InvalidOption, match="these 4 trees of 3 levels would take tables of 32 leaves; 31 are"):
        ObliviousTrees.of(asked_by_level([0, 3, 1, 2]))


def test_catboost_is_run_level_by_level():
    X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    options = {"iterations": 20, "depth": 4, "verbose": False, "allow_writing_files": False, "thread_count": 1}
    for model, y in (
        (CatBoostRegressor(**options), X[:, 0] * X[:, 1]),
        (CatBoostClassifier(**options), np.digitize(X[:, 0], [-0.5, 0.5])),
    ):
        net = windtunnel.compile(model.fit(X, y), backend="torch")
        assert any(isinstance(module, ObliviousTrees) for module in net.modules())
        np.testing.assert_allclose(net.scores(X), model.predict(X, "RawFormulaVal").reshape(len(X), -1), 1e-9, 1e-9)


@pytest.mark.parametrize("form", OTHERS)
def test_export_takes_any_number_of_rows(form, ensemble):
    module, x = form.of(ensemble), awkward(ensemble, torch.float64)
    program = torch.export.export(module, (x[:3],), dynamic_shapes=({0: torch.export.Dim("rows")},)).module()
    assert all(torch.equal(program(x[:count]), module(x[:count])) for count in (0, 1, 300))


@pytest.mark.parametrize("form", OTHERS)
def test_rebuilt_from_what_is_saved(form, ensemble):
    module, x = form.of(ensemble), awkward(ensemble, torch.float64)
    assert module.state_dict().keys() == HardTrees.of(ensemble).state_dict().keys()
    assert torch.equal(form.rebuild(module.state_dict(), module.facts())(x), module(x))


@pytest.mark.parametrize("form", OTHERS)
def test_a_change_of_type_changes_no_decision(form, ensemble):
    module, x = form.of(ensemble), awkward(ensemble, torch.float64)
    wanted = module(x)
    module.cast(torch.float32)
    assert torch.equal(module.double()(x), wanted)


@pytest.mark.parametrize("form", OTHERS)
@pytest.mark.parametrize("missing", [MISSING_NONE, MISSING_ZERO, MISSING_NAN])
@pytest.mark.parametrize("default_left", [True, False])
def test_missing_values(form, missing, default_left):
    x = torch.tensor([[np.nan], [0.0], [np.inf], [-np.inf], [1e-36], [0.5]], dtype=torch.float64)
    for threshold in (-0.5, 0.0, 0.5, np.inf, -np.inf):
        one = stump(threshold, missing, default_left)
        assert torch.equal(form.of(one)(x), HardTrees.of(one)(x))


@pytest.mark.parametrize("form", OTHERS)
def test_slices_of_rows_do_not_show(form):
    one = boosted(num_leaves=9)
    many = replace(joined(*[one] * 60, outputs=3), divisor=3.0)
    module = form.of(many)
    x = torch.from_numpy(rows(1 + (1 << 16) // module.row_cost))
    assert module.row_cost * len(x) > 1 << 16
    assert torch.equal(module(x), torch.cat([module(row) for row in x.split(99)]))


def test_what_is_too_deep_is_rejected():
    assert torch.equal(PerfectTrees.of(chain(12))(torch.ones(1, 1)), HardTrees.of(chain(12))(torch.ones(1, 1)))
    with pytest.raises(InvalidOption, match="has a depth of 40. Choose strategy='tree_traversal' or 'auto'"):
        PerfectTrees.of(chain(40))


def test_what_is_too_large_is_rejected(monkeypatch):
    monkeypatch.setattr(GemmTrees, "MOST", 100)
    assert GemmTrees.of(chain(9)).leaves == [10]
    with pytest.raises(InvalidOption, match="depth 10, 11 leaves .* would take 121 numbers; 100 are accepted"):
        GemmTrees.of(chain(10))


def deep():
    x = rows(400)[:, :2]
    model = LGBMRegressor(n_estimators=2, num_leaves=200, min_child_samples=1, n_jobs=1, verbosity=-1)
    return model.fit(np.nan_to_num(x), np.arange(400) % 17), np.nan_to_num(x)


def test_the_step_is_named(monkeypatch):
    model, x = deep()
    monkeypatch.setattr(PerfectTrees, "MOST_PLACES", 1000)
    with pytest.raises(InvalidOption, match="step 'LGBMRegressor': as perfect trees these would have"):
        windtunnel.compile(model, strategy="perfect_tree_traversal")
    for strategy in ("auto", "gemm", "tree_traversal"):
        np.testing.assert_allclose(windtunnel.compile(model, strategy=strategy).predict(x), model.predict(x), 1e-9)


TREES = [name for name in CASES if "trees" in name or "forest" in name]


@pytest.mark.parametrize("strategy", ["gemm", "perfect_tree_traversal"])
@pytest.mark.parametrize("name", TREES)
def test_strategies_agree_on_pipelines(name, strategy):
    fitted, given = CASES[name].fitted(), CASES[name].rows()
    try:
        net = windtunnel.compile(fitted, strategy=strategy)
    except InvalidOption as error:
        assert strategy == "perfect_tree_traversal" and "as perfect trees these would have" in str(error)
        return
    walk = windtunnel.compile(fitted, strategy="tree_traversal")
    assert not any(type(module) is HardTrees for module in net.modules())
    torch.testing.assert_close(net.scores(given), walk.scores(given), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("strategy", TREE_STRATEGIES)
def test_saved_and_loaded(tmp_path, strategy):
    case = CASES["catboost of three classes" if strategy == "oblivious" else "rare, trees over pandas categories"]
    net = windtunnel.compile(case.fitted(), strategy=strategy)
    net.save(tmp_path / "net")
    loaded = windtunnel.load(tmp_path / "net")
    kept = [type(step.module) for step in loaded.program.steps]
    assert TREE_STRATEGIES[strategy].form in kept and kept == [type(step.module) for step in net.program.steps]
    assert torch.equal(loaded.scores(case.rows()), net.scores(case.rows()))


def test_auto_takes_what_is_expected_to_be_fastest():
    x = np.nan_to_num(rows())
    model = LGBMClassifier(n_estimators=20, num_leaves=8, n_jobs=1, verbosity=-1).fit(x, x[:, 0] + x[:, 1] > 0)
    for count in (1, 100_000):
        program = windtunnel.compile(model, strategy="tree_traversal").program
        (choice,) = convert_trees(program, "auto", rows=count)
        expected = EnsembleShape.of(HardTrees.of(program.steps[0].module.ensemble()))
        expected = expected.seconds(count, coefficients("cpu"), torch.get_num_threads())
        assert choice.expected == expected and choice.strategy == min(expected, key=expected.__getitem__)
        assert type(program.steps[0].module) is TREE_STRATEGIES[choice.strategy].form


def test_auto_expects_only_what_takes_the_trees():
    hollow, deep, wide = joined(*[chain(7)] * 2, outputs=1), chain(11), chain(64)
    taken = {one: set(EnsembleShape.of(HardTrees.of(trees)).seconds(1, coefficients("cpu"))) for one, trees in
             (("hollow", hollow), ("deep", deep), ("wide", wide), ("flat", chain(4)))}  # fmt: skip
    unlike = set(TREE_STRATEGIES) - {"oblivious"}
    assert taken["flat"] == unlike
    assert taken["hollow"] == taken["deep"] == unlike - {"perfect_tree_traversal"}
    assert taken["wide"] == unlike - {"perfect_tree_traversal", "bitvectors"}
    alike = EnsembleShape.of(HardTrees.of(asked_by_level([3, 2])))
    assert "oblivious" in alike.seconds(1, coefficients("cpu")) and alike.comparisons == 6


def test_a_call_on_threads_takes_what_the_rows_of_one_take():
    shape = EnsembleShape.of(HardTrees.of(boosted()))
    alone, two = shape.seconds(5_000, coefficients("cpu")), shape.seconds(10_000, coefficients("cpu"), threads=2)
    assert alone == two
    assert shape.seconds(100, coefficients("cpu"), threads=2) == shape.seconds(100, coefficients("cpu"))


def test_where_nothing_is_known_of_a_device_all_forms_are_measured(monkeypatch):
    monkeypatch.setattr(strategies, "coefficients", lambda device: {})
    trees = HardTrees.of(boosted())
    choice = strategies._fastest_strategy(trees, "step", 50, None)
    assert set(choice.measured) == {*strategies_of(EnsembleShape.of(trees))} and not choice.expected
    assert choice.strategy == min(choice.measured, key=choice.measured.__getitem__)


def test_tuning_takes_what_was_fastest_here(monkeypatch):
    trees = HardTrees.of(boosted())
    taken = {"ranked_traversal": 3.0, "bitvectors": 1.0, "perfect_tree_traversal": 2.0, "gemm": 9.0}
    monkeypatch.setattr(strategies, "_seconds", lambda forms, rows: {one: taken.get(one, 5.0) for one in forms})
    choice = strategies._fastest_strategy(trees, "step", 100, strategies.EAGER)
    assert set(choice.measured) == set([*choice.expected][: strategies.MEASURED_STRATEGIES])
    assert choice.strategy == min(choice.measured, key=lambda one: taken.get(one, 5.0))


@pytest.mark.parametrize("backend", ["torch", "torchscript", "exported"])
def test_what_is_measured_runs_as_the_backend_runs_it(backend):
    trees, x = HardTrees.of(boosted()), awkward(boosted(), torch.float64)
    assert torch.equal(tree_runner(backend).prepare(trees)(x), trees(x))
    choice = strategies._fastest_strategy(trees, "step", None, tree_runner(backend))
    assert min(choice.measured.values()) >= 1 and f"backend='{backend}'" in str(choice)


def test_nothing_is_measured_for_what_onnx_runtime_walks_by_itself():
    x = np.nan_to_num(rows())
    model = LGBMClassifier(n_estimators=2, num_leaves=8, n_jobs=1, verbosity=-1).fit(x, x[:, 0] + x[:, 1] > 0)
    net = windtunnel.compile(model, backend="onnx", tune=True)
    assert not net.strategy_choices[0].measured
    assert "by its own operator" in dict(net.report().facts)["trees"]


@pytest.mark.parametrize("tune", [False, True])
def test_the_choice_is_kept_in_the_file(tune, tmp_path):
    x = np.nan_to_num(rows())
    model = LGBMClassifier(n_estimators=5, num_leaves=8, n_jobs=1, verbosity=-1).fit(x, x[:, 0] + x[:, 1] > 0)
    net = windtunnel.compile(model, backend="torch", batch_size=50, tune=tune)
    net.save(tmp_path / "model.windtunnel")
    loaded = windtunnel.load(tmp_path / "model.windtunnel")
    assert bool(net.strategy_choices[0].measured) == tune and loaded.strategy_choices == net.strategy_choices
    assert ("trees", str(net.strategy_choices[0])) in loaded.report().facts


def test_bitvectors_take_64_leaves():
    whole, x = chain(63), torch.linspace(-1.2, 1.2, 300, dtype=torch.float64)[:, None]
    assert torch.equal(BitvectorTrees.of(whole)(x), HardTrees.of(whole)(x))
    with pytest.raises(InvalidOption, match="64 leaves at most; the largest tree has 65"):
        BitvectorTrees.of(chain(64))


def test_columns_of_few_thresholds_share_tables():
    one = replace(boosted(), threshold=np.sign(boosted().threshold))
    (words,) = BitvectorTrees.of(one).words[0].parts
    assert sum(words.layers) == len(words.used) > words.layers[0]
    assert len(words.table) <= RankLookup.SHARED * words.layers[0]


@pytest.mark.parametrize("make", [scripted, lambda module: module], ids=["scripted", "eager"])
def test_look_ups_that_clear_nothing_are_left_out(ensemble, make, monkeypatch):
    x = awkward(ensemble, torch.float64)
    wanted = HardTrees.of(ensemble)(x)
    for few in (0.0, 2.0):  # never and always
        monkeypatch.setattr(TableLookup, "FEW", few)
        assert torch.equal(make(BitvectorTrees.of(ensemble))(x), wanted)


def test_a_sample_tells_whether_most_look_ups_clear_nothing():
    (words,) = BitvectorTrees.of(boosted()).words[0].parts
    none, every = (words.clears.logical_not().nonzero()[:1, 0], words.clears.nonzero()[:1, 0])
    row = torch.cat([none.expand(words.SAMPLE), every.expand(words.SAMPLE)])
    assert words._clears_little(none.expand(3, words.SAMPLE))
    assert not words._clears_little(row.expand(3, -1)[:, 5:])
    assert not words._clears_little(none.expand(3, words.SAMPLE - 1))


def test_bitvectors_in_several_blocks(monkeypatch):
    one, x = joined(stump(0.1), *[boosted()] * 2, outputs=3), torch.from_numpy(rows())
    monkeypatch.setattr(BitvectorTrees, "BLOCK", 7)
    module = BitvectorTrees.of(one)
    assert sum(len(block.parts) > 0 for block in module.words) > 1
    assert torch.equal(module(x), HardTrees.of(one)(x))


@pytest.mark.parametrize(
    "thresholds",
    [
        [[0.0]],
        [[-np.inf, np.inf], [1.0]],
        [[-np.inf], [np.inf]],
        [np.linspace(0, 1, 300), [0.5]],
        [np.geomspace(1e-300, 1e300, 200)],
        [[-1e308, 1e308]],
        [[0.0, 5e-324, 1e-323]],
        [np.sort(np.random.default_rng(0).normal(size=9000)), [1e-35, 2e-35]],
    ],
)
def test_ranks(thresholds):
    bounds = [np.unique(np.asarray(one, np.float64)) for one in thresholds]
    every = np.concatenate([*bounds, [0.0, -0.0, np.inf, -np.inf, 1e300, -1e300, 5e-324]])
    every = np.concatenate([every, np.nextafter(every, np.inf), np.nextafter(every, -np.inf)])
    values = torch.from_numpy(np.stack([every] * len(bounds)))
    offset = np.arange(len(bounds), dtype=np.int32) * 7
    found = Ranks(bounds, offset, torch.device("cpu"))(values)
    wanted = [np.searchsorted(one, every) + at for one, at in zip(bounds, offset, strict=True)]
    assert found.dtype == torch.int32 and np.array_equal(found.numpy(), np.stack(wanted))

"""The hard trees as a module: rebuilt, scripted, exported, sliced, and checked before they run."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from tree_ensembles import CASES, boosted, rows, scripted, stump

from windtunnel.errors import BadFile
from windtunnel.modules.trees.ensemble import MISSING_NAN, MISSING_NONE, MISSING_ZERO, TreeEnsemble
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.leaves import LeafOneHot, TreeLeaves


@pytest.fixture(params=CASES.values(), ids=CASES, scope="module")
def ensemble(request):
    return request.param()


def inputs(ensemble):
    return torch.from_numpy(rows()[:, : ensemble.width])


def assert_equal(found, expected):
    for field in fields(TreeEnsemble):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        if field.name == "categories":
            assert list(one) == list(other)
            for node in one:
                np.testing.assert_array_equal(one[node], other[node])
                assert one[node].dtype == np.int64
        elif isinstance(other, np.ndarray):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
        else:
            assert one == other


def test_ensembles_and_tensors_rebuild_the_module(ensemble):
    module = HardTrees.of(ensemble)
    assert_equal(module.ensemble(), ensemble)
    rebuilt = HardTrees.rebuild(module.state_dict(), module.facts())
    assert_equal(rebuilt.ensemble(), ensemble)
    assert torch.equal(rebuilt(inputs(ensemble)), module(inputs(ensemble)))


def test_nothing_trains_or_shares_memory(ensemble):
    module = HardTrees.of(ensemble)
    assert list(module.parameters()) == []
    before = ensemble.leaf_value.copy()
    module.leaf_value.add_(1)
    np.testing.assert_array_equal(ensemble.leaf_value, before)


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_script_equals_eager(ensemble, count):
    module = HardTrees.of(ensemble)
    x = inputs(ensemble)[:count]
    found = scripted(module)(x)
    assert found.dtype == torch.float32 and found.shape == (count, ensemble.outputs)
    assert torch.equal(found, module(x))


def test_export_takes_any_number_of_rows(ensemble):
    module = HardTrees.of(ensemble)
    x = inputs(ensemble)
    program = torch.export.export(module, (x[:3],), dynamic_shapes=({0: torch.export.Dim("rows")},)).module()
    for count in (0, 1, 300):
        assert torch.equal(program(x[:count]), module(x[:count]))


def copies(one, count):
    """The ensemble with ``count`` copies of its trees."""
    starts = {name: getattr(one, name) for name in ("node_start", "leaf_start")}
    steps = np.arange(count)[:, None]
    arrays = ("feature", "threshold", "default_left", "missing", "left", "right", "leaf_value", "output")
    return replace(
        one,
        **{name: np.append((at[:-1] + at[-1] * steps).reshape(-1), count * at[-1]) for name, at in starts.items()},
        **{name: np.tile(getattr(one, name), count) for name in arrays},
        leaf_cover=None,
    )


def test_slices_of_rows_do_not_show():
    one = boosted()
    many = copies(one, 99)
    x = torch.from_numpy(rows())
    module = HardTrees.of(many)
    assert module.root.numel() * len(x) > 1 << 16
    np.testing.assert_allclose(module(x), 99 * HardTrees.of(one)(x).double(), rtol=2e-6)
    assert torch.equal(module(x), torch.cat([module(row) for row in x.split(7)]))


@pytest.mark.parametrize(
    ("threshold", "missing", "default_left", "value", "goes_left"),
    [
        (0.1, MISSING_NONE, True, np.float32(0.1), False),  # float32(0.1) is above 0.1
        (0.1, MISSING_NONE, True, np.nextafter(np.float32(0.1), np.float32(0)), True),
        (1e300, MISSING_NONE, True, np.inf, False),
        (1e300, MISSING_NONE, True, np.finfo(np.float32).max, True),
        (-1e300, MISSING_NONE, True, -np.inf, True),
        (np.inf, MISSING_NAN, False, np.inf, True),
        (np.inf, MISSING_NAN, False, np.nan, False),
        (np.inf, MISSING_ZERO, False, 0.0, False),
        (-np.inf, MISSING_NAN, True, np.nan, True),
        (-np.inf, MISSING_NAN, True, -np.inf, True),
        (0.5, MISSING_NAN, False, np.nan, False),
        (0.5, MISSING_NAN, True, np.nan, True),
        (0.5, MISSING_NONE, False, np.nan, True),
        (-0.5, MISSING_NONE, True, np.nan, False),
        (-0.5, MISSING_ZERO, True, 0.0, True),
        (-0.5, MISSING_ZERO, True, np.nan, True),
        (0.5, MISSING_ZERO, False, -1e-35, False),
        (0.5, MISSING_ZERO, False, 2e-35, True),
    ],
)
def test_decisions(threshold, missing, default_left, value, goes_left):
    module = HardTrees.of(stump(threshold, missing, default_left))
    assert module(torch.tensor([[value]], dtype=torch.float32)).item() == (-1.0 if goes_left else 1.0)


@pytest.mark.parametrize(
    ("members", "value", "goes_left"),
    [
        ([0, 3], 3.0, True),
        ([0, 3], 3.99, True),
        ([0, 3], 4.0, False),
        ([0, 3], -0.99, True),
        ([0, 3], -1.0, False),
        ([0, 3], np.nan, False),
        ([0, 3], np.inf, False),
        ([0, 3], -np.inf, False),
        ([0, 3], 1e30, False),
        ([], 0.0, False),
        ([16777216], 16777216.0, True),
    ],
)
def test_decisions_on_categories(members, value, goes_left):
    module = HardTrees.of(stump(0.0, categories=members))
    assert module(torch.tensor([[value]])).item() == (-1.0 if goes_left else 1.0)


@pytest.mark.parametrize("default_left", [False, True])
@pytest.mark.parametrize(("value", "goes_left"), [(3.0, True), (4.0, False), (-1.0, False), (1e9, False)])
def test_a_missing_category_goes_the_default_way(default_left, value, goes_left):
    module = HardTrees.of(stump(0.0, MISSING_NAN, default_left, categories=[0, 3]))
    for dtype in (torch.float32, torch.float64):
        found = module(torch.tensor([[value], [np.nan]], dtype=dtype))[:, 0].tolist()
        assert found == [-1.0 if goes_left else 1.0, -1.0 if default_left else 1.0]


def test_rows_of_either_precision_decide_as_the_source():
    exact, rounds = HardTrees.of(stump(0.1)), HardTrees.of(replace(stump(0.1), reads="float32"))
    above = np.nextafter(0.1, 1)  # which float32 rounds to the same number as 0.1
    rows = torch.tensor([[0.1], [above]], dtype=torch.float64)
    assert exact(rows).dtype == torch.float64 and exact(rows)[:, 0].tolist() == [-1.0, 1.0]
    assert rounds(rows)[:, 0].tolist() == [1.0, 1.0] == exact(rows.float())[:, 0].tolist()
    assert exact(rows.float()).dtype == torch.float32


def test_a_cast_moves_no_threshold(ensemble):
    module = HardTrees.of(ensemble)
    for move in (lambda: module.to(torch.float32), lambda: module.cast(torch.float64), module.half, module.double):
        move()
        assert_equal(module.ensemble(), ensemble)
    assert torch.equal(module(inputs(ensemble)), HardTrees.of(ensemble)(inputs(ensemble)))


def vector(count=3):
    """The trees of ``boosted``, each leaf with a value for every score, as the mean of them."""
    one = boosted()
    values = np.stack([one.leaf_value * (score + 1) for score in range(count)], axis=1)
    trees = one.trees
    return replace(one, leaf_value=values, output=np.zeros(trees, np.int64), base=np.zeros(count), divisor=float(trees))


def test_leaves_with_a_value_for_each_score():
    module, x = HardTrees.of(vector()), torch.from_numpy(rows()).double()
    single = HardTrees.of(replace(boosted(), output=np.zeros(vector().trees, np.int64), base=np.zeros(1)))
    want = single(x) / vector().trees * torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(module(x), want, rtol=1e-12, atol=1e-12)
    assert torch.equal(scripted(module)(x), module(x))
    assert_equal(HardTrees.rebuild(module.state_dict(), module.facts()).ensemble(), vector())


def test_ties_stay_ties():
    """A sum of tenths depends on its order: classes with equally many votes must come out equal."""
    votes = np.array([[1.0, 0.0], [0.0, 1.0]])
    leaves = np.concatenate([votes[[turn % 2, turn % 2]] for turn in range(10)])
    forest = replace(copies(stump(0.5), 10), leaf_value=leaves, base=np.zeros(2), divisor=10.0)
    assert HardTrees.of(forest)(torch.zeros(1, 1, dtype=torch.float64)).tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("shape", [[15], [5, 3]])
def test_leaf_numbers(shape):
    one, x = boosted(), torch.from_numpy(rows())
    numbers = np.arange(len(one.leaf_value)) * 3
    module = TreeLeaves.numbered(one, numbers, shape)
    found = module(x)
    assert found.shape == (300, *shape)
    # The values of these leaves are what the trees add up to.
    leaf = (found.reshape(300, 15) / 3).long()
    want = torch.from_numpy(one.leaf_value)[leaf].view(300, 5, 3).sum(dim=1)
    torch.testing.assert_close(HardTrees.of(one)(x.double()), want, rtol=1e-12, atol=1e-12)
    assert torch.equal(scripted(module)(x), found)
    assert torch.equal(TreeLeaves.rebuild(module.state_dict(), module.facts())(x), found)


def test_leaves_one_hot():
    one, x = boosted(), torch.from_numpy(rows())
    module = LeafOneHot.numbered(one, np.arange(len(one.leaf_value)))
    found = module(x)
    assert found.shape == (300, len(one.leaf_value)) and (found.sum(dim=1) == one.trees).all()
    assert torch.equal(scripted(module)(x), found)
    assert torch.equal(LeafOneHot.rebuild(module.state_dict(), module.facts())(x), found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feature": np.array([1])}, "feature that is not in 0..0"),
        ({"feature": np.array([0, 0])}, "differ in length"),
        ({"output": np.array([-1])}, "score that is not in 0..0"),
        ({"left": np.array([-3])}, "outside its tree"),
        ({"left": np.array([1])}, "outside its tree"),
        ({"left": np.array([0])}, "reached twice"),
        ({"threshold": np.array([np.nan])}, "threshold is NaN"),
        ({"leaf_start": np.array([0, 3])}, "one leaf more"),
        ({"categories": {1: np.array([0])}}, "belongs to no node"),
        ({"categories": {0: np.array([-1])}}, "category negative"),
        ({"leaf_value": np.zeros((2, 3))}, "3 values for 1 scores"),
        ({"divisor": 0.0}, "divisor=0.0"),
    ],
)
def test_damaged_tensors_are_named(change, message):
    with pytest.raises(BadFile, match=message):
        HardTrees.of(replace(stump(0.5), **change))


@pytest.mark.parametrize("fact", ["reads", "data_at"])
def test_facts_with_other_values_are_named(fact):
    with pytest.raises(ValueError, match=f"{fact}='float16'"):
        HardTrees.of(replace(stump(0.5), **{fact: "float16"}))

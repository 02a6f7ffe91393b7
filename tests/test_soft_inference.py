"""Soft trees made small for inference: the same scores when nothing is dropped, a measured change when something is."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from test_harden import HIST, LGBM, binary, frame, moved, rows, several, value

import windtunnel
from windtunnel.errors import BadInput, UnfaithfulOption
from windtunnel.modules.trees.soft.condense import dropped, fold, gather_bound, moments, packed, rounding_bound
from windtunnel.modules.trees.soft.condensed import CondensedTrees


@cache
def tuned(level: str = "L4") -> windtunnel.Translation:
    fitted = LGBMClassifier(**LGBM).fit(rows(), binary())
    return moved(windtunnel.translate(fitted, level=level, calibrate=rows()), rows(), binary())


def assert_same(net: windtunnel.Translation, small: windtunnel.Translation, x: object) -> None:
    wanted = net.scores(x).numpy()
    np.testing.assert_allclose(small.scores(x).numpy(), wanted, rtol=0, atol=2e-5 * max(1, np.abs(wanted).max()))
    assert any(isinstance(step.module, CondensedTrees) for step in small.program.steps)


@pytest.mark.parametrize("level", ["L1", "L2", "L3", "L4"])
def test_nothing_dropped_gives_the_same_scores(level: str) -> None:
    assert_same(tuned(level), tuned(level).condense(rows(), tolerance=0), rows())


SOURCES = {
    "multiclass": lambda: LGBMClassifier(**LGBM).fit(rows(), several()),
    "zeros missing": lambda: LGBMRegressor(zero_as_missing=True, **LGBM).fit(rows(), value()),
    "missing as zero": lambda: LGBMRegressor(use_missing=False, **LGBM).fit(rows(), value()),
    "vector leaves": lambda: RandomForestClassifier(n_estimators=5, max_depth=4, random_state=0).fit(rows(), several()),
    "missing": lambda: HistGradientBoostingClassifier(**HIST).fit(rows(), binary()),
    "one leaf": lambda: LGBMRegressor(n_estimators=2, min_child_samples=1000, verbose=-1).fit(rows(), value()),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_kind_of_ensemble(name: str) -> None:
    net = windtunnel.translate(SOURCES[name](), level="L4", calibrate=rows())
    small = net.condense(rows(), tolerance=0)
    assert_same(net, small, rows())
    assert_same(net, small, rows()[:1])
    many = torch.from_numpy(np.concatenate([rows()] * 4))  # more than one slice
    many[0] = torch.tensor([np.inf, -np.inf, 1e30, np.nan, 0])
    with torch.no_grad():
        wanted, found = (one.program.steps[-1].module(many) for one in (net, small))
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-5 * max(1, float(wanted.abs().max())))


def test_categories() -> None:
    fitted = LGBMClassifier(min_data_per_group=5, cat_smooth=1, **LGBM).fit(frame(), binary())
    net = moved(windtunnel.translate(fitted, level="L2", calibrate=frame()), frame(), binary())
    small = net.condense(frame(), tolerance=0)
    columns = torch.from_numpy(net.tree_columns(frame()))
    columns[:3, 3] = torch.tensor([np.nan, 99, 2])
    with torch.no_grad():
        wanted, found = (one.program.steps[-1].module(columns) for one in (net, small))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    assert len(small.program.steps[-1].module.category_unit) > 0


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_form_stays_within_its_bound_on_rows_it_has_not_seen(gathers: bool, dtype: torch.dtype) -> None:
    soft = copy.deepcopy(tuned().program.steps[-1].module).requires_grad_(False)
    x = torch.from_numpy(rows())
    seen, unseen = x[:300], x[300:]
    whole = fold(soft)
    folded = dropped(whole, moments(whole, seen), 0.2 * float(soft(seen).std()))
    assert 0 < int(folded.leaves.sum()) < int(whole.leaves.sum()) and folded.dropped > 0
    form = packed(folded, gathers=gathers, dtype=dtype)
    change = float((form(unseen) - soft(unseen)).abs().max())
    bound = folded.dropped + gather_bound(folded, x) * gathers + rounding_bound(folded) * (dtype == torch.bfloat16)
    assert 1e-4 < change <= bound


def test_what_is_dropped_grows_with_the_tolerance_and_keeps_to_it() -> None:
    net, left = tuned(), []
    for tolerance in (0.0, 0.02, 0.1, 0.3):
        small = net.condense(rows(), tolerance=tolerance, precision="float32")
        found = small.condensing
        assert found is not None and found.judgement.change <= max(tolerance, 1e-5)
        scores, wanted = small.scores(rows()).numpy(), net.scores(rows()).numpy()
        spread = np.sqrt(np.square(wanted - wanted.mean()).mean())
        assert np.sqrt(np.square(scores - wanted).mean()) / spread == pytest.approx(found.judgement.change, rel=1e-3)
        assert np.abs(scores - wanted).max() == pytest.approx(found.largest)
        left.append(found.leaves)
    assert left == sorted(left, reverse=True) and left[-1] < left[0]


def test_a_node_that_only_dropped_leaves_need_goes_too() -> None:
    net = copy.deepcopy(tuned("L1"))
    trees = net.program.steps[-1].module
    with torch.no_grad():
        trees.leaf_value[::2] = 0  # every second tree says nothing
    found = net.condense(rows(), tolerance=0.001, precision="float32").condensing
    assert found is not None and found.nodes <= found.of_nodes / 2 < found.of_nodes
    assert found.leaves <= found.of_leaves / 2


def test_what_condensing_changes_is_shown_and_saved(tmp_path: Path) -> None:
    small = tuned().condense((rows(), binary()), tolerance=0.05)
    found = small.condensing
    assert found is not None and found.judgement.metric == "auroc" and found.judgement.before > 0.5
    assert tuned().condensing is None
    text = " ".join(str(small.report()).split())
    assert f"{found.leaves:,} of {found.of_leaves:,} leaves" in text and "exact" not in text
    small.save(tmp_path / "net.windtunnel")
    again = windtunnel.load(tmp_path / "net.windtunnel")
    assert again.condensing == found
    torch.testing.assert_close(again.scores(rows()), small.scores(rows()), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_torchscript(precision: str, tmp_path: Path) -> None:
    small = tuned().condense(rows(), tolerance=0.2, precision=precision)
    small.export(tmp_path / "net.ts")
    scripted = torch.jit.load(tmp_path / "net.ts")
    found = scripted(torch.from_numpy(rows()), [])
    torch.testing.assert_close(found, small.scores(rows()), rtol=0, atol=1e-6)
    assert scripted(torch.zeros(0, 5), []).shape == (0, 1)


def test_onnx(tmp_path: Path) -> None:
    from windtunnel.export import serving

    small = tuned().condense(rows(), tolerance=0.05, precision="float32")
    small.export(tmp_path / "net.onnx", format="onnx")
    given = {str(column): rows()[:, column].astype(float) for column in range(5)}
    found = serving.load(tmp_path / "net.onnx").predict_proba(given)
    np.testing.assert_allclose(found, small.predict_proba(rows()), rtol=0, atol=1e-5)


def test_the_net_that_was_given_stays() -> None:
    net = tuned()
    before = net.scores(rows())
    small = net.condense(rows(), tolerance=0.1)
    torch.testing.assert_close(net.scores(rows()), before, rtol=0, atol=0)
    assert not [*small.parameters()] and [one for one in net.parameters() if one.requires_grad]


def test_what_cannot_be_condensed_is_refused() -> None:
    with pytest.raises(BadInput, match="needs rows"):
        tuned().condense(None)
    with pytest.raises(UnfaithfulOption, match="tolerance=2, precision='int4'"):
        tuned().condense(rows(), tolerance=2, precision="int4")
    with pytest.raises(UnfaithfulOption, match="no step of this translation has soft trees"):
        windtunnel.compile(LGBMClassifier(**LGBM).fit(rows(), binary())).condense(rows())
    with pytest.raises(UnfaithfulOption, match=r"torch.bfloat16 keeps the scores within tolerance=0 "):
        tuned().condense(rows(), tolerance=0, precision="bfloat16")

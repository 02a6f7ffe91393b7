"""Estimators made of estimators: what the case table does not show."""

from __future__ import annotations

import io
from typing import Any

import joblib
import numpy as np
import pytest
import skops.io
import torch
from case import MIXED, NUMBERS, columns, logistic, one_hot, quick, scaled, table, targets
from category_encoders import HashingEncoder
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    BaggingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import windtunnel
from windtunnel.errors import BadInput, UnsupportedEstimator
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.soft.trees import SoftTrees

FRAME, MORE = table(), table(80, seed=1)
X, ROWS = FRAME[list(NUMBERS)], MORE[list(NUMBERS)]
TARGETS = targets(FRAME)
PAIR = np.stack([TARGETS["pair"][:, 0] > 0, TARGETS["pair"][:, 1] > 1], axis=1).astype(int)


class OwnLogistic(LogisticRegression):
    """A subclass, which has no converter."""


class OwnShift(TransformerMixin, BaseEstimator):
    """A transformer without a converter."""

    def fit(self, X: Any, y: Any = None) -> OwnShift:
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        return np.asarray(X, dtype=float) + 1

    def get_feature_names_out(self, names: Any = None) -> np.ndarray:
        return np.array([f"shift{k}" for k in range(self.n_features_in_)], dtype=object)


def on_text() -> Any:
    """A stack whose parts encode text."""
    numbers = (make_pipeline(SimpleImputer(), StandardScaler()), list(NUMBERS))
    parts = [("linear", make_pipeline(columns((one_hot(), ["city", "device"]), numbers), logistic()))]
    parts += [("trees", make_pipeline(columns((one_hot(), ["city"]), remainder="drop"), quick(n_estimators=4)))]
    return make_pipeline(StackingClassifier(parts, logistic(), cv=2))


def dumped(fitted: Any) -> Any:
    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    return joblib.load(file)


def skopsed(fitted: Any) -> Any:
    data = skops.io.dumps(fitted)
    return skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))


@pytest.mark.parametrize("again", [dumped, skopsed])
def test_a_loaded_pipeline_compiles_to_the_same_outputs(again: Any) -> None:
    fitted = on_text().fit(FRAME[list(MIXED)], TARGETS["grade"])
    ours = windtunnel.compile(again(fitted)).predict_proba(MORE[list(MIXED)])
    np.testing.assert_array_equal(ours, windtunnel.compile(fitted).predict_proba(MORE[list(MIXED)]))
    np.testing.assert_allclose(ours, fitted.predict_proba(MORE[list(MIXED)]), rtol=1e-9, atol=1e-9)


def test_a_part_without_translation_is_named_with_its_path() -> None:
    inner = StackingClassifier([("own", scaled(OwnLogistic()))], logistic(), cv=2)
    fitted = Pipeline([("model", VotingClassifier([("stack", inner)], voting="soft"))]).fit(X, TARGETS["label"])
    for function in (windtunnel.compile, windtunnel.translate):
        with pytest.raises(UnsupportedEstimator) as error:
            function(fitted)
        assert str(error.value).startswith(
            "step 'model' (VotingClassifier) is made of others, and needs them all: step 'model.stack' "
            "(StackingClassifier) is made of others, and needs them all: step 'model.stack.own.ownlogistic': no "
            "translation for test_composites.OwnLogistic; its parent LogisticRegression has one"
        )


def test_a_composite_in_the_middle_stays_on_the_host_as_a_whole() -> None:
    stack = StackingClassifier([("good", scaled()), ("own", scaled(OwnLogistic()))], logistic(), cv=2)
    fitted = make_pipeline(stack, StandardScaler(), logistic()).fit(X, TARGETS["grade"])
    net = windtunnel.compile(fitted)
    assert [host.name for host in net.hosts] == ["stackingclassifier"]
    assert "(StackingClassifier) is made of others" in net.hosts[0].reason
    assert [origin.name for origin in net.origins] == ["standardscaler + logisticregression"]
    np.testing.assert_allclose(net.predict_proba(ROWS), fitted.predict_proba(ROWS), rtol=1e-9, atol=1e-9)


def test_a_transformer_inside_a_part_stays_on_the_host() -> None:
    parts = [("own", make_pipeline(OwnShift(), scaled())), ("linear", scaled())]
    final = make_pipeline(StandardScaler(), OwnShift(), logistic())
    fitted = StackingClassifier(parts, final, cv=2, passthrough=True).fit(X, TARGETS["grade"])
    net = windtunnel.compile(fitted)
    assert sorted(host.name for host in net.hosts) == [
        "StackingClassifier.final_estimator_.ownshift",
        "StackingClassifier.own.ownshift",
    ]
    np.testing.assert_allclose(net.predict_proba(ROWS), fitted.predict_proba(ROWS), rtol=1e-9, atol=1e-9)


def test_a_transformer_inside_a_chain_stays_on_the_host() -> None:
    fitted = ClassifierChain(make_pipeline(OwnShift(), scaled()), chain_method="predict_proba").fit(X.to_numpy(), PAIR)
    net = windtunnel.compile(fitted)
    assert len(net.hosts) == 2
    np.testing.assert_allclose(net.predict_proba(ROWS.to_numpy()), fitted.predict_proba(ROWS.to_numpy()), 1e-9, 1e-9)


def test_levels_by_the_path_of_a_part() -> None:
    parts = [("linear", scaled()), ("trees", quick(n_estimators=4)), ("pipe", make_pipeline(SimpleImputer(), quick()))]
    fitted = make_pipeline(StackingClassifier(parts, logistic(), cv=2)).fit(X, TARGETS["label"])
    wanted = {"stackingclassifier.trees": "L1", "stackingclassifier.pipe.lgbmclassifier": "L2"}
    net = windtunnel.translate(fitted, calibrate=X, level=wanted).soften()
    levels = {step.name: step.module.level for step in net.program.steps if isinstance(step.module, SoftTrees)}
    assert levels == wanted


def test_an_estimator_that_is_named_twice_is_computed_once() -> None:
    fitted = OneVsOneClassifier(quick(n_estimators=3)).fit(X.to_numpy(), TARGETS["grade"])
    net = windtunnel.compile(fitted)
    assert sum(isinstance(step.module, HardTrees) for step in net.program.steps) == 3


def test_soft_trees_inside_a_stack_are_fine_tuned() -> None:
    parts = [("linear", scaled(Ridge())), ("trees", quick(LGBMRegressor, n_estimators=4))]
    fitted = StackingRegressor(parts, LinearRegression(), cv=2).fit(X, TARGETS["value"])
    net = windtunnel.translate(fitted, calibrate=X).soften()
    before = {name: one.detach().clone() for name, one in net.named_parameters()}
    rows = (X, TARGETS["value"])
    net.fit(rows, rows, recipe="joint", epochs=2, batch_size=64, progress=False, accelerator="cpu")
    moved = {name for name, one in net.named_parameters() if one.requires_grad and not torch.equal(one, before[name])}
    trees = [f"program.steps.{at}." for at, one in enumerate(net.program.steps) if isinstance(one.module, SoftTrees)]
    assert net.history.best < net.history.start
    assert any(name.startswith(trees[0]) for name in moved) and any(not name.startswith(trees[0]) for name in moved)


def test_votes_pass_the_gradient_to_what_they_were_cast_by() -> None:
    fitted = VotingClassifier([("a", scaled()), ("b", scaled(logistic(C=0.01)))]).fit(X, TARGETS["grade"])
    net = windtunnel.translate(fitted, calibrate=X).soften()
    np.testing.assert_array_equal(net.predict(ROWS), fitted.predict(ROWS))
    scores = net(*net.encode(ROWS))
    scores[:, 0].sum().backward()
    weights = [one for one in net.parameters() if one.shape == (3, 3)]
    assert len(weights) == 2 and all(one.grad.abs().max() > 0 for one in weights)


def test_a_vote_over_thresholds_and_searches_takes_their_own_labels() -> None:
    y = TARGETS["label"]
    inner = GridSearchCV(FixedThresholdClassifier(scaled()), {"threshold": [0.1]}, cv=2)
    members = [("low", inner), ("high", FixedThresholdClassifier(scaled(), threshold=0.9)), ("as is", scaled())]
    fitted = VotingClassifier(members, weights=[3, 2, 2]).fit(X, y)
    net = windtunnel.compile(fitted)
    np.testing.assert_array_equal(net.predict(ROWS), fitted.predict(ROWS))
    np.testing.assert_array_equal(net.transform(ROWS), fitted.transform(ROWS))
    assert net.transform(ROWS).dtype == fitted.transform(ROWS).dtype


def test_a_chain_over_targets_of_three_classes_has_no_probabilities() -> None:
    y = np.stack([TARGETS["grade"], TARGETS["pair"][:, 0] > 0], axis=1).astype(int)
    fitted = ClassifierChain(scaled(), order=[1, 0]).fit(X, y)
    net = windtunnel.compile(fitted)
    np.testing.assert_array_equal(net.predict(ROWS), fitted.predict(ROWS))
    assert net.predict(ROWS).dtype == fitted.predict(ROWS).dtype
    with pytest.raises(ValueError, match="could not broadcast"):
        fitted.predict_proba(ROWS)
    assert not hasattr(net, "predict_proba") and not hasattr(net, "decision_function")


@pytest.mark.parametrize("part", [LGBMClassifier(n_estimators=3, verbosity=-1), DecisionTreeClassifier(max_depth=2)])
@pytest.mark.parametrize("constant", [[1], [0, 1]], ids=["one", "both"])
def test_probabilities_of_targets_of_one_class(part: Any, constant: list[int]) -> None:
    y = np.stack([TARGETS["label"] == "yes"] * 2, axis=1).astype(int)
    y[:, constant] = 0
    source = MultiOutputClassifier(part).fit(X, y)
    wanted, got = source.predict_proba(X), windtunnel.compile(source).predict_proba(X)
    assert isinstance(got, list)
    assert [one.shape for one in got] == [one.shape for one in wanted]
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_a_search_over_labels_gives_what_its_best_estimator_gives() -> None:
    fitted = GridSearchCV(OneVsRestClassifier(scaled()), {"estimator__logisticregression__C": [0.3]}, cv=2).fit(X, PAIR)
    net = windtunnel.compile(fitted)
    np.testing.assert_array_equal(net.predict(ROWS), fitted.predict(ROWS))
    np.testing.assert_allclose(net.predict_proba(ROWS), fitted.predict_proba(ROWS), rtol=1e-9, atol=1e-9)


def test_a_chain_rejects_what_its_source_rejects_and_its_links_take() -> None:
    fitted, rows = ClassifierChain(quick(n_estimators=3)).fit(X, PAIR), ROWS.copy()
    rows.iloc[0, 0] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        fitted.predict(rows)
    with pytest.raises(BadInput, match="'age'"):
        windtunnel.compile(fitted).predict(rows)


def test_rows_that_no_point_says_anything_of_get_the_first_label() -> None:
    fitted = LabelSpreading(gamma=5).fit(StandardScaler().fit_transform(X), TARGETS["grade"])
    far, net = np.full((2, 3), 1e3), windtunnel.compile(fitted)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(net.predict(far), fitted.predict(far))
        np.testing.assert_array_equal(net.predict_proba(far), fitted.predict_proba(far))


def one_vs_all() -> LGBMClassifier:
    return LGBMClassifier(objective="multiclassova", n_estimators=3, verbosity=-1, n_jobs=1)


@pytest.mark.parametrize(
    "source",
    [
        VotingClassifier([("a", one_vs_all()), ("b", one_vs_all())], voting="soft"),
        BaggingClassifier(one_vs_all(), n_estimators=2, random_state=0),
        VotingClassifier(
            [("a", quick(LGBMClassifier)), ("b", DecisionTreeClassifier())], voting="soft", weights=[2, -1]
        ),
        LabelSpreading(gamma=5),
    ],
    ids=["vote", "bag", "negative weight", "no point near"],
)
def test_probabilities_that_are_none_stay_as_they_are(source: Any) -> None:
    rows = np.vstack([StandardScaler().fit_transform(X), np.full((1, 3), 1e3)])
    fitted = source.fit(rows[:-1], TARGETS["grade"])
    with np.errstate(invalid="ignore"):
        expected = fitted.predict_proba(rows)
        assert expected.min() < 0 or not np.allclose(expected.sum(axis=1), 1)
        for net in (windtunnel.compile(fitted), windtunnel.translate(fitted)):
            np.testing.assert_allclose(net.predict_proba(rows), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore:the translation keeps R2")  # of soft trees, whose outputs are divided by their sum
def test_candidates_of_a_vote_whose_probabilities_do_not_add_up_are_compared_by_shares() -> None:
    y = TARGETS["grade"]
    source = VotingClassifier([("a", one_vs_all()), ("b", one_vs_all())], voting="soft").fit(X, y)
    net = windtunnel.translate(source)
    net.fit((X, y), (X, y), recipe="joint", metric="log_loss", epochs=1, progress=False)
    first = net.history.candidates[0]
    assert first.metric == pytest.approx(first.loss, rel=1e-5)
    assert net.report((X, y), source=source).test_scores["source pipeline"]["log_loss"] == pytest.approx(first.loss)


def bad_target(**options: Any) -> Any:
    return TransformedTargetRegressor(scaled(Ridge()), check_inverse=False, **options).fit(X, TARGETS["value"])


REJECTED: dict[str, tuple[Any, str]] = {
    "search without refit": (
        lambda: GridSearchCV(scaled(), {"logisticregression__C": [1]}, cv=2, refit=False).fit(X, TARGETS["label"]),
        r"GridSearchCV\(refit=False\) keeps no best_estimator_ to translate",
    ),
    "unknown inverse": (
        lambda: bad_target(func=np.negative, inverse_func=OwnShift.transform.__get__(OwnShift())),
        r"calls inverse_func='transform', which has no translation; accepted are .*exp",
    ),
    "inverse with arguments": (
        lambda: bad_target(
            transformer=FunctionTransformer(
                np.negative, np.clip, inv_kw_args={"a_min": 0.0, "a_max": 1.0}, check_inverse=False
            )
        ),
        r"inverse_func='clip' with \{'a_min': 0.0, 'a_max': 1.0\}",
    ),
    "unknown transformer": (
        lambda: bad_target(transformer=make_pipeline(StandardScaler())),
        r"transformer=Pipeline\) has no translated inverse; accepted are",
    ),
    "negative weights": (
        lambda: VotingClassifier([("a", scaled()), ("b", scaled())], weights=[2, -1]).fit(X, TARGETS["label"]),
        r"negative weights \(\[2.0, -1.0\]\)",
    ),
    "values that vote": (
        lambda: OneVsOneClassifier(Ridge()).fit(X, TARGETS["grade"]),
        "OneVsOneClassifier votes with Ridge, no classifier of two classes",
    ),
    "custom kernel": (
        lambda: LabelSpreading(kernel=lambda a, b: np.ones((len(a), len(b)))).fit(X, TARGETS["grade"]),
        "LabelSpreading has a custom kernel",
    ),
    "stack on several labels": (
        lambda: StackingClassifier([("a", DummyClassifier())], DummyClassifier(), cv=2, stack_method="predict").fit(
            X, np.stack([TARGETS["label"] == "yes", TARGETS["pair"][:, 1] > 1], axis=1).astype(int)
        ),
        "StackingClassifier was fitted on 2 targets at once; fit one for each target",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_rejected_by_name(name: str) -> None:
    make, message = REJECTED[name]
    with pytest.raises(UnsupportedEstimator, match=message):
        windtunnel.compile(make())


def test_calibrated_estimators_that_saw_fewer_classes() -> None:
    y = TARGETS["grade"]

    class Halves:
        """The first fold is fitted without the class 7, of which its rows for calibration have some."""

        n_splits = 2

        def split(self, X: Any, y: Any, groups: Any = None) -> Any:
            known = np.flatnonzero(y != 7)
            yield known, np.arange(len(y))
            yield np.arange(len(y)), np.arange(len(y))

        def get_n_splits(self, *given: Any) -> int:
            return 2

    fitted = CalibratedClassifierCV(scaled(), cv=Halves()).fit(X, y)
    assert [len(one.estimator.classes_) for one in fitted.calibrated_classifiers_] == [2, 3]
    net = windtunnel.compile(fitted)
    np.testing.assert_allclose(net.predict_proba(ROWS), fitted.predict_proba(ROWS), rtol=1e-9, atol=1e-9)


TEXTS_AROUND: dict[str, Any] = {
    "search": lambda inner: GridSearchCV(inner, {}, cv=2),
    "calibrated": lambda inner: CalibratedClassifierCV(inner, cv=2),
    "vote": lambda inner: VotingClassifier([("one", inner)], voting="soft"),
    "stack": lambda inner: StackingClassifier([("one", inner)], cv=2),
}


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("name", TEXTS_AROUND)
def test_what_a_composite_rejects_is_not_asked_of_texts(name: str, hashed: bool) -> None:
    """One column of texts, imputed or without a vocabulary, one of numbers, and one that nothing reads."""
    encoded = make_pipeline(SimpleImputer(strategy="most_frequent"), one_hot())
    if hashed:
        encoded = HashingEncoder(n_components=4, max_process=1)
    inner = make_pipeline(columns((encoded, ["city"]), (StandardScaler(), ["age"])), LogisticRegression())
    given = FRAME[["city", "plan", "age"]].assign(age=np.arange(len(FRAME)) % 17.0)
    source = TEXTS_AROUND[name](inner).fit(given, TARGETS["label"])
    net = windtunnel.compile(source)
    np.testing.assert_allclose(net.predict_proba(given), source.predict_proba(given), 1e-9, 1e-9)
    endless = given.assign(age=np.where(given.index == 3, np.inf, given["age"]))
    with pytest.raises(ValueError):
        source.predict_proba(endless)
    with pytest.raises(BadInput, match="1 of .* rows"):
        net.predict_proba(endless)


def test_trees_too_large_to_soften_stay_hard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.program.softening.MAX_SECOND_LAYER", 1000)
    source = make_pipeline(StandardScaler(), RandomForestClassifier(3, max_leaf_nodes=40, random_state=0)).fit(
        X, TARGETS["label"]
    )
    with pytest.warns(UserWarning, match=r"3 soft trees of up to \d+ leaves .*max_leaf_nodes"):
        net = windtunnel.translate(source).soften()
    assert isinstance(net.program.steps[-1].module, HardTrees)
    np.testing.assert_allclose(net.predict_proba(X), source.predict_proba(X), 1e-5)
    net.fit((X, TARGETS["label"]), (ROWS, targets(MORE)["label"]), progress=False)
    assert net.history.best >= net.history.start
    insisted = windtunnel.translate(source, level={"randomforestclassifier": "L1"}).soften()
    assert type(insisted.program.steps[-1].module) is SoftTrees


@pytest.mark.parametrize("lacks", [LinearSVC(), SVC()], ids=lambda member: type(member).__name__)
def test_members_that_lack_the_method_of_a_vote_are_rejected(lacks: Any) -> None:
    """The source fails too, once it predicts."""
    vote = VotingClassifier([("a", DummyClassifier()), ("b", lacks)], voting="soft").fit(X, np.arange(len(X)) % 3)
    with pytest.raises(UnsupportedEstimator, match="has no predict_proba"):
        windtunnel.compile(vote)
    threshold = FixedThresholdClassifier(lacks, threshold=0.4, response_method="predict_proba")
    with pytest.raises(UnsupportedEstimator, match="has no such method"):
        windtunnel.compile(threshold.fit(X, np.arange(len(X)) % 2))


def test_a_bag_of_decisions_about_pairs() -> None:
    bag = BaggingClassifier(SVC(decision_function_shape="ovo"), n_estimators=3, random_state=0)
    bag.fit(X, np.arange(len(X)) % 4)
    for net in (windtunnel.compile(bag), windtunnel.translate(bag)):
        np.testing.assert_allclose(net.decision_function(ROWS), bag.decision_function(ROWS), atol=1e-9)


def test_a_bag_whose_samples_lack_a_class() -> None:
    """The source predicts, but has no decision function."""
    target = np.where(np.arange(len(X)) < 3, 4, np.arange(len(X)) % 4)
    bag = BaggingClassifier(LinearSVC(), n_estimators=3, max_samples=0.05, random_state=0).fit(X, target)
    assert {len(member.coef_) for member in bag.estimators_} != {5}
    net = windtunnel.compile(bag)
    np.testing.assert_array_equal(net.predict(ROWS), bag.predict(ROWS))
    assert not hasattr(net, "decision_function")
    with pytest.raises(UnsupportedEstimator, match="support vectors of 4"):
        windtunnel.compile(clone(bag).set_params(estimator=SVC()).fit(X, target))

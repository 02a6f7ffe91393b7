"""``cascade``: what the small model may predict alone, what it may read, and what the full model ranks."""

import copy
import gc
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import NMF, PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import LinearSVC

import windtunnel
from windtunnel.errors import InvalidOption, UnsupportedEstimator
from windtunnel.serving.cascade.groups import GroupedPipeline
from windtunnel.serving.cascade.selection import efficient_groups
from windtunnel.serving.cascade.statistics import FeatureGroup
from windtunnel.serving.cascade.threshold import NEVER, choose_threshold, drop_of_auroc
from windtunnel.serving.cascade.timing import RowSeconds
from windtunnel.serving.cascade.top_k import TopK, top_k_quality


def dear(columns):
    """A transformer that takes long."""
    table = np.asarray(columns, dtype=float)
    for _ in range(300):
        table = np.sin(table) + np.asarray(columns, dtype=float) - np.sin(table)
    return table


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(3000, 4)), columns=list("abcd"))
    frame["text"] = np.where(frame.a + generator.normal(size=3000) / 4 > 0, "good news", "bad news")
    target = np.where(2 * frame.a + frame.b / 2 + generator.logistic(size=3000) / 4 > 0, "yes", "no")
    return frame, target


@pytest.fixture(scope="module")
def pipeline(rows):
    frame, target = rows
    parts = make_column_transformer(
        (StandardScaler(), ["a"]), (make_pipeline(FunctionTransformer(dear), StandardScaler()), ["b", "c"])
    )
    return Pipeline([("parts", make_pipeline(parts)), ("last", LogisticRegression())]).fit(frame[:1500], target[:1500])


COST = {"standardscaler": 1e-6, "pipeline": 1e-4}


@pytest.fixture(scope="module")
def made(pipeline, rows):
    frame, target = rows
    train, valid = (frame[:1500], target[:1500]), (frame[1500:2500], target[1500:2500])
    return windtunnel.cascade(pipeline, train, valid, accuracy_loss=0.01, cost=COST)


def test_the_small_model_predicts_rows_it_is_confident_in_and_the_full_one_the_others(made, pipeline, rows):
    frame = rows[0][2500:]
    assert made.efficient == ("standardscaler",)
    small, full = made.small.predict_proba(frame), pipeline.predict_proba(frame)
    sure = small.max(axis=1) >= made.threshold.confidence
    assert 0.1 < sure.mean() < 1
    np.testing.assert_allclose(made.predict_proba(frame), np.where(sure[:, None], small, full), atol=1e-9)
    labels = made.predict(frame)
    assert (labels == made.classes_[made.predict_proba(frame).argmax(axis=1)]).all()
    assert made.expected_cost == pytest.approx(1 / 101 + 1 - made.threshold.early)
    one = frame.iloc[[0]]
    np.testing.assert_allclose(made.predict_proba(one), made.predict_proba(frame)[:1], atol=1e-12)


def test_the_small_model_is_the_same_class_on_the_columns_of_its_groups(made, rows):
    frame, target = rows
    scaler = StandardScaler().fit(frame[:1500][["a"]])
    alone = LogisticRegression().fit(scaler.transform(frame[:1500][["a"]]), target[:1500])
    expected = alone.predict_proba(scaler.transform(frame[2500:][["a"]]))
    np.testing.assert_allclose(made.small.predict_proba(frame[2500:]), expected, atol=1e-9)


def test_other_rows_lose_more_than_allowed_in_few_cases():
    """Of rows with a confidence below 0.9 the small model alone misses 2 %: from 0.8 on the loss is just too large."""
    generator, broken, count = np.random.default_rng(0), 0, 2000
    for _ in range(200):
        correct, confidence = generator.integers(2, size=count), generator.uniform(0.5, 1, size=count)
        full = np.eye(2)[correct]
        missed = (confidence < 0.9) & (generator.random(count) < 0.02)
        small = np.where(missed, 1 - correct, correct)
        probabilities = np.where(np.eye(2)[small] == 1, confidence[:, None], 1 - confidence[:, None])
        chosen = choose_threshold(probabilities, full, correct, 0.0039)
        assert chosen.early > 0
        broken += 0.02 * (0.9 - chosen.confidence) / 0.5 > 0.0039
    assert 0 < broken <= 0.08 * 200


def test_drop_of_auroc():
    generator = np.random.default_rng(0)
    correct = generator.integers(2, size=3000)
    score = correct + generator.normal(size=3000)
    blurred = np.round(score + generator.normal(size=3000) / 2, 1)  # with ties

    def loss(some):
        full, small = (np.stack([-scores, scores], axis=1)[some] for scores in (score, blurred))
        return drop_of_auroc(full, small, correct[some])

    whole = loss(np.arange(3000))
    assert whole.full_metric == pytest.approx(roc_auc_score(correct, score))
    assert whole.full_metric - whole.drop == pytest.approx(roc_auc_score(correct, blurred))
    drawn = [loss(generator.integers(3000, size=3000)).drop for _ in range(200)]
    assert whole.standard_error == pytest.approx(np.std(drawn), rel=0.2)
    assert whole.upper == pytest.approx(whole.drop + 1.645 * whole.standard_error)


def test_a_rare_class_needs_auc():
    """The small model says no everywhere, as the full one does; the full one knows where yes is likelier."""
    generator = np.random.default_rng(0)
    chance = generator.choice([0.02, 0.3], 4000)
    correct = (generator.random(4000) < chance).astype(int)
    full, small = (np.stack([1 - value, value], axis=1) for value in (chance, np.full(4000, 0.16)))
    assert choose_threshold(small, full, correct, 0.005).early == 1
    assert choose_threshold(small, full, correct, 0.005, "auroc").early == 0


def test_a_class_with_one_row_has_no_standard_error_of_auc_and_no_early_answers():
    small, full = (np.stack([1 - value, value], axis=1) for value in np.random.default_rng(0).random((2, 1000)))
    correct = np.zeros(1000, dtype=int)
    correct[3] = 1
    full[3] = 0, 1
    assert np.isnan(drop_of_auroc(full, small, correct).standard_error)
    assert choose_threshold(small, full, correct, 0.001, "auroc").confidence == NEVER


def test_the_report_says_that_the_full_model_predicts_all_rows(pipeline, rows):
    frame, target = rows
    train, valid = (frame[:1500], target[:1500]), (frame[1500:2500], target[1500:2500])
    made = windtunnel.cascade(pipeline, train, valid, accuracy_loss=0.001, cost=COST)  # 1,000 rows cannot tell
    assert made.expected_cost == 1 and "the full model predicts all rows" in made.report()
    np.testing.assert_allclose(made.predict_proba(frame), pipeline.predict_proba(frame), atol=1e-9)


def test_the_report_says_whether_the_cascade_saves_time(made, rows):
    frame, target = rows
    train, valid = (frame[:1500], target[:1500]), (frame[1500:2500], target[1500:2500])
    assert made.seconds.full > sum(COST.values()) and "times as fast" in made.report()
    parts = make_column_transformer((StandardScaler(), ["a"]), (FunctionTransformer(), ["b", "c"]))
    cheap = make_pipeline(parts, LogisticRegression()).fit(*train)
    slow = windtunnel.cascade(
        cheap, train, valid, accuracy_loss=0.02, cost={"standardscaler": 0, "functiontransformer": 1e-9}
    )
    assert 0 < slow.threshold.early < 0.9 and "saves no time" in slow.report()


def test_the_loss_on_validation_rows_is_allowed(made):
    assert made.threshold.value >= made.threshold.full_value - 0.01
    assert "standardscaler" in made.report() and f"{made.threshold.early:.1%}" in made.report()


def test_a_saved_cascade_predicts_the_same(made, pipeline, rows, tmp_path):
    made.save(tmp_path / "cascade")
    loaded = windtunnel.Cascade.load(tmp_path / "cascade", host=pipeline)
    assert (loaded.predict_proba(rows[0]) == made.predict_proba(rows[0])).all()
    assert loaded.report() == made.report()
    data = (tmp_path / "cascade").read_bytes()
    for damaged in (b"", b"PK", data[:-100], data[:200] + b"x" + data[201:]):
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(windtunnel.BadFile):
            windtunnel.Cascade.load(tmp_path / "damaged", host=pipeline)
    with pytest.raises(windtunnel.InvalidOption, match="host="):
        windtunnel.Cascade.load(tmp_path / "cascade")


def test_texts_and_a_tuned_net(rows):
    frame, target = rows
    texts = frame.text.to_numpy(dtype=object)
    union = FeatureUnion(
        [("words", TfidfVectorizer()), ("chars", TfidfVectorizer(analyzer="char", ngram_range=(1, 4)))]
    )
    pipeline = make_pipeline(union, LogisticRegression()).fit(texts[:1500], target[:1500])
    net = windtunnel.translate(pipeline, calibrate=texts[:200])
    valid = (texts[1500:2500], target[1500:2500])
    made = windtunnel.cascade(pipeline, (texts[:1500], target[:1500]), valid, net=net, cost={"chars": 1.0})
    assert made.efficient == ("words",) and made.full is net
    assert np.mean(made.predict(texts[2500:]) == target[2500:]) >= pipeline.score(texts[2500:], target[2500:]) - 0.01


def test_booleans_beside_a_sparse_group(rows):
    frame, target = rows[0].assign(flag=rows[0].d > 0), rows[1]
    parts = make_column_transformer((OneHotEncoder(), ["text"]), remainder="passthrough")
    model = LGBMClassifier(n_estimators=5, verbosity=-1, n_jobs=1)
    pipeline = make_pipeline(parts, model).fit(frame[:1500], target[:1500])
    valid = frame[1500:2500], target[1500:2500]
    made = windtunnel.cascade(pipeline, (frame[:1500], target[:1500]), valid, cost={"onehotencoder": 1.0})
    assert made.efficient == ("remainder",)


def test_top_k_ranks_by_the_full_model(rows):
    frame, _ = rows
    target = 2 * frame.a + frame.b
    parts = make_column_transformer((StandardScaler(), ["a"]), (FunctionTransformer(dear), ["b", "c"]))
    model = LGBMRegressor(n_estimators=30, verbosity=-1, n_jobs=1)
    pipeline = make_pipeline(parts, model).fit(frame[:1500], target[:1500])
    train, valid = (frame[:1500], target[:1500]), (frame[1500:2000], target[1500:2000])
    made = windtunnel.cascade(pipeline, train, valid, cost={"standardscaler": 1e-6, "functiontransformer": 1e-4})
    queried = frame[2000:]
    best = made.top_k(queried, 5, ck=20)
    values = pipeline.predict(queried)
    assert best.ranked == 100 and set(best.rows) == set(np.argsort(-values)[:5])
    np.testing.assert_allclose(best.scores, np.sort(values)[::-1][:5], atol=1e-9)
    assert made.top_k(queried, 5).ranked == 50
    np.testing.assert_allclose(made.predict(queried), values, atol=1e-9)
    quality = made.top_k_quality(queried, 5, ck=20)
    assert (quality.precision, quality.ranked, quality.average_value) == (1, 100, quality.full_average_value)
    with pytest.raises(AttributeError):
        made.predict_proba(queried)
    with pytest.raises(windtunnel.InvalidOption, match="k=0"):
        made.top_k(queried, 0)


def test_quality_of_selected_rows():
    scores = np.array([9.0, 8.0, 7.0, 6.0, 5.0])
    perfect = top_k_quality(TopK(np.array([0, 1, 2]), scores[:3], 3), scores)
    assert (perfect.precision, perfect.mean_average_precision, perfect.average_value) == (1, 1, 8)
    first_missing = top_k_quality(TopK(np.array([1, 2, 3]), scores[1:4], 3), scores)
    assert first_missing.precision == pytest.approx(2 / 3)
    assert first_missing.mean_average_precision == pytest.approx((0 / 1 + 1 / 2 + 2 / 3) / 3)
    assert (first_missing.average_value, first_missing.full_average_value) == (7, 8)


def test_groups_join_by_importance_per_cost_up_to_half_of_all():
    groups = [FeatureGroup(*facts) for facts in (("a", 1.0, 10.0), ("b", 1.0, 5.0), ("c", 1.0, 0.1), ("d", 5.0, 100.0))]
    assert [group.name for group in efficient_groups(groups, 0.0)] == ["a", "b", "c"]
    assert [group.name for group in efficient_groups(groups, 0.4)] == ["a", "b"]
    assert [group.name for group in efficient_groups(groups, 0.9)] == ["a"]
    assert efficient_groups(groups[:1], 0.0) == []


def test_a_small_model_that_is_wrong_predicts_nothing_alone():
    generator = np.random.default_rng(0)
    correct = generator.integers(2, size=400)
    right = np.eye(2)[correct] * 0.98 + 0.01
    threshold = choose_threshold(right[:, ::-1], right, correct, 0.01)
    assert (threshold.early, threshold.value) == (0.0, 1.0)
    wrong = choose_threshold(np.round(right[:, ::-1]), right, correct, 0.01)
    assert (wrong.confidence, wrong.early) == (NEVER, 0.0)


@pytest.mark.parametrize(
    "options", [{"accuracy_loss": "1"}, {"accuracy_loss": 1}, {"gamma": "0"}, {"gamma": np.nan}, {"metric": "f1"}]
)
def test_invalid_options_are_rejected(options):
    with pytest.raises(windtunnel.InvalidOption, match=f"{next(iter(options))}=.*; accepted are"):
        windtunnel.cascade(None, (), (), **options)


def test_pipelines_without_groups_are_rejected(rows):
    frame, target = rows
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame[["a", "b"]], target)
    pair = (frame[["a", "b"]], target)
    with pytest.raises(windtunnel.UnsupportedEstimator, match="ColumnTransformer"):
        windtunnel.cascade(pipeline, pair, pair)


def test_pipelines_whose_rows_depend_on_each_other_are_rejected(rows):
    frame, target = rows
    frame = frame[["a", "b", "c"]].abs()
    parts = make_column_transformer((StandardScaler(), ["a"]), (NMF(1, solver="mu", random_state=0), ["b", "c"]))
    pipeline = make_pipeline(parts, LogisticRegression()).fit(frame, target)
    with pytest.raises(windtunnel.UnsupportedEstimator, match="depends on the other rows"):
        windtunnel.cascade(pipeline, (frame, target), (frame, target))


def test_a_classifier_of_several_targets_is_rejected(rows):
    frame, target = rows
    both = np.column_stack([frame.a > 0, target == "no"]).astype(int)
    parts = make_column_transformer((StandardScaler(), ["a"]), (StandardScaler(), ["b", "c"]))
    pipeline = make_pipeline(parts, RandomForestClassifier(3, random_state=0)).fit(frame, both)
    with pytest.raises(windtunnel.UnsupportedEstimator, match="several targets"):
        windtunnel.cascade(pipeline, (frame, both), (frame, both))


def test_a_regressor_of_several_targets_is_rejected(rows):
    frame, both = rows[0], rows[0][["a", "b"]]
    parts = make_column_transformer((StandardScaler(), ["a"]), (StandardScaler(), ["b", "c"]))
    pipeline = make_pipeline(parts, Ridge()).fit(frame, both)
    with pytest.raises(windtunnel.UnsupportedEstimator, match="several targets"):
        windtunnel.cascade(pipeline, (frame, both), (frame, both))


@pytest.mark.parametrize(
    "last", [LinearSVC(), FixedThresholdClassifier(LogisticRegression(), threshold=0.2, pos_label="yes")]
)
def test_a_classifier_whose_labels_are_not_the_most_probable_ones_is_rejected(last, rows):
    parts = make_column_transformer((StandardScaler(), ["a"]), (StandardScaler(), ["b", "c"]))
    pipeline = make_pipeline(parts, last).fit(*rows)
    with pytest.raises(windtunnel.UnsupportedEstimator, match="predicts the most probable label"):
        windtunnel.cascade(pipeline, rows, rows)


def test_rows_need_every_column_of_the_full_model(made, rows):
    frame = rows[0][:50]
    for some in (frame[["a"]], {"a": [1.0]}, [{"a": 1.0}], pa.table({"a": [1.0] * 50})):
        with pytest.raises(windtunnel.BadInput, match="columns missing: 'b', 'c'"):
            made.predict(some)
    assert len(made.predict(pa.Table.from_pandas(frame))) == 50


def test_parts_of_files_that_do_not_fit_are_noticed(rows, tmp_path):
    frame = rows[0]
    parts = make_column_transformer((StandardScaler(), ["a"]), (MinMaxScaler(), ["b", "c"]))
    three = make_pipeline(parts, LogisticRegression()).fit(frame, np.digitize(frame.a, [-1, 1]))
    values = make_pipeline(parts, Ridge()).fit(frame, frame.a)
    cost = {"standardscaler": 1e-6, "minmaxscaler": 1e-4}
    pipeline = make_pipeline(parts, LogisticRegression()).fit(*rows)
    made = windtunnel.cascade(pipeline, rows, rows, accuracy_loss=0.05, cost=cost)
    changes = [{"small": windtunnel.compile(three)}, {"small": windtunnel.compile(values)}, {"groups": []}]
    changes += [{"threshold": None}, {"threshold": replace(made.threshold, confidence=-1.0)}]
    changes += [{"seconds": RowSeconds(0.0, 1.0)}, {"full": made.small, "small": windtunnel.compile(three)}]
    for change in changes:
        replace(made, **change).save(tmp_path / "forged")
        with pytest.raises(windtunnel.BadFile, match="its (models|groups)"):
            windtunnel.Cascade.load(tmp_path / "forged")


def test_arguments_that_are_no_rows_with_targets_are_rejected(pipeline, rows):
    train = valid = rows
    for wrong, message in [
        ((*train, np.ones(len(train[1]))), "train has weights, and a cascade takes none; give .X, y."),
        (train[0], "train is a DataFrame; give"),
        ((train[0], train[1][:5]), "the target of train has 5 values for"),
        ((train[0], np.repeat(train[1][:1], len(train[1]))), "lack a class of the pipeline"),
    ]:
        with pytest.raises(windtunnel.BadInput, match=message):
            windtunnel.cascade(pipeline, wrong, valid)


def test_labels_and_costs_that_are_none_are_rejected(pipeline, rows):
    frame, target = rows
    for metric in ("accuracy", "auroc"):
        with pytest.raises(windtunnel.BadInput, match="labels 'never' are not among the classes"):
            windtunnel.cascade(pipeline, rows, (frame, np.where(target == "no", "never", target)), metric=metric)
    group = GroupedPipeline.of(pipeline).names[0]
    for seconds in (-1.0, np.nan, np.inf, "1"):
        with pytest.raises(windtunnel.InvalidOption, match="numbers from 0 up"):
            windtunnel.cascade(pipeline, rows, rows, cost={group: seconds})


def test_a_metric_that_is_unknown_or_for_two_classes_is_rejected(pipeline, rows):
    with pytest.raises(windtunnel.InvalidOption, match="'accuracy', 'auroc'"):
        windtunnel.cascade(pipeline, rows, rows, metric="f1")
    frame, target = rows
    labels = np.where(frame.c > 1, "maybe", target)
    three = clone(pipeline).fit(frame, labels)
    with pytest.raises(windtunnel.InvalidOption, match="two classes"):
        windtunnel.cascade(three, (frame, labels), (frame, labels), metric="auroc", cost=COST)
    with pytest.raises(windtunnel.BadInput, match="lack a class of the pipeline"):
        windtunnel.cascade(three, rows, rows, cost=COST)


def test_a_cost_of_an_unknown_group_is_rejected(pipeline, rows):
    with pytest.raises(windtunnel.InvalidOption, match="standardscaler"):
        windtunnel.cascade(pipeline, rows, rows, cost={"nothing": 1.0})


def test_target_encodings_of_the_small_model_are_cross_fitted(rows):
    frame, target = rows
    frame = frame.assign(key=np.arange(len(frame)) // 3)  # an encoding that has seen a row gives its target away
    parts = make_column_transformer((TargetEncoder(), ["key"]), (StandardScaler(), ["a"]), ("passthrough", ["b"]))
    pipeline = make_pipeline(parts, LogisticRegression()).fit(frame, target)
    small = GroupedPipeline.of(pipeline).smaller(frame, target, ["targetencoder", "standardscaler"])
    seen = LogisticRegression().fit(small[:-1].transform(frame), target)
    assert abs(small[-1].coef_[0, 0]) < 0.5 * seen.coef_[0, 0]
    np.testing.assert_allclose(windtunnel.compile(small).predict_proba(frame), small.predict_proba(frame), atol=1e-9)


def test_parts_of_nested_concatenations_are_groups(rows):
    frame, target = rows
    frame = frame.assign(text=frame.text + np.where(np.arange(len(frame)) % 3 > 0, " today", " again"))
    texts = FeatureUnion([("words", TfidfVectorizer()), ("chars", TfidfVectorizer(analyzer="char"))])
    parts = make_column_transformer(
        (make_pipeline(texts), "text"),
        (make_column_transformer((StandardScaler(), ["a"]), (PCA(1), ["b", "c"])), list("abc")),
    )
    pipeline = make_pipeline(parts, LogisticRegression()).fit(frame[:1500], target[:1500])
    grouped = GroupedPipeline.of(pipeline)
    names = ["pipeline.featureunion.words", "pipeline.featureunion.chars"]
    assert grouped.names == [*names, "columntransformer.standardscaler", "columntransformer.pca"]
    features = pipeline[0].transform(frame)
    blocks = [grouped.features(frame, [name]) for name in grouped.names]
    np.testing.assert_array_equal(np.hstack([np.asarray(block) for block in blocks]), features)
    for kept in ([names[0]], [names[1], "columntransformer.pca"]):
        net = windtunnel.compile(grouped.smaller(frame[:1500], target[:1500], kept))
        expected = np.hstack([block for name, block in zip(grouped.names, blocks, strict=True) if name in kept])
        alone = LogisticRegression().fit(expected[:1500], target[:1500])
        np.testing.assert_allclose(net.predict_proba(frame), alone.predict_proba(expected), atol=1e-9)


@pytest.fixture(scope="module")
def of_positions():
    """A cascade whose pipeline was fitted on an array, and rows of which it predicts some with the full model."""
    X = np.random.default_rng(0).normal(size=(3000, 2))
    y = (X[:, 0] + 3 * X[:, 1] > 0).astype(int)
    parts = make_column_transformer((StandardScaler(), [0]), (SplineTransformer(), [1]))
    pipeline = make_pipeline(parts, LogisticRegression()).fit(X[:1500], y[:1500])
    cost = {"standardscaler": 1e-6, "splinetransformer": 1e-5}
    train, valid = (X[:1500], y[:1500]), (X[1500:], y[1500:])
    return windtunnel.cascade(pipeline, train, valid, accuracy_loss=0.2, cost=cost), X[:50]


@pytest.mark.parametrize(
    "kind",
    [
        lambda X: {"1": X[:, 1], "0": X[:, 0]},  # in positions of columns, the names do not count
        lambda X: {"1": pd.Series(X[:, 1], index=range(7, 57)), "0": X[:, 0].tolist()},
        lambda X: X.tolist(),
        lambda X: tuple(map(tuple, X)),
        torch.from_numpy,
    ],
    ids=["arrays", "Series and lists", "lists of lists", "tuples", "Tensor"],
)
def test_rows_of_every_kind_are_read_alike_by_both_models(of_positions, kind):
    cascade, X = of_positions
    rows, wanted = kind(X), cascade.full.predict_proba(kind(X))
    assert 0 < cascade.confident(cascade.small.predict_proba(rows)).mean() < 1
    found = cascade.predict_proba(rows)
    unsure = ~cascade.confident(found)
    np.testing.assert_allclose(found[unsure], wanted[unsure])
    assert cascade.top_k(rows, 3).rows.tolist() == cascade.top_k(kind(X), 3).rows.tolist()


@pytest.mark.parametrize(
    "options", [{"k": 1.5}, {"k": "5"}, {"k": 0}, {"k": 1, "ck": np.nan}, {"k": 1, "ck": np.inf}, {"k": 1, "ck": "2"}]
)
def test_options_of_top_k_are_checked(of_positions, options):
    cascade, X = of_positions
    with pytest.raises(InvalidOption, match="whole numbers k from 1 up"):
        cascade.top_k(X, **options)


@pytest.mark.parametrize("options", [{"cost": 0.001}, {"cost": ["parts"]}, {"cache": 5}])
def test_costs_and_caches_are_mappings(pipeline, rows, options):
    frame, target = rows
    part = frame[:100], target[:100]
    with pytest.raises(InvalidOption, match="give a mapping"):
        windtunnel.cascade(pipeline, part, part, **options)


def test_the_full_model_may_be_a_fitted_classifier_of_ours(pipeline, rows):
    frame, target = rows
    valid = (frame[1500:2500], target[1500:2500])
    classifier = windtunnel.WindTunnelClassifier(pipeline).fit(frame[:1500], target[:1500])
    made = windtunnel.cascade(pipeline, rows, valid, net=classifier, cost=COST)
    np.testing.assert_array_equal(made.full.predict_proba(frame), classifier.predict_proba(frame))
    with pytest.raises(windtunnel.InvalidOption, match="net=Pipeline; accepted are a translation"):
        windtunnel.cascade(pipeline, rows, valid, net=pipeline, cost=COST)
    made = windtunnel.cascade(classifier, rows, valid, cost=COST)
    np.testing.assert_array_equal(made.full.predict_proba(frame), classifier.predict_proba(frame))


def test_a_translation_stands_for_its_pipeline(pipeline, rows, tmp_path):
    frame, target = rows
    valid = (frame[1500:2500], target[1500:2500])
    net = windtunnel.translate(pipeline)
    made = windtunnel.cascade(net, rows, valid, cost=COST)
    assert made.full is net
    wanted = windtunnel.cascade(pipeline, rows, valid, net=net, cost=COST)
    np.testing.assert_array_equal(made.predict_proba(frame), wanted.predict_proba(frame))
    net.save(tmp_path / "net.windtunnel")
    gone = windtunnel.translate(copy.deepcopy(pipeline))
    gc.collect()
    for other in (windtunnel.load(tmp_path / "net.windtunnel", host=pipeline), gone):
        with pytest.raises(UnsupportedEstimator, match=r"cascade\(pipeline, train, valid, net=net\)"):
            windtunnel.cascade(other, rows, valid, cost=COST)


def test_rows_may_be_dicts_of_columns_and_seeds_are_whole_numbers(pipeline, rows):
    frame, target = rows
    columns = {name: frame[name].tolist() for name in frame}
    made = windtunnel.cascade(pipeline, (columns, target), (columns, target), cost=COST, accuracy_loss=0.01)
    np.testing.assert_array_equal(made.predict(columns), made.predict(frame))
    for seed in (-1, "a"):
        with pytest.raises(windtunnel.InvalidOption, match=f"seed={seed!r}"):
            windtunnel.cascade(pipeline, rows, rows, cost=COST, seed=seed)

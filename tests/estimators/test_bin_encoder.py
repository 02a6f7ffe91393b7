import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, TargetEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

import windtunnel
from windtunnel.errors import BadInput, InvalidOption, UnsupportedEstimator
from windtunnel.estimators import BinEncoder, TwoHotEncoder
from windtunnel.translators.registry import convert


@parametrize_with_checks([BinEncoder(), BinEncoder(OneHotEncoder(handle_unknown="ignore"), n_bins=3)])
def test_sklearn_checks(estimator, check):
    check(estimator)


def numbers(rows: int = 500) -> pd.DataFrame:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"few": random.poisson(1, rows), "same": 3.0, "many": random.lognormal(size=rows)})
    frame.loc[::9, "many"] = np.nan
    return frame


def test_bins_hold_about_equally_many_rows_and_none_is_empty():
    fitted = BinEncoder(n_bins=8).fit(numbers())
    assert [len(edges) for edges in fitted.bin_edges_] == [len(np.unique(fitted.bin_edges_[0])), 0, 7]
    for edges, (_, column) in zip(fitted.bin_edges_, numbers().items(), strict=True):
        counts = np.bincount(np.searchsorted(edges, column.dropna(), side="right"), minlength=len(edges) + 1)
        assert counts.min() > 0
    assert counts.max() - counts.min() <= 2


def test_bins_are_those_of_a_discretizer_where_no_values_are_tied():
    X = np.random.default_rng(1).normal(size=(320, 2))
    theirs = KBinsDiscretizer(8, encode="ordinal", quantile_method="inverted_cdf").fit_transform(X)
    names = BinEncoder(n_bins=8).fit(X)._bins(X)
    # Its edges lie at the last number of a bin, ours at the first of the next: no more than one row in a bin moves.
    assert np.abs(names.astype(float).to_numpy() - theirs).sum(axis=0).max() <= 8


def test_the_encoder_gets_texts_and_a_category_for_missing_numbers():
    frame = BinEncoder(n_bins=16).fit(numbers())._bins(numbers().to_numpy(dtype=float))
    assert frame["same"].unique().tolist() == ["00"]
    assert (frame["many"] == "missing").tolist() == numbers()["many"].isna().tolist()


def test_fit_transform_cross_fits_as_the_encoder_does():
    X, y = numbers(), np.random.default_rng(2).integers(0, 2, 500)
    target = TargetEncoder(cv=StratifiedKFold(5, shuffle=True, random_state=0))
    encoder = BinEncoder(target, n_bins=8)
    expected = clone(target).fit_transform(clone(encoder).fit(X, y)._bins(X.to_numpy(float)), y)
    np.testing.assert_array_equal(clone(encoder).fit_transform(X, y), expected)
    assert not np.allclose(expected, encoder.fit(X, y).transform(X))


@pytest.mark.parametrize("encoder", [None, OneHotEncoder(), TargetEncoder()], ids=str)
def test_rows_of_bins_are_trained(encoder):
    X, y = numbers(), np.random.default_rng(3).integers(0, 2, 500)
    net = windtunnel.translate(BinEncoder(encoder, n_bins=5).fit(X, y))
    output = net(*net.encode(X))
    np.testing.assert_allclose(output.detach(), BinEncoder(encoder, n_bins=5).fit(X, y).transform(X), rtol=1e-6)
    output.sum().backward()
    (rows,) = net.parameters()
    seen = rows.grad.abs().sum(dim=(1, 2))
    assert (seen > 0).all()


def test_a_missing_number_is_rejected_where_the_encoder_rejects_it():
    X = numbers()
    exact = windtunnel.compile(BinEncoder(OneHotEncoder(), n_bins=4).fit(X))
    assert exact.transform(X).shape[0] == len(X)  # "many" had missing numbers in fit
    with pytest.raises(BadInput, match="few"):
        exact.transform(X.assign(few=np.nan))


def test_edges_stay_where_they_are_in_float32():
    X = np.array([[0.1], [0.2], [0.3], [0.4]])
    fitted = BinEncoder(n_bins=4).fit(X)
    single = windtunnel.compile(fitted, dtype=torch.float32)
    np.testing.assert_array_equal(single.transform(X), fitted.transform(X))


@pytest.mark.parametrize("n_bins", [1, 2.5, "32"])
def test_bad_numbers_of_bins(n_bins):
    with pytest.raises(InvalidOption, match="n_bins="):
        BinEncoder(n_bins=n_bins).fit(numbers())


def test_an_encoder_without_tables_is_rejected_by_name():
    import category_encoders as ce

    fitted = BinEncoder(ce.HashingEncoder(n_components=4, max_process=1)).fit(numbers())
    with pytest.raises(UnsupportedEstimator, match="BinEncoder has the encoder HashingEncoder"):
        convert(fitted)


def test_infinity_and_further_arguments_are_rejected():
    with pytest.raises(ValueError, match="infinity"):
        BinEncoder().fit(numbers().assign(few=np.inf))
    with pytest.raises(BadInput, match="sample_weight"):
        BinEncoder(TwoHotEncoder()).fit_transform(numbers(), sample_weight=np.ones(500))


def test_parameters_that_are_set_after_fit_change_nothing() -> None:
    fitted = BinEncoder(n_bins=8).fit(numbers())
    expected = fitted.transform(numbers())
    np.testing.assert_array_equal(fitted.set_params(n_bins=200).transform(numbers()), expected)

"""Tables of per-column encoders, and the recoding of text imputers, against their sources."""

from typing import Any

import category_encoders as ce
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder

import windtunnel
from windtunnel.encode import hash_bucket
from windtunnel.encode.columns import is_missing
from windtunnel.errors import UnsupportedEstimator
from windtunnel.estimators import TwoHotEncoder
from windtunnel.translators.categories.probe import Probed, probe
from windtunnel.translators.categories.probe_inputs import UNKNOWN
from windtunnel.translators.conversions import CategoryEncoding, CategoryRecoding
from windtunnel.translators.registry import convert

# category_encoders 2.11 sets an option that pandas 3 has deprecated, in fit and transform alike.
pytestmark = pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting' is deprecated")

MISSING = {"city": np.nan, "code": None, "year": 2000}


def frame(missing: bool = True, rows: int = 300) -> pd.DataFrame:
    """Text as str, text as object, floats that are categories, integers that are categories; some values rare."""
    random = np.random.default_rng(0)
    weights = 0.7 ** np.arange(12) / (0.7 ** np.arange(12)).sum()
    draws = random.choice(12, size=(rows, 4), p=weights)
    text = np.array(list("abcdefghijkl"), dtype=object)
    data = pd.DataFrame(
        {
            "city": pd.Series(text[draws[:, 0]], dtype="str"),
            "code": pd.Series("x" + text[draws[:, 1]], dtype=object),
            "size": draws[:, 2] / 2,
            "year": draws[:, 3] + 2000,
        }
    )
    if missing:
        data.loc[::9, "city"] = np.nan
        data.loc[::11, "code"] = None
        data.loc[::13, "size"] = np.nan
    return data


def dense(output: Any) -> np.ndarray:
    return np.asarray(output.toarray() if hasattr(output, "toarray") else output).astype(np.float32)


def values_of(encoding: CategoryEncoding) -> list[list[Any] | None]:
    return [
        None if known is None else [UNKNOWN, None, *(value for value in known if not is_missing(value))]
        for known in encoding.categories
    ]


def composed(probed: Probed, shown: list[list[Any] | None], data: pd.DataFrame, buckets: int = 0) -> np.ndarray:
    """What the tables make of raw rows, with a dict per column for the look-up."""
    out = np.zeros((len(data), probed.width), dtype=np.float32)
    for j, (table, positions, values) in enumerate(zip(probed.tables, probed.positions, shown, strict=True)):
        column = data.iloc[:, j].tolist()
        if table is None:
            out[:, positions] = np.asarray(column, dtype=np.float32)[:, None]
            continue
        row_of = {value: row for row, value in enumerate(values or []) if row > 1}
        unknown = [len(values or []) + hash_bucket(str(value), buckets) if buckets else 0 for value in column]
        ids = [1 if is_missing(v) else row_of.get(v, u) for v, u in zip(column, unknown, strict=True)]
        assert not set(ids) & set(probed.rejected[j])
        if probed.additive:
            out += table[ids].numpy()
        else:
            out[:, positions] = table[ids].numpy()
    return out


def check(fitted: Any, data: pd.DataFrame) -> Probed:
    encoding = convert(fitted)
    shown = values_of(encoding)
    probed = probe(fitted, encoding, shown)
    np.testing.assert_allclose(
        composed(probed, shown, data, encoding.buckets), dense(fitted.transform(data)), rtol=1e-12
    )
    covered = {position for positions in probed.positions for position in positions}
    assert covered == set(range(probed.width))
    return probed


SKLEARN = {
    "one-hot": OneHotEncoder(handle_unknown="ignore"),
    "one-hot-dense": OneHotEncoder(handle_unknown="ignore", sparse_output=False, dtype=np.int8),
    "one-hot-error": OneHotEncoder(),
    "one-hot-drop-first": OneHotEncoder(drop="first", handle_unknown="error"),
    "one-hot-drop-binary": OneHotEncoder(drop="if_binary", handle_unknown="error"),
    "one-hot-drop-warns": OneHotEncoder(drop="first", handle_unknown="ignore"),
    "one-hot-drop-list": OneHotEncoder(drop=["b", "xa", 0.5, 2001]),
    "one-hot-infrequent": OneHotEncoder(min_frequency=20, handle_unknown="infrequent_if_exist"),
    "one-hot-max": OneHotEncoder(max_categories=4, handle_unknown="ignore"),
    "one-hot-infrequent-warn": OneHotEncoder(max_categories=3, handle_unknown="warn"),
    "one-hot-infrequent-drop": OneHotEncoder(min_frequency=0.1, drop="first", handle_unknown="infrequent_if_exist"),
    "ordinal": OrdinalEncoder(),
    "ordinal-unknown": OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2),
    "ordinal-unknown-nan": OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan),
    "ordinal-infrequent": OrdinalEncoder(
        min_frequency=20, handle_unknown="use_encoded_value", unknown_value=99, encoded_missing_value=50
    ),
}


def unseen(fitted: Any, data: pd.DataFrame) -> pd.DataFrame:
    """Rows with categories and missing values that were not fitted, where the encoder takes them."""
    if convert(fitted).rejects_unknown:
        return data
    strange = data.copy()
    strange.loc[::5, "city"] = "Zanzibar"
    strange.loc[::7, "code"] = "unknown"
    strange.loc[::6, "size"] = 1234.5
    strange.loc[::8, "year"] = -7
    return strange


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", SKLEARN)
@pytest.mark.filterwarnings("ignore:Found unknown categories in columns:UserWarning")
def test_sklearn_encoder_is_a_table_per_column(name: str, missing: bool) -> None:
    data = frame(missing)
    fitted = SKLEARN[name].fit(data)
    before = {name: str(value) for name, value in vars(fitted).items()}
    probed = check(fitted, unseen(fitted, data))
    assert before == {name: str(value) for name, value in vars(fitted).items()}
    if convert(fitted).rejects_unknown:
        # Row 0 is an unknown category; row 1 a missing one, which the source rejects where it saw none in fit.
        assert probed.rejected == ([[0], [0], [0], [0, 1]] if missing else [[0, 1]] * 4)
        assert all(table is not None and not table[0].any() for table in probed.tables)
        with pytest.raises(ValueError, match="unknown categories"):
            fitted.transform(unseen(OneHotEncoder(handle_unknown="ignore").fit(data), data))


@pytest.mark.parametrize(
    "values",
    [
        np.array([["a", "b"], ["b", "c"], ["a", "d"]]),
        np.array([["a", 1], [None, 2], ["b", 1]], dtype=object),
        np.array([[1, 20], [2, 10], [3, 10]]),
        np.array([[1.5, np.nan], [2.5, 1.0], [np.nan, 1.0]]),
        np.array([[True, False], [False, False], [True, True]]),
        np.array([["a", None], ["a", None], ["a", None]], dtype=object),
    ],
    ids=["text", "mixed", "int", "float", "bool", "constant"],
)
@pytest.mark.parametrize("unknown", ["ignore", "error"])
def test_encoders_fitted_on_arrays(values: np.ndarray, unknown: str) -> None:
    for fitted in (OneHotEncoder(handle_unknown=unknown).fit(values), OrdinalEncoder().fit(values)):
        encoding = convert(fitted)
        shown = values_of(encoding)
        probed = probe(fitted, encoding, shown)
        got = composed(probed, shown, pd.DataFrame(values))
        np.testing.assert_allclose(got, dense(fitted.transform(values)), rtol=1e-12)


COLUMNS = ["city", "code", "year"]
# Lumping is shown on text only: with pandas 3, category_encoders cannot put a name among numbers.
HANDLED = [
    {},
    {"handle_unknown": "return_nan", "handle_missing": "return_nan"},
    {"handle_unknown": "error"},
    {"handle_unknown": "return_nan", "min_group_size": 20},
    {"min_group_size": 0.1, "min_group_name": "rest", "combine_min_nan_groups": "force"},
]
CATEGORY_ENCODERS = {
    f"{cls.__name__}-{at}": cls(cols=COLUMNS[: 2 if "min_group_size" in options else 3], **options)
    for cls in (
        ce.OneHotEncoder,
        ce.OrdinalEncoder,
        ce.BinaryEncoder,
        ce.BaseNEncoder,
        ce.TargetEncoder,
        ce.CountEncoder,
    )
    for at, options in enumerate(HANDLED)
} | {
    "one-hot-indicator": ce.OneHotEncoder(cols=COLUMNS, handle_unknown="indicator", handle_missing="indicator"),
    "one-hot-names": ce.OneHotEncoder(use_cat_names=True, return_df=False),
    "ordinal-mapping": ce.OrdinalEncoder(
        mapping=[{"col": "city", "mapping": {"a": 5, "b": 3}}], cols=["city"], handle_unknown="return_nan"
    ),
    "ordinal-number": ce.OrdinalEncoder(cols=["city"], handle_unknown=-5, handle_missing=-6),
    "binary-indicator": ce.BinaryEncoder(cols=COLUMNS, handle_unknown="indicator", handle_missing="indicator"),
    "base-3": ce.BaseNEncoder(cols=COLUMNS, base=3),
    "base-1": ce.BaseNEncoder(cols=COLUMNS, base=1),
    "target-number": ce.TargetEncoder(cols=COLUMNS, handle_unknown=-1.5, handle_missing=-2.5, smoothing=2),
    "count-normalized": ce.CountEncoder(cols=COLUMNS, normalize=True, handle_unknown=-1),
    "count-lumped": ce.CountEncoder(cols=COLUMNS[:2], min_group_size=15, handle_unknown="return_nan"),
    "no-columns": ce.OrdinalEncoder(cols=[]),
    "dropped-constants": ce.OneHotEncoder(cols=COLUMNS, drop_invariant=True),
    "hashing": ce.HashingEncoder(cols=["city", "code"], n_components=6, max_process=2),
    "hashing-one": ce.HashingEncoder(cols=["code"], n_components=13),
    "hashing-numbers": ce.HashingEncoder(cols=["year"], n_components=5, max_process=1),
    "hashing-one-bucket": ce.HashingEncoder(cols=["city", "code"], n_components=1, max_process=1),
}


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", CATEGORY_ENCODERS)
def test_category_encoder_is_a_table_per_column(name: str, missing: bool) -> None:
    data = frame(missing)
    data["city"] = data["city"].astype("category" if missing else "str")
    data["code"] = data["code"].where(data["code"].notna(), None)
    encoded = CATEGORY_ENCODERS[name].cols
    data = data if name == "no-columns" or encoded is None else data[[*(encoded or []), "size"]]
    if name in ("no-columns", "one-hot-names"):
        data = data[["size", "year"]] if name == "no-columns" else data
    fitted = CATEGORY_ENCODERS[name].fit(data, np.arange(len(data)) % 7 / 7.0)
    strange = data.copy()
    if not convert(fitted).rejects_unknown:
        strange[strange.columns] = strange.astype({c: object for c in strange if strange[c].dtype == "category"})
        for column, value in (("city", "Zanzibar"), ("code", "unknown"), ("year", -7)):
            if column in strange and name != "one-hot-names":
                strange.loc[::5, column] = value
                strange.loc[::8, column] = MISSING[column]
    probed = check(fitted, strange)
    assert probed.additive == (name == "hashing")


def test_missing_values_rejected_by_parameter() -> None:
    data = frame(missing=False)[["city"]]
    fitted = ce.OneHotEncoder(handle_missing="error").fit(data)
    assert probe(fitted, convert(fitted), values_of(convert(fitted))).rejected == [[1]]
    counts = ce.CountEncoder(handle_unknown="error").fit(data)
    assert probe(counts, convert(counts), values_of(convert(counts))).rejected == [[0, 1]]


def test_hashed_columns_share_tables_of_one_hots() -> None:
    data = frame()[["city", "code"]]
    fitted = ce.HashingEncoder(n_components=6).fit(data)
    probed = probe(fitted, convert(fitted), [[UNKNOWN, None], [UNKNOWN, None, "known"]])
    assert probed.additive
    city, code = probed.tables
    assert city is not None and code is not None
    torch.testing.assert_close(city[2:], torch.eye(6, dtype=torch.float64))
    torch.testing.assert_close(code[3:], torch.eye(6, dtype=torch.float64))
    torch.testing.assert_close(code[2], torch.eye(6, dtype=torch.float64)[hash_bucket("known", 6)])
    # pandas keeps a missing str as NaN, which the encoder hashes as text; a missing object is None, which it skips.
    torch.testing.assert_close(city[1], torch.eye(6, dtype=torch.float64)[hash_bucket("nan", 6)])
    assert not code[1].any()


@pytest.mark.parametrize("unknown", ["ignore", "error"])
def test_two_hot_passes_numbers_through(unknown: str) -> None:
    data = frame(missing=False)[["size", "city"]]
    fitted = TwoHotEncoder(handle_unknown=unknown).fit(data)
    probed = check(fitted, data)
    assert probed.positions[0] == [0] and probed.tables[0] is None


def test_recoded_values_may_repeat_and_be_unknown() -> None:
    data = frame(missing=False)[["city"]]
    fitted = OneHotEncoder().fit(data)
    probed = probe(fitted, convert(fitted), [["a", "a", UNKNOWN, float("nan"), "nowhere", "b"]])
    assert probed.rejected == [[2, 3, 4]]
    table = probed.tables[0]
    assert table is not None
    torch.testing.assert_close(table.argmax(dim=1), torch.tensor([0, 0, 0, 0, 0, 1]))
    assert not table[2:5].any()


class Interaction(FunctionTransformer):
    """A function of both columns at once."""

    def transform(self, X: pd.DataFrame) -> np.ndarray:
        return np.column_stack([(X.iloc[:, 0] == "a") & (X.iloc[:, 1] == "a"), X.iloc[:, 0] == "b"])


def test_what_is_no_table_per_column_is_rejected_by_name() -> None:
    with pytest.raises(UnsupportedEstimator, match="Interaction is not a table per column"):
        probe(Interaction(), CategoryEncoding([["a", "b"], ["a", "b"]]), [["a", "b"], ["a", "b"]])


@pytest.mark.parametrize(
    "fitted, message",
    [
        (ce.TargetEncoder(cols=["city"], hierarchy={"city": {"x": ("a", "b"), "y": tuple("cdefghijkl")}}), "hierarchy"),
        (ce.TargetEncoder(composite_cols=[("city", "code")]), "composite_cols"),
        (ce.OrdinalEncoder(handle_unknown=lambda value, mapping: 1.0), "function"),
        (ce.HashingEncoder(hash_method="sha1"), "sha1"),
        (ce.HashingEncoder(cols=["code", "size"]), "together"),
    ],
    ids=["hierarchy", "composite", "function", "sha1", "hashed-types"],
)
def test_what_cannot_be_translated_is_rejected_by_name(fitted: Any, message: str) -> None:
    fitted.fit(frame(missing=False), np.arange(300) % 2)
    with pytest.raises(UnsupportedEstimator, match=message):
        convert(fitted)


def test_categories_that_are_no_plain_values_are_rejected() -> None:
    dates = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=3)})
    with pytest.raises(UnsupportedEstimator, match="input column 0"):
        convert(OneHotEncoder().fit(dates))
    with pytest.raises(UnsupportedEstimator, match="None beside NaN"):
        convert(OneHotEncoder().fit(np.array([["a"], [None], [np.nan]], dtype=object)))


@pytest.mark.parametrize("cls", [OneHotEncoder, ce.OneHotEncoder, ce.BinaryEncoder])
def test_thousands_of_categories(cls: type) -> None:
    data = pd.DataFrame({"user": [f"u{k}" for k in range(4000)], "item": [f"i{k % 50}" for k in range(4000)]})
    fitted = cls(handle_unknown="ignore" if cls is OneHotEncoder else "value").fit(data)
    encoding = convert(fitted)
    probed = probe(fitted, encoding, values_of(encoding))
    first = probed.tables[0]
    assert first is not None and first.shape[0] == 4002 and sparse.issparse(first) == (cls is OneHotEncoder)


@pytest.mark.parametrize(
    "fitted",
    [
        SimpleImputer(strategy="most_frequent"),
        SimpleImputer(strategy="constant", fill_value="none"),
        SimpleImputer(strategy="constant"),
        SimpleImputer(strategy="most_frequent", missing_values="a"),
        SimpleImputer(strategy="most_frequent", missing_values=pd.NA),
    ],
)
def test_text_imputer_recodes(fitted: SimpleImputer) -> None:
    data = frame()[["city"]].astype(object)
    marked = isinstance(fitted.missing_values, str)
    data = data.dropna() if marked else data
    recoding = convert(fitted.fit(data))
    assert isinstance(recoding, CategoryRecoding) and recoding.number is None
    assert recoding.categories == [["a"] if marked else []]
    values = ["a", "b", "unseen", *([] if marked else [np.nan])]
    rows = pd.DataFrame({"city": np.array(values, dtype=object)}, dtype=object)
    assert recoding.recode(0, [*values, UNKNOWN]) == [*fitted.transform(rows)[:, 0], UNKNOWN]


def test_text_imputer_that_changes_the_columns_is_rejected() -> None:
    data = frame()[["city"]].astype(object)
    with pytest.raises(UnsupportedEstimator, match="only plain filling"):
        convert(SimpleImputer(strategy="most_frequent", add_indicator=True).fit(data))


def test_a_text_imputer_at_the_end_is_rejected() -> None:
    fitted = SimpleImputer(strategy="most_frequent").fit(frame()[["city"]].astype(object))
    with pytest.raises(UnsupportedEstimator, match="reads text"):
        windtunnel.compile(fitted)


@pytest.mark.parametrize("cls", [ce.LeaveOneOutEncoder, ce.CatBoostEncoder])
@pytest.mark.parametrize("values", [[1, 2, None], [1, "b", None], [1, "b", np.nan], [True, False, True]], ids=str)
def test_encoders_that_depend_on_the_other_rows_stay_on_the_host(cls: type, values: list[Any]) -> None:
    dtype = "category" if values[0] is True else object
    rows, y = pd.DataFrame({"c": pd.Series(values * 10, dtype=dtype)}), np.arange(30) % 7 > 2
    source = make_pipeline(cls(cols=["c"]), LogisticRegression()).fit(rows, y)
    net = windtunnel.compile(source)
    assert [host.name for host in net.hosts] == [cls.__name__.lower()]
    np.testing.assert_allclose(net.predict_proba(rows), source.predict_proba(rows))

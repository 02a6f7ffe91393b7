"""Ids of columns of texts: from tables in C as ``CategoryColumn.ids`` gives them, or not at all."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

import windtunnel
from windtunnel.compiler.native.build import library
from windtunnel.compiler.native.text_columns import TextColumns
from windtunnel.encode import CategoryColumn, Vocabulary

WORDS = [
    "",
    "a",
    "Oslo",
    "Åsgård",
    "12345678",
    "123456789",
    "a text of more than sixteen bytes",
    "\0",
    "unknown",
    "b" * 200,
]
VOCABULARY = Vocabulary((*WORDS[:8], *(f"word {number}" for number in range(3000))))
TEXTS = [*np.random.default_rng(0).choice([*WORDS, *VOCABULARY.values], 5000), None, None]
ARROW = {"string": pa.string(), "large": pa.large_string(), "dictionary": pa.dictionary(pa.int16(), pa.string())}
FULL = pa.DictionaryArray.from_arrays(pa.array([0, 127, None], pa.int8()), [f"word {number}" for number in range(128)])
"""As many categories as its type of codes holds, and a missing value."""


def columns() -> dict[str, pd.Series]:
    """The same texts in every dtype."""
    objects = pd.Series(TEXTS, dtype=object).map(str, na_action="ignore")
    columns = {"object": objects, "str": objects.astype("str"), "category": objects.astype("category")}
    columns["python str"] = objects.astype(pd.StringDtype("python"))
    columns |= {name: objects.astype(pd.ArrowDtype(dtype)) for name, dtype in ARROW.items()}
    columns["chunks"] = pd.concat([columns["string"][:7], columns["string"][9:12], columns["string"][100:]])
    columns["chunks of codes"] = pd.concat([columns["dictionary"][:70], columns["dictionary"][90:]])
    columns["all missing"] = objects[:3].where(objects.isna())
    columns["a full dictionary"] = pd.Series(FULL, dtype=pd.ArrowDtype(FULL.type))
    columns["other words"] = pd.Series(["x", "y"], dtype="category")
    return columns


@pytest.mark.parametrize("name", columns())
def test_ids_are_those_of_the_general_way(name: str) -> None:
    column, category, tables = columns()[name], CategoryColumn(0, VOCABULARY), TextColumns()
    for part in (column, column[3:50], column[::3], column[:0]):
        ids = tables.ids(category, part)
        assert ids is not None and ids.dtype == np.int64
        as_objects = part.astype(object)
        np.testing.assert_array_equal(ids, category.ids(as_objects, "c", flat=False, training=False))


def test_what_tables_do_not_take() -> None:
    tables = TextColumns()
    rows = pd.Series(["a", "never seen", None], dtype=object)
    for flag, accepted in (("unknown", rows[[0, 2]]), ("missing", rows[[0, 1]])):
        category = CategoryColumn(0, VOCABULARY, **{f"rejects_{flag}": True})
        assert tables.ids(category, rows) is None and tables.ids(category, accepted) is not None
    category = CategoryColumn(0, VOCABULARY)
    others = [["a", 1], ["a", b"a"], ["a", pd.NA], [1.0, 2.0], [True, False], [pd.Timestamp(1)]]
    assert all(tables.ids(category, pd.Series(values, dtype=object)) is None for values in others)
    assert all(tables.ids(category, pd.Series(values).astype("category")) is None for values in others[3:])
    assert tables.ids(CategoryColumn(0, Vocabulary((1, 2))), pd.Series([1, 2])) is None
    assert tables.ids(CategoryColumn(0, Vocabulary(("a",), buckets=3)), rows) is None


def test_offsets_beyond_the_texts_are_noticed() -> None:
    table, ids = library().Vocabulary({"a": 2}), np.empty(2, np.int64)
    assert table.of_arrow(None, np.array([0, 1, 1], np.int32), b"ab", False, 0, ids) and ids.tolist() == [2, 0]
    for offsets in ([0, 1, 9], [0, -1, 1], [2, 1, 2], [0, 1]):
        assert not table.of_arrow(None, np.array(offsets, np.int32), b"ab", False, 0, ids)
    assert not table.of_arrow(b"", np.array([0, 1, 2], np.int32), b"ab", False, 0, ids)


def test_predictions_of_many_rows() -> None:
    frame = pd.DataFrame(
        {name: column[:5000].reset_index(drop=True) for name, column in columns().items() if len(column) == 5002}
    )
    frame["number"] = np.arange(5000.0)
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    source = make_pipeline(
        make_column_transformer((encoder, [*frame][:-1]), remainder="passthrough"),
        LGBMClassifier(n_estimators=5, verbosity=-1, n_jobs=1),
    ).fit(frame[:1000], frame["number"][:1000] % 3)
    net = windtunnel.compile(source)
    np.testing.assert_allclose(net.predict_proba(frame), source.predict_proba(frame), rtol=0, atol=1e-12)

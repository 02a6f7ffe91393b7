"""Texts and dicts: rows of every form, memory that stays bounded, files that need no tokenizer, weights that learn."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from case import columns, logistic, table, targets
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import windtunnel
from windtunnel.encode import rows as encode_rows
from windtunnel.errors import BadFile, BadInput, InvalidOption, UnfaithfulOption, UnsupportedEstimator
from windtunnel.modules.tables.tfidf import SublinearTfidf, Tfidf
from windtunnel.program import scoring_pipeline
from windtunnel.testing import check_translator
from windtunnel.translators.categories.text import count_vectorizer

FRAME = table(200)
TEXTS = FRAME["review"]
LABELS = targets(FRAME)["label"]
NEW = table(50, seed=1)["review"]


def tfidf(X: Any = TEXTS, **options: Any) -> Any:
    return make_pipeline(TfidfVectorizer(**options), logistic()).fit(X, LABELS)


def letters(text: str) -> list[str]:
    return list(text)


def stripped(texts: Any) -> list[str]:
    return [text.strip() for text in texts]


def encoded(texts: Any) -> list[bytes]:
    return [text.encode("utf-16") for text in texts]


FORMS: dict[str, Callable[[pd.Series], Any]] = {
    "list": list,
    "tuple": tuple,
    "series of objects": lambda texts: texts.astype(object),
    "another index": lambda texts: texts.set_axis(texts.index[::-1] * 3),
    "array of text": lambda texts: texts.to_numpy(dtype=str),
    "array of objects": lambda texts: texts.to_numpy(dtype=object),
    "one column": lambda texts: texts.to_frame("anything"),
    "array with one column": lambda texts: texts.to_numpy(dtype=object).reshape(-1, 1),
    "Arrow array": lambda texts: pa.array(texts),
    "Arrow table": lambda texts: pa.table({"x": pa.array(texts)}),
}


@pytest.mark.parametrize("fitted_on", ["list", "another index", "array of text", "array of objects"])
@pytest.mark.parametrize("form", FORMS)
def test_texts_of_any_form(form: str, fitted_on: str) -> None:
    source = tfidf(FORMS[fitted_on](TEXTS))
    net = windtunnel.compile(source)
    np.testing.assert_allclose(net.predict_proba(FORMS[form](NEW)), source.predict_proba(list(NEW)), 1e-9, 1e-9)


@pytest.mark.parametrize("form", [lambda rows: rows, lambda rows: rows.to_dict("list"), pa.Table.from_pandas])
def test_a_column_of_a_table(form: Any) -> None:
    rows = table(50, seed=1)[["visits", "review"]]
    transformer = make_column_transformer((TfidfVectorizer(), "review"), (StandardScaler(), ["visits"]))
    source = make_pipeline(transformer, logistic()).fit(FRAME[["review", "visits"]], LABELS)
    net = windtunnel.compile(source)
    np.testing.assert_allclose(net.predict_proba(form(rows)), source.predict_proba(rows), 1e-9, 1e-9)


DICTS = [{"city": city, "age": age} for city, age in zip(FRAME["city"], FRAME["age"], strict=True)]
ROWS: dict[str, tuple[Any, Any, Any]] = {
    # step, what it is fitted on, what it is asked about
    "dicts": (DictVectorizer(), DICTS, [{"city": "city A"}, {}, {"age": 3, "city": "new", "more": "x"}]),
    "series of dicts": (DictVectorizer(separator="/"), pd.Series(DICTS), pd.Series(DICTS[:5], index=range(5, 10))),
    "hashed dicts": (FeatureHasher(8), DICTS, [{"city": "city A"}, {}, {"age": 3, "city": "new", "more": "x"}]),
    "hashed tokens": (FeatureHasher(8, input_type="string"), [*map(str.split, TEXTS)], [["red"], [], ["a", "a"]]),
    "tokens of one length": (FeatureHasher(8, input_type="string"), [[t[:1], t[1:2]] for t in TEXTS], [["a", "b"]] * 3),
    "hashed pairs": (FeatureHasher(8, input_type="pair"), [[("a", 1.5), (t[:1], 2)] for t in TEXTS], [[("b", 2)], []]),
    "bytes": (CountVectorizer(encoding="utf-16"), encoded(TEXTS), encoded(NEW)),
    "ready tokens": (CountVectorizer(analyzer=list), [*map(str.split, TEXTS)], [["red", "slow"], [], ["new"]]),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_are_no_texts(name: str) -> None:
    step, rows, asked = ROWS[name]
    source = make_pipeline(step, logistic()).fit(rows, LABELS)
    for net in (windtunnel.compile(source), windtunnel.translate(source, calibrate=rows)):
        tolerance = 1e-9 if net.encoder.dtype == "float64" else 1e-5
        for given in (asked, rows):
            np.testing.assert_allclose(net.predict_proba(given), source.predict_proba(given), tolerance, tolerance)


def test_a_single_dict_is_one_row() -> None:
    source = make_pipeline(DictVectorizer(), logistic()).fit(DICTS, LABELS)
    np.testing.assert_array_equal(windtunnel.compile(source).predict(DICTS[0]), source.predict(DICTS[0]))


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_odd_numbers_in_dicts_are_rejected_where_no_step_reads_them(odd: float) -> None:
    rows = [{"kept": 9.0 * label + at % 2, "left": float(at % 3)} for at, label in enumerate(LABELS == "yes")]
    source = make_pipeline(DictVectorizer(), SelectKBest(k=1), logistic()).fit(rows, LABELS)
    net, asked = windtunnel.compile(source), [*rows[:3], {"kept": 1.0, "left": odd}]
    for one in (source, net):
        with pytest.raises(ValueError, match="NaN|infinit"):
            one.predict(asked)
    np.testing.assert_array_equal(net.predict(rows), source.predict(rows))


def test_functions_before_a_vectorizer() -> None:
    source = make_pipeline(FunctionTransformer(stripped), TfidfVectorizer(), logistic()).fit(list(TEXTS), LABELS)
    np.testing.assert_array_equal(windtunnel.compile(source).predict(list(NEW)), source.predict(list(NEW)))


def test_texts_with_gaps_that_an_earlier_step_fills() -> None:
    frame = FRAME[["review"]].astype(object)
    frame.iloc[::7] = np.nan
    fill = make_pipeline(SimpleImputer(strategy="constant", fill_value=""), FunctionTransformer(np.ravel))
    source = make_pipeline(fill, TfidfVectorizer(), logistic()).fit(frame, LABELS)
    np.testing.assert_allclose(windtunnel.compile(source).predict_proba(frame), source.predict_proba(frame), 1e-9, 1e-9)


@pytest.mark.parametrize(
    "rows, message",
    [
        (["red", None, None], "step 'tfidfvectorizer' .* rejects these rows: .*2 of 3 are missing; fill them"),
        (pd.Series(["red", np.nan]), "np.nan is an invalid document.*1 of 2 are missing"),
        ([1.5], "rejects these rows: 'float' object has no attribute 'lower'$"),
        ([], "got 0 rows; step 'tfidfvectorizer'"),
        ("red", "rows given as str; the pipeline was fitted on a sequence of texts"),
        (FRAME, r"rows given as DataFrame of shape \(200, \d+\); .* or a table with that one column"),
        (iter(["red"]), "rows given as list_iterator; .*give a list"),
    ],
)
def test_rows_that_are_rejected(rows: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        windtunnel.compile(tfidf()).predict(rows)


def test_calibration_rows_are_texts_too() -> None:
    assert windtunnel.translate(tfidf(), calibrate=list(TEXTS)).fidelity.rows == len(TEXTS)
    with pytest.raises(BadInput, match="calibrate= has 0 rows"):
        windtunnel.translate(tfidf(), calibrate=[])


# Weights


@pytest.mark.parametrize("norm", ["l1", "l2", None])
@pytest.mark.parametrize("sublinear", [False, True])
@pytest.mark.parametrize("use_idf", [False, True])
def test_weights_of_any_numbers(norm: str | None, sublinear: bool, use_idf: bool) -> None:
    random = np.random.default_rng(0)
    X = random.poisson(0.7, (60, 5)) * random.choice([1.0, 1e-200, 1e200, 0.5], (60, 5))
    X[:3] = [[0], [1e-300], [-0.0]]
    X = X if sublinear else X * random.choice([1, -1], X.shape)
    fitted = TfidfTransformer(norm=norm, sublinear_tf=sublinear, use_idf=use_idf).fit(X)
    with np.errstate(over="ignore"):
        wanted = fitted.transform(X).toarray()
    np.testing.assert_allclose(windtunnel.compile(fitted).transform(X), wanted, 1e-9, 1e-9)
    np.testing.assert_allclose(windtunnel.compile(fitted).transform(sparse.csr_array(X)), wanted, 1e-9, 1e-9)


def test_logarithms_of_negative_counts() -> None:
    X = np.array([[1.0, 0.0, 2.0], [-1.0, 0.0, 2.0]])
    fitted = TfidfTransformer(sublinear_tf=True, norm=None).fit(abs(X))
    with np.errstate(invalid="ignore"):
        wanted = fitted.transform(X).toarray()
        np.testing.assert_allclose(windtunnel.compile(fitted).transform(X), wanted, 1e-9)
        fitted.set_params(norm="l2")
        with pytest.raises(ValueError, match="NaN"):
            fitted.transform(X)
    with pytest.raises(BadInput):
        windtunnel.compile(fitted).transform(X)


@pytest.mark.parametrize("module", [Tfidf, SublinearTfidf])
@pytest.mark.parametrize("norm", ["l1", "l2", ""])
def test_gradients(module: Any, norm: str) -> None:
    torch.manual_seed(0)
    counts = torch.tensor([[1.0, 2.0, 0.5], [3.0, 1.0, 4.0]], dtype=torch.float64, requires_grad=True)
    weights = module(torch.rand(3, dtype=torch.float64) + 1, norm)
    assert torch.autograd.gradcheck(lambda x, _: weights(x), (counts, weights.idf))
    empty = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    weights(empty).sum().backward()
    assert torch.isfinite(empty.grad).all() and torch.isfinite(weights.idf.grad).all()


def test_training_moves_the_weights_of_terms() -> None:
    source = tfidf()
    for untranslated in ("cache", "stream"):
        for form in (list, pd.Series):
            net = windtunnel.translate(source, calibrate=TEXTS, untranslated=untranslated)
            before = net.program.steps[0].module.idf.detach().clone()
            rows, options = (form(TEXTS), LABELS), {"batch_size": 64, "learning_rate": 1e-3, "accelerator": "cpu"}
            net.fit(rows, rows, residual=False, epochs=2, progress=False, **options)
            assert not torch.equal(net.program.steps[0].module.idf, before)
            assert net.history.best_epoch > 0


def test_the_report_names_the_tokenizer() -> None:
    text = " ".join(str(windtunnel.translate(tfidf()).report()).split())
    assert "tfidfvectorizer: its tokens are found and counted by the source's own code." in text
    assert "tfidfvectorizer TfidfVectorizer Tfidf" in text


@pytest.mark.parametrize("step", [TfidfVectorizer(sublinear_tf=True), CountVectorizer(analyzer=letters)])
def test_what_a_third_party_would_check(step: Any) -> None:
    check_translator(make_pipeline(step, logistic()).fit(TEXTS, LABELS), NEW, y=LABELS[:50])


# Width


def test_predictions_take_no_more_memory_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    source = tfidf()
    net, want = windtunnel.compile(source), source.predict_proba(TEXTS)
    row = 8 * len(net.encoder.numbers)
    monkeypatch.setattr(scoring_pipeline, "CHUNK_BYTES", 7 * row)
    monkeypatch.setattr(encode_rows, "DENSE_BYTES", 7 * row)
    np.testing.assert_allclose(net.predict_proba(TEXTS), want, 1e-9, 1e-9)
    with pytest.raises(BadInput, match=r"200 rows of \d+ columns take 0.0 GiB as dense numbers; .*Give fewer rows"):
        net.encode(TEXTS)


def test_sparse_rows_that_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_rows, "DENSE_BYTES", 100)
    with pytest.raises(BadInput, match="3 rows of 5 columns take"):
        encode_rows.as_frame(sparse.csr_array(np.eye(3, 5)))


@pytest.mark.parametrize("function", [windtunnel.compile, windtunnel.translate])
@pytest.mark.parametrize("step", [HashingVectorizer(n_features=2**21), FeatureHasher(2**21, input_type="string")])
def test_too_many_columns(step: Any, function: Any) -> None:
    source = make_pipeline(step, logistic()).fit(
        TEXTS if isinstance(step, HashingVectorizer) else [["a"]] * 200, LABELS
    )
    with pytest.raises(UnsupportedEstimator, match=r"gives 2,097,152 columns; they become dense, .* \(n_features"):
        function(source)


COUNTERS = {
    "words": CountVectorizer(),
    "a word counts once": CountVectorizer(binary=True),
    "as they are written": CountVectorizer(lowercase=False),
    "stop words": CountVectorizer(vocabulary=["good", "the", "GOOD"], stop_words=["good"], lowercase=False),
    "a group of the pattern": CountVectorizer(token_pattern=r"(\w)\w+"),
    "accents": CountVectorizer(strip_accents="unicode"),
    "pairs": CountVectorizer(ngram_range=(1, 2)),
    "small numbers": CountVectorizer(dtype=np.int8),
}


@pytest.mark.parametrize("name", COUNTERS)
def test_counts_of_terms(name: str) -> None:
    fitted = COUNTERS[name].fit(TEXTS)
    many = [*NEW, "", "nothing of that", "GOOD Good good the é", "good " * 300]
    for texts in (many, np.array(many), [text.encode() for text in many], pd.Series(many), many[:1]):
        ours, theirs = count_vectorizer(fitted).counts(texts), fitted.transform(texts)
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(ours.toarray(), theirs.toarray())
    with pytest.raises(ValueError, match="np.nan is an invalid document"):
        count_vectorizer(fitted).counts([*many, np.nan])


def test_a_wide_vocabulary() -> None:
    source = make_pipeline(HashingVectorizer(n_features=2**15), logistic()).fit(TEXTS, LABELS)
    net = windtunnel.compile(source)
    np.testing.assert_allclose(net.predict_proba(NEW), source.predict_proba(NEW), 1e-9, 1e-9)


def test_a_tokenizer_is_host_code() -> None:
    with pytest.raises(UnsupportedEstimator, match=r"step 'tfidfvectorizer' \(TfidfVectorizer\) needs the host"):
        windtunnel.translate(tfidf(), untranslated="error")
    with pytest.raises(UnfaithfulOption, match=r"'tfidfvectorizer' \(TfidfVectorizer\) stayed on the host"):
        windtunnel.translate(tfidf()).export("nowhere.ts")


# Files

PLAIN: dict[str, Any] = {
    "words": TfidfVectorizer(ngram_range=(1, 2), min_df=2),
    "stop words": TfidfVectorizer(stop_words="english", sublinear_tf=True),
    "odd stop words": CountVectorizer(stop_words=["don't", "red-hot"], binary=True),
    "letters": CountVectorizer(analyzer="char_wb", ngram_range=(2, 3), strip_accents="unicode", lowercase=False),
    "hashed": HashingVectorizer(n_features=16, norm="l1", stop_words=["red"]),
    "hashed, not signed": HashingVectorizer(n_features=16, alternate_sign=False, binary=True),
    "union": make_union(TfidfVectorizer(), CountVectorizer(analyzer="char", decode_error="replace")),
}


@pytest.mark.filterwarnings("ignore:Your stop_words may be inconsistent:UserWarning")
@pytest.mark.parametrize("place", ["alone", "in columns"])
@pytest.mark.parametrize("name", PLAIN)
def test_a_file_holds_plain_tokenizers(name: str, place: str, tmp_path: Path) -> None:
    rows, new = (TEXTS, NEW) if place == "alone" else (FRAME[["visits", "review"]], table(50, 1)[["visits", "review"]])
    step = PLAIN[name] if place == "alone" else columns((PLAIN[name], "review"), (StandardScaler(), ["visits"]))
    net = windtunnel.translate(make_pipeline(step, logistic()).fit(rows, LABELS), calibrate=rows)
    net.save(tmp_path / "net")
    loaded = windtunnel.load(tmp_path / "net")
    assert torch.equal(loaded.scores(new), net.scores(new))
    assert str(loaded.report()) == str(net.report())
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "net").read_bytes()


@pytest.mark.parametrize(
    "step", [TfidfVectorizer(tokenizer=letters, token_pattern=None), CountVectorizer(analyzer=letters),
             make_pipeline(FunctionTransformer(stripped), TfidfVectorizer())],
)  # fmt: skip
def test_a_file_holds_no_code(step: Any, tmp_path: Path) -> None:
    source = make_pipeline(step, logistic()).fit(list(TEXTS), LABELS)
    net = windtunnel.compile(source)
    net.save(tmp_path / "net")
    with pytest.raises(InvalidOption, match=r"Vectorizer\) stayed on the host, and no file holds their code"):
        windtunnel.load(tmp_path / "net")
    loaded = windtunnel.load(tmp_path / "net", host=source)
    assert torch.equal(loaded.scores(list(NEW)), net.scores(list(NEW)))


def test_a_forged_vocabulary(tmp_path: Path) -> None:
    net = windtunnel.compile(tfidf())
    tokens = net.hosts[0].tokens
    for vocabulary, message in ((["a", "a"], "a term twice"), (["a"], "does not have as many terms as the")):
        counter = copy.copy(tokens.counter)
        object.__setattr__(counter, "vocabulary", vocabulary)
        object.__setattr__(tokens, "counter", counter)
        net.save(tmp_path / "net")
        with pytest.raises(BadFile, match=message):
            windtunnel.load(tmp_path / "net")


@pytest.mark.parametrize("again", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
def test_a_copy_scores_the_same(again: Callable[[Any], Any]) -> None:
    net = windtunnel.compile(tfidf(tokenizer=letters, token_pattern=None))
    assert torch.equal(again(net).scores(NEW), net.scores(NEW))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "steps",
    [
        (TfidfVectorizer(),),
        (TfidfVectorizer(norm="l1"), SelectKBest(k=5)),
        (HashingVectorizer(n_features=64),),
        (CountVectorizer(), SelectKBest(k=5)),
        (HashingVectorizer(n_features=64, norm=None),),
    ],
    ids=str,
)
def test_sums_of_counts_go_through_no_zeros(steps: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_pipeline(*steps, logistic()).fit(TEXTS, targets(FRAME)["grade"])
    net, rows = windtunnel.compile(source, dtype=dtype), [*NEW, "", "nothing of that"]
    close = {"rtol": 1e-9, "atol": 1e-9} if dtype == "float64" else {"rtol": 1e-5, "atol": 1e-5}
    dense = net.head.probabilities(net(*net.encode(rows)))
    np.testing.assert_allclose(dense, source.predict_proba(rows), **close)
    # Where nothing but the sums may become dense, nothing does.
    net.batch_size = 20
    monkeypatch.setattr(encode_rows, "DENSE_BYTES", 8 * 3 * net.batch_size)
    np.testing.assert_allclose(net.predict_proba(rows), source.predict_proba(rows), **close)
    with pytest.raises(BadInput, match="got 0 rows"):
        net.predict([])


@pytest.mark.parametrize("dtype", [bool, np.uint8])
def test_a_vectorizer_that_counts_in_few_bits_is_not_stored(dtype: Any, tmp_path: Path) -> None:
    texts = ["good film good", "bad film", "good", "bad bad day"] * 6
    source = make_pipeline(CountVectorizer(dtype=dtype), LogisticRegression()).fit(texts, [1, 0, 1, 0] * 6)
    net, new = windtunnel.compile(source), ["good good good " * 100, "bad film"]
    np.testing.assert_allclose(net.predict_proba(new), source.predict_proba(new), rtol=1e-9)
    net.save(tmp_path / "net")
    with pytest.raises(InvalidOption, match="'countvectorizer' .* stayed on the host"):
        windtunnel.load(tmp_path / "net")
    loaded = windtunnel.load(tmp_path / "net", host=source)
    np.testing.assert_allclose(loaded.predict_proba(new), source.predict_proba(new), rtol=1e-9)

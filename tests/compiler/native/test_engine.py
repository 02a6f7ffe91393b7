"""The native engine: whole programs, and programs with steps in torch between native ones."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import windtunnel
from windtunnel.compiler.native import build


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(300, 5))
    return X, X[:, 0] * X[:, 1] + X[:, 2]


@pytest.mark.parametrize("count", [1, 7, 8, 300])
def test_a_whole_pipeline_is_computed_natively(rows, count):
    X, y = rows
    pipeline = make_pipeline(StandardScaler(), LGBMRegressor(n_estimators=20, verbosity=-1, n_jobs=1)).fit(X, y)
    net = windtunnel.compile(pipeline, backend="native")
    assert net.engine.torch_parts() == []
    np.testing.assert_allclose(net.predict(X[:count]), pipeline.predict(X[:count]), rtol=0, atol=1e-12)


def test_steps_without_a_native_form_run_in_torch(rows):
    X, y = rows
    pipeline = make_pipeline(StandardScaler(), PolynomialCountSketch(random_state=0), Ridge()).fit(X, y)
    net = windtunnel.compile(pipeline, backend="native")
    (part,) = net.engine.torch_parts()
    assert part.step.name == "polynomialcountsketch"
    assert "runs in torch" in str(net.report()) and part.reason in str(net.report())
    np.testing.assert_allclose(net.predict(X), pipeline.predict(X), rtol=0, atol=1e-9)
    net.fit((X[:200], y[:200]), (X[200:], y[200:]), epochs=1, progress=False, accelerator="cpu")
    assert "runs in torch" in str(net.report())  # by an engine that has predicted nothing


def test_the_report_names_torch_steps_of_a_pipeline_that_sums_counts():
    texts = pd.Series(["a b", "b c d", "c", "a d"] * 30)
    steps = CountVectorizer(token_pattern=r"\w"), TruncatedSVD(2), PolynomialCountSketch(random_state=0), Ridge()
    net = windtunnel.compile(make_pipeline(*steps).fit(texts, texts.str.len()))
    assert net.facts().summed_counts is not None and "polynomialcountsketch" in str(net.report())


@pytest.mark.parametrize("content", [b"no library", b""])
def test_a_damaged_library_is_built_again(content, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-O0"))
    path = build._cached_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    build.library.cache_clear()
    try:
        assert build.library().Vocabulary({"a": 2})
    finally:
        build.library.cache_clear()
    assert path.read_bytes() != content

"""The page to try a model, in a browser, and what it calls."""

import json
import re
import shutil
import subprocess
from functools import partial
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import windtunnel
from tests.support.churn import fitted_churn
from tests.support.http_server import request, running
from windtunnel.api.serve import application

CHROMIUM = shutil.which("chromium")
ROW = {"city": "Rom", "age": 50.0}


@pytest.fixture(scope="module")
def net():
    pipeline, frame = fitted_churn()
    return windtunnel.translate(pipeline, calibrate=frame)


@pytest.fixture(scope="module")
def port(net, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "churn.windtunnel"
    net.save(path)
    members = pd.DataFrame({"member": [True, False] * 10})
    pipeline = make_pipeline(OneHotEncoder(), LinearRegression()).fit(members, members.member * 2.0)
    windtunnel.translate(pipeline, calibrate=members).save(path.with_name("members.windtunnel"))
    with running(application([path, path.with_name("members.windtunnel")])) as port:
        yield port


def test_description_and_explanation(port, net):
    call = partial(request, port)
    assert call("GET", "/models") == (200, ["churn", "members"])
    facts = call("GET", "/models/churn")[1]
    assert facts["choices"] == {"city": ["Bern", "Rom"]}
    rows = windtunnel.compile(net).report().rows
    assert [step["step"] for step in facts["report"]["steps"]] == [row.step for row in rows]
    status, explained = call("POST", "/models/churn/explain", [ROW])
    wanted = net.explain(pd.DataFrame([ROW]))
    assert (status, explained["names"], explained["outputs"]) == (200, wanted.names, [*wanted.outputs])
    np.testing.assert_allclose(explained["values"], wanted.values, atol=1e-12)
    assert call("POST", "/models/churn/explain", [ROW] * 21)[0] == 413
    assert call("POST", "/models/churn/explain", [{"city": "Rom"}])[0] == 422


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_page_predicts_and_explains_a_row_in_a_browser(port, net, tmp_path):
    def text(row, model="churn"):
        url = f"http://127.0.0.1:{port}/ui#model={model}&row={quote(json.dumps(row))}"
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom"]
        command = [CHROMIUM, *options, "--virtual-time-budget=10000", url]
        page = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
        return re.sub("<[^>]+>", " ", page[page.index("<header") : page.index("<script")])

    page = text(ROW)
    assert f"probability of yes  {net.predict_proba(pd.DataFrame([ROW]))[0, 1]:.5g} " in page
    for name, (value,) in zip(["city", "age"], net.explain(pd.DataFrame([ROW])).values[0], strict=True):
        assert re.search(rf"{name} +{re.escape(f'{value:+.5g}')} ", page)
    assert "NaN" in text(ROW | {"age": None})
    assert re.search(r"prediction +2 ", text({"member": True}, "members"))

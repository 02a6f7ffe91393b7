"""Ids beyond 2^53, which FP64 does not tell apart, in messages of the Open Inference Protocol."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.serving.schema import Schema
from windtunnel.serving.tensors import rows_of_tensors

IDS = 2**60 + np.arange(4)


def test_a_null_leaves_the_other_ids_exact_and_the_schema_asks_for_whole_numbers() -> None:
    rows = pd.DataFrame({"id": np.tile(IDS, 50)})
    encoder = OneHotEncoder(handle_unknown="ignore")
    net = windtunnel.compile(make_pipeline(encoder, LogisticRegression()).fit(rows, rows.id % 2))
    schema = Schema.of(net, [net])
    assert [column.datatype for column in schema.inputs] == ["INT64"]
    for data in (IDS.tolist(), [*IDS.tolist(), None]):
        tensor = {"name": "id", "shape": [len(data)], "datatype": "INT64", "data": data}
        read = rows_of_tensors({"inputs": [tensor]}, memoryview(b""), schema)
        np.testing.assert_array_equal(net.predict_proba(read)[:4], net.predict_proba(rows[:4]))
    rounded = {"name": "id", "shape": [1], "datatype": "FP64", "data": [int(IDS[1])]}
    with pytest.raises(BadInput, match=r"'id' has numbers of 2\^53 and more as FP64.*send it as INT64"):
        rows_of_tensors({"inputs": [rounded]}, memoryview(b""), schema)
    exact = rows_of_tensors({"inputs": [rounded | {"data": [5]}]}, memoryview(b""), schema)
    assert exact == {"id": [5]}

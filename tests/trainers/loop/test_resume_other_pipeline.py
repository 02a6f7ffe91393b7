from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import windtunnel
from windtunnel.errors import BadInput


@pytest.mark.parametrize("other", ["pipeline", "categories", "level", "temperature"])
def test_a_checkpoint_of_another_translation_of_equal_shapes_is_rejected(other: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"c": random.choice(["a", "b", "d"], 600), "x": random.normal(size=600)})
    y = (rows["x"] + (rows["c"] == "a") + random.normal(size=600)) > 0
    options = {"recipe": "joint", "max_steps": 4, "val_check_interval": 2, "progress": False}

    def translated(part: slice, order: list[str], **translate_options: Any) -> windtunnel.Translation:
        columns = make_column_transformer((OneHotEncoder(categories=[order]), ["c"]), remainder="passthrough")
        trees = LGBMClassifier(n_estimators=3, num_leaves=4, verbosity=-1)
        last = trees if other in ("level", "temperature") else LogisticRegression()
        pipeline = make_pipeline(columns, last).fit(rows[part], y[part])
        return windtunnel.translate(pipeline, **translate_options)

    first = translated(slice(300), ["a", "b", "d"], level="L1")
    first.fit((rows, y), (rows, y), checkpoint_dir=tmp_path, **options)
    part = slice(300, 600) if other == "pipeline" else slice(300)
    order = ["b", "d", "a"] if other == "categories" else ["a", "b", "d"]
    changed = {"level": "L2"} if other == "level" else {"level": "L1"}
    changed |= {"temperature": 1.0} if other == "temperature" else {}
    with pytest.raises(BadInput, match="another fitted pipeline, or with other options of translate"):
        translated(part, order, **changed).fit((rows, y), (rows, y), resume_from=tmp_path, **options)
    again = translated(slice(300), ["a", "b", "d"], level="L1")
    again.fit((rows, y), (rows, y), resume_from=tmp_path, **options)
    np.testing.assert_array_equal(again.predict_proba(rows), first.predict_proba(rows))

"""A small fitted pipeline of a text and a number, for tests of the server."""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler


def fitted_churn():
    """The pipeline, of the classes "no" and "yes", and the 300 rows of ``city`` and ``age`` that it was fitted on."""
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"city": generator.choice(["Bern", "Rom"], 300), "age": generator.normal(40, 9, 300)})
    columns = make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), ["age"]))
    target = np.where(frame.age + 9 * (frame.city == "Rom") > 44, "yes", "no")
    return make_pipeline(columns, LogisticRegression()).fit(frame, target), frame

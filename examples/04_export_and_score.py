"""
Export and score elsewhere
==========================

A fine-tuned model as one file, scored by a process that has torch only.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.pipeline import make_pipeline

import windtunnel
from windtunnel.clicklog import click_log

ELSEWHERE = """
import math, sys, torch
model = torch.jit.load("model.ts")
print("numbers:", model.number_columns())
print("strings:", model.string_columns())
numbers = torch.tensor([[1.5, 3.0, math.nan, 0.7], [0.2, 0.0, 5.0, 0.1]])
strings = [["seen nowhere", None] for _ in model.string_columns()]
print("probabilities of a click:", model.predict_proba(numbers, strings)[:, 1].tolist())
print("imported:", sorted({"torch", "windtunnel", "sklearn", "lightgbm", "pandas"} & set(sys.modules)))
"""

X, y = click_log(5_000, seed=0)
trees = LGBMClassifier(n_estimators=20, num_leaves=16, verbosity=-1)
pipeline = make_pipeline(windtunnel.RareCategories(min_count=10), windtunnel.TwoHotEncoder(), trees).fit(X, y)
net = windtunnel.translate(pipeline, calibrate=X)
net.fit((X, y), epochs=2, batch_size=500, dropout=0.0, progress=False)

with TemporaryDirectory() as name:
    folder = Path(name)
    net.export(folder / "model.ts", format="torchscript")
    subprocess.run([sys.executable, "-I", "-W", "ignore", "-c", ELSEWHERE], cwd=folder, check=True)

    # The other file is for windtunnel itself: data only, nothing in it is run when it is loaded.
    net.save(folder / "model.windtunnel")
    again = windtunnel.load(folder / "model.windtunnel")
    print("scores after save and load are bit-equal:", np.array_equal(again.predict_proba(X), net.predict_proba(X)))

rows = pd.DataFrame(
    [["seen nowhere"] * 8 + [1.5, 3.0, np.nan, 0.7], [None] * 8 + [0.2, 0.0, 5.0, 0.1]], columns=X.columns
)
print("the model in this process gives: ", net.predict_proba(rows)[:, 1].tolist())

"""Score the rows of a CSV file with an exported model: python score_elsewhere.py model.ts rows.csv scores.csv.

This file needs torch only, neither windtunnel nor the libraries of the source pipeline.
"""

import csv
import math
import sys
import warnings

import torch

warnings.filterwarnings("ignore", category=DeprecationWarning)  # of torch.jit

model_path, rows_path, scores_path = sys.argv[1:]
model = torch.jit.load(model_path)  # type: ignore[no-untyped-call]
with open(rows_path, newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))

numbers = torch.tensor(
    [[float(row[name]) if row[name] else math.nan for name in model.number_columns()] for row in rows],
    dtype=torch.float64,
)
strings = [[row[name] or None for row in rows] for name in model.string_columns()]
probabilities = model.predict_proba(numbers, strings)

with open(scores_path, "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow([f"probability_{label}" for label in model.classes()])
    writer.writerows(probabilities.tolist())

if needless := {"windtunnel", "sklearn", "lightgbm", "pandas"} & set(sys.modules):
    sys.exit(f"scored, but these were imported: {', '.join(sorted(needless))}")

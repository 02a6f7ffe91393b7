"""Fit RealMLP or TabM: run by a Python that has pytabkit and pyarrow, which need not have WindTunnel.

python pytabkit_job.py FOLDER

reads job.json and train, valid and test.parquet there, and writes predictions.npz (of valid and test, as
``Task.predictions`` has them) and done.json with the seconds of fitting.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytabkit  # type: ignore[import-not-found]
import torch

CLASSES = {
    "realmlp": ("RealMLP_TD_Classifier", "RealMLP_TD_Regressor"),
    "tabm": ("TabM_D_Classifier", "TabM_D_Regressor"),
}
METRICS = {"binary": "1-auc_ovr", "multiclass": "cross_entropy", "regression": "rmse"}


def main(folder: Path) -> None:
    """Do the job in the folder."""
    job = json.loads((folder / "job.json").read_text())
    parts = {name: pd.read_parquet(folder / f"{name}.parquet") for name in ("train", "valid", "test")}
    targets = {name: part.pop("target").to_numpy() for name, part in parts.items()}
    # Neither takes missing numbers.
    medians = parts["train"][job["numbers"]].median().fillna(0)
    for part in parts.values():
        part[job["numbers"]] = part[job["numbers"]].fillna(medians).astype(np.float32)
        part[job["categories"]] = part[job["categories"]].astype(object)
    regression = job["kind"] == "regression"
    options = dict(job["options"], random_state=job["seed"], val_metric_name=METRICS[job["kind"]])
    if job["model"] == "realmlp" and not regression:
        options["use_ls"] = False  # as its authors advise where probabilities or their order matter
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = getattr(pytabkit, CLASSES[job["model"]][regression])(device=device, **options)
    started = time.perf_counter()
    model.fit(parts["train"], targets["train"], parts["valid"], targets["valid"], cat_col_names=job["categories"])
    seconds = time.perf_counter() - started
    predictions = {}
    for name in ("valid", "test"):
        prediction = model.predict(parts[name]) if regression else model.predict_proba(parts[name])
        predictions[name] = prediction[:, 1] if job["kind"] == "binary" else prediction
    np.savez(folder / "predictions.npz", **predictions)
    (folder / "done.json").write_text(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

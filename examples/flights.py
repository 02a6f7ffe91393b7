"""Source, warm start and fine-tuned test AUC on real flight data, with the time each took.

python examples/flights.py --data FOLDER [--set flight_delays_100k|nycflights13] [--model lightgbm|logistic]

The data folder holds ``datasets.py``; see prepare_flights.py.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import argparse
import sys
from pathlib import Path

import pandas as pd
from lightgbm import LGBMClassifier
from prepare_flights import NAMES, load
from rich.console import Console
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from windtunnel import RareCategories, TwoHotEncoder
from windtunnel.experiment.run import compare

MODELS = ("lightgbm", "logistic")


def pipeline(model: str) -> Pipeline:
    """Rare categories out, two-hot encoding, numbers as they are (scaled for the linear model), and the model."""
    encode = make_pipeline(RareCategories(min_count=10), TwoHotEncoder())
    columns = ColumnTransformer(
        [
            ("categories", encode, make_column_selector(dtype_exclude="number")),
            (
                "numbers",
                "passthrough" if model == "lightgbm" else StandardScaler(),
                make_column_selector(dtype_include="number"),
            ),
        ]
    )
    last = (
        LGBMClassifier(n_estimators=100, num_leaves=64, learning_rate=0.1, random_state=0, verbosity=-1)
        if model == "lightgbm"
        else LogisticRegression(max_iter=1_000)
    )
    return Pipeline([("columns", columns), ("model", last)])


def main() -> None:
    """Compare on one data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, required=True, help="folder with datasets.py")
    parser.add_argument("--set", default=NAMES[0], choices=NAMES, dest="name", help="which data set")
    parser.add_argument("--model", default="lightgbm", choices=MODELS)
    parser.add_argument("--level", default="L4", choices=["L1", "L2", "L3", "L4"], help="what of the trees is trained")
    parser.add_argument("--recipe", default="default", choices=["default", "joint", "paper"])
    parser.add_argument("--epochs", type=int, help="at most; without it, as the recipe says")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    X, y, split = load(arguments.data, arguments.name)
    parts = {part: (pd.DataFrame(X[split == part]), y[split == part]) for part in ("train", "valid", "test")}
    recipe = {"recipe": arguments.recipe, "seed": arguments.seed, "progress": sys.stderr.isatty()}
    if arguments.epochs:
        recipe["epochs"] = arguments.epochs
    done = compare(
        pipeline(arguments.model),
        parts,
        seed=arguments.seed,
        translate_options={"level": arguments.level},
        fit_options=recipe,
    )
    print(f"{arguments.name}, {arguments.model}, {len(parts['train'][0]):,} training rows")
    Console().print(done.table())
    print(done.net.history)


if __name__ == "__main__":
    main()

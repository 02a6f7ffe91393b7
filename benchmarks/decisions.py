"""How often ``fit`` decides otherwise when validation rows are drawn anew, or only ordered anew.

python -m benchmarks.decisions --data FOLDER --sets adult,bank_marketing --shuffles 20 [--same-rows]
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import pandas as pd
import typer
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

import windtunnel
from benchmarks.command import command
from benchmarks.sets import DataSet, load

app = command()


@app.callback()
def main(
    data: Annotated[str, typer.Option(help="Folder whose datasets.py has load(name).")],
    sets: Annotated[str, typer.Option(help="Names, separated by commas.")],
    shuffles: Annotated[int, typer.Option(help="Draws of validation rows per set.")] = 20,
    rows: Annotated[int, typer.Option(help="Most training rows.")] = 8000,
    validation_rows: Annotated[int, typer.Option(help="Validation rows per draw.")] = 1000,
    same_rows: Annotated[bool, typer.Option("--same-rows", help="Shuffle the order of the same rows.")] = False,
) -> None:
    """Print for each set how many shuffles differ from the majority in whether they keep more than the source."""
    rates = []
    for name in sets.split(","):
        kept = _decisions(load(f"{name}={data}"), shuffles, rows, validation_rows, same_rows)
        rates.append(min(sum(kept), len(kept) - sum(kept)) / len(kept))
        typer.echo(f"{name}: kept {sum(kept)} of {len(kept)}, differ {rates[-1]:.0%}")
    typer.echo(f"mean of {len(rates)} sets: {np.mean(rates):.1%}")


def _decisions(data: DataSet, shuffles: int, rows: int, validation_rows: int, same_rows: bool) -> list[bool]:
    """Whether each fit kept a candidate other than translation and source pipeline."""
    (X, y), (held, target) = data.part("train"), data.part("valid")
    X, y = X.iloc[:rows], y[:rows]
    texts = [column for column in X if not pd.api.types.is_numeric_dtype(X[column])]
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    model = (LGBMRegressor if len(np.unique(y)) > 20 else LGBMClassifier)(n_estimators=100, verbosity=-1, n_jobs=1)
    source = make_pipeline(make_column_transformer((encoder, texts), remainder="passthrough"), model).fit(X, y)
    kept = []
    for seed in range(shuffles):
        drawn = np.random.default_rng(0 if same_rows else seed).permutation(len(target))[:validation_rows]
        drawn = np.random.default_rng(seed).permutation(drawn)
        net = windtunnel.translate(source)
        net.fit((X, y), (held.iloc[drawn], target[drawn]), progress=False, accelerator="cpu")
        assert net.history is not None
        (name,) = [candidate.name for candidate in net.history.candidates if candidate.kept]
        kept.append(name not in ("translation", "source pipeline"))
    return kept


if __name__ == "__main__":
    app()

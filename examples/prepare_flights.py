"""Write the flight data sets as Parquet files for ``windtunnel fit``.

python examples/prepare_flights.py --data FOLDER --output FOLDER

The data folder holds ``datasets.py`` with ``load(name) -> (X, y, split)``. Each file gets the columns of X, ``late``
(0 or 1) and ``split`` (train, valid or test).
"""

import argparse
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

NAMES = ("flight_delays_100k", "nycflights13")


def load(folder: Path, name: str) -> Any:
    """Rows, targets and split of a data set, by the loader in its folder."""
    path = folder / "datasets.py"
    if not path.is_file():
        raise SystemExit(f"no {path}; give the folder that holds datasets.py as --data")
    spec = spec_from_file_location("datasets", path)
    assert spec is not None and spec.loader is not None
    datasets = module_from_spec(spec)
    spec.loader.exec_module(datasets)
    return datasets.load(name)


def main() -> None:
    """Write one file per data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, required=True, help="folder with datasets.py")
    parser.add_argument("--output", type=Path, required=True, help="folder for the Parquet files")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        X, y, split = load(arguments.data, name)
        path = arguments.output / f"{name}.parquet"
        X.assign(late=y, split=split).to_parquet(path, index=False)
        print(f"{path}: {len(X):,} rows, {X.shape[1]} columns")


if __name__ == "__main__":
    main()

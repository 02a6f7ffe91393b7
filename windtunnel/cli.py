"""The command line: ``windtunnel demo | fit | sweep | predict | export | report``."""

from __future__ import annotations

import os

# With the default, waiting threads of torch and LightGBM spin against each other and stall. It is read when the
# OpenMP runtime is loaded, so it is set before anything imports either; commands import what they need when they run.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    import pandas as pd

    from windtunnel.api.translation import Translation


class Commands(TyperGroup):
    """Commands whose expected errors are one line on stderr: exit code 2 for files, 1 for what is in them."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # whoever reads stdout has had enough, as in `| head`; typer leaves quietly
            raise
        except OSError as error:
            _fail(f"{error.strerror}: {error.filename}" if error.filename else str(error), 2)
        except Exception as error:
            from windtunnel.errors import WindTunnelError

            if not isinstance(error, WindTunnelError):
                raise
            _fail(str(error), 1)


def _fail(message: str, code: int) -> None:
    typer.echo(f"windtunnel: {' '.join(message.split())}", err=True)
    sys.exit(code)


app = typer.Typer(
    cls=Commands,
    help="Turn fitted pipelines (scikit-learn, LightGBM, XGBoost, CatBoost) into PyTorch modules, tune and export.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Model = Annotated[Path, typer.Argument(help="A .windtunnel file.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"windtunnel {version('windtunnel')}")
        raise typer.Exit


@app.callback()
def main(
    shown: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Turn fitted pipelines (scikit-learn, LightGBM, XGBoost, CatBoost) into PyTorch modules, tune and export."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder for what comes out.")] = Path("demo-output"),
    rows: Annotated[int | None, typer.Option(help="Rows of the click log; fewer are faster.")] = None,
    seed: Annotated[int, typer.Option(help="Of the click log and the training.")] = 0,
) -> None:
    """Run the whole way on a generated click log: fit, translate, fine-tune, report, export, score elsewhere."""
    from windtunnel import demo

    demo.run(output, **({} if rows is None else {"rows": rows}), seed=seed)


@app.command()
def fit(
    config: Annotated[Path, typer.Option(help="A YAML file, such as those in configs/.")],
    data: Annotated[Path | None, typer.Option(help="Folder of the data files; replaces data.folder.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for what comes out; replaces output.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE that replaces a value, such as recipe.epochs=3.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the output folder's checkpoint.")] = False,
) -> None:
    """Fit a pipeline, translate and fine-tune it; write the model, a report and a summary."""
    from rich.console import Console

    from windtunnel.experiment.config import Config
    from windtunnel.experiment.run import run

    changes = _changes(change or [])
    changes |= {key: str(path) for key, path in {"data.folder": data, "output": output}.items() if path is not None}
    settings = Config.from_yaml(config, changes)
    comparison = run(settings, resume=resume)
    Console().print(comparison.table())
    typer.echo(f"model.windtunnel, report.html and summary.json are in {settings.output}")


@app.command()
def sweep(
    config: Annotated[Path, typer.Option(help="A YAML file; its section sweep may hold a space.")],
    data: Annotated[Path | None, typer.Option(help="Folder of the data files; replaces data.folder.")] = None,
    trials: Annotated[int | None, typer.Option(help="How many in all, with those of earlier runs.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which no further trial is begun.")] = None,
    storage: Annotated[str | None, typer.Option(help="A URL; sqlite in the output folder by default.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes that run trials.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for what comes out; replaces output.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE that replaces a value, such as sweep.seed=3.")
    ] = None,
) -> None:
    """Search the options of translation and fine-tuning; write the best model, the trials and plots."""
    from rich.console import Console

    from windtunnel.experiment.config import Config
    from windtunnel.experiment.sweep_run import run

    given = {"data.folder": data, "output": output, "sweep.storage": storage}
    numbers = {"sweep.trials": trials, "sweep.timeout": timeout, "sweep.jobs": jobs}
    changes = _changes(change or [])
    changes |= {key: str(value) for key, value in given.items() if value is not None}
    changes |= {key: value for key, value in numbers.items() if value is not None}
    settings = Config.from_yaml(config, changes)
    found = run(settings)
    typer.echo(str(found.result))
    Console().print(found.table())
    typer.echo(f"best.windtunnel, history.csv, summary.json and plots are in {settings.output}")


def _changes(pairs: list[str]) -> dict[str, Any]:
    from windtunnel.errors import BadInput
    from windtunnel.experiment.yaml_text import parse_yaml

    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise BadInput(f"--set {wrong[0]!r}: write KEY=VALUE, such as recipe.epochs=3")
    split = [pair.split("=", 1) for pair in pairs]
    return {key: parse_yaml(value, f"--set {key}") for key, value in split}


@app.command()
def predict(
    model: Model,
    rows: Annotated[Path, typer.Argument(help="A CSV, CSV.gz or Parquet file with the columns of the training rows.")],
    output: Annotated[Path | None, typer.Option(help="A CSV or Parquet file; without it, CSV on stdout.")] = None,
) -> None:
    """Predict rows: a column ``prediction``, and for classifiers ``probability_<class>`` for each class."""
    from windtunnel.experiment.files import read_table_file, write_table_file

    net = _load(model)
    answers = _answers(net, read_table_file(rows, text=_text_columns(net)))
    if output is None:
        answers.to_csv(sys.stdout, index=False)
    else:
        write_table_file(answers, output)


def _load(path: Path) -> Translation:
    import windtunnel

    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; give a model that windtunnel fit has written")
    net: Translation = windtunnel.load(path)
    return net


def _text_columns(net: Translation) -> list[str]:
    """Columns that were categories of text in training, and must not be read as numbers now."""
    encoder = net.encoder
    names = encoder.names or []
    return [
        names[one.column] for one in encoder.categories if one.vocabulary.kind == "text" and one.column < len(names)
    ]


def _answers(net: Translation, frame: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    if not hasattr(net, "predict"):
        return pd.DataFrame(net.transform(frame)).add_prefix("column_")
    answers = pd.DataFrame(net.predict(frame))
    answers.columns = ["prediction"] if answers.shape[1] == 1 else [f"prediction_{at}" for at in answers.columns]
    if hasattr(net, "predict_proba"):
        shares = pd.DataFrame(net.predict_proba(frame), columns=[f"probability_{label}" for label in net.classes_])
        answers = pd.concat([answers, shares], axis=1)
    return answers


@app.command()
def export(
    model: Model,
    path: Annotated[Path, typer.Argument(help="The file to write.")],
    format: Annotated[
        str, typer.Option(help="torchscript, onnx, exported, aoti, lightgbm or xgboost.")
    ] = "torchscript",
) -> None:
    """Write one file that scores without windtunnel."""
    _load(model).export(path, format=format)
    typer.echo(f"wrote {path}")


@app.command()
def report(
    model: Model,
    html: Annotated[Path | None, typer.Option(help="Also write the report as HTML to this file.")] = None,
) -> None:
    """Show what became what, how faithful it is, and what training has moved."""
    answer = _load(model).report()
    typer.echo(str(answer))
    if html is not None:
        html.write_text(answer.to_html(), encoding="utf-8")
        typer.echo(f"wrote {html}")


if __name__ == "__main__":
    app()

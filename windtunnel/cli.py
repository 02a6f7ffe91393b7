"""The command line, one function per command: ``windtunnel --help``."""

from __future__ import annotations

import gc
import os

# By default, waiting threads of torch and LightGBM spin against each other and stall. The OpenMP runtime reads the
# variable when it is loaded, so it is set before any import of either; commands import inside of their functions.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from windtunnel.api.report import Report
    from windtunnel.api.translation import Translation


class Commands(TyperGroup):
    """Prints expected errors as one line on stderr: exit code 2 for files, 1 for their content."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of stdout has closed it, as in `| head`; typer exits quietly
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
Data = Annotated[Path | None, typer.Option(help="Folder of the data files; replaces data.folder.")]
Output = Annotated[Path | None, typer.Option(help="Output folder; replaces output.")]
Html = Annotated[Path | None, typer.Option(help="Also write the report as HTML to this file.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="KEY=VALUE that replaces a value, such as recipe.epochs=3.")
]


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
    output: Annotated[Path, typer.Option(help="Output folder.")] = Path("demo-output"),
    rows: Annotated[int | None, typer.Option(help="Rows of the click log; fewer are faster.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the click log and the training.")] = 0,
) -> None:
    """Fit, translate, fine-tune, report, export and score in another process, on a generated click log."""
    from windtunnel import demo

    demo.run(output, **({} if rows is None else {"rows": rows}), seed=seed)


@app.command()
def fit(
    config: Annotated[Path, typer.Option(help="A YAML file, such as those in configs/.")],
    data: Data = None,
    output: Output = None,
    change: Changes = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the output folder's checkpoint.")] = False,
) -> None:
    """Fit a pipeline, translate and fine-tune it; write the model, a report and a summary."""
    from rich.console import Console

    from windtunnel.experiment.config import Config

    settings = Config.from_yaml(config, _overrides(change, {"data.folder": data, "output": output}))
    from windtunnel.experiment.run import run_fit  # after the config is accepted: the import takes a second

    comparison = run_fit(settings, resume=resume)
    Console().print(comparison.table())
    if (history := comparison.net.history) is not None:
        typer.echo("\n".join([history.summary, *(f"- {candidate}" for candidate in history.candidates)]))
    typer.echo(f"model.windtunnel, report.html and summary.json are in {settings.output}")


@app.command()
def sweep(
    config: Annotated[Path, typer.Option(help="A YAML file; its section sweep may hold a space.")],
    data: Data = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials, with those of earlier runs.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which no trial begins.")] = None,
    storage: Annotated[str | None, typer.Option(help="A URL; sqlite in the output folder by default.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes that run trials.")] = None,
    output: Output = None,
    change: Changes = None,
) -> None:
    """Search the options of translation and fine-tuning; write the best model, the trials and plots."""
    from rich.console import Console

    from windtunnel.experiment.config import Config

    options = {"trials": trials, "timeout": timeout, "storage": storage, "jobs": jobs}
    arguments = {"data.folder": data, "output": output, **{f"sweep.{name}": value for name, value in options.items()}}
    settings = Config.from_yaml(config, _overrides(change, arguments))
    from windtunnel.api.scores import score_table
    from windtunnel.experiment.run import run_sweep  # as in fit

    result, scores = run_sweep(settings)
    typer.echo(str(result))
    Console().print(score_table(scores))
    typer.echo(f"best.windtunnel, history.csv, sweep_summary.json and plots are in {settings.output}")


@app.command()
def cascade(
    config: Annotated[Path, typer.Option(help="A YAML file; the command reads its sections data and pipeline.")],
    data: Data = None,
    accuracy_loss: Annotated[float, typer.Option(help="How much lower the metric may be.")] = 0.001,
    metric: Annotated[Literal["accuracy", "auroc", "auc"], typer.Option(help="auroc if a class is rare.")] = "accuracy",
    output: Output = None,
    change: Changes = None,
) -> None:
    """Fit a pipeline, and a small model in front of it that predicts easy rows; write both as one file."""
    from windtunnel.experiment.config import Config

    settings = Config.from_yaml(config, _overrides(change, {"data.folder": data, "output": output}))
    from windtunnel.experiment.run import run_cascade  # as in fit

    typer.echo(run_cascade(settings, accuracy_loss, metric).report())
    typer.echo(f"model.cascade is in {settings.output}")


@app.command()
def refresh(
    model: Model,
    rows: Annotated[Path, typer.Argument(help="A CSV, CSV.gz or Parquet file of new rows with their targets.")],
    target: Annotated[str, typer.Option(help="The column of the target.")],
    output: Annotated[Path, typer.Option(help="The .windtunnel file to write.")],
    valid: Annotated[Path | None, typer.Option(help="A file of new rows to validate on.")] = None,
    replay: Annotated[Path | None, typer.Option(help="A file of old rows to replay.")] = None,
    keep_old: Annotated[
        bool, typer.Option(help="Whether the loss of held-out old rows must not rise by more than its standard error.")
    ] = True,
    loss: Annotated[str | None, typer.Option(help="A loss by name, for a source whose loss is not known.")] = None,
    html: Html = None,
) -> None:
    """Update a model with new rows; show the attempts, scores before and after, and the drift."""
    from windtunnel.experiment.files import read_target_rows_of

    _check_folders(output, html)
    net = _load(model)
    new, validation, old = (
        None if path is None else read_target_rows_of(net, path, target) for path in (rows, valid, replay)
    )
    net.refresh(new, valid=validation, replay=old, keep_old=keep_old, loss=loss, progress=False)
    typer.echo(str(net.history))
    net.save(output)
    typer.echo(f"wrote {output}")
    _write_html(net.report(), html)


def _overrides(pairs: list[str] | None, arguments: dict[str, Any]) -> dict[str, Any]:
    """The config values that ``--set`` and the other arguments of a command replace, by dotted key."""
    from windtunnel.errors import BadInput
    from windtunnel.experiment.yaml_text import parse_yaml

    pairs = pairs or []
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise BadInput(f"--set {wrong[0]!r}: write KEY=VALUE, such as recipe.epochs=3")
    split = [pair.split("=", 1) for pair in pairs]
    changes = {key: parse_yaml(value, f"--set {key}") for key, value in split}
    return changes | {key: value for key, value in arguments.items() if value is not None}


@app.command()
def predict(
    model: Model,
    rows: Annotated[
        list[Path], typer.Argument(help="CSV, CSV.gz or Parquet files with the columns of the training rows.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="A CSV or Parquet file, by default CSV on stdout; or a folder, for a Parquet file per file of rows."
        ),
    ] = None,
) -> None:
    """Predict rows: a column ``prediction``, and for classifiers ``probability_<class>`` for each class.

    Into a folder, files of any size are predicted in batches of rows. Files of this model that are there already
    are left out, so that the same command continues what was interrupted.
    """
    gc.disable()  # while torch and pandas are imported; each collection would walk through all of their objects
    from windtunnel.experiment.files import predict_frame, read_rows_of, write_table_file

    gc.freeze()
    gc.enable()
    if len(rows) > 1 or (output is not None and (not output.suffix or output.is_dir())):
        from windtunnel.experiment.batch_scoring import predict_files

        _check_model(model)
        written = predict_files(model, rows, output)
        others = "" if len(written) == len(rows) else "; the others were there"
        typer.echo(f"wrote {len(written)} of {len(rows)} files into {output}{others}")
        return
    _check_folders(output)
    net = _load(model)
    predictions = predict_frame(net, read_rows_of(net, rows[0]))
    if output is None:
        predictions.to_csv(sys.stdout, index=False)
    else:
        write_table_file(predictions, output)
        typer.echo(f"wrote {output}")


@app.command()
def explain(
    model: Model,
    rows: Annotated[Path, typer.Argument(help="A CSV, CSV.gz or Parquet file with the columns of the training rows.")],
    output: Annotated[Path | None, typer.Option(help="A CSV or Parquet file of all contributions.")] = None,
    background: Annotated[
        Path | None, typer.Option(help="A file of rows to compare with, such as training rows.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="A PNG, SVG or PDF file of the importance of each term.")] = None,
    row: Annotated[int | None, typer.Option(min=0, help="Plot this row instead, counted from 0.")] = None,
) -> None:
    """Explain rows: the contribution of each column and interaction to the raw score, which they add up to."""
    from windtunnel.atomic_write import replacing
    from windtunnel.errors import InvalidOption
    from windtunnel.experiment.files import read_rows_of, write_table_file

    if row is not None and plot is None:
        raise InvalidOption("--row chooses the row of --plot; give --plot too.")
    _check_folders(output, plot)
    if plot is not None:
        _check_picture(plot)
    net = _load(model)
    explained = read_rows_of(net, rows)
    if row is not None and row >= len(explained):
        raise InvalidOption(f"--row {row}: there are {len(explained)} rows, counted from 0.")
    explanation = net.explain(explained, None if background is None else read_rows_of(net, background))
    typer.echo(str(explanation))
    if output is not None:
        write_table_file(explanation.to_frame(), output)
        typer.echo(f"wrote {output}")
    if plot is not None:
        axes: Any = explanation.plot(row)
        with replacing(plot) as temporary:
            axes.figure.savefig(temporary, dpi=150)
        typer.echo(f"wrote {plot}")


def _check_folders(*paths: Path | None) -> None:
    """Reject files in folders that do not exist."""
    from windtunnel.atomic_write import check_folder

    for path in paths:
        if path is not None:
            check_folder(path)


def _check_picture(path: Path) -> None:
    """Reject a picture of a kind that matplotlib cannot write."""
    from windtunnel.errors import InvalidOption, check_installed

    check_installed("--plot", "explain", "matplotlib")
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in kinds:
        raise InvalidOption(f"--plot {path}: give a file that ends in .{', .'.join(sorted(kinds))}.")


def _load(path: Path) -> Translation:
    import windtunnel

    _check_model(path)
    net: Translation = windtunnel.load(path)
    return net


def _check_model(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; give a model written by windtunnel fit")


@app.command()
def export(
    model: Model,
    path: Annotated[Path, typer.Argument(help="The file to write.")],
    format: Annotated[
        Literal["torchscript", "onnx", "exported", "aoti", "c", "lightgbm", "xgboost"] | None,
        typer.Option(help="By default that of the suffix: .ts, .onnx, .pt2, .c, .txt or .json."),
    ] = None,
) -> None:
    """Write one file that scores without windtunnel."""
    _check_folders(path)
    _load(model).export(path, format=format)
    typer.echo(f"wrote {path}")


@app.command()
def serve(
    models: Annotated[list[Path], typer.Argument(help="One or more files of models or cascades.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the port.")] = 1,
    max_batch: Annotated[int, typer.Option(help="The most rows of a batch.")] = 4096,
    max_wait_ms: Annotated[float, typer.Option(help="How long a request may wait for others to join it.")] = 0.0,
    max_queue: Annotated[int, typer.Option(help="The most rows that wait; then requests get 503.")] = 100_000,
    max_rows: Annotated[int, typer.Option(help="The most rows of a request.")] = 100_000,
    max_bytes: Annotated[int, typer.Option(help="The most bytes of a request.")] = 64 * 2**20,
    max_connections: Annotated[int, typer.Option(help="The most connections; others get 503.")] = 512,
    timeout: Annotated[float, typer.Option(help="Seconds to receive a request and to compute its response.")] = 30.0,
) -> None:
    """Serve models over HTTP: POST /predict, the Open Inference Protocol under /v2, /metrics."""
    from windtunnel.api.serve import serve as run

    for path in models:
        if not path.is_file():
            raise FileNotFoundError(f"no file {path}; give models written by windtunnel fit")
    run(
        models, host=host, port=port, workers=workers, max_batch=max_batch, max_wait_ms=max_wait_ms,
        max_queue=max_queue, max_rows=max_rows, max_bytes=max_bytes, max_connections=max_connections, timeout=timeout,
    )  # fmt: skip


@app.command()
def report(
    model: Model,
    html: Html = None,
    json: Annotated[bool, typer.Option("--json", help="Show the report as JSON.")] = False,
) -> None:
    """Show the translation of each step, its fidelity, and the changes by training."""
    _check_folders(html)
    summary = _load(model).report()
    typer.echo(summary.to_json() if json else str(summary))
    _write_html(summary, html)


def _write_html(report: Report, path: Path | None) -> None:
    from windtunnel.atomic_write import write_atomically

    if path is not None:
        write_atomically(path, report.to_html().encode())
        typer.echo(f"wrote {path}")


if __name__ == "__main__":
    app()

"""Draw the figures of the site from the results that benchmarks stored: ``python -m docs.figures``, or ``make docs``.

They are SVG files in docs/_figures. Colours follow the reader's light or dark theme.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from benchmarks.accuracy.cells import ALTERNATIVES
from benchmarks.accuracy.table import Scores
from benchmarks.report import mean_and_error
from benchmarks.stored import RESULTS, read

FOLDER = Path(__file__).resolve().parent / "_figures"
INK = ("#24292f", "#e6edf3")
FAINT = ("#8c959f", "#57606a")
COLORS = (
    ("#0969da", "#58a6ff"),
    ("#bf5700", "#ffa657"),
    ("#1a7f37", "#3fb950"),
    ("#8250df", "#bc8cff"),
    ("#cf222e", "#ff7b72"),
    ("#0e7490", "#39c5cf"),
    ("#6e7781", "#9ea7b3"),
    ("#bf3989", "#f778ba"),
    ("#7d4e00", "#d29922"),
    ("#1b7c83", "#56d4dd"),
)
"""Of each line: on a light and on a dark ground."""
MARKERS = "osD^vPX*<>"
SIZE = (5.6, 3.6)
"""Inches; small, so that its texts stay readable on a phone."""
Points = Sequence[tuple[float, float]]


def write() -> None:
    """Write all figures."""
    FOLDER.mkdir(exist_ok=True)
    style = {"svg.fonttype": "none", "svg.hashsalt": "windtunnel", "font.family": "sans-serif", "font.size": 10}
    color = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK[0])
    plain = {"axes.edgecolor": FAINT[0], "grid.color": FAINT[0], "grid.alpha": 0.3, "legend.frameon": False}
    options: Any = style | color | plain
    with matplotlib.rc_context(options):
        for name, draw in FIGURES.items():
            figure, title = draw()
            path = FOLDER / f"{name}.svg"
            figure.savefig(path, transparent=True, metadata={"Date": None, "Title": title}, bbox_inches="tight")
            path.write_text(themed(path.read_text(encoding="utf-8")), encoding="utf-8")


def themed(svg: str) -> str:
    """The picture with colours that follow the theme."""
    pairs = {"ink": INK, "faint": FAINT} | {f"line{number}": pair for number, pair in enumerate(COLORS)}
    dark = "".join(f"--{name}: {pair[1]}; " for name, pair in pairs.items())
    light = "".join(f"--{name}: {pair[0]}; " for name, pair in pairs.items())
    for name, (color, _) in pairs.items():
        svg = svg.replace(f": {color}", f": var(--{name})")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    style = f"<style>svg {{ {light}}} @media (prefers-color-scheme: dark) {{ svg {{ {dark}}} }}</style>"
    return svg.replace("<defs>", f"{style}<defs>", 1).replace("<svg ", '<svg role="img" ', 1)


def speed() -> tuple[Figure, str]:
    """Microseconds per row of each engine by the number of rows: LightGBM's 100 trees of 64 leaves, one thread."""
    cells = read("inference", "model", "threads", "batch", "engine")
    names = {
        "windtunnel native": "windtunnel.compile",
        "source": "LightGBM",
        "onnxruntime": "ONNX Runtime",
        "treelite": "treelite",
        "lleaves": "lleaves",
        "hummingbird": "Hummingbird",
        "pylignum": "pylignum",
    }
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in names.values()}
    for cell in cells:
        if (cell["model"], cell["threads"]) == ("lightgbm 100 x 64", 1) and cell["engine"] in names:
            if cell["median_s"] is not None and not cell["note"]:
                lines[names[cell["engine"]]].append((cell["batch"], 1e6 * cell["median_s"] / cell["batch"]))
    figure, axes = _log_axes("rows per call", "microseconds per row")
    _plot(axes, lines)
    _legend(figure, axes)
    return figure, f"Microseconds per row, by rows per call: {_told(lines)}"


def joint() -> tuple[Figure, str]:
    """Milliseconds of a training step of soft trees by its rows, a line per level."""
    steps = read("train_step", "level", "batch", "trees", "leaves", "threads")
    lines = {
        level: [(step["batch"], 1e3 * step["step_s"]) for step in steps if step["level"] == level]
        for level in ("L4", "L3", "L2", "L1")
    }
    figure, axes = _log_axes("rows of a training step", "milliseconds")
    axes.set_xticks(sorted({step["batch"] for step in steps}))
    _plot(axes, lines)
    _legend(figure, axes)
    return figure, f"Milliseconds of a training step, by its rows: {_told(lines)}"


def levels() -> tuple[Figure, str]:
    """What joint training gains on the validation rows by its training rows, a line per level: the best trials."""
    lines: dict[str, list[tuple[float, float]]] = {"L4": [], "L3": [], "L2": [], "L1": []}
    for path in (RESULTS / "sweep").glob("flights2008_*.csv"):  # each is the history.csv of a sweep
        trials, rows = pd.read_csv(path), int(path.stem.rpartition("_")[2])
        source = trials.query("state == 'complete' and best_epoch == 0")["auroc"].max()  # trials that kept it
        for level, of_level in trials.groupby("level"):
            if len(of_level) > 1:
                lines[str(level)].append((rows, of_level["auroc"].max() - source))
    figure, axes = _log_axes("training rows", "gain in validation AUC", y_scale="linear")
    _plot(axes, lines)
    axes.set_xticks(sorted({rows for points in lines.values() for rows, _ in points}))
    axes.set_ylim(bottom=0)
    _legend(figure, axes)
    return figure, f"Gain in validation AUC of joint training, by training rows: {_told(lines)}"


def serving() -> tuple[Figure, str]:
    """The 99th percentile of the latency by throughput, a line per server: the native model, single rows."""
    names = {
        "windtunnel serve": "windtunnel serve",
        "request": "batches per request",
        "one by one": "one by one",
        "mlserver": "MLServer",
        "litserve": "LitServe",
    }
    lines = {}
    for server in read("serving", "model", "server"):
        if server["model"] == "trees" and server["server"] in names:
            kept_up = [load for load in server["loads"] if load["p99_ms"] < 1000]
            lines[names[server["server"]]] = [(load["throughput"], load["p99_ms"]) for load in kept_up]
    figure, axes = _log_axes("requests per second", "99th percentile, ms")
    _plot(axes, {name: lines[name] for name in names.values() if name in lines})
    _legend(figure, axes, columns=3)
    peaks = ", ".join(f"{name} {max(x for x, _ in points):,.0f}" for name, points in lines.items() if points)
    return figure, f"99th percentile of the latency by requests per second; peaks: {peaks}"


def refresh() -> tuple[Figure, str]:
    """The metric on the next period after each update, a panel per stream."""
    results = read("refresh", "stream", "method")
    streams = list(dict.fromkeys(result["stream"] for result in results))
    names = {
        "refresh": "refresh",
        "from scratch": "fit again",
        "lightgbm init_model": "LightGBM init_model",
        "lightgbm refit": "LightGBM refit",
        "frozen": "unchanged",
    }
    figure = Figure(figsize=(SIZE[0], 2.1 * len(streams)), layout="constrained")
    told = []
    for axes, stream in zip(figure.subplots(len(streams), squeeze=False).ravel(), streams, strict=True):
        of_stream = {result["method"]: result for result in results if result["stream"] == stream}
        lines = {
            label: list(enumerate(of_stream[name]["scores"], 1)) for name, label in names.items() if name in of_stream
        }
        _label(axes, "period", _metric(next(iter(of_stream.values()))["metric"]))
        axes.set_title(stream, loc="left", fontsize=10)
        axes.xaxis.get_major_locator().set_params(integer=True)
        _plot(axes, lines)
        told += [f"{stream}, {label} {sum(y for _, y in points) / len(points):.4f}" for label, points in lines.items()]
    _legend(figure, axes, columns=3)
    return figure, f"Metric on the period after each update, means: {'; '.join(told)}"


def against() -> tuple[Figure, str]:
    """The gain in test AUC over the source pipeline, of ``fit`` and of every alternative, with its standard error."""
    measured = Scores(read("accuracy", "settings"))
    ways = {"strong/default": "fit", "strong/crossfit": "crossfit"} | {name: name for name in ALTERNATIVES}
    sets = measured.of_data
    shown = {way: label for way, label in ways.items() if any(measured.gains(name, way, "strong") for name in sets)}
    figure = Figure(figsize=(SIZE[0], 0.5 + 0.42 * len(sets)), layout="constrained")
    axes = figure.subplots()
    _label(axes, "gain in test AUC over LightGBM", "")
    axes.set_xscale("symlog", linthresh=0.005)
    ticks = (-0.05, -0.01, 0, 0.01, 0.05)
    axes.set_xticks(ticks, [f"{tick:+g}" if tick else "0" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.axvline(0, color=FAINT[0], linewidth=1)
    axes.set_yticks(range(len(sets)), sets)
    axes.set_ylim(len(sets) - 0.5, -0.5)
    axes.grid(False, axis="y")
    for at in range(0, len(sets), 2):
        axes.axhspan(at - 0.5, at + 0.5, color=FAINT[0], alpha=0.15, linewidth=0)
    for number, (way, label) in enumerate(shown.items()):
        gains = [(at, mean_and_error(measured.gains(name, way, "strong"))) for at, name in enumerate(sets)
                 if measured.gains(name, way, "strong")]  # fmt: skip
        axes.errorbar(
            [mean for _, (mean, _) in gains],
            [at + 0.7 * (number - (len(shown) - 1) / 2) / len(shown) for at, _ in gains],
            xerr=[error or 0.0 for _, (_, error) in gains],
            fmt=MARKERS[number % len(MARKERS)],
            color=COLORS[number % len(COLORS)][0],
            markersize=7 if way == "strong/default" else 4,
            label=label,
        )
    _legend(figure, axes, columns=3)
    return figure, _told_gains(measured, shown)


def _told_gains(measured: Scores, shown: dict[str, str]) -> str:
    counts = []
    for way, label in shown.items():
        means = measured.mean_gains(way, "strong")
        better = sum(measured.mean_gains("strong/default", "strong")[name] > gain for name, gain in means.items())
        compared = "" if way == "strong/default" else f", fit is better on {better}"
        counts.append(f"{label} on {len(means)} sets{compared}")
    return f"Gain in test AUC over the source pipeline: {'; '.join(counts)}"


def _log_axes(x: str, y: str, y_scale: str = "log") -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    axes.set(xscale="log", yscale=y_scale)
    if y_scale == "log":
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
        axis.set_minor_formatter(NullFormatter())
    _label(axes, x, y)
    return figure, axes


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set(xlabel=x, ylabel=y)
    axes.grid(True)
    axes.spines[["top", "right"]].set_visible(False)


def _plot(axes: Axes, lines: Mapping[str, Points]) -> None:
    """A line for each name, the first one thicker."""
    for number, (name, points) in enumerate(lines.items()):
        axes.plot(
            *zip(*sorted(points), strict=True) if points else ([], []),
            color=COLORS[number][0],
            marker=MARKERS[number],
            linewidth=1 if number else 2.5,
            markersize=4,
            label=name,
        )


def _legend(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """Names of the lines below the figure."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns, fontsize=9)


def _told(lines: Mapping[str, Points]) -> str:
    return "; ".join(f"{name} {_ends(sorted(points))}" for name, points in lines.items() if points)


def _ends(points: Points) -> str:
    return ", ".join(f"{y:.3g} at {x:,}" for x, y in (points[0], points[-1]))


def _metric(name: str) -> str:
    return {"auc": "AUC", "auroc": "AUC", "log_loss": "log loss", "rmse": "RMSE"}.get(name, name)


FIGURES: dict[str, Callable[[], tuple[Figure, str]]] = {
    "speed": speed,
    "joint": joint,
    "levels": levels,
    "serving": serving,
    "refresh": refresh,
    "against": against,
}

if __name__ == "__main__":
    write()

"""Write the figure docs/gains.svg and the table of gains in README.md, from benchmarks/results/accuracy.

python -m docs.gains            writes both
python -m docs.gains --check    tells whether they are stale; exit code 1 if so
"""

import re
import sys
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from benchmarks.accuracy.table import Scores
from benchmarks.report import mean_and_error
from benchmarks.stored import read

FOLDER = Path(__file__).resolve().parent
FIGURE, README = FOLDER / "gains.svg", FOLDER.parent / "README.md"
SOURCES = {
    "strong": "LightGBM, early stopping",
    "paper": "LightGBM, 100 trees as in the paper",
    "logistic": "logistic regression",
    "lightgbm_native": "LightGBM with native categories",
    "lightgbm_target_encoded": "LightGBM behind target encodings of pairs and triples",
    "xgboost": "XGBoost with native categories",
    "catboost": "CatBoost",
}
WAYS = {"default": "fit", "crossfit": "crossfit"}
MIN_SETS = 3
"""Sets that a line of the table needs."""
TABLE = re.compile(r"(?<=<!-- measured: written by make figure -->\n\n).*?(?=\n\n<!-- /measured -->)", re.DOTALL)
WIDTH, LEFT, TOP, ROW = 520, 136, 46, 36
STYLE = """
  text { font: 14px sans-serif; fill: #24292f; }
  .fit { fill: #0969da; } .crossfit { fill: #bf8700; } .error { stroke: #24292f; stroke-width: 1.5; }
  .axis { stroke: #8c959f; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .error { stroke: #e6edf3; } .fit { fill: #58a6ff; } .crossfit { fill: #d29922; }
  }
"""


class Gain(NamedTuple):
    """The mean gain in test AUC on a data set, with its standard error over the seeds."""

    data_set: str
    way: str
    mean: float
    error: float


def gains(scores: Scores, source: str) -> list[Gain]:
    """The gains over a source pipeline on the sets with AUC, the largest first."""
    measured = []
    for name in scores.of_data:
        for way in WAYS:
            if of_seeds := scores.gains(name, f"{source}/{way}", source):
                mean, error = mean_and_error(of_seeds)
                measured.append(Gain(name, way, mean, error or 0.0))
    return sorted(measured, key=lambda gain: -max(each.mean for each in measured if each.data_set == gain.data_set))


def table(scores: Scores) -> str:
    """Mean, median and least gain of each way over each source, as a Markdown table."""
    rows = ["| source pipeline | | data sets | mean gain | without the best set | median | least |"]
    rows.append("| --- | --- | --- | --- | --- | --- | --- |")
    for source, label in SOURCES.items():
        for way, name in WAYS.items():
            means = sorted(gain.mean for gain in gains(scores, source) if gain.way == way)
            if len(means) >= MIN_SETS:
                typical = (fmean(means), fmean(means[:-1]), median(means), means[0])
                cells = " | ".join(f"{value:+.4f}" for value in typical).replace("-", "−")
                rows.append(f"| {label} | `{name}` | {len(means)} | {cells} |")
    return "\n".join(rows)


def figure(measured: list[Gain]) -> str:
    """A bar per gain, with its standard error, as SVG that follows the reader's light or dark theme."""
    names = list(dict.fromkeys(gain.data_set for gain in measured))
    scale = (WIDTH - LEFT - 64) / max(gain.mean + gain.error for gain in measured)
    height = TOP + ROW * len(names) + 12
    told = "; ".join(f"{gain.data_set} {WAYS[gain.way]} {gain.mean:+.4f}" for gain in measured)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>Gain in test AUC over the source pipeline: {told}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="fit" x="{LEFT}" y="12" width="14" height="14"/>'
        f'<text x="{LEFT + 20}" y="24">fit (default)</text>',
        f'<rect class="crossfit" x="{LEFT + 140}" y="12" width="14" height="14"/>'
        f'<text x="{LEFT + 160}" y="24">crossfit</text>'
        f'<text x="{LEFT - 8}" y="24" text-anchor="end">gain in AUC</text>',
        f'<line class="axis" x1="{LEFT}" y1="{TOP - 8}" x2="{LEFT}" y2="{height - 8}"/>',
    ]
    for position, name in enumerate(names):
        top = TOP + ROW * position
        parts.append(f'<text x="{LEFT - 8}" y="{top + 16}" text-anchor="end">{name}</text>')
        of_set = [gain for gain in measured if gain.data_set == name]
        for number, gain in enumerate(of_set):
            y, length = top + (6 if len(of_set) == 1 else 14 * number), max(gain.mean * scale, 0)
            low, high = LEFT + (gain.mean - gain.error) * scale, LEFT + (gain.mean + gain.error) * scale
            parts += [
                f'<rect class="{WAYS[gain.way]}" x="{LEFT}" y="{y}" width="{length:.1f}" height="11"/>',
                f'<line class="error" x1="{low:.1f}" y1="{y + 5.5}" x2="{high:.1f}" y2="{y + 5.5}"/>',
                f'<text x="{high + 6:.1f}" y="{y + 10}" style="font-size: 12px">{gain.mean:+.4f}</text>',
            ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(arguments: list[str]) -> int:
    """Write figure and table, or with ``--check`` compare them only."""
    scores = Scores(read("accuracy", "settings"))
    readme = README.read_text(encoding="utf-8")
    new = {FIGURE: figure(gains(scores, "strong")), README: TABLE.sub(lambda _: table(scores), readme)}
    if "--check" in arguments:
        stale = [path.name for path, text in new.items() if not path.exists() or path.read_text("utf-8") != text]
        print(f"stale: {', '.join(stale)}; run `make figure`" if stale else "up to date")
        return int(bool(stale))
    for path, text in new.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Keep the README's table of supported estimators in step with the registry.

python -m docs.supported            writes the table into README.md
python -m docs.supported --check    tells whether it is stale; exit code 1 if so
"""

import argparse
import re
import sys
from itertools import groupby
from pathlib import Path

from windtunnel.translators.registry import Entry, supported

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN = "<!-- supported: written by `make supported` -->"
END = "<!-- /supported -->"
LIBRARIES = ("sklearn", "lightgbm", "xgboost", "catboost", "category_encoders", "windtunnel")


def table() -> str:
    """Every class with a translation, a row per module of its library, as a Markdown table."""
    rows = ["| module | classes |", "| --- | --- |"]
    groups = {module: list(group) for module, group in groupby(sorted(supported(), key=_place), key=_module)}
    rows += [f"| {module} | {', '.join(map(_name, group))} |" for module, group in groups.items()]
    return "\n".join(rows)


def _place(entry: Entry) -> tuple[int, str, str]:
    return LIBRARIES.index(entry.library) if entry.library in LIBRARIES else len(LIBRARIES), _module(entry), entry.name


def _module(entry: Entry) -> str:
    """The public module: ``sklearn.linear_model`` for a class of ``sklearn.linear_model._ridge``."""
    return entry.library if entry.library != "sklearn" else ".".join(entry.estimator.__module__.split(".")[:2])


def _name(entry: Entry) -> str:
    marks = ("" if entry.exact else "~") + ("" if entry.differentiable else "\\*")
    return f"`{entry.name}`{marks}"


def updated(text: str) -> str:
    """Put the table of now between the markers of a README."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the README needs one line {BEGIN} and, further down, one line {END}")
    between = re.compile(f"(?<={re.escape(BEGIN)}).*?(?={re.escape(END)})", re.DOTALL)
    return between.sub(lambda _: f"\n{table()}\n", text)


def main(arguments: list[str] | None = None) -> int:
    """Write the table, or with ``--check`` compare it only."""
    parser = argparse.ArgumentParser(description="The README's table of supported estimators.")
    parser.add_argument("--check", action="store_true", help="tell whether the table is stale, and write nothing")
    check = parser.parse_args(arguments).check
    text = README.read_text(encoding="utf-8")
    new = updated(text)
    if check:
        print("the table in README.md is stale; run `make supported`" if new != text else "the table is up to date")
        return int(new != text)
    README.write_text(new, encoding="utf-8")
    print(f"{README.name}: {len(supported())} classes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

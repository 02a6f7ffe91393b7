"""Keep the README's table of supported estimators in step with the registry.

python -m docs.supported            writes the table into README.md
python -m docs.supported --check    tells whether it is stale; exit code 1 if so
"""

import argparse
import re
import sys
from pathlib import Path

from windtunnel.translators.registry import Entry, supported

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN = "<!-- supported: written by `make supported` -->"
END = "<!-- /supported -->"


def table() -> str:
    """Every class with a translation, as a Markdown table."""
    rows = ["| class | library | trainable | notes |", "| --- | --- | --- | --- |"]
    rows += [
        f"| `{entry.name}` | {entry.library} | {entry.trainable or '–'} | {_notes(entry)} |" for entry in supported()
    ]
    return "\n".join(rows)


def _notes(entry: Entry) -> str:
    first = [] if entry.exact else ["approximated"]
    first += [] if entry.differentiable else ["ends the gradient"]
    notes = "; ".join([*first, *([entry.notes] if entry.notes else [])])
    return notes.replace("``", "`").replace("|", r"\|")


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

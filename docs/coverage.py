"""Keep docs/coverage.md, which classes have a translation here and elsewhere, in step with the registry.

python -m docs.coverage            writes the page
python -m docs.coverage --check    tells whether it is stale; exit code 1 if so
"""

import argparse
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path

import catboost
import category_encoders
import imblearn.ensemble
import imblearn.pipeline
import lightgbm
import xgboost
from sklearn.compose import ColumnTransformer
from sklearn.experimental import enable_halving_search_cv, enable_iterative_imputer  # noqa: F401  adds three classes
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils.discovery import all_estimators

import windtunnel.estimators
from docs.peers import PEERS
from windtunnel.translators.registry import SupportedEstimator, supported
from windtunnel.translators.untranslated import REASONS, public_name

PAGE = Path(__file__).resolve().parent / "coverage.md"
BOOSTERS = (lightgbm, xgboost, catboost)
WALKED = frozenset(map(public_name, (Pipeline, ColumnTransformer, FeatureUnion, imblearn.pipeline.Pipeline)))
"""Compositions that ``windtunnel/pipeline/graph.py`` takes apart; they have no converter."""
LIBRARIES = ("sklearn", "lightgbm", "xgboost", "catboost", "category_encoders", "imblearn", "windtunnel")
INTRODUCTION = """# Coverage

Written by `make coverage` from the registry of converters, the classes that the installed libraries ship, and the
peers' own tables (`docs/peers.py`); do not edit. *Exact*: `windtunnel.compile` gives the source's own outputs.
*Differentiable*: `windtunnel.translate` trains it or lets the gradient through. *Walked*: the composition is taken
apart, so that only its steps need a translation. A peer's yes says that it has a converter.
"""


def registered() -> dict[str, SupportedEstimator]:
    """The converters of the package itself, without those registered from outside."""
    ours = (entry for entry in supported() if entry.convert.__module__.startswith("windtunnel."))
    return {public_name(entry.estimator): entry for entry in ours}


def listed() -> list[str]:
    """Public names of every estimator class that the libraries ship, that a peer takes or that has a converter."""
    classes: list[type] = [cls for _, cls in all_estimators()]
    classes += [getattr(windtunnel.estimators, name) for name in windtunnel.estimators.__all__]
    for library in BOOSTERS:
        classes += [cls for _, cls in inspect.getmembers(library, inspect.isclass) if hasattr(cls, "predict")]
    # By name, as one of them cannot be imported without a library of its own.
    encoders = {f"category_encoders.{name}" for name in category_encoders.__all__}
    classes += [getattr(imblearn.ensemble, name) for name in imblearn.ensemble.__all__] + [imblearn.pipeline.Pipeline]
    names = {public_name(cls) for cls in classes} | encoders | set().union(*PEERS.values()) | set(registered())
    return sorted(names, key=lambda name: (_library(name), _module(name), name))


def taken(names: Iterable[str]) -> list[str]:
    """Those of these classes that have a converter or are walked."""
    known = registered().keys() | WALKED
    return [name for name in names if name in known]


def page() -> str:
    """Build the whole page."""
    names = listed()
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_module(name) if name.startswith("sklearn.") else _title(name), []).append(name)
    parts = [INTRODUCTION, _counts(names), *map(_beside, PEERS), _missing(names)]
    parts += [f"## {title}\n\n{_table(group)}\n" for title, group in groups.items()]
    return "\n".join(parts)


def _counts(names: list[str]) -> str:
    rows = [["", "classes", "WindTunnel", *PEERS], ["---"] + ["---:"] * (2 + len(PEERS))]
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_title(name), []).append(name)
    for title, group in [*groups.items(), ("all", names)]:
        peers = [len(peer.intersection(group)) for peer in PEERS.values()]
        rows.append([title, *map(str, (len(group), len(taken(group)), *peers))])
    return _markdown(rows) + "\n"


def _beside(peer: str) -> str:
    """Compare with one peer."""
    ours = set(taken(listed()))
    lacking = ", ".join(f"`{_short(name)}`" for name in sorted(PEERS[peer] - ours)) or "none"
    both, more = len(ours & PEERS[peer]), len(ours - PEERS[peer])
    return (
        f"- {peer}: WindTunnel takes {both} of its {len(PEERS[peer])} classes, and {more} others. It lacks: {lacking}."
    )


def _missing(names: list[str]) -> str:
    why: dict[str, list[str]] = {}
    for name in sorted(set(names) - set(taken(names)), key=names.index):
        why.setdefault(REASONS.get(name, "not yet"), []).append(name)
    lines = [f"- {', '.join(f'`{_short(name)}`' for name in group)}: {reason}" for reason, group in why.items()]
    return "\n".join(["\n## What is missing, and why\n", *lines, ""])


def _table(names: list[str]) -> str:
    rows = [["class", "WindTunnel", "exact", "differentiable", *PEERS, "note"], ["---"] * (5 + len(PEERS))]
    return _markdown([*rows, *map(_row, names)])


def _row(name: str) -> list[str]:
    entry = registered().get(name)
    peers = [_word(name in peer) for peer in PEERS.values()]
    label = f"`{name if _library(name) == len(LIBRARIES) else _short(name)}`"
    if entry is not None:
        return [label, "yes", _word(entry.exact), _word(entry.differentiable), *peers, _plain(entry.notes)]
    if name in WALKED:
        return [label, "walked", "yes", "yes", *peers, ""]
    return [label, "–", "–", "–", *peers, REASONS.get(name, "not yet")]


def _word(holds: bool) -> str:
    return "yes" if holds else "–"


def _plain(notes: str) -> str:
    return notes.replace("``", "`").replace("|", r"\|")


def _markdown(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _library(name: str) -> int:
    top = name.split(".")[0]
    return LIBRARIES.index(top) if top in LIBRARIES else len(LIBRARIES)


def _title(name: str) -> str:
    top = name.split(".")[0]
    return "scikit-learn" if top == "sklearn" else top if top in LIBRARIES else "other libraries"


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or with ``--check`` compare it only."""
    parser = argparse.ArgumentParser(description="The page that compares coverage.")
    parser.add_argument("--check", action="store_true", help="tell whether the page is stale, and write nothing")
    check = parser.parse_args(arguments).check
    new = page()
    if check:
        stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != new
        print("docs/coverage.md is stale; run `make coverage`" if stale else "docs/coverage.md is up to date")
        return int(stale)
    PAGE.write_text(new, encoding="utf-8")
    print(f"{PAGE.name}: {len(taken(listed()))} of {len(listed())} classes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

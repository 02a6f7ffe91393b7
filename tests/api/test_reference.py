"""The API reference lists every public name, and docstrings describe every argument."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from numpydoc.docscrape import NumpyDocString

import windtunnel

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api" / "index.md").read_text(encoding="utf-8")
NAMES = [name for name in windtunnel.__all__ if name != "__version__"]
RECIPE = {field.name for field in fields(windtunnel.Recipe)}
"""Options that `fit` and its kin pass on; Recipe describes them."""
ELSEWHERE = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in PAGE.splitlines() if line[:3] == "| `")))
"""Arguments that the page itself describes."""


def public(name: str) -> Iterator[tuple[str, Any]]:
    """The name itself and its public methods, as far as they are the package's own."""
    thing = getattr(windtunnel, name)
    yield name, thing
    if inspect.isclass(thing) and not issubclass(thing, Exception):
        for method, member in inspect.getmembers(thing, inspect.isroutine):
            if not method.startswith("_") and str(getattr(member, "__module__", "")).startswith("windtunnel"):
                yield f"{name}.{method}", member


def described(thing: Any) -> set[str]:
    """Arguments with a description in the docstring; those of a regressor may be those of its classifier."""
    text = inspect.getdoc(thing) or ""
    other = re.search(r"are those of\s+``(\w+)``", text)
    names = described(getattr(windtunnel, other[1])) if other is not None and other[1] in NAMES else set()
    sections = NumpyDocString(text)
    for entry in [*sections["Parameters"], *sections["Attributes"]]:
        names |= {part.strip(" *") for part in entry.name.split(",")} if entry.desc else set()
    return names


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_lists_it(name: str) -> None:
    assert re.search(rf"^   {name}$", PAGE, re.MULTILINE)


@pytest.mark.filterwarnings("ignore:Unknown section Source:UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_docstrings_describe_every_argument(name: str) -> None:
    undocumented, undescribed = [], {}
    for path, thing in public(name):
        text = inspect.getdoc(thing) or ""
        if not text:
            undocumented.append(path)
        # A method whose docstring has no section says in its sentences what it takes.
        if "\nParameters\n---" in text:
            arguments = set(inspect.signature(thing).parameters) - {"self", "net", "args", "kwargs", "unknown"}
            missing = arguments - described(thing) - RECIPE - ELSEWHERE
            if missing:
                undescribed[path] = sorted(missing)
    assert (undocumented, undescribed) == ([], {})

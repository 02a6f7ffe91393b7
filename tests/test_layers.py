"""Imports point downwards: a layer imports only layers below it, and no files import each other in a circle."""

import ast
import itertools
from functools import cache
from pathlib import Path

import windtunnel

ROOT = Path(windtunnel.__file__).parent
LAYERS = (
    "errors",
    "progress",
    "atomic_write",
    "encode",
    "modules",
    "estimators",
    "translators",
    "pipeline",
    "program",
    "objectives",
    "assemble",
    "compiler",
    "export",
    "trainers",
    "sweeps",
    "serving",
    "explain",
    "api",
    "testing",
    "clicklog",
    "experiment",
    "demo",
    "mlflow",
    "cli",
)
"""Folders and files of the package, from the lowest to the highest."""
EXEMPT = ("windtunnel", "windtunnel.__main__")
"""The lazy re-exports of the public names, and ``python -m windtunnel``."""


@cache
def modules() -> dict[str, ast.Module]:
    names = {
        path: ".".join(["windtunnel", *path.relative_to(ROOT).with_suffix("").parts]) for path in ROOT.rglob("*.py")
    }
    return {name.removesuffix(".__init__"): ast.parse(path.read_text()) for path, name in names.items()}


@cache
def imports() -> dict[str, set[str]]:
    """Module -> the modules of the package that it imports anywhere, lazily and for type checkers too."""
    arrows: dict[str, set[str]] = {name: set() for name in modules() if name not in EXEMPT}
    for name, node in [(module, node) for module in arrows for node in ast.walk(modules()[module])]:
        if isinstance(node, ast.Import):
            arrows[name] |= {alias.name for alias in node.names} & modules().keys()
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, f"{name}: a relative import"
            if node.module in modules():
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                # A package that only hands on a module of its own is not meant itself.
                arrows[name] |= (members & modules().keys()) or {node.module}
    return {name: targets - {name, *EXEMPT} for name, targets in arrows.items()}


def layer(module: str) -> int:
    return LAYERS.index(module.split(".")[1])


def test_imports_point_downwards() -> None:
    upwards = [f"{a} -> {b}" for a, targets in imports().items() for b in targets if layer(b) > layer(a)]
    assert not upwards, "\n".join(["imports that point upwards:", *sorted(upwards)])


def test_no_files_import_each_other_in_a_circle() -> None:
    reached = {name: set(targets) for name, targets in imports().items()}
    for via, name in itertools.product(reached, reached):  # Warshall's transitive closure
        if via in reached[name]:
            reached[name] |= reached[via]
    circles = {frozenset(other for other in reached[a] if a in reached[other]) for a in reached if a in reached[a]}
    assert not circles, "\n".join(["circles of files:", *(", ".join(sorted(circle)) for circle in circles)])

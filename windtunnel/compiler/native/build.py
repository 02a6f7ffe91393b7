"""Build the C library with the system's compiler, once per user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from hashlib import sha256
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from windtunnel.errors import InvalidOption

SOURCES = Path(__file__).with_name("c")
NAME = "windtunnel_native"
MORE_FLAGS = tuple(os.environ.get("WINDTUNNEL_NATIVE_FLAGS", "").split())
"""Further flags, from ``make native-sanitize``."""
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-pthread", *MORE_FLAGS)
"""``-ffp-contract=off``: a fused product and sum rounds once, and could move a value across a threshold."""


@cache
def library() -> ModuleType:
    """The extension module; it is built if the user's cache does not hold one that loads.

    Raises ``InvalidOption`` if there is no C compiler or no header of Python, or if the compiler fails.
    """
    path = _cached_path()
    if path.exists():
        try:
            return _load(path)
        except ImportError:  # the file is damaged, or of another machine that shares the folder
            path.unlink(missing_ok=True)
    _build(path)
    try:
        return _load(path)
    except ImportError as error:
        raise InvalidOption(f"backend='native' built a library that does not load: {error}") from error


def _load(path: Path) -> ModuleType:
    spec = spec_from_file_location(NAME, path, loader=ExtensionFileLoader(NAME, str(path)))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _cached_path() -> Path:
    digest = sha256(" ".join((sysconfig.get_platform(), *FLAGS)).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache_home / "windtunnel" / f"{NAME}-{digest.hexdigest()[:16]}.abi3.so"


def _build(path: Path) -> None:
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        raise InvalidOption(
            f"backend='native' is built with the headers of Python, which are not in {include!r}: install them "
            "(python3-dev), or take another backend."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            built = Path(folder, "library.so")
            compile_sources([*FLAGS, "-isystem", include, *map(str, sorted(SOURCES.glob("*.c"))), "-lm"], built)
            built.replace(path)
    except OSError as error:
        raise InvalidOption(f"backend='native' cannot write its library to {str(path.parent)!r}: {error}") from error


def compile_sources(arguments: list[str], output: Path) -> None:
    """Run the system's C compiler; ``InvalidOption`` where there is none, or it fails."""
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", ""), "cc", "gcc", "clang"))), None)
    if compiler is None:
        raise InvalidOption(
            "backend='native' is built with a C compiler, and there is none: install gcc or clang, name one in the "
            "environment variable CC, or take another backend."
        )
    result = subprocess.run([compiler, *arguments, "-o", str(output)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise InvalidOption(f"backend='native': {compiler} failed: {result.stderr.strip()[-500:]}")

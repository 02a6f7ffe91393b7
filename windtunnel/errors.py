"""Errors and warnings of WindTunnel; each says what was given, what is accepted, and what to do."""

import os
import sys
import warnings
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from numbers import Integral
from pathlib import Path
from types import FrameType

PACKAGE = f"{Path(__file__).parent}{os.sep}"
"""The folder of this package, with which the files of its functions begin."""
LONGEST = 4000
"""Characters of a message; names and values of a file or of rows may be of any length."""


class WindTunnelError(Exception):
    """Base of every error that the package raises on purpose."""

    def __init__(self, message: str) -> None:
        cut = message if len(message) <= LONGEST else f"{message[: LONGEST // 2]} ... {message[-LONGEST // 2 :]}"
        super().__init__(cut.encode(errors="backslashreplace").decode())  # halves of characters cannot be printed


class UnsupportedEstimator(WindTunnelError, TypeError):
    """No translation is registered for the class of an estimator, or not for the way it was fitted."""


class UnfaithfulOption(WindTunnelError, ValueError):
    """A source, a level or a file format that cannot keep the predictions."""


class InvalidOption(WindTunnelError, ValueError):
    """An argument whose value is not accepted, or not for this pipeline."""


class BadInput(WindTunnelError, ValueError):
    """Rows, targets or loaders that the pipeline cannot take."""


class BadFile(WindTunnelError, ValueError):
    """An artefact, a checkpoint or a Parquet file that is damaged, oversized, hostile or from another schema."""


class Overloaded(WindTunnelError, RuntimeError):
    """More rows wait than a server accepts; send the request again later."""


def warn_caller(message: str) -> None:
    """Warn, as of the line outside of this package that called it, however many functions are in between."""
    frame: FrameType | None = sys._getframe()
    level = outermost = 0
    while frame is not None:
        level += 1
        if frame.f_code.co_filename.startswith(PACKAGE):
            outermost = level
        frame = frame.f_back
    warnings.warn(message, UserWarning, stacklevel=outermost + 1)


def nearest(name: str, accepted: Iterable[str], other_names: Mapping[str, str] | None = None) -> str:
    """A suggestion for an unknown name: the nearest accepted one, or else all of them, at most 40.

    ``other_names`` are names that other libraries use, each with the accepted one.
    """
    names = list(accepted)
    initials = {"".join(word[:1] for word in each.split("_")): each for each in reversed(names) if "_" in each}
    suggestion = {**initials, **(other_names or {})}.get(name)
    close = [suggestion] if suggestion else get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"choose from {join_some(names, 40)}"


def check_installed(what: str, extra: str, *modules: str) -> None:
    """Raise ``InvalidOption`` where a module that ``what`` needs is missing; ``extra`` is that of this package."""
    if missing := [module for module in modules if find_spec(module) is None]:
        raise InvalidOption(
            f"{what}: {', '.join(missing)} not installed; pip install '.[{extra}]' in a clone of the repository"
        )


def is_whole_number(value: object, least: int) -> bool:
    """Whether a value is a whole number from ``least`` up, of Python or NumPy; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def join_some(texts: Iterable[str], limit: int = 12) -> str:
    """The first texts, at most ``limit``, and the count of the others."""
    texts = list(texts)
    return ", ".join(texts[:limit]) + (f" and {len(texts) - limit} more" if len(texts) > limit else "")

"""The table of converters: estimator class -> the function that converts a fitted instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from html import escape
from typing import Any

from windtunnel.errors import UnsupportedEstimator
from windtunnel.translators.conversions import Conversion
from windtunnel.translators.untranslated import REASONS, public_name


@dataclass(frozen=True)
class SupportedEstimator:
    """One row of ``windtunnel.supported()``.

    Attributes
    ----------
    estimator : type
        The class that is converted; subclasses are not included.
    convert : callable
        The converter of the class.
    trainable : str
        What fine-tuning can train; empty if nothing.
    notes : str
        Limits and choices.
    exact : bool
        Whether the translation gives the source's outputs (to 1e-9, in float64) before it is softened or trained.
    differentiable : bool
        Whether a gradient passes through the step, to its own parameters or to earlier steps.
    """

    estimator: type
    convert: Callable[[Any], Conversion]
    trainable: str = ""
    notes: str = ""
    exact: bool = True
    differentiable: bool = True

    @property
    def name(self) -> str:
        """The name of the class."""
        return self.estimator.__name__

    @property
    def library(self) -> str:
        """The top-level package that the estimator comes from."""
        return self.estimator.__module__.split(".")[0]

    def cells(self) -> tuple[str, ...]:
        """Its line of the table, in the order of ``TITLES``."""
        exact, differentiable = ("yes" if holds else "no" for holds in (self.exact, self.differentiable))
        return self.name, self.library, exact, differentiable, self.trainable


TITLES = ("class", "library", "exact", "differentiable", "trainable")


class SupportedEstimators(list[SupportedEstimator]):
    """Rows of ``windtunnel.supported()``; ``str`` gives a table."""

    def __repr__(self) -> str:
        libraries = ", ".join(f"{name} {count}" for name, count in Counter(each.library for each in self).items())
        return f"{len(self)} estimator classes ({libraries}); print shows the table"

    def _repr_html_(self) -> str:
        """The table as HTML, for notebooks."""
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in each.cells())}</tr>" for each in self)
        titles = "".join(f"<th>{title}</th>" for title in TITLES)
        left = "<style>table.windtunnel-supported :is(th, td) { text-align: left !important; }</style>"
        return (
            f'{left}<table class="windtunnel-supported"><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>'
        )

    def __str__(self) -> str:
        rows = [TITLES, *(each.cells() for each in self)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


_TABLE: dict[type, SupportedEstimator] = {}


def translates(
    *classes: type, trainable: str = "", notes: str = "", exact: bool = True, differentiable: bool = True
) -> Callable[..., Any]:
    """Register the decorated function as the converter of fitted instances of exactly these classes.

    The function takes one fitted estimator, leaves it untouched, and returns a ``Module`` (numbers to numbers), a
    ``Transformer``, a ``Predictor``, a ``CategoryEncoding``, a ``CategoryRecoding``, a ``Composite``, a ``Selection``
    or ``TokenCounts``.
    Its tensors are float64; the assembly casts them (``Module.cast``). It raises ``UnsupportedEstimator`` for a fitted
    state that it cannot reproduce exactly.

    Parameters
    ----------
    *classes : type
        Estimator classes; subclasses are not included, as they may override methods.
    trainable, notes, exact, differentiable
        For the table of supported estimators; see ``SupportedEstimator``.
    """

    def register(convert: Callable[[Any], Conversion]) -> Callable[[Any], Conversion]:
        for cls in classes:
            if not isinstance(cls, type):
                raise TypeError(
                    f"@translates got {cls!r}; give the class of an estimator, such as {type(cls).__name__}"
                )
            if cls in _TABLE and not _is_again(_TABLE[cls].convert, convert):
                raise TypeError(
                    f"{cls.__qualname__} has two translations: {_TABLE[cls].convert} and {convert}; keep one"
                )
            _TABLE[cls] = SupportedEstimator(cls, convert, trainable, notes, exact, differentiable)
        return convert

    return register


def _is_again(before: Any, now: Any) -> bool:
    """Whether the cell of a notebook has run again, which defines the same function anew."""
    modules = {getattr(function, "__module__", "") for function in (before, now)}
    return modules == {"__main__"} and before.__qualname__ == now.__qualname__


def convert(fitted: Any) -> Conversion:
    """The conversion of a fitted estimator; ``UnsupportedEstimator`` if its class has no converter."""
    entry = _TABLE.get(type(fitted))
    if entry is None:
        raise UnsupportedEstimator(_unsupported(type(fitted)))
    return entry.convert(fitted)


def is_differentiable(fitted: Any) -> bool:
    """Whether a gradient passes through the conversion of a fitted estimator that has a converter."""
    return _TABLE[type(fitted)].differentiable


def has_converter(cls: type) -> bool:
    """Whether a class has a converter."""
    return cls in _TABLE


def supported() -> SupportedEstimators:
    """Every estimator class with a translation, sorted by library and name; ``print`` shows a table."""
    return SupportedEstimators(sorted(_TABLE.values(), key=lambda entry: (entry.library, entry.name)))


def _unsupported(cls: type) -> str:
    if reason := REASONS.get(public_name(cls)):
        return f"no translation for {cls.__module__}.{cls.__qualname__}, as {reason}."
    parents = [base for base in cls.__mro__[1:] if base in _TABLE]
    names = {entry.__name__: entry for entry in _TABLE}
    if parents:
        hint = f"its parent {parents[0].__qualname__} has one, but a subclass may compute something else"
    elif close := get_close_matches(cls.__name__, names, n=1, cutoff=0.75):
        hint = f"the nearest class with one is {names[close[0]].__module__.split('.')[0]}.{close[0]}"
    else:
        hint = "windtunnel.supported() lists the classes with one"
    return (
        f"no translation for {cls.__module__}.{cls.__qualname__}; {hint}. "
        f"Register a converter with @windtunnel.translates({cls.__name__})."
    )

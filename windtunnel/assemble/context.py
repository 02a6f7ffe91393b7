"""The state that the parts of an assembly share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from windtunnel.assemble.categories import Categories
from windtunnel.assemble.composites import Composites
from windtunnel.assemble.conversions import Conversions
from windtunnel.assemble.graph_column import GraphColumn
from windtunnel.assemble.program_builder import ProgramBuilder
from windtunnel.pipeline.expressions import Expression


@dataclass(frozen=True)
class Context:
    """The program so far, the conversions of its steps, and ``columns``, which assembles any expression."""

    graph: Expression
    builder: ProgramBuilder
    conversions: Conversions
    composites: Composites
    categories: Categories
    columns: Callable[[Expression], list[GraphColumn]]

"""The terms of the residual models that a translation has."""

from __future__ import annotations

from windtunnel.program.installed_residuals import InstalledResiduals
from windtunnel.program.raw_columns import RawColumns
from windtunnel.program.terms.boosted_terms import BoostedTerms
from windtunnel.program.terms.residual_terms import ResidualTerms
from windtunnel.program.terms.terms import Terms
from windtunnel.program.translated import TranslatedPipeline


def installed_terms(net: TranslatedPipeline, raw: RawColumns) -> list[Terms]:
    """The terms of the boosted residual, and of the residual model; of those that a translation has."""
    terms, installed = list[Terms](), InstalledResiduals.of(net.program)
    if installed.boosted is not None:
        terms.append(BoostedTerms.of(net, installed.boosted, raw))
    if installed.residual is not None:
        terms.append(ResidualTerms.of(net.program.steps[installed.residual], raw))
    return terms

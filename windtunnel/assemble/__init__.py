"""From the DAG of a fitted pipeline to a program of exact modules, the row encoder in front, and the head behind."""

from windtunnel.assemble.assembly import Assembly
from windtunnel.assemble.draft import Origin

__all__ = ["Assembly", "Origin"]

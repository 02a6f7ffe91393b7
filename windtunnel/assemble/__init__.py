"""From the DAG of a fitted pipeline to a program of exact modules, the row encoder in front, and the head behind."""

from windtunnel.assemble.assembly import Assembly

__all__ = ["Assembly"]

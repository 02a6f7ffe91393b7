"""Turns the DAG of a fitted pipeline into a program of exact modules, the row encoder in front, the head behind."""

from windtunnel.assemble.assembly import Assembly, assemble
from windtunnel.assemble.conversions import translation_in

__all__ = ["Assembly", "assemble", "translation_in"]

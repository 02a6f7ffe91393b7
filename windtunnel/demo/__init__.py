"""The main job from end to end on generated data: ``windtunnel demo``."""

from windtunnel.demo.job import run

__all__ = ["run"]

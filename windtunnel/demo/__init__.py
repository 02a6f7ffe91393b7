"""The main job from end to end on generated data: ``windtunnel demo``."""

from windtunnel.demo.run import run

__all__ = ["run"]

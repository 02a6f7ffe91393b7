"""``python -m windtunnel`` is the command ``windtunnel``."""

from windtunnel.cli import app

if __name__ == "__main__":
    app(prog_name="windtunnel")

"""The command line of a benchmark."""

import typer

from windtunnel.cli import Commands
from windtunnel.errors import BadInput


def command(commands: type[Commands] = Commands) -> typer.Typer:
    """An application of one command, its options first; errors are told as windtunnel's own command tells them."""
    return typer.Typer(
        cls=commands,
        invoke_without_command=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


def parse_seeds(text: str) -> list[int]:
    """The numbers of ``--seeds``, once each."""
    parts = text.replace(",", " ").split()
    if not parts or not all(part.isdecimal() for part in parts):
        raise BadInput(f"--seeds {text!r}; give whole numbers, such as 0,1,2")
    return [int(part) for part in dict.fromkeys(parts)]

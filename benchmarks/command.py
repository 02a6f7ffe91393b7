"""The command line of a benchmark."""

import typer

from windtunnel.cli import Commands


def command(commands: type[Commands] = Commands) -> typer.Typer:
    """An application of one command, its options first; errors are told as windtunnel's own command tells them."""
    return typer.Typer(
        cls=commands,
        invoke_without_command=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

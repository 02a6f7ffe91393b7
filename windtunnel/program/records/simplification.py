"""The columns that compiler passes have left out of a program."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.errors import join_some


@dataclass(frozen=True)
class Simplification:
    """The columns that ``compile`` has left out."""

    # columns, of_columns: columns that the steps compute for a row, after and before
    columns: int
    of_columns: int
    unread: tuple[str, ...]  # raw columns of the source that no step reads

    def saves(self) -> bool:
        """Whether anything is left out."""
        return self.columns < self.of_columns or bool(self.unread)

    def __str__(self) -> str:
        text = f"{self.columns:,} of {self.of_columns:,} columns computed"
        if not self.unread:
            return text
        return f"{text}; not read: {join_some(self.unread)}"

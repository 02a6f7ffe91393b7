"""Files that are replaced as a whole."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import IO


def write_atomically(path: str | PathLike[str], content: bytes | Callable[[IO[bytes]], object]) -> None:
    """Write bytes, or what ``content(file)`` writes; readers see the old file or the new one, never a part of it."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{os.fspath(path)!r} cannot be written: there is no folder {os.fspath(target.parent)!r}; make it first."
        )
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if str(error.filename) != str(temporary):
            raise
        # The caller knows the path, not the temporary file.
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        temporary.unlink(missing_ok=True)

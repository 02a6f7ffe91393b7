"""Files that are replaced as a whole."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO

PREFIX = ".windtunnel-"
"""How the names of temporary files begin; eight hexadecimal digits and the name of the file follow."""


def write_atomically(path: str | PathLike[str], content: bytes) -> None:
    """Write bytes; see ``replacing``."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def check_folder(path: str | PathLike[str]) -> None:
    """Raise ``FileNotFoundError`` unless the folder of a file exists: before long work, whose result the file gets."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{os.fspath(path)!r} cannot be written: there is no folder {os.fspath(folder)!r}; make it first."
        )


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[Path]:
    """A temporary file beside ``path``, with the same suffix; it replaces ``path`` when the block ends without error.

    Readers see the old file or the new one, never a part of it. The new file has the permissions of the old one. Where
    ``path`` is a symbolic link, the file that it leads to is replaced. Temporary files that killed processes left in
    the folder are removed: a living process holds a lock on its own.

    Raises
    ------
    FileNotFoundError
        There is no such folder.
    FileExistsError
        ``path`` is a pipe or a device.
    OSError
        The file cannot be written, because the disk is full for example. The error names ``path``.
    """
    requested = Path(path)
    check_folder(requested)
    if requested.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if requested.exists() and not requested.is_file():
        raise FileExistsError(f"{os.fspath(path)!r} is a pipe or a device; give the path of a file.")
    target = Path(os.path.realpath(requested))
    permissions = target.stat().st_mode & 0o777 if target.exists() and sys.platform != "win32" else None
    temporary: Path | None = None
    try:
        _remove_leftovers(target.parent)
        temporary, held = _create(target.with_name(requested.name))
        with held:
            if permissions is not None:
                temporary.chmod(permissions | stat.S_IWUSR)
            yield temporary
            os.fsync(held)
            if permissions is not None:
                temporary.chmod(permissions)
            if sys.platform == "win32":
                held.close()  # an open file cannot be moved there
            os.replace(temporary, target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, temporary, str(temporary)):
            raise
        # The caller knows the path, not the temporary file.
        raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _create(target: Path) -> tuple[Path, IO[bytes]]:
    """An empty temporary file, and the open file that holds its lock."""
    while True:
        temporary = target.with_name(f"{PREFIX}{secrets.token_hex(4)}-{target.name}")
        held = open(temporary, "xb")
        _lock(held)
        if temporary.exists():  # another process may have removed it before it was locked
            return temporary, held
        held.close()


def _remove_leftovers(folder: Path) -> None:
    for path in folder.glob(f"{PREFIX}{'[0-9a-f]' * 8}-*"):
        try:
            with open(path, "r+b") as file:
                if _lock(file):
                    path.unlink()
        except OSError:  # another process was faster, or it is another user's
            continue


def _lock(file: IO[bytes]) -> bool:
    """Whether this process now holds the file's lock, which ends with the process; False where there are no locks."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

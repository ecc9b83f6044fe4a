"""Files that appear whole or not at all, and never in the place of another."""

import contextlib
import errno
import os
import uuid
from typing import BinaryIO, Callable

TEMPORARY = ".tmp"


def publish(path: str, write: Callable[[BinaryIO], None], replace: bool = False) -> None:
    """Write a file under another name, put it on the disk, then give it its own.

    Raises FileExistsError if `path` exists, unless `replace`; OSError of any kind leaves nothing behind.
    """
    directory, name = os.path.split(path)
    # hidden, and unlike any other process's, so that shards can share the directory
    temporary = os.path.join(directory, f".{name}.{uuid.uuid4().hex}{TEMPORARY}")
    try:
        with open(temporary, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(temporary, path)
        else:
            rename_new(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    _sync_directory(directory or ".")


def rename_new(temporary: str, path: str) -> None:
    """Rename, but never onto a file that is there: only a hard link does both in one step."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        # a file system without hard links
        if os.path.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        os.rename(temporary, path)
        return
    os.unlink(temporary)


def _sync_directory(directory: str) -> None:
    """Make the name itself durable, where the system lets a directory be opened."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

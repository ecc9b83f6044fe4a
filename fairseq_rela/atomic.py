"""Writing files atomically: a file is either complete or not there, even if the process is killed.

`write_atomically` writes one file, `write_directory_atomically` a directory of them.
"""

import contextlib
import errno
import os
import shutil
import tempfile
import uuid
from typing import IO, Any, BinaryIO, Callable, Iterable, Iterator, List, Optional

from fairseq_rela.errors import InputError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # the disk is full, or fails: errors in writing a file
_LONGEST_SHOWN = 200  # a longer file name is not part of the temporary name, which would become too long
TEMPORARY = ".tmp"  # how the names of unfinished files and directories end


def write_atomically(path: str, write: Callable[[BinaryIO], Any], replace: bool = True) -> None:
    """Call `write` with an open temporary file, flush it to the disk, then rename it to `path`.

    Without `replace`, FileExistsError is raised if `path` exists. Any error removes the temporary file, and leaves
    what was at `path` as it was. A link stays, and the file that it names is replaced. A device or a pipe, such as
    /dev/stdout, is written directly: a rename would put a file in its place.
    """
    if replace:
        if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
            with _errors_name(path, path), open(path, "wb") as file:
                write(file)
            return
        path = os.path.realpath(path) if os.path.islink(path) else path
    directory, name = os.path.split(path)
    # The name is hidden, and random so that several processes can write into the same directory.
    temporary = os.path.join(directory, f".{uuid.uuid4().hex}{TEMPORARY}")
    if len(os.fsencode(name)) < _LONGEST_SHOWN:
        temporary = os.path.join(directory, f".{name}.{uuid.uuid4().hex}{TEMPORARY}")
    try:
        with _errors_name(path, temporary):
            with open(temporary, "xb") as file:
                write(file)
                flush_to_disk(file)
            if replace:
                os.replace(temporary, path)
            else:
                rename_without_replacing(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    _flush_directory(directory or ".")


def write_text_atomically(path: str, text: str) -> None:
    """Write `text` as UTF-8, replacing the file at `path`."""
    write_atomically(path, lambda file: file.write(text.encode("utf-8")))


@contextlib.contextmanager
def write_directory_atomically(path: str, last: Optional[str] = None, obsolete: Iterable[str] = ()) -> Iterator[str]:
    """Give a temporary directory to write into. Its files move to `path` at the end of the `with`.

    If anything fails, none of the new files stays, and a `path` that was not there is removed again. `path` may
    exist: files of the same names are replaced, and other files stay.

    Args:
        path: the final directory
        last: the name of a file that is removed first and moved last, so that it says that the others are complete
        obsolete: names of files in `path` to remove before the new ones are moved
    """
    if os.path.exists(path) and not os.path.isdir(path):
        raise InputError(f"{path}: is a file; give a directory to write into")
    created = not os.path.isdir(path)
    with _errors_name(path, os.path.join(path, ".")):
        os.makedirs(path, exist_ok=True)
        # Inside `path`, because a rename is atomic only within one file system.
        temporary = tempfile.mkdtemp(prefix=".", suffix=TEMPORARY, dir=path)
    moved: List[str] = []
    try:
        with _errors_name(path, temporary):
            yield temporary
            for name in [*([last] if last else []), *obsolete]:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(path, name))
            for name in sorted(os.listdir(temporary), key=lambda name: (name == last, name)):
                os.replace(os.path.join(temporary, name), os.path.join(path, name))
                moved.append(os.path.join(path, name))
    except BaseException:
        for file in moved:
            os.remove(file)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if created and not os.listdir(path):
            os.rmdir(path)


@contextlib.contextmanager
def _errors_name(path: str, temporary: str) -> Iterator[None]:
    """Let an OSError name `path`, or the file in it, where it names `temporary` or no file."""
    try:
        yield
    except OSError as error:
        name = error.filename
        if name is None and error.errno in NO_SPACE:  # an error in writing to an open file does not name the file
            raise OSError(error.errno, error.strerror, path) from None
        if isinstance(name, str) and name.startswith(temporary):
            inner = name[len(temporary) :].lstrip(os.sep) if name.startswith(temporary + os.sep) else ""
            raise OSError(error.errno, error.strerror, os.path.join(path, inner) if inner else path) from None
        raise


def flush_to_disk(file: IO) -> None:
    """Put everything that was written to an open file on the disk."""
    file.flush()
    os.fsync(file.fileno())


def rename_without_replacing(temporary: str, path: str) -> None:
    """Rename a file, or raise FileExistsError if `path` exists. Only a hard link does both in one step."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        # This file system has no hard links.
        if os.path.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        os.rename(temporary, path)
        return
    os.unlink(temporary)


def _flush_directory(directory: str) -> None:
    """Put the new name on the disk too. Some systems cannot open a directory; there this does nothing."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

"""Output that appears whole or not at all."""

import contextlib
import os
import shutil
import sys
import tempfile
from typing import Iterable, Iterator, Optional

from fairseq_rela.atomic import publish
from fairseq_rela.errors import InputError


@contextlib.contextmanager
def whole_directory(path: str) -> Iterator[str]:
    """A directory to write into, whose files move to `path` when all went well and vanish when it did not.

    `path` may exist: files of the same names are replaced, others stay.
    """
    path = os.path.abspath(path)
    if os.path.exists(path) and not os.path.isdir(path):
        raise InputError(f"{path}: is a file; name a directory to write into")
    parent = os.path.dirname(path)
    os.makedirs(parent, exist_ok=True)
    # beside the final place: only within one file system is a rename atomic
    temporary = tempfile.mkdtemp(prefix=f".{os.path.basename(path)}.", suffix=".tmp", dir=parent)
    try:
        yield temporary
        os.makedirs(path, exist_ok=True)
        for folder, _, names in os.walk(temporary):
            final = os.path.normpath(os.path.join(path, os.path.relpath(folder, temporary)))
            os.makedirs(final, exist_ok=True)
            for name in names:
                os.replace(os.path.join(folder, name), os.path.join(final, name))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_lines(lines: Iterable[str], path: Optional[str] = None) -> None:
    """`lines` to the file `path`, whole or not at all, or to stdout; nothing is written before all are made."""
    text = "".join(line + "\n" for line in lines)
    if path is None:
        sys.stdout.write(text)
    else:
        publish(path, lambda file: file.write(text.encode("utf-8")), replace=True)

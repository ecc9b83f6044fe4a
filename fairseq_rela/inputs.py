"""What every reader checks of a path before it opens it."""

import os

from fairseq_rela.errors import InputError


def require_file(path: str) -> None:
    """InputError if `path` is a pipe or a device. What is read more than once must be a file: a pipe is empty the
    second time or waits forever, and some devices never end. A path that does not exist is the reader's to report."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise InputError(f"{path}: is a pipe or a device, and it has to be read more than once; give a file")

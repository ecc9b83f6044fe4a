"""Waiting for another process's progress. A test that kills a process waits for what it has done, never for a time."""

import contextlib
import os
import time

HANGS = 600.0  # seconds without the progress that is waited for: only a process that hangs takes so long


def until(condition, alive=lambda: True):
    """Return when `condition()` is true. It is an error if `alive()` is false before: the process ended too soon."""
    end = time.monotonic() + HANGS
    while not condition():
        assert alive() or condition(), "the process ended before it got there"
        assert time.monotonic() < end, "the process hangs"
        time.sleep(0.002)


def files(directory, suffix=""):
    """The names of the files in a directory that may not be there yet."""
    try:
        return {name for name in os.listdir(str(directory)) if name.endswith(suffix)}
    except FileNotFoundError:
        return set()


def sizes(directory):
    """{name: size} of the files in a directory. Files may disappear while this runs."""
    sizes_by_name = {}
    for name in files(directory):
        with contextlib.suppress(FileNotFoundError):
            sizes_by_name[name] = os.stat(os.path.join(str(directory), name)).st_size
    return sizes_by_name

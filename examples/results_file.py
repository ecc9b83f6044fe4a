"""Tables in a Markdown file that are filled row by row, wherever the runs were made.

A table follows a comment <!-- table: NAME, key: N -->. A new row replaces the row whose first N cells are the same. If
there is none, it is added to the end of the table. A table that the file does not have is added with its title.
"""

import contextlib
import fcntl
import os
import re
from typing import Iterator, List, NamedTuple, Sequence

import recipe
from recipe import RecipeError


class Table(NamedTuple):
    """A table's name in the file, how many of its cells are its key, its columns, and its title."""

    name: str
    key: int
    columns: Sequence[str]
    title: str

    @property
    def comment(self) -> str:
        return f"<!-- table: {self.name}, key: {self.key} -->"


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Let one process at a time into the directory: runs that end together write the same file."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _rows(lines: List[str], first: int) -> int:
    """The index after the last row of the table whose first row is at `first`."""
    return next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))


def _start(path: str, lines: List[str], table: Table) -> int:
    """The index of the table's first row. A missing table is added to the lines."""
    if table.comment not in lines:
        if any(re.match(rf"<!-- table: {table.name},", line) for line in lines):
            raise RecipeError(f"{path}: the comment of table '{table.name}' is not {table.comment}")
        lines += ["", f"## {table.title}", "", table.comment, _line(table.columns), "|---" * len(table.columns) + "|"]
    first = lines.index(table.comment) + 3  # comment, heading, rule
    heading = lines[first - 2] if first - 2 < len(lines) else ""
    if heading != _line(table.columns):
        raise RecipeError(f"{path}: the heading of table '{table.name}' is not {_line(table.columns)}")
    return first


def rows(path: str, table: Table) -> List[List[str]]:
    """The cells of every row of the table; none if the file does not have it."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    if table.comment not in lines:
        return []
    first = _start(path, lines, table)
    cells = (re.split(r"(?<!\\) \| ", line[2:-2]) for line in lines[first : _rows(lines, first)])
    return [[cell.replace("\\|", "|") for cell in row] for row in cells]


def put(path: str, table: Table, cells: Sequence[object]) -> None:
    """Put a row into the table, in place of the one with the same key."""
    if len(cells) != len(table.columns):
        raise RecipeError(f"{path}: a row of '{table.name}' has {len(table.columns)} cells, not {len(cells)}")
    with _locked(os.path.dirname(os.path.abspath(path))):
        lines: List[str] = ["# Results"]
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        first = _start(path, lines, table)
        end = _rows(lines, first)
        start_of_row = _line(cells[: table.key])
        same = [i for i in range(first, end) if lines[i].startswith(start_of_row)]
        if same:
            lines[same[0]] = _line(cells)
        else:
            lines.insert(end, _line(cells))
        recipe.write_atomically(path, "\n".join(lines) + "\n")


def remove(path: str, table: Table, key: Sequence[object]) -> None:
    """Remove the row with this key, if the file has it."""
    if not os.path.exists(path):
        return
    with _locked(os.path.dirname(os.path.abspath(path))):
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        if table.comment not in lines:
            return
        first = _start(path, lines, table)
        keep = [
            i for i, line in enumerate(lines) if not (first <= i < _rows(lines, first) and line.startswith(_line(key)))
        ]
        if len(keep) < len(lines):
            recipe.write_atomically(path, "".join(f"{lines[i]}\n" for i in keep))

"""The progress bar: the items come out unchanged, and only a terminal shows a bar."""

import io
import itertools
from types import SimpleNamespace

import pytest

from fairseq_rela import progress
from fairseq_rela.progress import progress as shown


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    stderr = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stderr))
    clock = itertools.count()  # each reading of the clock is a second later
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    return stderr


def test_nothing_is_drawn_in_a_file(capsys):
    assert list(shown("abc", "letters", 3)) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""


def test_a_bar_that_the_next_line_takes_the_place_of(terminal):
    assert list(shown("ab", "letters", 2)) == ["a", "b"]
    assert terminal.getvalue() == f"letters [{'#' * 15:<30}] 1/2 1/s\rletters [{'#' * 30}] 2/2 1/s\r\033[K"


def test_a_count_where_the_total_is_not_known(terminal):
    assert list(shown(iter("ab"), "letters")) == ["a", "b"]
    assert terminal.getvalue() == "letters 1 1/s\rletters 2 1/s\r\033[K"


def test_the_line_is_cleared_when_it_is_left_early(terminal):
    for letter in shown("ab", "letters", 2):
        assert letter == "a"
        break
    assert terminal.getvalue() == "\033[K"

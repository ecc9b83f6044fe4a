"""The ranking on the disk is that of a plain sort in memory."""

import numpy as np
import pytest
import unhurried  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from fairseq_rela.analysis.disk_sorter import DiskSorter
from fairseq_rela.analysis.ranking import Cut, LineBits, write_ranking


def ranked(directory, scores, cut, run_records=3):
    """(lines of ranking.tsv, numbers of the kept lines); pair i has scores[i]."""
    with DiskSorter(str(directory), run_records) as sorter:
        for first in range(0, len(scores), 2):
            part = np.array(scores[first : first + 2])
            sorter.add(part, np.arange(first, first + len(part)))
        kept = write_ranking(sorter, sorter.count, len(scores), cut, str(directory / "ranking.tsv"))
    return (directory / "ranking.tsv").read_text().splitlines(), [line for line, keep in enumerate(kept) if keep]


@pytest.mark.parametrize(
    "cut, kept",
    [
        (Cut(keep=0.5), [0, 2]),  # of equal scores the earlier
        (Cut(keep=0.75), [0, 2, 3]),
        (Cut(keep=1), [0, 2, 3, 4]),
        (Cut(keep=0), []),
        (Cut(max_score=0.5), [0, 2, 3]),
    ],
)
def test_the_best_are_kept_and_of_equals_the_earlier(tmp_path, cut, kept):
    lines, chosen = ranked(tmp_path, [0.5, np.nan, 0.1, 0.5, 0.9], cut)
    assert lines == ["id\tscore", "2\t0.1", "0\t0.5", "3\t0.5", "4\t0.9"]
    assert chosen == kept


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, float("nan")]), min_size=1, max_size=40), st.floats(0, 1))
def test_as_a_sort_in_memory(tmp_path_factory, scores, keep):
    lines, chosen = ranked(tmp_path_factory.mktemp("ranking"), scores, Cut(keep=keep))
    order = sorted((score, id) for id, score in enumerate(scores) if score == score)
    assert lines[1:] == [f"{id}\t{score:.6g}" for score, id in order]
    assert chosen == sorted(id for _, id in order[: round(keep * len(order))])


@given(st.lists(st.lists(st.integers(0, 70), max_size=8), max_size=8))
def test_a_line_that_was_set_before_is_named(blocks):
    bits, seen = LineBits(71), set()
    for block in blocks:
        twice = bits.set_all(np.array(block, dtype=np.int64))
        before = [line for number, line in enumerate(block) if line in seen or line in block[:number]]
        assert (twice in before) if before else twice is None
        seen.update(block)
        assert [line for line, is_set in enumerate(bits) if is_set] == sorted(seen)


def test_runs_longer_than_what_is_read_at_once(tmp_path):
    """Keys that go down, and equal ones: sorted by key, then by value, whatever run they are in."""
    keys, values = np.arange(1000)[::-1] // 2, np.arange(1000)[::-1]
    with DiskSorter(str(tmp_path), 600) as sorter:
        for begin in range(0, 1000, 300):
            sorter.add(keys[begin : begin + 300].astype(float), values[begin : begin + 300])
        assert list(sorter) == [(n // 2, n) for n in range(1000)]
        assert sorter.count == 1000

"""Null and sparsity rates, one line per pair."""

import math
import os
import tracemalloc

import numpy as np
import pytest
from dump_samples import make_sentence, start_python
from hypothesis import given
from hypothesis import strategies as st

from fairseq_rela.dump.statistics import StatsWriter, read_stats
from fairseq_rela.dump.zeros import null_and_sparsity
from fairseq_rela.errors import InputError

KEYS = ["id", "rank", "source_length", "target_length"]
LAYERS = {"encoder": [0, 1], "decoder": [0, 1], "cross": [0, 1]}


def test_by_hand():
    weights = np.zeros((2, 2, 2, 2), np.float32)  # layer 0: all null
    weights[1, 0] = [[0, 1], [0, 0]]
    weights[1, 1] = [[-1, 1e-45], [3, 0]]
    null, sparsity = null_and_sparsity(weights, "cross")
    assert null.tolist() == [1, 0.25] and sparsity.tolist() == [1, 0.5]
    # query 0 sees key 0 only: head 0 has 0 | 0 0, head 1 has -1 | 3 0
    null, sparsity = null_and_sparsity(weights, "decoder")
    assert null.tolist() == [1, 0.5] and sparsity.tolist() == pytest.approx([1, 4 / 6])


def test_minus_zero_is_zero_and_nan_is_not():
    weights = np.array([[[[-0.0, 0.0], [np.nan, 0.0]]]], np.float32)
    assert [rate.tolist() for rate in null_and_sparsity(weights, "cross")] == [[0.5], [0.75]]


def test_without_a_query_there_is_no_rate():
    null, sparsity = null_and_sparsity(np.zeros((1, 2, 0, 3), np.float32), "cross")
    assert math.isnan(null[0]) and math.isnan(sparsity[0])


@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([0, 0.5, 0.9, 1]))
def test_against_a_loop(seed, causal, share):
    rng = np.random.default_rng(seed)
    layers, _, queries, _ = shape = rng.integers(1, 5, 4)
    if causal:
        shape[3] = queries
    weights = rng.random(shape, dtype=np.float32) * (rng.random(shape) >= share)
    null, sparsity = null_and_sparsity(weights, "decoder" if causal else "cross")
    for layer in range(layers):
        rows = [row[: t + 1] if causal else row for head in weights[layer] for t, row in enumerate(head)]
        assert null[layer] == pytest.approx(sum(all(w == 0 for w in row) for row in rows) / len(rows))
        assert sparsity[layer] == pytest.approx(sum(w == 0 for row in rows for w in row) / sum(map(len, rows)))


def test_a_file_of_pairs(tmp_path):
    path = tmp_path / "stats.tsv"
    with StatsWriter(path, LAYERS) as stats:
        for id in (5, 3):
            source, target, weights = make_sentence(id)
            stats.add(id, len(source), len(target), rank=id - 3, **weights)
        assert not path.exists(), "a FILE that exists is complete"
    header, *lines = path.read_text().splitlines()
    assert header.split("\t")[:6] == [*KEYS, "encoder.0.null", "encoder.0.sparsity"]
    assert header.endswith("cross.1.null\tcross.1.sparsity") and len(lines) == 2
    assert os.listdir(tmp_path) == ["stats.tsv"]
    pairs = list(read_stats(path))
    assert [(pair.id, pair.rank) for pair in pairs] == [(5, 2), (3, 0)]
    for pair in pairs:
        source, target, weights = make_sentence(pair.id)
        assert (pair.source_length, pair.target_length) == (len(source), len(target))
        for kind, array in weights.items():
            null, sparsity = null_and_sparsity(array, kind)
            for layer in range(2):
                assert pair.rates[f"{kind}.{layer}.null"] == pytest.approx(null[layer], rel=1e-5)
                assert pair.rates[f"{kind}.{layer}.sparsity"] == pytest.approx(sparsity[layer], rel=1e-5)


def test_layers_keep_their_numbers(tmp_path):
    with StatsWriter(tmp_path / "s", {"cross": [3, 1]}) as stats:
        assert stats.columns == ["cross.3.null", "cross.3.sparsity", "cross.1.null", "cross.1.sparsity"]
        stats.add_rates(0, 4, 5, [0.1, 0.2, 0.3, float("nan")])
    (pair,) = read_stats(tmp_path / "s")
    assert pair.rates["cross.1.null"] == 0.3 and math.isnan(pair.rates["cross.1.sparsity"])


def test_memory_is_constant(tmp_path):
    with StatsWriter(tmp_path / "s", {"cross": [0]}) as stats:
        tracemalloc.start()
        for id in range(20_000):
            stats.add_rates(id, 9, 9, [0.5, 0.25])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 100_000
    tracemalloc.start()
    assert sum(1 for _ in read_stats(tmp_path / "s")) == 20_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


def test_killed(tmp_path):
    code = """
import os, signal, sys
from fairseq_rela.dump.statistics import StatsWriter
stats = StatsWriter(sys.argv[1], {"cross": [0]})
for id in range(5000):
    stats.add_rates(id, 9, 9, [0.123456, 0.25])
os.kill(os.getpid(), signal.SIGKILL)
"""
    child = start_python(code, tmp_path / "s")
    child.communicate(timeout=60)
    assert child.returncode == -9 and os.listdir(tmp_path) == ["s.partial"]
    text = (tmp_path / "s.partial").read_text()[:-3]
    (tmp_path / "s.partial").write_text(text)  # as a write that was cut in the middle of a line leaves it
    assert [pair.id for pair in read_stats(tmp_path / "s.partial")] == list(range(text.count("\n") - 1))
    with pytest.raises(InputError, match=r"s\.partial: left by a killed run, or being written"):
        StatsWriter(tmp_path / "s", LAYERS)
    assert (tmp_path / "s.partial").read_text() == text


def test_an_error_outside_leaves_it_partial(tmp_path):
    with pytest.raises(KeyError), StatsWriter(tmp_path / "s", {"cross": [0]}) as stats:
        stats.add_rates(1, 1, 1, [0, 0])
        raise KeyError
    assert os.listdir(tmp_path) == ["s.partial"]


def test_resume_goes_on_behind_the_last_whole_line(tmp_path):
    path, partial = tmp_path / "s", tmp_path / "s.partial"
    with pytest.raises(KeyError), StatsWriter(path, {"cross": [0]}, resume=True) as stats:
        for id in (1, 2, 3):
            stats.add_rates(id, 4, 5, [0.5, 0.25])
        raise KeyError
    partial.write_text(partial.read_text()[:-3])  # killed while it wrote the third
    with pytest.raises(InputError, match=r"s\.partial: its statistics are of other kinds or layers"):
        StatsWriter(path, {"cross": [1]}, resume=True)
    with StatsWriter(path, {"cross": [0]}, resume=True) as stats:
        assert [id for id in range(5) if stats.done(id)] == [1, 2] and not stats.done(1, rank=1)
        stats.add_rates(4, 4, 5, [0.5, 0.25])
    assert [pair.id for pair in read_stats(path)] == [1, 2, 4]
    complete = path.read_text()
    with StatsWriter(path, {"cross": [0]}, resume=True) as stats:
        assert stats.done(3)
    assert path.read_text() == complete and os.listdir(tmp_path) == ["s"]
    with pytest.raises(InputError, match="s: its statistics are of other kinds or layers"):
        StatsWriter(path, {"cross": [1]}, resume=True)


def test_resume_of_a_line_that_was_never_whole(tmp_path):
    (tmp_path / "s.partial").write_text("id\tra")
    with StatsWriter(tmp_path / "s", {"cross": [0]}, resume=True) as stats:
        stats.add_rates(4, 4, 5, [0.5, 0.25])
    assert [pair.id for pair in read_stats(tmp_path / "s")] == [4]


def test_nothing_is_overwritten(tmp_path):
    path = tmp_path / "s"
    path.write_text("mine")
    with pytest.raises(InputError, match="s: exists already"):
        StatsWriter(path, LAYERS)
    path.unlink()
    stats = StatsWriter(path, LAYERS)
    path.write_text("mine")  # appeared meanwhile
    with pytest.raises(InputError, match="was written by another process"):
        stats.close()
    assert path.read_text() == "mine"


def test_unwritable(tmp_path):
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        StatsWriter(tmp_path / "no" / "s", LAYERS)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_full_disk(tmp_path):
    stats = StatsWriter(tmp_path / "s", {"cross": [0]})
    stats._file.close()
    stats._file = open("/dev/full", "w")  # noqa: SIM115
    with pytest.raises(InputError, match=r"s\.partial: No space left on device; free some space"), stats:
        for id in range(10_000):
            stats.add_rates(id, 1, 1, [0, 0])
    assert os.listdir(tmp_path) == ["s.partial"]


def test_what_is_added_must_fit(tmp_path):
    source, target, weights = make_sentence(1)
    with StatsWriter(tmp_path / "s", {"cross": [0, 1]}) as stats:
        with pytest.raises(InputError, match="pair 1: encoder weights"):
            stats.add(1, len(source), len(target), **weights)
        with pytest.raises(InputError, match="pair 1 has 2 rates for the columns cross"):
            stats.add(1, len(source), len(target), cross=weights["cross"][:1])
    assert list(read_stats(tmp_path / "s")) == []


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "line 1: not statistics of attention: does not begin with id rank"),
        ("hello\n", "line 1: not statistics of attention: does not begin with id rank"),
        ("{keys}\n1\t0\t2\n", "line 2: truncated or changed: 3 fields, not 5"),
        ("{keys}\n1\t0\t2\t2\t0.5\n1\t0\t2\t2\t0.", "line 3: truncated"),
        ("{keys}\n1\t0\t2\t2\tmany\n", "line 2: could not convert string to float: 'many'"),
    ],
)
def test_damaged(tmp_path, text, match):
    (tmp_path / "s").write_text(text.replace("{keys}", "\t".join([*KEYS, "cross.0.null"])))
    with pytest.raises(InputError, match=match):
        list(read_stats(tmp_path / "s"))


def test_missing_or_binary(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        list(read_stats(tmp_path / "s"))
    (tmp_path / "s").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text file"):
        list(read_stats(tmp_path / "s"))

"""Ranking a corpus by null rate (Section 5.2, Figure 10), and refusing text that is not that of the pairs."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from analysis_samples import write_dump

from fairseq_rela.analysis import line_check
from fairseq_rela.analysis.line_check import check_lines
from fairseq_rela.analysis.stats_blocks import stats_blocks
from fairseq_rela.cli import main
from fairseq_rela.dump.pair_text import pair_checksum
from fairseq_rela.dump.statistics import StatsWriter, read_stats
from fairseq_rela.errors import InputError

ROOT = Path(__file__).resolve().parent.parent


def ranking(*words, fails=False):
    environment = {"PYTHONPATH": f"{ROOT / 'examples'}:{ROOT}", "PATH": "/usr/bin:/bin", "RECIPE": "ranking.sh"}
    command = [sys.executable, str(ROOT / "examples/paper/ranking.py"), *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def write_stats(path, pairs):
    """(source pieces, target pieces, null rate) of every pair; a length has </s> too. As version 0.1.0 wrote them."""
    with StatsWriter(str(path), {"cross": [0]}) as stats:
        for number, (source, target, rate) in enumerate(pairs):
            stats.add_rates(number, source + 1, target + 1, [rate, 0.5])
    return path


# --- lines and pairs


def corpus(directory, lines):
    for lang in ("src", "tgt"):
        (directory / f"text.{lang}").write_text("".join(" ".join(["w"] * n) + "\n" for n in lines))
    return [str(directory / f"text.{lang}") for lang in ("src", "tgt")]


def test_text_with_a_pair_more_is_refused(tmp_path):
    """The long pair, line 3, was left out before fairseq-preprocess: line 3 is not pair 2."""
    text = corpus(tmp_path, [2, 3, 40, 5, 2])
    stats = write_stats(tmp_path / "stats.tsv", [(n, n, 0.5) for n in (2, 3, 5, 2)])
    said = (
        "line 3: has more words than pair 2 of .* and so have 2 of 4 lines: the text .5 lines. is not that of the pairs"
    )
    with pytest.raises(InputError, match=said):
        check_lines(str(stats), *text)
    words = [
        "filter",
        str(stats),
        "--source",
        text[0],
        "--target",
        text[1],
        "--keep",
        "0.5",
        "--out",
        str(tmp_path / "o"),
    ]
    assert main(words) == 1 and not (tmp_path / "o").exists()


def test_text_of_the_pairs_is_accepted(tmp_path):
    text = corpus(tmp_path, [2, 3, 5, 2, 9])
    check_lines(str(write_stats(tmp_path / "some.tsv", [(3, 4, 0.5), (3, 3, 0.5)])), *text)  # the rest has no score


# --- checksums: what identifies a pair


@pytest.mark.parametrize(
    "pieces, words",
    [
        ("un@@ known words </s>", "unknown words"),
        ("▁un known ▁words </s>", "unknown  words "),
        ("▁fi ne", "\ufb01ne"),  # the ligature fi
        ("▁3 ▁1/2", "３ 1/2"),
    ],
)
def test_pieces_and_words_have_one_checksum(pieces, words):
    assert pair_checksum(pieces.split(), ["x"]) == pair_checksum(words.split(), ["x"])
    assert pair_checksum(pieces.split(), ["x"]) != pair_checksum(["x"], words.split())
    assert pair_checksum(["ab"], ["c"]) != pair_checksum(["a"], ["bc"])


def identified(directory, lines, ids=None):
    """Statistics of these lines, with checksums, and the lines as text: (statistics, source, target)."""
    (directory / "t.src").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (directory / "t.tgt").write_text("".join(f"T {line}\n" for line in lines), encoding="utf-8")
    with StatsWriter(str(directory / "known.tsv"), {"cross": [0]}, checksums=True) as stats:
        for id, number in enumerate(ids if ids is not None else range(len(lines))):
            checksum = pair_checksum(lines[number].split(), ["T", *lines[number].split()])
            stats.add_rates(id, 99, 99, [0.5, 0.5], checksum=checksum)
    return [str(directory / name) for name in ("known.tsv", "t.src", "t.tgt")]


def test_one_pair_left_out_is_noticed_whatever_the_lengths(tmp_path):
    """All lines have three words, and all pairs 99 pieces: lengths alone would say nothing."""
    files = identified(tmp_path, [f"line number {n}" for n in range(50)], [n for n in range(50) if n != 47])
    with pytest.raises(InputError) as refused:
        check_lines(*files)
    assert str(refused.value) == (
        f"{files[1]}, line 49: is the text of pair 47 of {files[0]}, not of pair 48: the text (50 lines) is not that "
        f"of the pairs (49); were pairs left out before fairseq-preprocess?"
    )


@pytest.mark.parametrize("window", [1, 7, 64])
@pytest.mark.parametrize("missing", [0, 6, 7, 47])
def test_the_lines_around_are_searched_whatever_part_of_the_text_is_in_memory(tmp_path, monkeypatch, window, missing):
    """Pairs that come in any order, some of them without a score: the first line after the missing one is named."""
    monkeypatch.setattr(line_check, "_WINDOW", window)
    lines = [f"line number {n}" for n in range(50)]
    files = identified(tmp_path, lines)
    check_lines(*files)
    heading, *scored = Path(files[0]).read_text().splitlines(keepends=True)
    Path(files[0]).write_text("".join([heading, *scored[::-3], *scored[-2::-3]]))  # every third pair has no score
    check_lines(*files)
    Path(files[0]).unlink()
    files = identified(tmp_path, lines, [n for n in range(50) if n != missing])
    with pytest.raises(InputError, match=rf"line {missing + 2}: is the text of pair {missing} of"):
        check_lines(*files)


def test_as_many_lines_around_are_searched_as_pairs_are_missing(tmp_path, monkeypatch):
    """15 of 60 are missing, so that line 21 is pair 5. With fewer lines searched no line is found elsewhere."""
    kept = [n for n in range(60) if not 5 <= n < 20]
    files = identified(tmp_path, [f"n{n}" for n in range(60)], kept)
    with pytest.raises(InputError, match=r"line 21: is the text of pair 5 of .*, not of pair 20"):
        check_lines(*files)
    monkeypatch.setattr(line_check, "_MOST_SEARCHED", 14)
    with pytest.raises(InputError, match=r"line 6: is not the text of pair 5 of .* and neither are 40 of 45 lines"):
        check_lines(*files)


def test_pairs_after_the_last_line_are_not_compared(tmp_path):
    files = identified(tmp_path, [f"n{n}" for n in range(20)])
    for file in files[1:]:
        Path(file).write_text("".join(f"other {n}\n" for n in range(10)))
    with pytest.raises(InputError, match=r"line 1: is not the text of pair 0 .* and neither are 10 of 10 lines"):
        check_lines(*files)


@pytest.mark.parametrize("other, refused", [(10, False), (11, True)])
def test_half_of_the_lines_may_be_written_in_another_way(tmp_path, other, refused):
    files = identified(tmp_path, [f"n{n}" for n in range(20)])
    Path(files[1]).write_text("".join(f"other {n}\n" if n < other else f"n{n}\n" for n in range(20)))
    with pytest.raises(InputError, match="11 of 20 lines") if refused else contextlib.nullcontext():
        check_lines(*files)


def test_two_lines_that_changed_places_are_noticed(tmp_path):
    order = list(range(30))
    order[7], order[9] = 9, 7
    with pytest.raises(InputError, match=r"line 8: is the text of pair 9 of .*, not of pair 7"):
        check_lines(*identified(tmp_path, [f"n{n}" for n in range(30)], order))


def test_the_text_itself_is_accepted_though_some_lines_are_written_in_another_way(tmp_path):
    lines = [f"n{n}" for n in range(20)]
    files = identified(tmp_path, lines)
    check_lines(*files)
    (tmp_path / "t.src").write_text("".join(f"n{n}\n" if n % 3 else f"<unk> n{n}\n" for n in range(20)))
    check_lines(*files)
    (tmp_path / "t.src").write_text("".join(f"other {n}\n" for n in range(20)))
    with pytest.raises(InputError, match=r"line 1: is not the text of pair 0 .* and neither are 20 of 20 lines"):
        check_lines(*files)


def test_a_dump_has_the_text_itself(tmp_path):
    dump = write_dump(tmp_path / "dump", [(["a@@", "b", "</s>"], ["x", "</s>"]), (["c", "</s>"], ["y", "</s>"])])
    for lang, lines in (("src", "ab\nc\n"), ("tgt", "x\ny\n")):
        (tmp_path / f"t.{lang}").write_text(lines)
    files = [str(tmp_path / f"t.{lang}") for lang in ("src", "tgt")]
    check_lines(dump, *files)
    (tmp_path / "t.src").write_text("c\nab\n")
    (tmp_path / "t.tgt").write_text("y\nx\n")
    with pytest.raises(InputError, match=r"line 1: is the text of pair 1"):
        check_lines(dump, *files)


def test_a_checksum_is_read_as_it_was_written(tmp_path):
    stats, *_ = identified(tmp_path, ["a b"])
    (pair,) = read_stats(stats)
    assert pair.checksum == pair_checksum(["a", "b"], ["T", "a", "b"])
    broken = Path(stats).read_text().replace(str(pair.checksum), str(1 << 32))
    Path(stats).write_text(broken)
    with pytest.raises(InputError, match="line 2: '4294967296' is not a checksum of 32 bits"):
        list(read_stats(stats))
    with pytest.raises(InputError, match=r"line 2: checksum cannot be 4.29497e.09"):
        list(stats_blocks(stats))


def test_a_partial_file_of_version_0_1_0_goes_on_without_checksums(tmp_path):
    (tmp_path / "s.partial").write_text("id\trank\tsource_length\ttarget_length\tcross.0.null\tcross.0.sparsity\n")
    with StatsWriter(tmp_path / "s", {"cross": [0]}, resume=True, checksums=True) as stats:
        stats.add_rates(0, 2, 2, [0.5, 0.5], checksum=7)
    assert [pair.checksum for pair in read_stats(tmp_path / "s")] == [None]


def test_a_rare_invisible_word_is_no_reason_to_refuse(tmp_path):
    """sentencepiece removes characters that Python counts as a word."""
    text = corpus(tmp_path, [4, *[3] * 199])
    check_lines(str(write_stats(tmp_path / "stats.tsv", [(3, 3, 0.5)] * 200)), *text)


# --- both ends


def test_ends_are_one_percent_or_ten_thousand():
    sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "examples/paper")]
    import ranking as module

    assert [module.end_size(n, 10_000) for n in (50, 300, 4_500_000)] == [1, 3, 10_000]
    ends = module.both_ends(np.array([0.5, np.nan, 0.1, 0.9, 0.2]), 10_000)
    assert ends["best"].tolist() == [2] and ends["worst"].tolist() == [3]


def test_share_of_wrong_pairs_at_each_end(tmp_path):
    stats = write_stats(tmp_path / "stats.tsv", [(3, 3, n / 100) for n in range(100)])
    labels = ["clean"] * 95 + ["shuffled"] * 5
    labels[0] = "truncated"
    (tmp_path / "labels").write_text("\n".join(labels) + "\n")
    lines = ranking("ends", stats, tmp_path / "labels").splitlines()
    assert lines[0] == "100 labelled pairs, 6.0% of them wrong, ranked by null rate"
    assert lines[2:5] == ["1\t100.0%\t100.0%", "5\t20.0%\t100.0%", "10\t10.0%\t50.0%"]
    (tmp_path / "labels").write_text("clean\n")
    assert "has 1 lines, but" in ranking("ends", stats, tmp_path / "labels", fails=True)


def test_a_page_to_judge(tmp_path):
    """200 pairs of which the last two are worst. Text of a corpus may hold anything."""
    pairs = [(3, 3, 0.2)] * 198 + [(3, 3, 0.8), (3, 3, 0.9)]
    stats = write_stats(tmp_path / "stats.tsv", pairs)
    source = ["▁<b> ▁fine &amp;"] * 198 + ["▁<script> alert(1) ▁bad"] * 2
    for lang in ("src", "tgt"):
        (tmp_path / f"train.{lang}").write_text("\n".join(source) + "\n", encoding="utf-8")
    ranking("select", stats, tmp_path / "train", "src", "tgt", tmp_path / "selected", "--sample", "5")
    selected = json.loads((tmp_path / "selected.json").read_text())
    assert selected["ranked"] == 200 and selected["end_size"] == 2
    assert sorted(row["id"] for row in selected["pairs"] if row["end"] == "worst") == [198, 199]
    lines = (tmp_path / "selected.src").read_text(encoding="utf-8").splitlines()
    assert lines == [source[row["id"]] for row in selected["pairs"]]
    dump = write_dump(tmp_path / "dump", [([*line.split(), "</s>"], [*line.split(), "</s>"]) for line in lines])
    printed = ranking("page", tmp_path / "selected.json", dump, tmp_path / "page.html", "--maps", "1")
    assert printed.endswith("2 and 2 pairs to judge\n")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script" not in page and "&lt;script&gt;alert(1) bad" in page and "<b>" not in page.replace("<bdi>", "")
    assert page.count("<input type=checkbox>") == 4 and page.count("data:image/png;base64,") == 2
    assert "layer 1, head 2" in page  # of two layers and three heads, the last


def test_pieces_of_another_corpus_are_one_line(tmp_path):
    stats = write_stats(tmp_path / "stats.tsv", [(2, 2, 0.1)] * 3)
    for lang in ("src", "tgt"):
        (tmp_path / f"train.{lang}").write_text("a b c d\n" * 3)
    said = ranking("select", stats, tmp_path / "train", "src", "tgt", tmp_path / "selected", fails=True)
    assert said.startswith("ranking.sh: ") and said.count("\n") == 1 and "were pairs left out" in said


# --- noise in any text


def test_noise_by_hand():
    sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "examples/paper")]
    import noise

    class Half:
        def random(self):
            return 0.4

    sources = [[f"s{n}"] for n in range(6)]
    targets = [[f"t{n}", *"abcdefghi"] for n in range(5)] + [["single"]]
    chosen = ["clean", "shuffled", "truncated", "inserted", "foreign", "truncated"]
    made = noise.noisy(sources, targets, chosen, Half())
    assert made[0] == targets[0] and made[1] == targets[0]
    assert made[2] == ["t2", "a", "b", "c"]  # int(10 × (0.3 + 0.4 × 0.4)) = 4 words
    assert made[3] == targets[3] + targets[2] and made[4] == ["s4"] and made[5] == ["single"]
    assert noise.checked(targets, chosen, made) == [*chosen[:5], "clean"], "one word cannot be cut"


def test_noise_is_put_into_half_of_the_pairs(tmp_path):
    for lang in ("a", "b"):
        (tmp_path / f"t.{lang}").write_text("".join(f"{lang}{n} x y z\n" for n in range(40)))
    script, names = str(ROOT / "examples/paper/noise.py"), ("t.a", "t.b", "n.a", "n.b", "n.labels")
    environment = {"PYTHONPATH": f"{ROOT / 'examples'}:{ROOT}", "PATH": "/usr/bin:/bin", "RECIPE": "ranking.sh"}
    subprocess.run([sys.executable, script, *(str(tmp_path / name) for name in names)], env=environment, check=True)
    found = (tmp_path / "n.labels").read_text().split()
    counts = {label: found.count(label) for label in ("clean", "shuffled", "truncated", "inserted", "foreign")}
    assert counts == {"clean": 20, "shuffled": 5, "truncated": 5, "inserted": 5, "foreign": 5}
    assert (tmp_path / "n.a").read_text() == (tmp_path / "t.a").read_text()
    pairs = zip(found, (tmp_path / "n.b").read_text().splitlines(), (tmp_path / "t.b").read_text().splitlines())
    assert all((made == true) == (label == "clean") for label, made, true in pairs)

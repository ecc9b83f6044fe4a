"""The bench: its cases, its file, its errors. What it measures is for people to read, and nothing here tests it."""

import argparse
import json
import sys
from unittest import mock

import pytest
import torch

from fairseq_rela.bench import decode, timing
from fairseq_rela.cli import main

needs_sdpa = pytest.mark.skipif(
    not hasattr(torch.nn.functional, "scaled_dot_product_attention"), reason="torch 1 has no fused attention"
)
TINY = "--size tiny --vocabulary 40 --repeats 1".split()


@pytest.fixture(autouse=True)
def threads_given_back():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "words, cases",
    [
        pytest.param(
            ["op", "--lengths", "8", "16", "--rows", "128", "--width", "4", "--entmax-lengths", "8"],
            [
                "op/T8/full/fwd",
                "op/T8/full/fwd/entmax15",
                "op/T8/full/fwd/sparsemax",
                "op/T8/full/fwdbwd",
                "op/T8/full/fwdbwd/entmax15",
                "op/T8/full/fwdbwd/sparsemax",
                "op/T8/causal/fwd",
                "op/T8/causal/fwdbwd",
                "op/T16/full/fwd",
                "op/T16/full/fwdbwd",
                "op/T16/causal/fwd",
                "op/T16/causal/fwdbwd",
            ],
            marks=needs_sdpa,
        ),
        (
            ["train", *TINY, "--lengths", "6", "9", "--tokens", "12", "--entmax-lengths", "6"],
            ["train/6", "train/6/entmax15", "train/6/sparsemax", "train/9"],
        ),
        (["decode", *TINY, "--lengths", "3", "5", "--output-length", "2"], ["decode/3", "decode/5"]),
        pytest.param(["memory", "--lengths", "64", "--heads", "1"], ["memory/T64"], marks=needs_sdpa),
    ],
)
def test_cases_table_and_file(tmp_path, capsys, words, cases):
    assert main(["bench", *words, "--repeats", "1", "--threads", "1", "--json", str(tmp_path / "out.json")]) == 0
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [row["case"] for row in rows] == cases
    printed = capsys.readouterr().out
    for row in rows:
        assert set(row) == {"case", "ours_s", "baseline_s", "ratio", "spread"}
        assert row["ratio"] == pytest.approx(row["baseline_s"] / row["ours_s"])
        assert row["ours_s"] > 0 and row["spread"] >= 0 and f"\n{row['case']} " in printed
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    assert "limit" in printed and "geometric mean" in printed
    if words[0] == "train":
        # two vectors in each of the 12 attentions of the tiny size
        assert f"(+{2 * 12 * 128:,})" in printed


def test_runs_are_interleaved_after_a_warm_up():
    calls = []
    runs = {name: lambda n=name: calls.append(n) for name in ("ours", "stock", "limit")}
    (result,) = timing.compare({"a/case": "stock"}, runs, 3, torch.device("cpu"))
    assert calls == ["ours", "stock", "limit"] * 4
    assert result.case == "a/case" and result.limit is not None


def test_result():
    result = timing.Result("train/25", 2.0, 3.0, 0.1)
    assert result.as_json() == {"case": "train/25", "ours_s": 2.0, "baseline_s": 3.0, "ratio": 1.5, "spread": 0.1}
    assert timing.interquartile_range([1.0, 2.0, 3.0, 4.0, 5.0]) == 2.0
    assert timing.interquartile_range([1.0]) == 0.0


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--json", "/nowhere/at/all.json"], "there is no directory /nowhere/at"),
        (["--device", "abacus"], "--device abacus"),
        (["--repeats", "0"], "--repeats 0: give at least 1"),
        (["--lengths", "0"], "--lengths 0: give at least 1"),
    ],
)
def test_bad_input_is_told_in_one_line_before_anything_is_measured(capsys, flags, message):
    assert main(["bench", "decode", *TINY[:4], *flags]) == 1
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error


def test_a_plot_without_matplotlib(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["bench", "decode", "--plot", str(tmp_path / "a.png")]) == 1
    assert capsys.readouterr().err.strip().endswith("pip install fairseq-rela[figures], or leave --plot out")


@pytest.mark.parametrize(
    "words",
    [
        ["decode", *TINY, "--lengths", "5", "3", "--output-length", "2", "--entmax"],
        ["train", *TINY, "--lengths", "3", "--tokens", "6", "--entmax-lengths"],
    ],
)
def test_plot(tmp_path, words):
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.png"
    assert main(["bench", *words, "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_decoding_speed_by_source_length():
    axes = mock.Mock()
    found = [
        timing.Result("decode/20", 2.0, 4.0, 0.0),
        timing.Result("decode/20/entmax15", 2.0, 5.0, 0.0),
        timing.Result("decode/10", 1.0, 2.5, 0.0),
        timing.Result("decode/10/entmax15", 1.0, 10.0, 0.0),
    ]
    decode.draw(argparse.Namespace(attention="rela_g", output_length=10))(axes, found)
    lines = {call[1]["label"]: call[0] for call in axes.plot.call_args_list}
    assert lines == {
        "rela_g": ((10, 20), (10.0, 5.0)),
        "stock transformer": ((10, 20), (4.0, 2.5)),
        "entmax15": ((10, 20), (1.0, 2.0)),
    }

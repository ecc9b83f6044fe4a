"""The bench: its cases, its files, its errors. The measured numbers are not tested."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from fairseq_rela.bench import decode, lm, memory, timing
from fairseq_rela.cli import main
from fairseq_rela.errors import InputError

needs_sdpa = pytest.mark.skipif(
    not hasattr(torch.nn.functional, "scaled_dot_product_attention"), reason="torch 1 has no fused attention"
)
TINY = "--size tiny --vocabulary 40 --repeats 1".split()


@pytest.fixture(autouse=True)
def threads_given_back():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
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
                "op/norm/fwd/plain torch",
                "op/norm/fwdbwd/plain torch",
            ],
            marks=needs_sdpa,
        ),
        (
            ["train", *TINY, "--lengths", "6", "9", "--tokens", "12", "--entmax-lengths", "6"],
            ["train/6", "train/6/entmax15", "train/6/sparsemax", "train/9"],
        ),
        (
            ["train", *TINY, "--lengths", "6", "--tokens", "12", "--entmax-lengths", "--rela-target-sparsity", "0.9"],
            ["train/6", "train/6/no threshold"],
        ),
        (["decode", *TINY, "--lengths", "3", "5", "--output-length", "2"], ["decode/3", "decode/5"]),
        pytest.param(["memory", "--lengths", "64", "--heads", "1"], ["memory/T64"], marks=needs_sdpa),
        (["lm", *TINY, "--lengths", "96"], ["lm/T96/memory", "lm/T96/time"]),
    ],
)
def test_cases_table_and_file(tmp_path, capsys, words, cases):
    assert main(["bench", *words, "--repeats", "1", "--threads", "1", "--json", str(tmp_path / "out.json")]) == 0
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [row["case"] for row in rows] == cases
    printed = capsys.readouterr().out
    for row in rows:
        unit = "bytes" if "memory" in row["case"] else "s"
        ours, baseline = f"ours_{unit}", f"baseline_{unit}"
        assert set(row) == {"case", "unit", ours, baseline, "ratio", "spread"} and row["unit"] == unit
        assert row["ratio"] == pytest.approx(row[baseline] / row[ours])
        assert row[ours] > 0 and row["spread"] >= 0 and f"\n{row['case']} " in printed
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    assert "limit" in printed and "geometric mean" in printed
    heads = [line for line in printed.splitlines() if line.startswith("case ")]
    assert [("ours MB" in line, "ours ms" in line) for line in heads] == (
        [(True, False), (False, True)] if words[0] == "lm" else [(words[0] == "memory", words[0] != "memory")]
    )
    if words[0] == "lm":
        assert f"(+{2 * 4 * 128:,})" in printed and "kB for each token, ours: T 96" in printed
    if words[0] == "train":
        # two vectors in each of the 12 attentions of the tiny size
        assert f"(+{2 * 12 * 128:,})" in printed


@needs_sdpa
@pytest.mark.parametrize(
    "words, case",
    [
        (["op", "--lengths", "8", "--rows", "64", "--width", "8", "--sdpa", "auto", "flash"], "op/T8/full/fwd/flash"),
        (["train", *TINY, "--lengths", "6", "--tokens", "12", "--entmax-lengths"], "train/6"),
        (["decode", *TINY, "--lengths", "3", "--output-length", "2"], "decode/3"),
        (["memory", "--lengths", "64", "--heads", "1"], "memory/T64"),
        (["lm", *TINY, "--lengths", "16", "--mode", "eval"], "lm/T16/time"),
    ],
)
def test_half_precision_and_a_report_to_send(tmp_path, monkeypatch, words, case):
    path = tmp_path / "report.md"
    command = ["bench", *words, "--repeats", "1", "--dtype", "bf16", "--device", "cpu", "--report", str(path)]
    monkeypatch.setattr(sys, "argv", ["fairseq-rela", *command])
    assert main(command) == 0
    lines = path.read_text().splitlines()
    assert lines[0] == f"# fairseq-rela bench {words[0]}" and "- dtype: bf16" in lines
    assert any(line.startswith("- device: cpu (") for line in lines)
    assert f"- torch: {torch.__version__}" in lines and f"- command: `fairseq-rela {' '.join(command)}`" in lines
    (row,) = (line for line in lines if line.startswith(f"| {case} |"))
    ours, baseline, unit, ratio = (cell.strip() for cell in row.split("|")[2:6])
    assert float(ratio) == pytest.approx(float(baseline) / float(ours), abs=0.01)
    assert unit == ("bytes" if words[0] == "memory" else "s")


def test_runs_are_interleaved_after_a_warm_up():
    calls = []
    runs = {name: lambda n=name: calls.append(n) for name in ("ours", "stock", "limit")}
    (result,) = timing.compare({"a/case": "stock"}, runs, 3, torch.device("cpu"))
    assert calls == ["ours", "stock", "limit"] * 4
    assert result.case == "a/case" and result.limit is not None


def test_result():
    result = timing.Result("train/25", 2.0, 3.0, 0.1)
    numbers = {"ours_s": 2.0, "baseline_s": 3.0, "ratio": 1.5, "spread": 0.1}
    assert result.as_json() == {"case": "train/25", "unit": "s", **numbers}
    result = timing.result("memory/T8", [4.0, 1.0, 2.0], [2.0, 2.0, 2.0], unit="bytes")
    assert result == ("memory/T8", 2.0, 2.0, 0.75, None, "bytes") and result.ratio == 1.0
    assert set(result.as_json()) == {"case", "unit", "ours_bytes", "baseline_bytes", "ratio", "spread"}
    assert timing.interquartile_range([1.0, 2.0, 3.0, 4.0, 5.0]) == 2.0
    assert timing.interquartile_range([1.0]) == 0.0


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--json", "/nowhere/at/all.json"], "the directory /nowhere/at does not exist"),
        (["--device", "abacus"], "--device abacus"),
        (["--repeats", "0"], "--repeats 0: give 1 to"),
        (["--lengths", "0"], "--lengths 0: give 1 to"),
    ],
)
def test_bad_input_is_told_in_one_line_before_anything_is_measured(capsys, flags, message):
    assert main(["bench", "decode", *TINY[:4], *flags]) == 1
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error


@pytest.mark.parametrize("bench", ["train", "decode", "lm"])
def test_an_unknown_attention_is_answered_with_those_there_are(capsys, bench):
    assert main(["bench", bench, *TINY, "--attention", "sofmax"]) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "--attention sofmax: known are softmax, sparsemax, " in error
    assert ("rela_g_cross_only" in error) == (bench != "lm")  # a language model has nothing to cross to


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells what is free")
def test_what_finds_no_memory_is_shown_as_that_and_not_timed(tmp_path, capsys):
    out, words = str(tmp_path / "out.json"), [*TINY, "--lengths", "600", "--memory-limit", "0.001"]
    assert main(["bench", "lm", *words, "--json", out]) == 0
    printed = capsys.readouterr().out
    assert printed.count("no memory     no memory       -       -       -") == 2
    assert "ratios to softmax, memory: -" in printed
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [row[f"ours_{row['unit']}"] for row in rows] == [None, None]


def test_a_language_model_beside_one_that_finds_no_memory(monkeypatch):
    def measured(module, what, *question):
        if what == "stock at T = 64":
            raise memory.OutOfMemory("measuring stock at T = 64 failed")
        return 1000

    monkeypatch.setattr(lm, "in_process", measured)
    parser = argparse.ArgumentParser()
    lm.add_arguments(parser)
    args = parser.parse_args([*TINY[:4], "--lengths", "32", "64"])
    args.repeats, args.dtype = 2, "fp32"
    actual = {r.case: r for (r,) in lm.results(args, torch.device("cpu"))}
    assert list(actual) == ["lm/T32/memory", "lm/T64/memory", "lm/T32/time", "lm/T64/time"]
    assert actual["lm/T32/memory"].ratio == 1.0 and actual["lm/T32/time"].ratio > 0
    for r in (actual["lm/T64/memory"], actual["lm/T64/time"]):
        assert r.ours > 0 and r.baseline is r.ratio is r.spread is None
    axes = [mock.Mock(), mock.Mock()]
    lm.draw(args)(axes, list(actual.values()))
    ours, stock = (call[0] for call in axes[1].plot.call_args_list)
    assert ours == ((32, 64), (0.001, 0.001)) and stock == ((32,), (0.001,))


@pytest.mark.slow
def test_memory_of_evaluation():
    how = {"size": "tiny", "vocabulary": 40, "mode": "eval", "dropout": 0.1, "dtype": "fp32"}
    question = ("stock", 2048, how, None, "cpu", 1)
    measured = memory.in_process("fairseq_rela.bench.lm", "stock at T = 2048", *question)
    assert measured > 2048 * 2048 * 4  # its future mask, at least


@pytest.mark.parametrize(
    "code, kind",
    [
        ("raise RuntimeError('DefaultCPUAllocator: can\\'t allocate memory: you tried')", memory.OutOfMemory),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", memory.OutOfMemory),
        ("raise ValueError('something else')", InputError),
    ],
)
def test_why_a_process_that_measures_ended(tmp_path, monkeypatch, code, kind):
    (tmp_path / "fails_at_once.py").write_text(code + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError) as error:
        memory.in_process("fails_at_once", "ours at T = 8", "a question")
    assert error.type is kind and str(error.value).startswith("measuring ours at T = 8 ")
    assert "\n" not in str(error.value)


def test_a_plot_without_matplotlib(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["bench", "decode", "--plot", str(tmp_path / "a.png")]) == 1
    assert capsys.readouterr().err.strip().endswith('pip install ".[figures]", or leave --plot out')


@pytest.mark.parametrize(
    "words",
    [
        ["decode", *TINY, "--lengths", "5", "3", "--output-length", "2", "--entmax"],
        ["train", *TINY, "--lengths", "3", "--tokens", "6", "--entmax-lengths"],
        ["lm", *TINY, "--lengths", "32", "16", "--mode", "eval"],
    ],
)
def test_plot(tmp_path, monkeypatch, words):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(lm, "in_process", lambda module, what, *question: 1000)
    path = tmp_path / "plot.png"
    assert main(["bench", *words, "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_decoding_speed_by_source_length():
    axes = mock.Mock()
    measured = [
        timing.Result("decode/20", 2.0, 4.0, 0.0),
        timing.Result("decode/20/entmax15", 2.0, 5.0, 0.0),
        timing.Result("decode/10", 1.0, 2.5, 0.0),
        timing.Result("decode/10/entmax15", 1.0, 10.0, 0.0),
    ]
    decode.draw(argparse.Namespace(attention="rela_g", output_length=10))(axes, measured)
    lines = {call[1]["label"]: call[0] for call in axes.plot.call_args_list}
    assert lines == {
        "rela_g": ((10, 20), (10.0, 5.0)),
        "stock transformer": ((10, 20), (4.0, 2.5)),
        "entmax15": ((10, 20), (1.0, 2.0)),
    }


@needs_sdpa
@pytest.mark.slow
def test_the_script_that_measures_everything(tmp_path):
    script = Path(__file__).parent.parent / "examples" / "gpu_report.sh"
    env = {**os.environ, "SMALL": "1", "DEVICE": "cpu", "PYTHON": sys.executable}
    subprocess.run(["bash", str(script), str(tmp_path / "report.md")], env=env, check=True, capture_output=True)
    titles = [line for line in (tmp_path / "report.md").read_text().splitlines() if line.startswith("# ")]
    names = ("op", "train", "decode", "memory")
    assert titles == ["# tests of the kernels", *(f"# fairseq-rela bench {name}" for name in names)]
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]

"""fairseq-rela average: literal means, and what it refuses."""

import argparse
import os

import pytest
import torch

from fairseq_rela.averaging import average
from fairseq_rela.cli import main


def save(path, weight, version=1.0, **more):
    model = {"weight": torch.tensor(weight), "version": torch.tensor([version]), "steps": torch.tensor([int(version)])}
    rest = {"args": argparse.Namespace(arch="x"), "last_optimizer_state": {}}
    torch.save({"model": {**model, **more}, **rest}, str(path))
    return str(path)


def run(capsys, *words):
    status = main(["average", *map(str, words)])
    return status, capsys.readouterr()


def test_mean_of_the_weights_and_the_rest_of_the_last(tmp_path, capsys):
    paths = [save(tmp_path / f"{i}.pt", [float(i), 2.0 * i], i) for i in (1, 2, 6)]
    status, printed = run(capsys, *paths, "--output", tmp_path / "out.pt")
    assert status == 0 and "average of 3 checkpoints" in printed.out
    mean = torch.load(str(tmp_path / "out.pt"))
    assert mean["model"]["weight"].tolist() == [3.0, 6.0]
    assert mean["model"]["steps"].tolist() == [6]
    assert mean["args"].arch == "x" and "last_optimizer_state" not in mean


def test_half_precision_is_summed_in_double_and_kept(tmp_path):
    paths = []
    for i, value in enumerate([60000.0, 60000.0, 59968.0]):
        paths.append(str(tmp_path / f"{i}.pt"))
        torch.save({"model": {"w": torch.tensor([value], dtype=torch.float16)}}, paths[-1])
    mean = average(paths)["model"]["w"]
    assert mean.dtype == torch.float16 and mean.tolist() == [60000.0]


@pytest.mark.parametrize(
    "flags, expected",
    [
        (["--num-epoch-checkpoints", "2"], 9.5),  # 9 and 10: by number, not by name
        (["--num-epoch-checkpoints", "2", "--checkpoint-upper-bound", "9"], 8.5),
        (["--num-update-checkpoints", "2"], 150.0),
    ],
)
def test_the_last_of_a_directory(tmp_path, capsys, flags, expected):
    for epoch in (8, 9, 10):
        save(tmp_path / f"checkpoint{epoch}.pt", [float(epoch)])
    for update in (50, 100, 200):
        save(tmp_path / f"checkpoint_3_{update}.pt", [float(update)])
    save(tmp_path / "checkpoint_last.pt", [1e6])
    status, _ = run(capsys, "--inputs", tmp_path, *flags, "--output", tmp_path / "out.pt")
    assert status == 0 and torch.load(str(tmp_path / "out.pt"))["model"]["weight"].tolist() == [expected]


def refused(capsys, tmp_path, *words):
    """The one line on stderr. The existing output must be unchanged, and no other file may be left."""
    output = tmp_path / "out.pt"
    output.write_bytes(b"precious")
    before = sorted(os.listdir(str(tmp_path)))
    status, printed = run(capsys, *words, "--output", output)
    assert status == 1 and printed.err.count("\n") == 1 and printed.err.startswith("fairseq-rela average: ")
    assert output.read_bytes() == b"precious" and sorted(os.listdir(str(tmp_path))) == before
    return printed.err


def test_bad_input_is_told_in_a_line_and_harms_nothing(tmp_path, capsys):
    good = save(tmp_path / "good.pt", [1.0, 2.0])
    content = (tmp_path / "good.pt").read_bytes()
    for name, damaged in (("cut.pt", content[: len(content) // 2]), ("empty.pt", b""), ("text.pt", b"no checkpoint\n")):
        (tmp_path / name).write_bytes(damaged)
        assert f"{name}: not a complete checkpoint" in refused(capsys, tmp_path, good, tmp_path / name)
    assert "missing.pt: no such checkpoint file" in refused(capsys, tmp_path, good, tmp_path / "missing.pt")
    shape = save(tmp_path / "shape.pt", [1.0, 2.0, 3.0])
    assert "'weight' has shapes [3] and [2]" in refused(capsys, tmp_path, good, shape)
    other = save(tmp_path / "other.pt", [1.0, 2.0], norm=torch.ones(1))
    assert "only one of them has 'norm'" in refused(capsys, tmp_path, good, other)
    torch.save([1, 2], str(tmp_path / "list.pt"))
    assert "list.pt: not a fairseq checkpoint" in refused(capsys, tmp_path, tmp_path / "list.pt")
    assert "5 checkpoints asked for, 0 found" in refused(capsys, tmp_path, tmp_path, "--num-epoch-checkpoints", 5)
    assert "give at least 1" in refused(capsys, tmp_path, tmp_path, "--num-epoch-checkpoints", 0)
    assert "one directory" in refused(capsys, tmp_path, tmp_path / "nowhere", "--num-epoch-checkpoints", 5)
    assert "nothing to average" in refused(capsys, tmp_path)
    bound = refused(capsys, tmp_path, good, "--checkpoint-upper-bound", 2)
    assert "--checkpoint-upper-bound needs --num-epoch-checkpoints" in bound


def test_weights_of_two_types_have_no_mean(tmp_path, capsys):
    """Whole numbers were left out of the sum, but counted: the mean of 5 and 1 was 0.5."""
    for name, weight in (("whole", torch.tensor([5])), ("real", torch.tensor([1.0]))):
        torch.save({"model": {"weight": weight}}, str(tmp_path / f"{name}.pt"))
    for first, second in (("whole", "real"), ("real", "whole")):
        said = refused(capsys, tmp_path, tmp_path / f"{first}.pt", tmp_path / f"{second}.pt")
        assert "not of the same model: 'weight' is of whole numbers in one only" in said


def test_an_output_directory_that_is_not_there(tmp_path, capsys):
    status, printed = run(capsys, save(tmp_path / "a.pt", [1.0]), "--output", tmp_path / "none" / "out.pt")
    assert status == 1 and "does not exist" in printed.err


def test_a_full_disk_leaves_what_was_there(tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    good = save(tmp_path / "good.pt", [1.0])
    monkeypatch.setattr("fairseq_rela.checkpoints.torch.save", full)
    assert "No space left on device" in refused(capsys, tmp_path, good)


@pytest.mark.skipif(not hasattr(torch.serialization, "add_safe_globals"), reason="this torch cannot load safely")
def test_what_would_run_code_is_refused(tmp_path, capsys):
    class RunsCode:
        def __reduce__(self):
            return os.system, ("true",)

    torch.save({"model": {}, "args": RunsCode()}, str(tmp_path / "evil.pt"))
    assert "evil.pt: refused; loading it would call" in refused(capsys, tmp_path, tmp_path / "evil.pt")

"""Checkpoints that are damaged, malicious or too large, and a disk that is full: one line each, and no code runs."""

import io
import os
import pickle
import zipfile
from argparse import Namespace

import pytest
import torch
from hostile_samples import assert_one_line, run_command

from fairseq_rela import checkpoints
from fairseq_rela.checkpoints import SAFE_LOADING, _reason, load
from fairseq_rela.cli import main
from fairseq_rela.errors import InputError

SMALL = {  # the flags of what `build` builds
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in (("embed_dim", 16), ("ffn_embed_dim", 32), ("layers", 2), ("attention_heads", 2))
}


NESTED = torch.nested.nested_tensor([torch.ones(2)]) if hasattr(torch, "nested") else torch.ones(2).to_sparse()


def write(path, model=None, **others):
    torch.save({"model": {"w": torch.ones(3)} if model is None else model, "args": None, "cfg": None, **others}, path)
    return str(path)


def refusal(path):
    with pytest.raises(InputError) as caught:
        load(str(path))
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message and len(message) < len(str(path)) + 250
    for word in ("weights_only", "Weights only", "safe_globals", "torch.load", "arbitrary"):
        assert word not in message
    return message


@pytest.mark.parametrize(
    "weight, said",
    [
        ("text", "its weight 'w' is a str, not a tensor"),
        (3, "its weight 'w' is a int, not a tensor"),
        ([torch.ones(2)], "its weight 'w' is a list, not a tensor"),
        (torch.ones(2).to_sparse(), "its weight 'w' is not a plain tensor"),
        (torch.ones(2, dtype=torch.complex64), "its weight 'w' is not a plain tensor"),
        (torch.ones(1).expand(10**9, 10**3), "has the shape [1000000000, 1000], but the file holds 1 numbers"),
        (NESTED, "its weight 'w' is not a plain tensor"),
        (torch.tensor([1, float("nan")]), "its weight 'w' is infinite or not a number: its training has failed"),
        (torch.tensor([1, float("-inf")]).half(), "its weight 'w' is infinite or not a number"),
    ],
    ids=["text", "number", "list", "sparse", "complex", "expanded", "nested", "nan", "infinite"],
)
def test_a_weight_that_cannot_be_averaged(tmp_path, weight, said):
    assert said in refusal(write(tmp_path / "a.pt", {"w": weight}))


def test_what_is_never_used_may_be_any_number(tmp_path):
    """fairseq 0.12.2 saves one number of memory that it never set."""
    weights = {"w": torch.ones(2), "encoder.embed_positions._float_tensor": torch.tensor([float("nan")])}
    assert set(load(write(tmp_path / "a.pt", weights))["model"]) == set(weights)


def test_no_weights_and_names_that_are_not_text(tmp_path):
    assert "its 'model' has no weights" in refusal(write(tmp_path / "a.pt", {}))
    assert "the name of a weight is 1, a int, not text" in refusal(write(tmp_path / "b.pt", {1: torch.ones(2)}))


class RunsCode:
    def __reduce__(self):
        return os.system, ("touch code-ran",)


@pytest.mark.skipif(not SAFE_LOADING, reason="this torch cannot be asked to load safely")
def test_malicious(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "evil.pt", args=RunsCode())
    assert "refused; loading it would call" in refusal(path) and "system" in refusal(path)
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps({"model": RunsCode()}))
    refusal(tmp_path / "evil.pkl")
    torch.save({"model": {}, "args": RunsCode()}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    refusal(tmp_path / "old.pt")
    assert not (tmp_path / "code-ran").exists()


def test_torchs_advice_is_never_shown():
    """Whatever version of torch words it, and wherever it stands in the message."""
    advice = "Re-running `torch.load` with `weights_only` set to `False` will likely succeed"
    for text in (advice, f"Weights only load failed.\n{advice}", f"WeightsUnpickler error: {advice}"):
        assert _reason(RuntimeError(text)) == "not a complete checkpoint (RuntimeError: its pickled part is damaged)"
    text = f"Weights only load failed. {advice}\nWeightsUnpickler error: pop from empty list\n\n{advice}"
    assert _reason(RuntimeError(text)) == "not a complete checkpoint (RuntimeError: pop from empty list)"


@pytest.mark.parametrize("zipped", [True, False])
def test_damaged(tmp_path, zipped):
    torch.save({"model": {"w": torch.ones(300)}}, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    whole = (tmp_path / "a.pt").read_bytes()
    for damaged in (
        b"",
        b"x",
        whole[:10],
        whole[: len(whole) // 2],
        whole[:-1][::-1],
        b"\x80\x02]q" + whole,
        b"\0" * 99,
    ):
        (tmp_path / "b.pt").write_bytes(damaged)
        refusal(tmp_path / "b.pt")


def test_compressed(tmp_path):
    """A small file that would unpack to much more than it is."""
    path = write(tmp_path / "a.pt", {"w": torch.zeros(1_000_000)})
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as small:
        for name in archive.namelist():
            small.writestr(name, archive.read(name))
    assert "not written by torch" in refusal(tmp_path / "b.pt")


def test_a_directory_and_a_missing_file(tmp_path):
    assert "is a directory, not a checkpoint file" in refusal(tmp_path)
    assert "no such checkpoint file" in refusal(tmp_path / "none.pt")


@pytest.mark.parametrize(
    "flags, said",
    [
        ({"encoder_layers": 10**6}, "its flags describe a model of at least"),
        ({"decoder_embed_dim": 10**9}, "its flags describe a model of at least"),
        ({"decoder_output_dim": 10**9}, "its flags describe a model of at least"),
        ({"decoder_input_dim": 10**9}, "its flags describe a model of at least"),
        ({"max_source_positions": 10**12}, "its flag max_source_positions is 1000000000000"),
        ({"encoder_attention_heads": 0}, "cannot be built with its flags"),
        ({"activation_fn": "no such"}, "cannot be built with its flags"),
        ({"arch": ["transformer"], "_name": ["transformer"]}, "not a Transformer that can be converted"),
    ],
)
def test_flags_that_cannot_be_built_are_refused_before_anything_is_built(build, tmp_path, capsys, flags, said):
    model = build("transformer")
    path = tmp_path / "stock.pt"
    content = Namespace(**{"_name": "transformer", "arch": "transformer", **SMALL, **flags})
    torch.save({"model": model.state_dict(), "args": None, "cfg": {"model": content}}, path)
    assert main(["convert", "--from", str(path), "--to", "rela_g", "--output", str(tmp_path / "new.pt")]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and said in err and str(path) in err
    assert os.listdir(tmp_path) == ["stock.pt"]


def test_weights_of_whole_numbers_are_not_converted(build, tmp_path, capsys):
    """They would be rounded without a word."""
    path = tmp_path / "stock.pt"
    weights = {name: weight.long() for name, weight in build("transformer").state_dict().items()}
    cfg = {"model": Namespace(_name="transformer", arch="transformer", **SMALL)}
    torch.save({"model": weights, "args": None, "cfg": cfg}, path)
    assert main(["convert", "--from", str(path), "--to", "rela_g", "--output", str(tmp_path / "new.pt")]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and str(path) in err and "holds torch.int64, not torch.float32" in err
    assert os.listdir(tmp_path) == ["stock.pt"]


@pytest.mark.parametrize("extra_state", [None, [1], {}])
def test_extra_state_of_any_kind(build, tmp_path, capsys, extra_state):
    model = build("transformer")
    cfg = {"model": Namespace(_name="transformer", arch="transformer", **SMALL)}
    torch.save({"model": model.state_dict(), "args": None, "cfg": cfg, "extra_state": extra_state}, tmp_path / "a.pt")
    assert main(["convert", "--from", str(tmp_path / "a.pt"), "--to", "rela_g"]) == 0


# A full disk


def test_average_onto_a_full_disk(tmp_path):
    path = write(tmp_path / "a.pt", {"w": torch.ones(100_000)})
    (tmp_path / "avg.pt").write_bytes(b"old")
    ended = run_command("average", path, "--output", tmp_path / "avg.pt", file_bytes=1000, memory=8 << 30)
    assert_one_line(ended, tmp_path / "avg.pt", "File too large")
    assert (tmp_path / "avg.pt").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["a.pt", "avg.pt"]


@pytest.mark.parametrize("after", [0, 1, 100])
def test_no_space_in_any_write(tmp_path, monkeypatch, after):
    """torch's writer hides the error of the file it writes to; ours does not."""

    class Full:
        def __init__(self, file):
            self.file, self.left = file, after

        def write(self, data):
            self.left -= len(data)
            if self.left < 0:
                raise OSError(28, "No space left on device")
            return self.file.write(data)

    monkeypatch.setattr(checkpoints, "write_atomically", lambda path, write: write(Full(io.BytesIO())))
    with pytest.raises(OSError, match="No space left on device"):
        checkpoints.save({"model": {"w": torch.ones(1000)}}, str(tmp_path / "new.pt"))


def test_onto_a_directory(tmp_path):
    path = write(tmp_path / "a.pt")
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="out: is a directory; give the name of a file"):
        checkpoints.save(load(path), str(tmp_path / "out"))

"""torch's safe loading takes fairseq's checkpoints and still refuses what would run code."""

import argparse
import os
import pickle

import numpy as np
import pytest
import torch
from fairseq.file_io import PathManager
from omegaconf import OmegaConf

from fairseq_rela.checkpoints import SAFE_LOADING

pytestmark = pytest.mark.usefixtures("plugin")  # which also alone, without the other files, lets torch load them


class RunsCode:
    def __reduce__(self):
        return os.system, ("true",)


@pytest.mark.skipif(not SAFE_LOADING, reason="this torch cannot be asked to load safely")
def test_what_would_run_code_is_refused(tmp_path):
    torch.save({"model": {}, "args": RunsCode()}, str(tmp_path / "evil.pt"))
    with pytest.raises(pickle.UnpicklingError, match="system"):
        torch.load(str(tmp_path / "evil.pt"))


@pytest.mark.parametrize(
    "content",
    [
        argparse.Namespace(arch="transformer_rela_g"),
        np.float64(27.0),
        np.float32(27.0),
        np.int64(27),
        np.array([1, 2, 3]),
        OmegaConf.create({"common": {"seed": 1, "lr": [0.1], "name": "x", "on": True, "nothing": None}}),
    ],
    ids=lambda content: type(content).__name__,
)
def test_what_fairseq_keeps_is_loaded(tmp_path, content):
    torch.save({"kept": content}, str(tmp_path / "checkpoint.pt"))
    kept = torch.load(str(tmp_path / "checkpoint.pt"))["kept"]
    assert type(kept) is type(content)
    assert np.array_equal(kept, content) if isinstance(content, np.ndarray) else kept == content


def test_a_copy_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    new, last = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    new.write_bytes(b"new" * 1000)
    last.write_bytes(b"old")
    assert PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_bytes() == new.read_bytes() and sorted(os.listdir(str(tmp_path))) == [new.name, last.name]

    last.write_bytes(b"old")

    def killed(source, target):
        with open(target, "wb") as file:
            file.write(b"ne")
        raise KeyboardInterrupt

    monkeypatch.setattr("fairseq.file_io.shutil.copyfile", killed)
    monkeypatch.setattr("fairseq.file_io.IOPathManager", None)
    with pytest.raises(KeyboardInterrupt):
        PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_bytes() == b"old"

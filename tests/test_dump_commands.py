"""`fairseq-rela dump-info` and `dump-export`."""

import dataclasses
import hashlib
import json
import os

import numpy as np
import pytest
from dump_samples import add_sentence, make_info, write_dump

from fairseq_rela.cli import main
from fairseq_rela.recording.dump import AttentionDump, DumpInfo, DumpWriter, KindInfo

SHA = hashlib.sha256(b"checkpoint").hexdigest()


@pytest.fixture
def path(tmp_path):
    """Four hypotheses of three sentences in two shards."""
    info = make_info(checkpoint_sha256=SHA, fairseq_version="0.12.2", options={"beam": 4, "gen_subset": "test"})
    info = dataclasses.replace(info, kinds={**info.kinds, "cross": KindInfo("softmax", True, 3, (1, 3), 4)})
    with DumpWriter(tmp_path / "d", info) as writer:
        for id, rank in [(0, 0), (2, 0), (2, 1)]:
            add_sentence(writer, id, rank)
    write_dump(tmp_path / "d", [1], info, shard=1)
    return str(tmp_path / "d")


def test_info(path, capsys):
    assert main(["dump-info", path, "--verify"]) == 0
    rows = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    rows = {name: value.strip() for name, value in rows.items()}
    assert rows["sentences"] == "3 (4 hypotheses)"
    assert rows["model"] == "transformer_rela" and rows["checkpoint SHA-256"] == SHA
    assert rows["fairseq"] == "0.12.2" and rows["fairseq-rela"] == make_info().plugin_version
    assert rows["encoder"].startswith("rela_g, 2 layers, 3 heads, rows need not sum to 1, ")
    assert rows["cross"].startswith("softmax, layers 1, 3 of 4 (counted from 0), 3 heads, rows sum to 1, ")
    assert rows["option beam"] == "4" and rows["option gen_subset"] == '"test"'
    assert rows["shards"] == "0 (3 records), 1 (1 records)"
    assert "in 3 files" in rows["size"]
    assert rows["verified"] == "every sentence is undamaged"


def test_info_json(path, capsys):
    assert main(["dump-info", path, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    dump = AttentionDump(path)
    for kind, row in summary["kinds"].items():
        arrays = [record.weights(kind) for record in dump]
        assert row["weights"] == sum(array.size for array in arrays)
        assert row["zeros"] == sum(int((array == 0).sum()) for array in arrays) > 0
    assert summary["bytes"] == sum(os.path.getsize(os.path.join(path, name)) for name in os.listdir(path))
    assert summary["bytes_per_weight"] == summary["bytes"] / sum(row["weights"] for row in summary["kinds"].values())
    assert (summary["sentences"], summary["records"], summary["segments"]) == (3, 4, 2)
    assert summary["shards"] == {"0": 3, "1": 1} and summary["options"] == {"beam": 4, "gen_subset": "test"}


def test_info_of_an_empty_dump(tmp_path, capsys):
    write_dump(tmp_path, [])
    assert main(["dump-info", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "none yet" in out and "unknown: the model did not come from a file" in out
    assert main(["dump-info", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes_per_weight"] is None


def test_info_of_what_is_damaged(path, capsys):
    with open(os.path.join(path, "shard1-00000.npz"), "r+b") as file:
        file.seek(400)
        file.write(b"\xff" * 8)
    assert main(["dump-info", path]) == 0, "the index is whole"
    capsys.readouterr()
    assert main(["dump-info", path, "--verify"]) == 1
    out, err = capsys.readouterr()
    assert not out and "shard1-00000.npz: truncated or changed" in err and err.count("\n") == 1
    assert main(["dump-info", path + "/nothing"]) == 1
    assert capsys.readouterr().err.endswith("nothing: not an attention dump: there is no such directory\n")


def head_view_reads(view):
    """bertviz 1.4.1 head_view's own demands, without its torch and IPython."""
    take = view.get("include_layers")
    sides = {"encoder": ("encoder", "encoder"), "decoder": ("decoder", "decoder"), "cross": ("decoder", "encoder")}
    for kind, (left, right) in sides.items():
        layers = view.get(f"{kind}_attention")
        if layers is None:
            continue
        take = take or list(range(len(layers)))
        array = np.stack([np.array(layers[at], np.float32) for at in take])
        assert array.ndim == 5 and array.shape[1] == 1
        assert array.shape[-2:] == (len(view[f"{left}_tokens"]), len(view[f"{right}_tokens"]))
    return view


@pytest.mark.parametrize(("options", "id", "rank"), [([], 0, 0), (["--sentence", "2", "--rank", "1"], 2, 1)])
def test_export(path, tmp_path, options, id, rank):
    out = tmp_path / "view.json"
    out.write_text("an earlier view")
    assert main(["dump-export", path, "--bertviz", str(out), *options]) == 0
    view = head_view_reads(json.loads(out.read_text()))
    record = AttentionDump(path).find(id, rank)
    for kind in ("encoder", "decoder", "cross"):
        assert np.array_equal(np.array(view[f"{kind}_attention"], np.float32)[:, 0], record.weights(kind))
    assert view["encoder_tokens"] == record.source
    assert view["decoder_tokens"] == ["</s>", *record.target[:-1]]
    assert set(view) == {f"{kind}_attention" for kind in ("encoder", "decoder", "cross")} | {
        "encoder_tokens",
        "decoder_tokens",
    }


def test_export_of_some_kinds_by_predicted_tokens(path, tmp_path):
    out = tmp_path / "view.json"
    assert main(["dump-export", path, "--bertviz", str(out), "--kinds", "cross", "--rows", "predicted"]) == 0
    view = head_view_reads(json.loads(out.read_text()))
    assert "encoder_attention" not in view and view["decoder_tokens"] == AttentionDump(path)[0].target


def test_export_where_layers_differ(tmp_path, capsys):
    kinds = {"encoder": KindInfo("rela_g", False, 2, (0, 1, 2), 3), "cross": KindInfo("rela_g", False, 2, (0,), 1)}
    write_dump(tmp_path, [1], DumpInfo("m", kinds))
    out = tmp_path / "view.json"
    assert main(["dump-export", str(tmp_path), "--bertviz", str(out)]) == 0
    assert head_view_reads(json.loads(out.read_text()))["include_layers"] == [0]
    assert "here the first 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sentence", "7"], "no sentence 7 in this dump; it holds 4 records, ids 0 to 2"),
        (["--sentence", "0", "--rank", "3"], "no sentence 0, rank 3 in this dump"),
        (["--kinds", "self"], "no such kind of attention: self (known are encoder, decoder, cross)"),
        (["--bertviz", "/nowhere/view.json"], "/nowhere/view.json: cannot be written: No such file or directory"),
    ],
)
def test_export_errors(path, tmp_path, capsys, options, message):
    assert main(["dump-export", path, "--bertviz", str(tmp_path / "v.json"), *options]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "v.json").exists()


def test_export_of_nothing(tmp_path, capsys):
    write_dump(tmp_path / "empty", [])
    assert main(["dump-export", str(tmp_path / "empty"), "--bertviz", str(tmp_path / "v")]) == 1
    assert "has no sentence yet" in capsys.readouterr().err
    write_dump(tmp_path / "cross", [1], make_info(kinds=["cross"]))
    assert main(["dump-export", str(tmp_path / "cross"), "--kinds", "encoder", "--bertviz", str(tmp_path / "v")]) == 1
    assert "no encoder attention in this dump" in capsys.readouterr().err

"""The live explorer's models: loading any of them, what is recorded, forced targets, and what is refused."""

import base64
import logging
import zlib

import numpy as np
import pytest
import torch
from explore_samples import WORDS, write_checkpoint, write_data

from fairseq_rela.cli import main
from fairseq_rela.errors import InputError
from fairseq_rela.explore.answering import Deadline, TooSlow
from fairseq_rela.explore.loading import load_model
from fairseq_rela.explore.segmenting import Segmenter
from fairseq_rela.explore.translating import Translator
from fairseq_rela.recording.recorder import record_attention

IN_TIME = Deadline(3600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("explore")
    write_data(path / "data")
    for arch in ("transformer_rela_g", "transformer", "transformer_lm_rela_g", "transformer_lm"):
        write_checkpoint(path / f"{arch}.pt", path / "data", arch)
    return path


def translator(folder, arch, longest=30):
    loaded = load_model(arch, str(folder / f"{arch}.pt"), str(folder / "data"))
    return Translator(loaded, Segmenter(), beam=3, longest=longest)


def unpacked(sentence, kind, queries, keys, field="kinds"):
    """(layers, heads, queries, keys), as the page's script reads them."""
    stored = sentence[field][kind]
    level = np.frombuffer(zlib.decompress(base64.b64decode(stored["levels"])), dtype=np.int8)
    level = level.reshape(2, 2, queries, keys).astype(np.float64)
    return np.sign(level) * np.reshape(stored["top"], (2, 2, 1, 1)) * (level / 127) ** 2


@pytest.mark.parametrize("arch", ["transformer_rela_g", "transformer"])
def test_translations_and_a_forced_target(folder, arch):
    made = translator(folder, arch)
    text, target = "w3 w1 w4", "w5 w9"
    answer = made.answer(text, target, 2, IN_TIME)
    assert [each["label"] for each in answer.sentences] == ["1", "2", "yours"] and answer.unknown == []
    best, second, forced = answer.sentences
    assert best["score"] >= second["score"] and best["target"] != second["target"]
    assert (forced["source"], forced["target"]) == (["w3", "w1", "w4", "</s>"], ["w5", "w9", "</s>"])
    assert forced["target_plain"] == target and forced["forced"] and "forced" not in best
    # the same, by hand
    model, index = made.loaded.model, {word: 4 + i for i, word in enumerate(WORDS)}
    source, previous = (torch.tensor([[index.get(word, 2) for word in words.split()]]) for words in
                        ("w3 w1 w4 </s>", "</s> w5 w9"))  # fmt: skip
    with torch.no_grad(), record_attention(model, norms=True) as recording:
        output, _ = model(source, torch.tensor([4]), previous)
    scores = output[0].log_softmax(-1)
    assert forced["score"] == pytest.approx(float(sum(scores[t, i] for t, i in enumerate((9, 13, 2))) / 3), rel=1e-5)
    for kind, (queries, keys) in {"encoder": (4, 4), "decoder": (3, 3), "cross": (3, 4)}.items():
        weights, norms = recording.weights(kind)[:, :, 0].numpy(), recording.norms(kind)[:, :, 0].numpy()
        for recorded, field in ((weights, "kinds"), (norms, "norms")):
            shown = unpacked(forced, kind, queries, keys, field)
            assert ((shown == 0) == (weights == 0)).all()
            assert np.abs(shown - recorded).max() <= np.abs(recorded).max() / 100
        nulls = (weights == 0).all(axis=-1).mean()
        visible = np.tri(queries, keys, dtype=bool) if kind == "decoder" else np.ones((queries, keys), dtype=bool)
        zeros = (weights == 0)[..., visible].mean()
        assert forced["rates"][kind] == pytest.approx([nulls, zeros])
    if arch == "transformer":
        assert forced["rates"]["cross"] == [0, 0]


def test_the_search_is_fairseqs(folder):
    """The best translation and its score are those of fairseq's own generator, and of one pass over it."""
    from fairseq.sequence_generator import SequenceGenerator

    made = translator(folder, "transformer_rela_g")
    best = made.answer("w3 w1 w4", "", 1, IN_TIME).sentences[0]
    generator = SequenceGenerator([made.loaded.model], made.loaded.target, beam_size=3, max_len_b=28)
    sample = {"net_input": {"src_tokens": torch.tensor([[7, 5, 8, 2]]), "src_lengths": torch.tensor([4])}}
    found = generator.generate([made.loaded.model], sample)[0][0]
    assert best["target"] == [made.loaded.target[i] for i in found["tokens"].tolist()]
    assert best["score"] == pytest.approx(float(found["score"]), rel=1e-4)


@pytest.mark.parametrize("arch", ["transformer_lm_rela_g", "transformer_lm"])
def test_a_language_model_reads_one_text(folder, arch):
    made = translator(folder, arch)
    assert made.loaded.is_language_model and list(made.loaded.kinds) == ["decoder"]
    (only,) = made.answer("w3 w1", "ignored", 5, IN_TIME).sentences
    assert (only["source"], only["target"], only["begin"]) == ([], ["w3", "w1", "</s>"], "</s>")
    with torch.no_grad(), record_attention(made.loaded.model) as recording:
        output, _ = made.loaded.model(torch.tensor([[2, 7, 5]]))
    weights = recording.decoder[:, :, 0].numpy()
    assert ((unpacked(only, "decoder", 3, 3) == 0) == (weights == 0)).all()
    scores = output[0].log_softmax(-1)
    assert only["score"] == pytest.approx(float((scores[0, 7] + scores[1, 5] + scores[2, 2]) / 3), rel=1e-5)


def test_begin_of_a_language_model_with_bos(folder):
    write_checkpoint(folder / "bos.pt", folder / "data", "transformer_lm_rela_g", "--add-bos-token")
    (only,) = translator(folder, "bos").answer("w3", "", 1, IN_TIME).sentences
    assert only["begin"] == "<s>"


def test_typed_markers_are_unknown_words(folder):
    """A <pad> in the middle would be taken for padding."""
    answer = translator(folder, "transformer_rela_g").answer("w1 <pad> </s> <s> new w2", "w1 <pad>", 1, IN_TIME)
    assert answer.sentences[0]["source"] == ["w1", "<unk>", "<unk>", "<unk>", "<unk>", "w2", "</s>"]
    assert answer.unknown == ["<pad>", "</s>", "<s>", "new", "<pad>"]
    assert answer.sentences[-1]["target"] == ["w1", "<unk>", "</s>"]


def test_limits(folder):
    made = translator(folder, "transformer_rela_g", longest=5)
    assert len(made.answer("w1 w1 w1 w1", "", 1, IN_TIME).sentences[0]["target"]) <= 5
    for text, target, said in (
        ("w1 " * 5, "", "the sentence has 5 tokens; at most 4"),
        ("w1", "w1 " * 5, "the target has 5 tokens; at most 4"),
    ):
        with pytest.raises(InputError, match=said):
            made.answer(text, target, 1, IN_TIME)
    with pytest.raises(TooSlow):
        made.answer("w1", "", 1, Deadline(-1))


def test_a_failed_training_is_told(folder):
    made = translator(folder, "transformer_lm")
    made.loaded.model.decoder.layers[0].self_attn.q_proj.weight.data[:] = float("nan")
    with pytest.raises(InputError, match="infinite or not a number"):
        made.answer("w1", "", 1, IN_TIME)


def refused(capsys, *words):
    assert main(["explore", *map(str, words)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith("fairseq-rela explore: ") and "Traceback" not in err
    return err


def test_what_is_refused(folder, tmp_path, capsys, monkeypatch):
    # fairseq's commands, run by earlier tests, log to a stream that pytest has closed
    monkeypatch.setattr(logging, "raiseExceptions", False)
    rela, data = folder / "transformer_rela_g.pt", folder / "data"
    page = ["--text", "w1", "--out", tmp_path / "out.html"]
    torch.save({"model": {"w": torch.ones(2)}}, tmp_path / "no.pt")
    few = write_data(tmp_path / "few", WORDS[:5])
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.model").write_bytes(b"nonsense")
    write_checkpoint(tmp_path / "lstm.pt", data, "lstm", "--encoder-layers=1", "--decoder-layers=1")
    capsys.readouterr()  # what making them printed
    for words, said in (
        (["--path", tmp_path / "none.pt", data], "none.pt: no such checkpoint file"),
        (["--path", tmp_path / "no.pt", data], "no.pt: does not load with"),
        (
            ["--path", rela, tmp_path / "nowhere"],
            "nowhere: not a directory; give the directory that fairseq-preprocess",
        ),
        (["--path", rela, tmp_path / "empty"], "dict.src.txt: No such file or directory"),
        (["--path", rela, few], "is this the data-bin that it was trained on?"),
        (["--path", tmp_path / "lstm.pt", data], "lstm.pt: no multi-head attention found: not a fairseq Transformer"),
        (["--path", rela, "--compare", folder / "transformer_lm.pt", data], "cannot be compared"),
        (
            ["--path", rela, data, "--sentencepiece-model", tmp_path / "bad.model"],
            "bad.model: not a sentencepiece model",
        ),
        (["--path", rela, data, "--sentencepiece-model", tmp_path / "no"], "no: No such file or directory"),
        (["--path", rela, data, "--longest", "1"], "--longest is 1; give 2 to 1000"),
        (["--path", rela, data, "--beam", "0"], "--beam is 0; give 1 to 100"),
    ):
        assert said in refused(capsys, *words, *page)
    assert "give --text" in refused(capsys, "--path", rela, data, "--out", tmp_path / "out.html")
    assert not (tmp_path / "out.html").exists()


def test_sentencepiece_and_the_hint_without_it(tmp_path):
    spm = pytest.importorskip("sentencepiece")
    (tmp_path / "text").write_text("the cat sat on the mat\nthe dog sat\n" * 20)
    options = {"vocab_size": 25, "hard_vocab_limit": False, "minloglevel": 2}
    spm.SentencePieceTrainer.train(input=str(tmp_path / "text"), model_prefix=str(tmp_path / "spm"), **options)
    segmenter = Segmenter(str(tmp_path / "spm.model"))
    pieces = segmenter.pieces(" the dog sat ")
    assert "".join(pieces) == "▁the▁dog▁sat" and segmenter.text([*pieces, "</s>"]) == "the dog sat"
    assert segmenter.hint(pieces) == ""
    assert "--sentencepiece-model" in Segmenter().hint(pieces)
    assert Segmenter().hint(["the", "dog@@"]) == ""
    assert Segmenter().pieces(" a@@  b ") == ["a@@", "b"] and Segmenter().text(["a@@", "b", "</s>"]) == "a@@ b"

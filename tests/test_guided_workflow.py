"""A model with a guided head, from text with links to translations with links, by fairseq's own commands."""

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq_runs import command, fairseq_generate, fairseq_train, tagged, toy_text

from fairseq_rela.analysis.links import parsed_links
from fairseq_rela.cli import main as fairseq_rela
from fairseq_rela.dump import AttentionDump
from fairseq_rela.errors import InputError

pytestmark = pytest.mark.slow

TASK = ["--task", "translation_attention"]
GUIDED = ["--load-alignments", "--criterion", "label_smoothed_cross_entropy_with_sparse_alignment"]
GUIDED += ["--alignment-lambda", 1, "--max-update", 100, "--no-epoch-checkpoints", "--disable-validation"]
GUIDED += ["--decoder-layers", 2, "--encoder-embed-dim", 32, "--decoder-embed-dim", 32]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    sizes = ["--train", "200", "--valid", "10", "--test", "30", "--max-clauses", "1"]
    return toy_text(tmp_path_factory.mktemp("guided"), *sizes)


@pytest.fixture(scope="module")
def data(text):
    """The corpus with its links, as a user preprocesses it; here every word is one piece."""
    binary = text.parent / "bin"
    files = [f"--{split}pref={text / split}" for split in ("train", "valid", "test")]
    command("fairseq-preprocess", "-s", "src", "-t", "tgt", *files, "--align-suffix", "align", "--destdir", binary)
    return binary


@pytest.fixture(scope="module")
def checkpoint(data):
    fairseq_train(data, data.parent / "run", *GUIDED, *TASK, arch="transformer_rela_gc_align_tiny")
    return data.parent / "run" / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def dump(data, checkpoint):
    path = data.parent / "dump"
    flags = ["--score-reference", "--attn-dump", path, "--attn-dump-full-context"]
    fairseq_generate(data, checkpoint, *TASK, *flags)
    return path


def test_the_dump_is_what_the_guided_head_is_trained_on(data, checkpoint, dump):
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], {"data": str(data)})
    model.eval()
    recorded = AttentionDump(str(dump))
    assert tuple(recorded.info.kinds) == ("cross",) and len(recorded) == 30
    assert recorded.info.options["attn_dump_full_context"] is True and recorded.info.options["guided_layer"] == 0
    eos = task.target_dictionary.eos()
    for record in recorded:
        source = torch.tensor([[task.source_dictionary.index(token) for token in record.source]])
        target = [task.target_dictionary.index(token) for token in record.target]
        with torch.no_grad():
            extra = model(source, torch.tensor([source.size(1)]), torch.tensor([[eos, *target[:-1]]]))[1]
        np.testing.assert_allclose(record.cross[0, 0], extra["attn"][0][0].numpy(), rtol=1e-4, atol=1e-6)


def test_the_guided_head_aligns_better_than_others(text, dump, tmp_path, capsys):
    rates = {}
    for name, flags in {"guided": [], "other": ["--layer", "0", "--head", "1", "--rows", "normal"]}.items():
        assert fairseq_rela(["align", str(dump), "--out", str(tmp_path / name), *flags]) == 0
        assert fairseq_rela(["aer", str(tmp_path / name), str(text / "test.align")]) == 0
        rates[name] = float(capsys.readouterr().out.splitlines()[-1])
    assert rates["guided"] < 0.5 < rates["other"]


def test_translations_come_with_the_links_of_the_guided_head(data, checkpoint, tmp_path):
    flags = ["--print-alignment", "hard", "--attn-dump", tmp_path / "dump", "--attn-dump-full-context"]
    lines = fairseq_generate(data, checkpoint, *TASK, *flags)
    printed = tagged(lines, "A")
    for record in AttentionDump(str(tmp_path / "dump")):
        weights = record.cross[0, 0, :-1, :-1]  # without </s>
        expected = {(int(row.argmax()), word) for word, row in enumerate(weights) if row.any()}
        links = parsed_links(" ".join(printed[record.id])).sure
        assert links == expected


def test_the_decoder_is_not_recorded_with_the_future_in_view(data, checkpoint, tmp_path):
    flags = ["--attn-dump", tmp_path / "dump", "--attn-dump-full-context", "--attn-dump-kinds", "decoder,cross"]
    with pytest.raises(InputError, match="--attn-dump-full-context: the decoder's own attention then sees the future"):
        fairseq_generate(data, checkpoint, *TASK, *flags)
    with pytest.raises(InputError, match="--attn-dump-full-context needs --attn-dump DIR"):
        fairseq_generate(data, checkpoint, *TASK, "--attn-dump-full-context")


def test_training_without_links_ends_at_once(data, tmp_path):
    flags = [flag for flag in GUIDED if flag != "--load-alignments"]
    with pytest.raises(InputError, match="the training data have no links; give --load-alignments"):
        fairseq_train(data, tmp_path, *flags, arch="transformer_softmax_align_tiny")

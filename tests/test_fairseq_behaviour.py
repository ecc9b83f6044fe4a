"""What fairseq's own tests check of its attention and its Transformer, checked of ours in every layer.

The subjects are those of fairseq's test_multihead_attention (without xFormers), test_transformer, test_export,
test_sequence_generator and test_checkpoint_utils. docs/fairseq-notes.md says which of fairseq's own tests do not pass.
"""

import io

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator

from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.errors import InputError

NOT_SCRIPTED = ["sparsemax", "entmax15"]  # their functions come from the entmax package
each_row = pytest.mark.parametrize("name", CATALOG)
each_scripted_row = pytest.mark.parametrize("name", [name for name in CATALOG if name not in NOT_SCRIPTED])
some_rows = pytest.mark.parametrize("name", ["softmax", "rela_g", "rela_gc"])


def saved_and_loaded(scripted):
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


@each_scripted_row
def test_a_scripted_attention_is_saved_and_loaded(name):
    module = RelaMultiheadAttention(name, 8, 2).eval()
    x = torch.randn(3, 2, 8)
    loaded = saved_and_loaded(torch.jit.script(module))
    assert torch.allclose(loaded(x, x, x)[0], module(x, x, x)[0], atol=1e-6)


@pytest.mark.parametrize("name", NOT_SCRIPTED)
def test_what_cannot_be_scripted_says_so(name):
    with pytest.raises(InputError, match=f"attention '{name}' cannot be scripted"):
        torch.jit.script(RelaMultiheadAttention(name, 8, 2))


@each_scripted_row
def test_scripted_modules_keep_their_states_apart(name):
    first, second = (torch.jit.script(RelaMultiheadAttention(name, 8, 2)) for _ in range(2))
    state = first.set_incremental_state({}, "key", {"a": torch.tensor([1])})
    state = second.set_incremental_state(state, "key", {"a": torch.tensor([2])})
    assert [int(module.get_incremental_state(state, "key")["a"]) for module in (first, second)] == [1, 2]


@each_row
@pytest.mark.parametrize("past", [None, [[False, True]]])
@pytest.mark.parametrize("new", [None, [[True]]])
def test_padding_of_earlier_steps_is_kept(name, past, new):
    """Two steps, with and without padding in each, give what both keys give at once."""
    module = RelaMultiheadAttention(name, 8, 2, self_attention=False).double().eval()
    x, query = torch.randn(3, 1, 8, dtype=torch.float64), torch.randn(1, 1, 8, dtype=torch.float64)
    state = {}
    for keys, mask in ((x[:2], past), (x[2:], new)):
        mask = None if mask is None else torch.tensor(mask)
        out, _ = module(query, keys, keys, key_padding_mask=mask, incremental_state=state)
    together = torch.tensor([[*(past or [[False, False]])[0], *(new or [[False]])[0]]])
    expected, _ = module(query, x, x, key_padding_mask=together)
    assert torch.allclose(out, expected, atol=1e-10)


@some_rows
@pytest.mark.parametrize("width", [16, 24])
def test_forward_and_backward_with_other_widths_of_encoder_and_decoder(build, batch, name, width):
    model = build(f"transformer_{name}", decoder_embed_dim=width, dropout=0.0)
    model(**batch)[0].sum().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.requires_grad]
    assert all(gradient is not None and torch.isfinite(gradient).all() for gradient in gradients)


def sources(batch):
    return {"net_input": {key: batch[key] for key in ("src_tokens", "src_lengths")}}


@some_rows
def test_a_scripted_ensemble(build, name):
    torch.jit.script(EnsembleModel([build(f"transformer_{name}").eval()]))


@some_rows
def test_a_scripted_generator_searches_as_the_plain_one(build, batch, dictionary, name):
    """With beams and blocked repetitions. It is scripted, saved and loaded."""
    model = build(f"transformer_{name}").eval()
    options = {"beam_size": 2, "no_repeat_ngram_size": 2, "max_len_b": 8}
    plain = SequenceGenerator([model], dictionary, **options).generate([model], sources(batch))
    scripted = torch.jit.script(SequenceGenerator([model], dictionary, **options))
    for search in (scripted, saved_and_loaded(scripted)):
        actual = search(sources(batch))
        for ours, theirs in zip(actual, plain):
            assert len(ours) == len(theirs) == 2
            for one, other in zip(ours, theirs):
                assert torch.equal(one["tokens"], other["tokens"])
                assert torch.allclose(one["positional_scores"], other["positional_scores"], atol=1e-4)
                assert torch.allclose(one["attention"], other["attention"], atol=1e-4)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    from fairseq_runs import corpus

    sizes = ["--train", "40", "--valid", "9", "--test", "9", "--max-clauses", "1"]
    return corpus(tmp_path_factory.mktemp("corpus"), *sizes)


@pytest.fixture(scope="module")
def checkpoints(data, tmp_path_factory):
    """Two trainings of three layers with layerdrop, by seed."""
    from fairseq_runs import fairseq_train

    small = ["--encoder-embed-dim", 8, "--decoder-embed-dim", 8, "--encoder-layerdrop", 0.01, "--max-update", 2]
    small += ["--decoder-layerdrop", 0.01, "--disable-validation", "--encoder-layers", 3, "--decoder-layers", 3]
    paths = {}
    for seed in (123, 456):
        directory = tmp_path_factory.mktemp(f"seed{seed}")
        fairseq_train(data, directory, *small, "--seed", seed)
        paths[seed] = str(directory / "checkpoint_last.pt")
    return paths


@pytest.mark.slow
def test_an_ensemble_of_checkpoints(data, checkpoints):
    """Each model has the flags of its own checkpoint; the task is that of the first."""
    models, cfg, task = checkpoint_utils.load_model_ensemble_and_task(list(checkpoints.values()))
    assert [model.args.seed for model in models] == [123, 456]
    assert cfg.common.seed == 456 and task.cfg.data == str(data)


@pytest.mark.slow
def test_layers_are_pruned_when_a_checkpoint_is_loaded(checkpoints):
    overrides = {"encoder_layers_to_keep": "0,2", "decoder_layers_to_keep": "1"}
    (full,), _, _ = checkpoint_utils.load_model_ensemble_and_task([checkpoints[123]])
    (pruned,), _, _ = checkpoint_utils.load_model_ensemble_and_task([checkpoints[123]], arg_overrides=overrides)
    assert len(pruned.encoder.layers) == 2 and len(pruned.decoder.layers) == 1
    for side, kept in (("encoder", [0, 2]), ("decoder", [1])):
        for place, layer in enumerate(kept):
            left, right = getattr(pruned, side).layers[place], getattr(full, side).layers[layer]
            assert all(torch.equal(a, b) for a, b in zip(left.parameters(), right.parameters()))

"""Language models: every architecture, causal, incremental as in full, long texts by tiles, recorded and scripted."""

import argparse
from unittest import mock

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.transformer_lm import base_lm_architecture, transformer_lm_big

from fairseq_rela.attention import multihead, pointwise
from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.errors import InputError
from fairseq_rela.recording.recorder import record_attention

each_row = pytest.mark.parametrize("name", CATALOG)
POINTWISE = [name for name, row in CATALOG.items() if ACTIVATIONS[row.activation].pointwise]
SMALL = {"decoder_layers": 2, "decoder_embed_dim": 16, "decoder_ffn_embed_dim": 32, "decoder_attention_heads": 2}


@pytest.fixture
def build_lm(dictionary):
    """build_lm(arch, **flags): a newly initialised model; "stock" is fairseq's, with the flags that ours set."""

    def build(arch, **flags):
        args = argparse.Namespace(**{**SMALL, **flags})
        if arch == "stock":
            arch = "transformer_lm"
            base_lm_architecture(args)
        ARCH_CONFIG_REGISTRY[arch](args)
        torch.manual_seed(1)
        task = argparse.Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
        return ARCH_MODEL_REGISTRY[arch].build_model(args, task)

    return build


def text(length, sentences=1, seed=0):
    """Running text after `</s>`, (B, T)."""
    tokens = torch.randint(4, 34, (sentences, length), generator=torch.Generator().manual_seed(seed))
    tokens[:, 0] = 2
    return tokens


# --- architectures


def flags_of(*architectures):
    args = argparse.Namespace()
    for set_flags in architectures:
        set_flags(args)
    return vars(args)


@pytest.mark.parametrize(
    "size, stock, differs",
    [
        ("", base_lm_architecture, {}),
        ("_base", base_lm_architecture, {}),
        ("_big", transformer_lm_big, {}),
        ("_iwslt_de_en", base_lm_architecture, {"ffn_embed_dim": 1024, "attention_heads": 4}),
        (
            "_tiny",
            base_lm_architecture,
            {
                "embed_dim": 128, "input_dim": 128, "output_dim": 128, "ffn_embed_dim": 256, "layers": 4,
                "attention_heads": 4,
            },
        ),
    ],
)  # fmt: skip
@each_row
def test_every_architecture_has_the_flags_of_stocks_and_its_attention(name, size, stock, differs):
    actual = flags_of(ARCH_CONFIG_REGISTRY[f"transformer_lm_{name}{size}"])
    expected = {**flags_of(stock), **{f"decoder_{field}": value for field, value in differs.items()}}
    assert actual == {**expected, "decoder_attn": name}
    assert actual["decoder_normalize_before"]


def test_a_flag_overrides_the_architectures_attention(build_lm):
    model = build_lm("transformer_lm_rela_g_tiny", decoder_attn="entmax15")
    assert {layer.self_attn.name for layer in model.decoder.layers} == {"entmax15"}


@pytest.mark.parametrize(
    "flags, message",
    [
        ({"decoder_attention_heads": 3}, "divisible by"),  # fairseq checks this first, in its own words
        ({"decoder_attn": "sofmax"}, "unknown attention 'sofmax'; known are softmax, "),
    ],
)
def test_bad_values_are_told_in_one_line(build_lm, flags, message):
    with pytest.raises((InputError, AssertionError)) as error:
        build_lm("transformer_lm_rela_g", **flags)
    assert message in str(error.value) and "\n" not in str(error.value)


ADAPTIVE = {"adaptive_softmax_cutoff": "10,20", "adaptive_softmax_factor": 2}
EMBEDDINGS = {
    "shared": {"share_decoder_input_output_embed": True},
    "adaptive softmax": ADAPTIVE,
    "adaptive input": {
        **ADAPTIVE, "adaptive_input": True, "adaptive_input_cutoff": "10,20", "adaptive_input_factor": 2,
        "tie_adaptive_weights": True,
    },
    "characters": {
        "character_embeddings": True, "character_filters": "[(1, 4), (2, 8)]", "character_embedding_dim": 4,
        "char_embedder_highway_layers": 1,
    },
}  # fmt: skip


@pytest.mark.parametrize("flags", EMBEDDINGS.values(), ids=EMBEDDINGS)
def test_softmax_has_the_parameters_of_stock_and_computes_the_same(build_lm, flags):
    ours, stock = (build_lm(arch, **flags).eval() for arch in ("transformer_lm_softmax", "stock"))
    ours.load_state_dict(stock.state_dict(), strict=True)
    tokens = text(7, sentences=2)
    actual, expected = (model.get_normalized_probs(model(tokens), True, {"target": tokens}) for model in (ours, stock))
    assert torch.allclose(actual, expected, atol=1e-5)
    rela_g = build_lm("transformer_lm_rela_g", **flags).eval()
    assert rela_g.get_normalized_probs(rela_g(tokens), True, {"target": tokens}).shape == expected.shape


# --- what they compute


@each_row
def test_a_word_depends_on_those_before_it_alone_and_incrementally_too(build_lm, name):
    model = build_lm(f"transformer_lm_{name}").eval()
    assert {layer.self_attn.name for layer in model.decoder.layers} == {name}
    tokens = torch.tensor([[2, 4, 5, 6, 7], [2, 8, 9, 10, 11]])
    full = model(tokens)[0]
    changed = tokens.clone()
    changed[:, 3] = 12
    assert torch.allclose(model(changed)[0][:, :3], full[:, :3], atol=1e-6)
    assert not torch.allclose(model(changed)[0][:, 3:], full[:, 3:], atol=1e-3)
    state = {}
    for t in range(5):
        step = model(tokens[:, : t + 1], incremental_state=state)[0]
        assert torch.allclose(step[:, 0], full[:, t], atol=1e-5)


def step(model, tokens):
    """Logits of a text and the gradients of all parameters."""
    model.zero_grad()
    logits = model(tokens[:, :-1])[0]
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    return [logits, *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("name", POINTWISE)
def test_a_long_text_is_streamed_and_gives_what_the_plain_path_gives(build_lm, monkeypatch, name):
    length = 300  # several tiles
    model = build_lm(f"transformer_lm_{name}", dropout=0.0, max_target_positions=length).double()
    tokens = text(length + 1)
    spy = mock.Mock(wraps=pointwise.streaming_attention)
    monkeypatch.setattr(pointwise, "streaming_attention", spy)
    streamed = step(model, tokens)
    assert spy.call_count == 2  # once per layer
    monkeypatch.setattr(multihead.RelaMultiheadAttention, "_streams", lambda self, mask: False)
    for actual, expected in zip(streamed, step(model, tokens)):
        assert torch.allclose(actual, expected, rtol=1e-6, atol=1e-9)
    assert spy.call_count == 2


def largest_memory(run):
    """Bytes of the largest piece of memory that any operation's result lies in."""
    dispatch = pytest.importorskip("torch.utils._python_dispatch")
    largest = 0

    class Sizes(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            made = function(*args, **(kwargs or {}))
            for tensor in made if isinstance(made, (tuple, list)) else [made]:
                if torch.is_tensor(tensor):
                    largest = max(largest, tensor.untyped_storage().nbytes())
            return made

    with Sizes():
        run()
    return largest


@pytest.mark.skipif(not hasattr(torch, "rms_norm"), reason="needs a newer torch's dispatch modes")
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_nothing_of_the_size_of_all_weights_is_ever_in_memory(build_lm, mode):
    length = 1024
    square, tokens = 4 * length * length, text(length + 1)
    models = [build_lm(arch, max_target_positions=length) for arch in ("transformer_lm_rela_g", "stock")]
    run = step if mode == "train" else lambda model, tokens: model.eval()(tokens)
    ours, stock = (largest_memory(lambda m=model: run(m, tokens)) for model in models)
    assert ours < square / 4 and stock >= square  # fairseq's mask, at least


@pytest.mark.parametrize("name", ["softmax", "rela_g"])
def test_the_recorder(build_lm, name):
    model = build_lm(f"transformer_lm_{name}").eval()
    tokens = text(6, sentences=3)
    expected = model(tokens)[0]
    with record_attention(model) as recorded:
        assert torch.allclose(model(tokens)[0], expected, atol=1e-5)
    assert recorded.decoder.shape == (2, 2, 3, 6, 6)
    assert recorded.encoder is None and recorded.cross is None
    future = torch.ones(6, 6).triu(1) > 0
    assert (recorded.decoder[..., future] == 0).all() and (recorded.decoder[..., ~future] >= 0).all()
    info = recorded.info["decoder"]
    assert (info.attention, info.distribution, info.layers, info.heads) == (name, name == "softmax", (0, 1), 2)
    sums = recorded.decoder.sum(-1)
    assert torch.allclose(sums, torch.ones_like(sums), atol=1e-5) == (name == "softmax")


@pytest.mark.parametrize("name", ["softmax", "rela_g", "rela_g_gelu"])
def test_a_scripted_decoder_equals_the_plain_one(build_lm, name):
    """The decoder: fairseq's language model around it takes **kwargs, which TorchScript does not know."""
    decoder = build_lm(f"transformer_lm_{name}").eval().decoder
    tokens = text(7, sentences=2)
    scripted = torch.jit.script(decoder)
    assert torch.allclose(scripted(tokens)[0], decoder(tokens)[0], atol=1e-5)

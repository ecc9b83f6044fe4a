"""The model: its architectures, its parameters, and that it computes the same however it is run."""

import argparse
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.sequence_generator import SequenceGenerator

from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.errors import InputError
from fairseq_rela.models.layers import FUSED_COPIES

each_row = pytest.mark.parametrize("name", CATALOG)
ONLY = ["rela_g_encoder_only", "rela_g_decoder_only", "rela_g_cross_only"]


def attention_names(model):
    layer = model.decoder.layers[0]
    return model.encoder.layers[0].self_attn.name, layer.self_attn.name, layer.encoder_attn.name


def parameters(model):
    """Without the copies that fairseq 0.12.2's own encoder layers keep."""
    return {n: p for n, p in model.named_parameters() if n.rpartition(".")[2] not in FUSED_COPIES}


def forward(model, batch):
    return model(**batch)[0]


# architectures


@pytest.mark.parametrize("size", ["", "_base", "_big", "_iwslt_de_en", "_tiny"])
def test_every_architecture_of_the_contract_is_registered(size):
    for placement in [*CATALOG, *ONLY]:
        assert f"transformer_{placement}{size}" in ARCH_CONFIG_REGISTRY


@pytest.mark.parametrize(
    "size, width, ffn, heads, layers",
    [
        ("", 512, 2048, 8, 6),
        ("_base", 512, 2048, 8, 6),
        ("_big", 1024, 4096, 16, 6),
        ("_iwslt_de_en", 512, 1024, 4, 6),
        ("_tiny", 128, 256, 4, 4),
    ],
)
def test_sizes(size, width, ffn, heads, layers):
    args = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[f"transformer_rela_i{size}"](args)
    for side in ("encoder", "decoder"):
        fields = ("embed_dim", "ffn_embed_dim", "attention_heads", "layers")
        assert [getattr(args, f"{side}_{field}") for field in fields] == [width, ffn, heads, layers]


@pytest.mark.parametrize(
    "arch, expected",
    [
        ("transformer_rela_g", ("rela_g", "rela_g", "rela_g")),
        ("transformer_rela", ("rela_g", "rela_g", "rela_g")),
        ("transformer_entmax15_tiny", ("entmax15", "entmax15", "entmax15")),
        ("transformer_rela_g_encoder_only", ("rela_g", "softmax", "softmax")),
        ("transformer_rela_g_decoder_only", ("softmax", "rela_g", "softmax")),
        ("transformer_rela_g_cross_only_tiny", ("softmax", "softmax", "rela_g")),
    ],
)
def test_placements(build, arch, expected):
    assert attention_names(build(arch)) == expected


def test_a_flag_overrides_the_architecture(build):
    model = build("transformer_softmax", encoder_attn="rela_i", cross_attn="sparsemax")
    assert attention_names(model) == ("rela_i", "softmax", "sparsemax")


def test_bad_flags(build):
    with pytest.raises(InputError, match="unknown attention 'rela_x'; known are softmax, sparsemax"):
        build("transformer_rela_g", decoder_attn="rela_x")
    with pytest.raises(InputError, match="width 16 is not divisible by 3 heads"):
        build("transformer_rela_g", encoder_attention_heads=3)
    with pytest.raises(InputError, match="--encoder-xformers-att-config"):
        build("transformer_rela_g", encoder_xformers_att_config="{}")
    with pytest.raises(InputError, match="--decoder-xformers-att-config"):
        build("transformer_lm_rela_g", decoder_xformers_att_config="{}")


# parameters


@pytest.mark.parametrize("name, vectors", [("softmax", 0), ("relu", 0), ("rela_i", 1), ("rela_g", 2)])
def test_base_size_adds_these_vectors_to_stock_and_nothing_else(build, name, vectors):
    base = {"embed_dim": 512, "ffn_embed_dim": 2048, "layers": 6, "attention_heads": 8}
    flags = {f"{side}_{field}": value for side in ("encoder", "decoder") for field, value in base.items()}
    ours, stock = parameters(build(f"transformer_{name}_base", **flags)), parameters(build("transformer", **flags))
    added = {n: p for n, p in ours.items() if n not in stock}
    assert {n: p.shape for n, p in stock.items()} == {n: p.shape for n, p in ours.items() if n in stock}
    assert len(added) == 18 * vectors and all(p.shape == (512,) for p in added.values())


def test_a_stock_checkpoint_loads_by_name_and_computes_the_same(build, batch):
    stock, ours = build("transformer").eval(), build("transformer_softmax").eval()
    for parameter in ours.parameters():
        torch.nn.init.zeros_(parameter)
    ours.load_state_dict(stock.state_dict(), strict=True)
    assert torch.allclose(forward(ours, batch), forward(stock, batch), atol=1e-5)


# it computes the same however it is run


@each_row
def test_a_sentence_in_a_batch_gives_what_it_gives_alone(build, batch, name):
    model = build(f"transformer_{name}").double().eval()
    together = forward(model, batch)
    for i, (src_len, tgt_len) in enumerate([(6, 4), (4, 3), (2, 1)]):
        alone = {
            "src_tokens": batch["src_tokens"][i : i + 1, 6 - src_len :],
            "src_lengths": torch.tensor([src_len]),
            "prev_output_tokens": batch["prev_output_tokens"][i : i + 1, :tgt_len],
        }
        assert torch.allclose(together[i, :tgt_len], forward(model, alone)[0], atol=1e-10)


@each_row
def test_padding_may_be_on_either_side(build, batch, name):
    model = build(f"transformer_{name}").double().eval()
    right = {
        "src_tokens": torch.tensor([[4, 5, 6, 7, 8, 2], [9, 10, 11, 2, 1, 1], [12, 2, 1, 1, 1, 1]]),
        "src_lengths": batch["src_lengths"],
        "prev_output_tokens": torch.tensor([[2, 4, 5, 6], [1, 2, 7, 8], [1, 1, 1, 2]]),
    }
    here, there = forward(model, batch), forward(model, right)
    assert torch.isfinite(there).all()
    for i, tgt_len in enumerate([4, 3, 1]):
        assert torch.allclose(here[i, :tgt_len], there[i, 4 - tgt_len :], atol=1e-10)


@each_row
def test_incremental_decoding_equals_the_full_pass(build, batch, name):
    model = build(f"transformer_{name}").eval()
    full, state = forward(model, batch), {}
    encoded = model.encoder(batch["src_tokens"], batch["src_lengths"])
    previous = torch.tensor([[2, 4, 5, 6], [2, 7, 8, 9], [2, 4, 4, 4]])
    full = model(batch["src_tokens"], batch["src_lengths"], previous)[0]
    for t in range(4):
        step = model.decoder(previous[:, : t + 1], encoder_out=encoded, incremental_state=state)[0]
        assert torch.allclose(step[:, 0], full[:, t], atol=1e-5)


@each_row
@pytest.mark.parametrize(
    "flags",
    [
        {"share_decoder_input_output_embed": True},
        {"share_all_embeddings": True},
        {"encoder_normalize_before": True, "decoder_normalize_before": True},
        {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5},
        {"cross_self_attention": True, "no_cross_attention": True},
        {"decoder_embed_dim": 8, "decoder_output_dim": 8, "decoder_input_dim": 8},
        {"quant_noise_pq": 0.1},
        {"attention_dropout": 0.3, "activation_dropout": 0.3},
        {"encoder_learned_pos": True, "decoder_learned_pos": True, "layernorm_embedding": True},
    ],
    ids=lambda flags: next(iter(flags)),
)
def test_fairseqs_own_options(build, batch, name, flags):
    model = build(f"transformer_{name}", **flags)
    for _ in range(3):
        model.zero_grad()
        forward(model, batch).square().mean().backward()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    model.eval()
    with torch.no_grad():
        assert torch.allclose(forward(model, batch), forward(model, batch))


@each_row
def test_checkpointed_activations_change_nothing(build, batch, name):
    gradients = []
    for checkpoint in (False, True):
        model = build(f"transformer_{name}", checkpoint_activations=checkpoint, dropout=0.0).double()
        forward(model, batch).square().mean().backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    plain, checkpointed = gradients
    assert plain.keys() == checkpointed.keys()
    for n in plain:
        assert torch.allclose(plain[n], checkpointed[n], atol=1e-12), n


@each_row
def test_training_and_evaluation_compute_the_same_and_never_torchs_softmax(build, batch, name):
    """After loading a checkpoint: that is when fairseq 0.12.2 turns to its fused softmax layer."""
    model = build(f"transformer_{name}", dropout=0.0)
    model.load_state_dict(build(f"transformer_{name}", dropout=0.0).state_dict())
    refuse = mock.Mock(side_effect=AssertionError("softmax"))
    with mock.patch.object(F, "multi_head_attention_forward", refuse), mock.patch.object(
        torch, "_transformer_encoder_layer_fwd", refuse, create=True
    ), torch.no_grad():
        evaluated = forward(model.eval(), batch)
        trained = forward(model.train(), batch)
    assert torch.allclose(evaluated, trained, atol=1e-6)


@each_row
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_modules(build, batch, name, dtype):
    if dtype == torch.float16 and torch.__version__ < "2":
        pytest.skip("this torch has no float16 bmm on a CPU")
    model = build(f"transformer_{name}", dropout=0.0).eval()
    expected = forward(model, batch)
    narrow = build(f"transformer_{name}", dropout=0.0).to(dtype)
    out = forward(narrow, batch)
    assert out.dtype == dtype
    real = batch["prev_output_tokens"].ne(1)
    # on average: a head whose weights are all nearly 0 is brought to size by the norm, rounding and all
    error, size = (out.float() - expected)[real].abs().mean(), expected[real].abs().mean()
    assert error < 20 * torch.finfo(dtype).eps * size
    out.float().square().mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in narrow.parameters() if p.grad is not None)


@each_row
def test_beam_search_of_one_model_and_of_an_ensemble(build, batch, dictionary, name):
    sample = {"net_input": {k: batch[k] for k in ("src_tokens", "src_lengths")}}
    models = [build(f"transformer_{name}").eval(), build("transformer_softmax").eval()]
    for ensemble in (models[:1], models):
        generator = SequenceGenerator(ensemble, dictionary, beam_size=4, max_len_b=8)
        hypotheses = generator.generate(ensemble, sample)
        for i, src_len in enumerate([6, 4, 2]):
            alone = {
                "net_input": {
                    "src_tokens": batch["src_tokens"][i : i + 1, 6 - src_len :],
                    "src_lengths": torch.tensor([src_len]),
                }
            }
            one_by_one = generator.generate(ensemble, alone)[0]
            for batched, single in zip(hypotheses[i], one_by_one):
                assert batched["tokens"].tolist() == single["tokens"].tolist()
                assert batched["score"].item() == pytest.approx(single["score"].item(), abs=1e-5)


@each_row
def test_beam_search_scores_are_those_of_a_teacher_forced_pass(build, batch, dictionary, name):
    model = build(f"transformer_{name}").eval()
    sample = {"net_input": {"src_tokens": batch["src_tokens"][:1], "src_lengths": torch.tensor([6])}}
    generator = SequenceGenerator([model], dictionary, beam_size=4, max_len_b=8)
    for hypothesis in generator.generate([model], sample)[0]:
        tokens = hypothesis["tokens"]
        previous = torch.cat([tokens.new_tensor([2]), tokens[:-1]]).unsqueeze(0)
        log_probs = model(batch["src_tokens"][:1], torch.tensor([6]), previous)[0].log_softmax(-1)[0]
        expected = log_probs.gather(1, tokens.unsqueeze(1))[:, 0]
        assert hypothesis["positional_scores"].tolist() == pytest.approx(expected.tolist(), abs=1e-4)


def test_the_decoder_still_gives_the_weights_fairseqs_alignment_asks_for(build, batch):
    model = build("transformer_rela_g").eval()
    _, extra = model(**batch, alignment_layer=0, alignment_heads=1)
    assert extra["attn"][0].shape == (3, 4, 6)
    assert (extra["attn"][0][2, :, :4] == 0).all()  # the padding of the third source


def test_attention_modules_are_all_ours(build):
    modules = [m for m in build("transformer_rela_g").modules() if isinstance(m, RelaMultiheadAttention)]
    assert len(modules) == 6

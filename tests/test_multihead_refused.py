"""What our attention refuses: options that it would not use, and masks that could mean two things."""

import argparse

import pytest
import torch
from fairseq.models.transformer import TransformerConfig

from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.errors import InputError
from fairseq_rela.models.layers import RelaDecoderLayer

each_row = pytest.mark.parametrize("name", CATALOG)
each_option = pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])


def one_line(error):
    assert "\n" not in str(error.value)


@each_row
@each_option
def test_keys_that_are_not_the_inputs(name, option):
    with pytest.raises(InputError, match=f"{option}: {name} attention cannot have") as error:
        RelaMultiheadAttention(name, 8, 2, self_attention=True, **{option: True})
    one_line(error)


@each_option
def test_a_decoder_layer_passes_them_on(option):
    """fairseq's layer has these parameters too. Before, ours dropped them."""
    args = argparse.Namespace(decoder_embed_dim=8, decoder_ffn_embed_dim=8, decoder_attention_heads=2)
    cfg = TransformerConfig.from_namespace(args)
    cfg.decoder.attn = cfg.cross_attn = "rela_g"
    RelaDecoderLayer(cfg)
    with pytest.raises(InputError, match=f"{option}: "):
        RelaDecoderLayer(cfg, **{option: True})


@each_row
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64])
@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_of_integers(name, dtype, causal):
    module = RelaMultiheadAttention(name, 8, 2, self_attention=True, causal=causal).eval()
    x, mask = torch.randn(3, 1, 8), torch.ones(3, 3).triu(1).to(dtype)
    kind = str(dtype)[len("torch.") :]
    for need_weights in (False, True):
        with pytest.raises(InputError, match=f"attn_mask holds {kind}; give booleans") as error:
            module(query=x, key=x, value=x, attn_mask=mask, need_weights=need_weights)
        one_line(error)


def test_a_scripted_module_refuses_it_too():
    module = torch.jit.script(RelaMultiheadAttention("rela_g", 8, 2, self_attention=True).eval())
    x, mask = torch.randn(3, 1, 8), torch.ones(3, 3).triu(1)
    with pytest.raises(torch.jit.Error, match="attn_mask holds integers"):
        module(query=x, key=x, value=x, attn_mask=mask.to(torch.uint8))
    module(query=x, key=x, value=x, attn_mask=mask.to(torch.bool))


@each_row
def test_a_padding_mask_of_bytes_is_one_of_booleans(name):
    """As in fairseq: it can only mean one thing."""
    module = RelaMultiheadAttention(name, 8, 2, encoder_decoder_attention=True).eval()
    x, y = torch.randn(2, 2, 8), torch.randn(3, 2, 8)
    padding = torch.tensor([[0, 0, 1], [0, 1, 1]])
    bytes_, booleans = (
        module(query=x, key=y, value=y, key_padding_mask=padding.to(dtype))[0] for dtype in (torch.uint8, torch.bool)
    )
    assert torch.equal(bytes_, booleans)

"""The norms of what keys contribute: equal to a slow computation of every contribution, which add up to the output."""

import copy

import pytest
import torch
from fairseq.modules import MultiheadAttention
from test_recorder import MODELS, loaded, places, recomputed  # noqa: F401

from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.errors import InputError
from fairseq_rela.kinds import KINDS
from fairseq_rela.recording import contributions
from fairseq_rela.recording.attention_modules import attention_name
from fairseq_rela.recording.recorder import record_attention


def spied_calls(model):
    """Each attention module's last inputs and output, by its place."""
    calls = {}
    for place, module in model.named_modules():
        if isinstance(module, MultiheadAttention):

            def forward(place=place, original=module.forward, **inputs):
                output, weights = original(**inputs)
                calls[place] = inputs, output
                return output, weights

            module.forward = forward
    return calls


def every_contribution(module, query, key, value, **masks):
    """f (H, B, T, S, d): what each key of each head adds to the output, one query at a time, the norm written out."""
    _, weights = recomputed(module, query, key, **masks)
    row = CATALOG[attention_name(module)]
    v = module.v_proj(query if module.self_attention and value is None else value)  # (S, B, d)
    heads, width, d = module.num_heads, module.head_dim, v.size(-1)
    f = torch.zeros(*weights.shape, d, dtype=v.dtype)
    for b in range(weights.size(1)):
        for t in range(weights.size(2)):
            given = torch.zeros(heads, weights.size(3), d, dtype=v.dtype)  # α v of each key, in its head's columns
            for h in range(heads):
                columns = slice(h * width, (h + 1) * width)
                given[h, :, columns] = weights[h, b, t].unsqueeze(1) * v[:, b, columns]
            z = given.sum(dim=(0, 1))
            scale = torch.ones_like(z)
            if row.norm in ("rmsnorm", "rmsnorm_init"):
                scale = module.norm.gain / ((z * z).sum() / d + 1e-8).sqrt()
            elif row.norm == "head_rmsnorm_init":
                sizes = torch.stack([((part * part).sum() / width + 1).sqrt() for part in z.split(width)])
                scale = module.norm.gain / sizes.repeat_interleave(width)
            elif row.norm == "gated_rmsnorm":
                scale = module.norm.norm.gain / ((z * z).sum() / d + 1e-8).sqrt()
                scale = scale / (1 + torch.exp(-module.norm.gate * z))
            elif row.norm == "gated_layernorm":
                scale = module.norm.norm.gain / ((z - z.mean()).pow(2).sum() / d + 1e-5).sqrt()
                scale = scale / (1 + torch.exp(-module.norm.gate * z))
                given = given - given.mean(dim=-1, keepdim=True)
            else:
                assert row.norm == "none"
            f[:, b, t] = (scale * given) @ module.out_proj.weight.t()
    return f


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_equal_to_a_slow_computation_and_they_add_up_to_the_output(loaded, batch, name, monkeypatch):  # noqa: F811
    arch, flags = MODELS[name]
    model = loaded(arch, **flags).double()
    # fairseq's own attention computes its softmax in float32, whatever the model's type is
    near = dict.fromkeys(["rtol", "atol"], 1e-5 if arch in ("transformer", "transformer_align") else 1e-9)
    calls, modules = spied_calls(model), dict(model.named_modules())
    monkeypatch.setattr(contributions, "ELEMENTS", 200)  # a few queries at a time
    with record_attention(model, norms=True) as rec:
        model(**batch)
    f = {}
    for place, (inputs, output) in calls.items():
        module = modules[place]
        f[place] = every_contribution(
            module,
            *(inputs[part] for part in ("query", "key", "value")),
            key_padding_mask=inputs["key_padding_mask"],
            attn_mask=inputs.get("attn_mask"),
        )
        summed = f[place].sum(dim=(0, 3)).transpose(0, 1) + module.out_proj.bias
        torch.testing.assert_close(summed, output, **near)
    S = batch["src_tokens"].size(1)
    for kind in KINDS:
        norms, weights = rec.norms(kind), rec.weights(kind)
        assert norms.dtype == torch.float64 and norms.shape == weights.shape
        for layer, of_layer in enumerate(norms):
            own = [part(f[place].norm(dim=-1), S) for place, part in places(layer, kind) if place in f]
            own = [each for each in own if each.size(-1) == norms.size(-1)]  # a layer may have no joint attention
            torch.testing.assert_close(of_layer, torch.cat(own), **near)
        assert torch.equal(norms.eq(0), weights.eq(0))


def test_a_literal_value(plugin):
    """Two heads of width 1 without a norm: α v Wo by hand."""
    from fairseq_rela.attention.multihead import RelaMultiheadAttention

    module = RelaMultiheadAttention("relu", 2, 2, self_attention=True).double().eval()
    with torch.no_grad():
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            getattr(module, name).bias.zero_()
            getattr(module, name).weight.copy_(torch.eye(2))
        module.v_proj.weight.copy_(torch.tensor([[3.0, 0], [0, 5]]))
        module.out_proj.weight.copy_(torch.tensor([[3.0, 0], [4, 1]]))  # head 0 writes (3, 4), head 1 (0, 1)
    x = torch.tensor([[[1.0, 0]], [[-1, 2]]]).double()  # two positions
    with contributions.watch_inside(module) as inside:
        _, weights = module(x, x, x, need_head_weights=True)
    norms = contributions.contribution_norms(module, inside, weights)
    # head 0: scores [[1, −1], [−1, 1]], values 3 and −3, the length of (3, 4) is 5
    # head 1: scores [[0, 0], [0, 4]], values 0 and 10, the length of (0, 1) is 1
    assert weights[:, 0].tolist() == [[[1, 0], [0, 1]], [[0, 0], [0, 4]]]
    assert norms[:, 0].tolist() == [[[15, 0], [0, 15]], [[0, 0], [0, 40]]]


@torch.no_grad()
def test_a_weight_of_zero_has_the_norm_zero_even_where_the_value_is_infinite(loaded, batch):  # noqa: F811
    model = loaded("transformer_rela_g")
    model.decoder.layers[0].encoder_attn.v_proj.weight.fill_(float("inf"))
    with record_attention(model, ["cross"], [0], norms=True) as rec:
        model(**batch)
    norms, weights = rec.norms("cross"), rec.cross
    assert weights.eq(0).any() and norms[weights.eq(0)].eq(0).all()


@torch.no_grad()
def test_half_precision_is_computed_in_float32(loaded, batch):  # noqa: F811
    exact = loaded("transformer_rela_gc")
    with record_attention(exact, norms=True) as wide:
        exact(**batch)
    model = copy.deepcopy(exact).to(torch.bfloat16)
    with record_attention(model, norms=True) as rec:
        model(**batch)
    assert rec.cross.dtype == torch.bfloat16 and rec.norms("cross").dtype == torch.float32
    first = rec.norms("encoder")[0], wide.norms("encoder")[0]  # later layers differ by more
    torch.testing.assert_close(*first, rtol=0.1, atol=0.1 * float(first[1].max()))
    sentence = next(rec.sentence_norms(batch["src_tokens"], batch["prev_output_tokens"]))
    assert sentence["cross"].dtype == "float32" and sentence["cross"].shape == (2, 2, 4, 6)


@torch.no_grad()
def test_no_norms_unless_asked_for(loaded, batch):  # noqa: F811
    model = loaded("transformer_rela_g")
    with record_attention(model) as rec:
        model(**batch)
    assert rec.norms("cross") is None
    assert list(rec.sentence_norms(batch["src_tokens"], batch["prev_output_tokens"])) == [{}, {}, {}]
    with record_attention(model, ["cross"], norms=True) as rec:
        model(**batch)
    assert rec.norms("encoder") is None and rec.norms("cross") is not None
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@torch.no_grad()
def test_the_steps_of_a_search_are_refused(loaded, batch):  # noqa: F811
    model = loaded("transformer_rela_g")
    encoded = model.encoder(batch["src_tokens"], src_lengths=batch["src_lengths"])
    with record_attention(model, norms=True), pytest.raises(InputError, match="steps of a search"):
        model.decoder(batch["prev_output_tokens"][:, :1], encoder_out=encoded, incremental_state={})

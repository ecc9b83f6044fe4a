"""The recorder gives the weights that any Transformer computed, and leaves the model as it was."""

import copy
import math

import numpy as np
import pytest
import torch
from attention_reference import unit_size
from fairseq.modules import MultiheadAttention

from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.dump.info import KindInfo
from fairseq_rela.dump.zeros import null_and_sparsity
from fairseq_rela.errors import InputError
from fairseq_rela.kinds import KINDS
from fairseq_rela.recording import device_stats
from fairseq_rela.recording.attention_modules import attention_name
from fairseq_rela.recording.recorder import record_attention

JOINT = {"cross_self_attention": True, "no_cross_attention": True}
STOCK = {
    "plain": ("transformer", {}),
    "shared embeddings": ("transformer", {"share_all_embeddings": True}),
    "norm before": ("transformer", {"encoder_normalize_before": True, "decoder_normalize_before": True}),
    "layerdrop": ("transformer", {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5}),
    "joint": ("transformer", JOINT),
    "joint and cross": ("transformer", {"cross_self_attention": True}),
    "alignment layer": ("transformer_align", {"alignment_layer": 0, "alignment_heads": 1}),
    "other depths and heads": ("transformer", {"encoder_layers": 3, "decoder_layers": 1, "decoder_attention_heads": 4}),
}
MODELS = {f"transformer_{name}": (f"transformer_{name}", {}) for name in CATALOG}
MODELS.update(STOCK)
MODELS["joint rela_g"] = ("transformer_rela_g", JOINT)
MODELS["mixed"] = ("transformer_rela_g_cross_only", {"decoder_attn": "entmax15"})


@pytest.fixture
def loaded(build):
    """loaded(arch, **flags): as from a checkpoint, in evaluation; fairseq 0.12.2 fuses its encoder layers so."""

    def load(arch, **flags):
        model = build(arch, **flags)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
            for embeddings in (model.encoder.embed_tokens, model.decoder.embed_tokens):
                embeddings.weight[1] = 0
        model.load_state_dict(model.state_dict())
        return model.eval()

    return load


def spied(model):
    """The last inputs of each attention module, by its name. The spy replaces `forward` before the recorder does."""
    calls = {}
    for place, module in model.named_modules():
        if isinstance(module, MultiheadAttention):

            def forward(*args, place=place, original=module.forward, **inputs):
                assert not args
                calls[place] = {k: v.clone() if torch.is_tensor(v) else v for k, v in inputs.items()}
                return original(**inputs)

            module.forward = forward
    return calls


def recomputed(module, query, key, key_padding_mask=None, attn_mask=None, **_):
    """Scores and weights (H, B, T, S) in float64, computed from q and k, one row at a time over what it may see."""
    module = copy.deepcopy(module).double()
    row = CATALOG[attention_name(module)]
    act = ACTIVATIONS[row.activation].build()
    heads, width = module.num_heads, module.head_dim
    q = module.q_proj(query.double()).view(*query.shape[:2], heads, width)
    k = module.k_proj(key.double()).view(*key.shape[:2], heads, width)
    if row.unit:
        q, k = unit_size(q), unit_size(k)
    scores = torch.einsum("tbhd,sbhd->hbts", q, k) / math.sqrt(width)
    learnt = torch.einsum("tbhd,hd->hbt", q, module.k_proj.bias.view(heads, width)) / math.sqrt(width)
    visible = torch.ones_like(scores, dtype=torch.bool)
    if key_padding_mask is not None:
        visible &= ~key_padding_mask.bool()[None, :, None, :]
    if attn_mask is not None and getattr(module, "causal", False) and len(query) == len(key):
        visible &= torch.ones(len(query), len(key)).tril() > 0  # our decoder's mask has no values
    elif attn_mask is not None:
        visible &= attn_mask > -1e4
    weights = torch.zeros_like(scores)
    for at in np.ndindex(scores.shape[:3]):
        if visible[at].any():
            if row.centred:  # q·(k − mean + bias) is q·k less its mean, and q·bias
                scores[at] += learnt[at] - scores[at][visible[at]].mean()
            weights[at][visible[at]] = act(scores[at][visible[at]])
    return scores.masked_fill(~visible, 0), weights


def places(layer, kind):
    """The modules that a kind's weights come from, and which of their columns, given S source positions."""
    if kind == "encoder":
        return [(f"encoder.layers.{layer}.self_attn", lambda w, S: w)]
    joint = (f"decoder.layers.{layer}.self_attn", lambda w, S: w[..., :S])
    own = (f"decoder.layers.{layer}.self_attn", lambda w, S: w[..., w.size(-1) - w.size(-2) :])
    return [own] if kind == "decoder" else [joint, (f"decoder.layers.{layer}.encoder_attn", lambda w, S: w)]


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_equal_to_recomputation_from_queries_and_keys(loaded, batch, name):
    arch, flags = MODELS[name]
    model = loaded(arch, **flags)
    calls = spied(model)
    modules = dict(model.named_modules())
    with record_attention(model) as rec:
        model(**batch)
    assert tuple(rec.info) == KINDS
    S = batch["src_tokens"].size(1)
    for kind in KINDS:
        weights = rec.weights(kind)
        depth = len(model.encoder.layers if kind == "encoder" else model.decoder.layers)
        assert rec.info[kind].model_layers == depth == len(weights)
        for layer in range(depth):
            parts = []
            for place, columns in places(layer, kind):
                joint = flags.get("cross_self_attention", False)
                if place not in calls or (kind == "cross" and place.endswith("self_attn") and not joint):
                    continue
                scores, expected = recomputed(modules[place], **calls[place])
                parts.append((columns(scores, S), columns(expected, S), attention_name(modules[place])))
            scores, expected = (torch.cat([part[i] for part in parts]) for i in (0, 1))
            actual = weights[layer].double()
            assert actual.shape == expected.shape and len(actual) == rec.info[kind].heads
            assert torch.allclose(actual, expected, rtol=1e-5, atol=1e-6)
            if parts[0][2] == "rela_g_gelu":  # which float32 rounds to 0 long before float64
                decided = expected.abs() > 1e-6
            else:
                decided = scores.abs() > 1e-6
                if not ACTIVATIONS[CATALOG[parts[0][2]].activation].pointwise:  # a row's threshold decides, not 0
                    decided &= (expected == 0) | (expected > 1e-6)
            assert torch.equal((actual == 0)[decided], (expected == 0)[decided])


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_the_model_answers_as_without_it(loaded, batch, name):
    arch, flags = MODELS[name]
    model = loaded(arch, **flags).double()  # recorded, attention may take another path, which rounds otherwise
    logits, extra = model(**batch)
    with record_attention(model):
        recorded_logits, recorded = model(**batch)
    seen = batch["prev_output_tokens"] != 1
    assert torch.allclose(logits[seen], recorded_logits[seen], atol=2e-5)
    (attention,), (recorded_attention,) = extra["attn"], recorded["attn"]
    assert (attention is None) == (recorded_attention is None)
    if attention is not None:
        assert attention.shape == recorded_attention.shape
        assert torch.allclose(attention[seen], recorded_attention[seen], atol=2e-5)


def remembered(model):
    return {place: dict(module.__dict__) for place, module in model.named_modules()}


def assert_as_before(model, before):
    after = remembered(model)
    assert after.keys() == before.keys()
    for place, attributes in after.items():
        assert attributes.keys() == before[place].keys(), place
        assert all(attributes[name] is before[place][name] for name in attributes), place


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("name", ["transformer_rela_g", *STOCK])
@torch.no_grad()
def test_no_trace_is_left(loaded, batch, name):
    arch, flags = MODELS[name]
    model = loaded(arch, **flags)
    model.extract_features(**batch)  # makes fairseq's buffer of the future mask
    model.decoder.set_beam_size(4)  # as a search leaves it
    before = remembered(model)
    for kinds, layers in [(None, None), (["cross"], [0]), (["encoder"], [-1])]:
        with record_attention(model, kinds, layers):
            model(**batch)
        assert_as_before(model, before)
        with pytest.raises(Interrupted), record_attention(model, kinds, layers):
            raise Interrupted
        assert_as_before(model, before)
    last = model.decoder.layers[-1].fc2

    def fail(*_):
        raise Interrupted

    handle = last.register_forward_pre_hook(fail)
    with pytest.raises(Interrupted), record_attention(model):
        model(**batch)
    handle.remove()
    assert_as_before(model, before)


@torch.no_grad()
def test_a_forward_of_ones_own_is_put_back(loaded, batch):
    model = loaded("transformer")
    spied(model)
    before = remembered(model)
    model(**batch)
    with record_attention(model) as outer:
        with record_attention(model, ["cross"]) as inner:
            model(**batch)
        assert torch.equal(outer.cross, inner.cross) and inner.encoder is None
    after = remembered(model)
    assert all(after[place].get("forward") is before[place].get("forward") for place in before)


@pytest.mark.parametrize("arch", ["transformer", "transformer_rela_g"])
@torch.no_grad()
def test_a_beam_size_left_by_a_search_shares_no_keys(loaded, batch, arch):
    model = loaded(arch)
    with record_attention(model) as rec:
        model(**batch)
        alone = rec.cross
        decoder = rec.decoder
        model.decoder.set_beam_size(3)
        model(**batch)
        assert torch.equal(rec.cross, alone)
    with record_attention(model, ["decoder"]) as rec:  # whose second layer sees what cross attention brought
        model(**batch)
        assert torch.allclose(rec.decoder, decoder, atol=1e-6)


@pytest.mark.parametrize("name", ["transformer_rela_g", "transformer_sparsemax", "plain", "joint"])
@torch.no_grad()
def test_padding_is_stripped(loaded, batch, name):
    arch, flags = MODELS[name]
    model = loaded(arch, **flags)
    with record_attention(model) as rec:
        model(**batch)
    together = list(rec.sentences(batch["src_tokens"], batch["prev_output_tokens"]))
    assert len(together) == 3
    for i, (source_length, target_length) in enumerate([(6, 4), (4, 3), (2, 1)]):
        alone = {
            "src_tokens": batch["src_tokens"][i : i + 1, -source_length:],
            "src_lengths": batch["src_lengths"][i : i + 1],
            "prev_output_tokens": batch["prev_output_tokens"][i : i + 1, :target_length],
        }
        with record_attention(model) as rec:
            model(**alone)
        for kind in KINDS:
            assert together[i][kind].shape == rec.info[kind].shape(kind, source_length, target_length)
            assert np.allclose(together[i][kind], rec.weights(kind)[:, :, 0].numpy(), rtol=1e-4, atol=1e-6)
        upper = np.triu_indices(target_length, 1)
        assert (together[i]["decoder"][..., upper[0], upper[1]] == 0).all()


@torch.no_grad()
def test_steps_of_a_search(loaded, batch):
    """The last call counts: its one query, and every key there is by then; source and target still told apart."""
    for name in ("plain", "joint", "joint rela_g"):
        arch, flags = MODELS[name]
        model = loaded(arch, **flags)
        previous = batch["prev_output_tokens"][:1]
        source = {"src_tokens": batch["src_tokens"][:1], "src_lengths": batch["src_lengths"][:1]}
        with record_attention(model) as rec:
            model(**source, prev_output_tokens=previous)
            full = {kind: rec.weights(kind) for kind in ("decoder", "cross")}
            encoder_out, state = model.encoder(**source), {}
            for t in range(previous.size(1)):
                model.decoder(previous[:, : t + 1], encoder_out=encoder_out, incremental_state=state)
                assert torch.allclose(rec.decoder, full["decoder"][:, :, :, t : t + 1, : t + 1], atol=1e-5)
                assert torch.allclose(rec.cross, full["cross"][:, :, :, t : t + 1], atol=1e-5)


def test_kinds_and_layers(loaded, batch):
    model = loaded("transformer_rela_g_cross_only", encoder_layers=3)
    with record_attention(model) as rec:
        model(**batch)
    with record_attention(model, kinds=["cross", "encoder"], layers=[-1]) as narrow:
        model(**batch)
    assert narrow.decoder is None and narrow.weights("decoder") is None
    assert torch.equal(narrow.encoder, rec.encoder[2:]) and torch.equal(narrow.cross, rec.cross[1:])
    assert narrow.info == {
        "encoder": KindInfo("softmax", True, 2, (2,), 3),
        "cross": KindInfo("rela_g", False, 2, (1,), 2),
    }
    assert not rec.cross.requires_grad
    assert tuple(rec.info) == KINDS


def test_what_rows_are(loaded):
    for name, kinds in [("plain", (True, True, True)), ("joint", (True, False, False)), ("mixed", (True, True, False))]:
        arch, flags = MODELS[name]
        with record_attention(loaded(arch, **flags)) as rec:
            assert tuple(rec.info[kind].distribution for kind in KINDS) == kinds
    with record_attention(loaded("transformer_rela_g", cross_self_attention=True, cross_attn="relu")) as rec:
        assert rec.info["cross"] == KindInfo("rela_g+relu", False, 4, (0, 1), 2)


@pytest.mark.parametrize(
    ("wanted", "match"),
    [
        ({"kinds": ["crss"]}, r"no such kind of attention: crss \(known are encoder, decoder, cross\)"),
        ({"kinds": []}, "no kind of attention was named; known are encoder, decoder, cross"),
        ({"layers": [2]}, "the encoder attention has no layer 2: it has 2, counted from 0"),
        ({"layers": [0, -3]}, "the encoder attention has no layer -3: it has 2"),
        ({"layers": []}, "no layer was named"),
    ],
)
def test_what_cannot_be_recorded_is_told(loaded, wanted, match):
    model = loaded("transformer")
    before = remembered(model)
    with pytest.raises(InputError, match=match), record_attention(model, **wanted):
        pass
    assert_as_before(model, before)


def test_what_is_not_there_is_told(loaded, batch):
    without = loaded("transformer", no_cross_attention=True)
    with pytest.raises(InputError, match="this model has no cross attention; it has encoder, decoder"):
        record_attention(without, ["cross"]).__enter__()
    with record_attention(without) as rec:
        without(**batch)
    assert tuple(rec.info) == ("encoder", "decoder") and rec.cross is None
    with pytest.raises(InputError, match="not a fairseq Transformer"):
        record_attention(torch.nn.Linear(2, 2)).__enter__()
    with record_attention(loaded("transformer")) as rec, pytest.raises(InputError, match="layer 0 has not run"):
        rec.encoder  # noqa: B018
    dropping = loaded("transformer", encoder_layerdrop=0.999999).train()
    with record_attention(dropping) as rec:
        dropping(**batch)
        with pytest.raises(InputError, match="in evaluation mode, where layerdrop does not skip layers"):
            rec.encoder  # noqa: B018
        assert rec.cross is not None


@torch.no_grad()
def test_half_precision_records_what_was_used(loaded, batch):
    model = loaded("transformer").to(torch.bfloat16)
    with record_attention(model) as rec:
        model(**batch)
    assert {rec.weights(kind).dtype for kind in KINDS} == {torch.bfloat16}
    sentence = next(rec.sentences(batch["src_tokens"], batch["prev_output_tokens"]))
    assert sentence["cross"].dtype == np.float32


def test_rates_on_the_device_are_those_of_the_dump():
    torch.manual_seed(0)
    weights = torch.randn(2, 3, 4, 5, 5).relu() * (torch.rand(2, 3, 4, 5, 1) > 0.3)
    # a subnormal number is small and not zero, -0.0 is zero, NaN is not
    weights[0, 0, 0, 1, 0], weights[1, 0, 0, 2, 0], weights[1, 2, 1, 1, 1] = 1e-42, -0.0, float("nan")
    lengths = [5, 3, 2, 1]
    present = torch.arange(5) < torch.tensor(lengths)[:, None]
    for causal in (False, True):
        null, sparsity = device_stats.null_and_sparsity(weights, present, present, causal)
        for b, n in enumerate(lengths):
            expected = null_and_sparsity(weights[:, :, b, :n, :n].numpy(), "decoder" if causal else "encoder")
            assert np.array_equal(null[b], expected[0]) and np.array_equal(sparsity[b], expected[1])

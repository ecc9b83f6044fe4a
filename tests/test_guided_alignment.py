"""Guided alignment: the model that reads one head with the whole target in view, and the criterion that trains it."""

import argparse
import math

import pytest
import torch

from fairseq_rela.errors import InputError

NAME = "label_smoothed_cross_entropy_with_sparse_alignment"

# The links of the fixture `batch`, as fairseq collates them: source position with left padding, row of B × T. In the
# first pair target token 0 has two links, token 1 has none, token 2 has one; in the second only token 0 has one.
LINKS = torch.tensor([[0, 0], [3, 0], [4, 2], [3, 4]])
SHARES = torch.tensor([0.5, 0.5, 1.0, 1.0])


@pytest.fixture
def task(dictionary):
    return argparse.Namespace(source_dictionary=dictionary, target_dictionary=dictionary, datasets={})


@pytest.fixture
def criterion(plugin, task):
    """criterion(name, **flags): a criterion of fairseq's registry."""
    from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY

    def build_criterion(name=NAME, **flags):
        values = vars(CRITERION_DATACLASS_REGISTRY[name]())
        cfg = argparse.Namespace(**{**values, "sentence_avg": False, "label_smoothing": 0.1, **flags})
        return CRITERION_REGISTRY[name].build_criterion(cfg, task)

    return build_criterion


@pytest.fixture
def sample(batch):
    target = torch.tensor([[4, 5, 6, 2], [7, 8, 2, 1], [2, 1, 1, 1]])
    return {"net_input": batch, "target": target, "ntokens": 8, "alignments": LINKS, "align_weights": SHARES}


def output(scores):
    return None, {"alignment_scores": [scores]}


# --- the model


def test_every_row_has_architectures_with_a_guided_head(plugin):
    from fairseq.models import ARCH_MODEL_REGISTRY

    from fairseq_rela.models import TransformerRelaAlignModel
    from fairseq_rela.models.architectures import PLACEMENTS

    for row in PLACEMENTS:
        for size in ("", "_base", "_big", "_iwslt_de_en", "_tiny"):
            assert ARCH_MODEL_REGISTRY[f"transformer_{row}_align{size}"] is TransformerRelaAlignModel


@pytest.mark.parametrize("row", ["softmax", "sparsemax", "rela_gc", "rela_g", "rela_g_leaky_relu", "softpick"])
def test_it_translates_as_the_model_without_a_guided_head(build, batch, row):
    plain, guided = build(f"transformer_{row}").eval(), build(f"transformer_{row}_align").eval()
    assert [*plain.state_dict()] == [*guided.state_dict()]
    assert torch.equal(plain(**batch)[0], guided(**batch)[0])


@pytest.mark.parametrize("row", ["softmax", "entmax15", "topk", "softpick", "relu", "rela_gc", "rela_g_gelu"])
def test_weights_and_scores_of_the_guided_head(build, batch, row):
    from fairseq_rela.attention.activations import ACTIVATIONS
    from fairseq_rela.attention.catalog import CATALOG
    from fairseq_rela.recording.recorder import record_attention

    model = build(f"transformer_{row}_align", alignment_layer=1).eval()
    extra = model(**batch)[1]
    weights, scores = extra["attn"][0], extra["alignment_scores"][0]
    with record_attention(model, ["cross"]) as recording:
        encoded = model.encoder(batch["src_tokens"], src_lengths=batch["src_lengths"])
        model.decoder(batch["prev_output_tokens"], encoder_out=encoded, full_context_alignment=True)
    torch.testing.assert_close(weights, recording.cross[1, 0])

    activation = ACTIVATIONS[CATALOG[row].activation]
    padding = batch["src_tokens"].eq(1).unsqueeze(1).expand_as(weights)
    assert scores.shape == (3, 4, 7)
    assert scores[..., :-1][padding].eq(-math.inf).all() and scores[..., :-1][~padding].isfinite().all()
    assert scores[..., -1].eq(-math.inf if activation.distribution else 0).all()
    for sentence, (begin, length) in enumerate([(0, 4), (2, 3), (4, 1)]):
        seen = scores[sentence, :length, begin:-1]
        torch.testing.assert_close(activation.build()(seen), weights[sentence, :length, begin:])


def test_the_guided_head_sees_the_whole_target(build, batch):
    model = build("transformer_rela_gc_align").eval()
    other = {**batch, "prev_output_tokens": batch["prev_output_tokens"].clone()}
    other["prev_output_tokens"][0, 3] = 9  # the last input of the first pair
    (logits, extra), (other_logits, other_extra) = model(**batch), model(**other)
    assert torch.equal(logits[0, :3], other_logits[0, :3])
    assert not torch.equal(extra["attn"][0][0, 0], other_extra["attn"][0][0, 0])
    assert torch.equal(extra["attn"][0][1:], other_extra["attn"][0][1:])


def test_a_recorder_keeps_the_ordinary_pass(build, batch):
    from fairseq_rela.recording.recorder import record_attention

    model = build("transformer_rela_gc_align").eval()
    with record_attention(model) as recording:
        model(**batch)
    assert recording.decoder[:, :, 0].triu(1).eq(0).all()


def test_the_guided_layer(build):
    assert build("transformer_rela_gc_align", decoder_layers=6).alignment_layer == 4  # fairseq's default
    assert build("transformer_rela_gc_align", decoder_layers=1).alignment_layer == 0
    assert build("transformer_rela_gc_align", alignment_layer=-1).alignment_layer == 1
    with pytest.raises(InputError, match="--alignment-layer 2: the decoder has the layers 0 to 1"):
        build("transformer_rela_gc_align", alignment_layer=2)


@pytest.mark.parametrize("flag", ["no_cross_attention", "decoder_layerdrop", "checkpoint_activations"])
def test_flags_that_do_not_go_with_a_guided_head(build, flag):
    with pytest.raises(InputError, match=f"--{flag.replace('_', '-')} does not go with a guided head"):
        build("transformer_rela_gc_align", **{flag: True})


def test_a_model_with_a_guided_head_can_be_scripted(build, batch):
    model = build("transformer_rela_gc_align").eval()
    torch.testing.assert_close(torch.jit.script(model)(**batch)[0], model(**batch)[0])


# --- the criterion


@pytest.mark.parametrize("row", ["softmax", "rela_g_encoder_only"])
def test_softmax_has_the_loss_and_the_gradient_of_fairseqs_criterion(build, criterion, sample, row):
    losses, gradients = [], []
    for name in (NAME, "label_smoothed_cross_entropy_with_alignment"):
        model = build(f"transformer_{row}_align")
        model.eval()  # without dropout
        loss, size, log = criterion(name, alignment_lambda=0.3)(model, sample)
        loss.backward()
        losses.append((loss.item(), size, log["nll_loss"], log["alignment_loss"]))
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and losses[0][-1] > 1
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def scores_by_hand(sample, null):
    """All scores are 0, but in the first pair, token 0 has 1 at its first link, and token 1 has 2 at place 5."""
    padding = sample["net_input"]["src_tokens"].eq(1).unsqueeze(1)
    scores = torch.zeros(3, 4, 6).masked_fill(padding, -math.inf)
    scores[0, 0, 0], scores[0, 1, 5] = 1.0, 2.0
    return torch.nn.functional.pad(scores, (0, 1), value=null).requires_grad_()


def test_the_loss_by_hand(criterion, sample):
    e = math.e
    linked = -(0.5 * math.log(e / (e + 6)) + 0.5 * math.log(1 / (e + 6))) + math.log(7) + math.log(5)
    # token 1 of the first pair, and token 1 of the second; not </s>, not padding, not the pair without links
    unlinked = math.log(e**2 + 6) + math.log(5)
    for weight in (0.0, 1.0, 0.5):
        loss = criterion(null_weight=weight).compute_alignment_loss(sample, output(scores_by_hand(sample, 0.0)))
        assert loss.item() == pytest.approx(linked + weight * unlinked, rel=1e-6)


def test_the_loss_by_hand_where_weights_sum_to_1(criterion, sample):
    e = math.e
    linked = -(0.5 * math.log(e / (e + 5)) + 0.5 * math.log(1 / (e + 5))) + math.log(6) + math.log(4)
    loss = criterion().compute_alignment_loss(sample, output(scores_by_hand(sample, -math.inf)))
    assert loss.item() == pytest.approx(linked, rel=1e-6)
    to_end = -math.log(e**2 / (e**2 + 5)) + math.log(4)  # the source ends at place 5
    scores = scores_by_hand(sample, -math.inf)
    loss = criterion(unlinked_to_eos=True).compute_alignment_loss(sample, output(scores))
    assert loss.item() == pytest.approx(linked + to_end, rel=1e-6)
    loss.backward()
    assert scores.grad.isfinite().all()


def test_the_end_of_a_source_with_padding_on_the_right(criterion, sample):
    right = sample["net_input"]["src_tokens"].clone()
    right[1] = torch.tensor([9, 10, 11, 2, 1, 1])
    sample = {**sample, "net_input": {**sample["net_input"], "src_tokens": right}}
    scores = torch.zeros(3, 4, 7)
    scores[1, 1, 3] = 9.0  # the second pair's unlinked token looks at its </s>
    scores = scores.index_fill(2, torch.tensor([6]), -math.inf)
    losses = [criterion(unlinked_to_eos=flag).compute_alignment_loss(sample, output(scores)) for flag in (True, False)]
    assert (losses[0] - losses[1]).item() == pytest.approx(math.log(6) + math.log(1 + 5 * math.exp(-9)), rel=1e-5)


def test_a_silent_head_learns(criterion, sample):
    """All weights of the guided head are 0 here, because its scores are negative: weights alone have no gradient."""
    scores = torch.full((3, 4, 7), -3.0)
    scores[..., -1] = 0
    scores.requires_grad_()
    criterion().compute_alignment_loss(sample, output(scores)).backward()
    assert (scores.grad[0, 0, [0, 3]] < -0.4).all() and scores.grad[0, 2, 4] < -0.4
    assert (scores.grad[0, 1, :6] > 0).all()
    assert scores.grad[:, 3].eq(0).all() and scores.grad[2].eq(0).all()


@pytest.mark.parametrize("row", ["rela_gc", "rela_g", "softpick", "softmax"])
def test_the_guided_head_learns_links_and_null(build, criterion, sample, row):
    model, loss_of = build(f"transformer_{row}_align", dropout=0.0), criterion(alignment_lambda=1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        loss_of(model, sample)[0].backward()
        optimizer.step()
    weights = model.eval()(**sample["net_input"])[1]["attn"][0]
    assert sorted(weights[0, 0].topk(2)[1].tolist()) == [0, 3]
    assert weights[0, 2].argmax() == 4 and weights[1, 0].argmax() == 3
    for null in (weights[0, 1], weights[1, 1]):
        assert null.eq(0).all() if row != "softmax" else null.sum().item() == pytest.approx(1)


def test_what_is_wrong(build, criterion, sample, task):
    with pytest.raises(InputError, match="the model has no guided head; choose an --arch with _align"):
        criterion()(build("transformer_rela_gc"), sample)
    for flag in ("alignment_lambda", "null_weight"):
        with pytest.raises(InputError, match=f"--{flag.replace('_', '-')} -1: a weight of a loss is at least 0"):
            criterion(**{flag: -1})


def test_training_without_links_is_refused(build, criterion, sample, task):
    del sample["alignments"]
    model = build("transformer_rela_gc_align")
    task.datasets["train"] = argparse.Namespace(align_dataset=None)
    with pytest.raises(InputError, match="the training data have no links; give --load-alignments"):
        criterion()(model.train(), sample)
    assert "alignment_loss" not in criterion()(model.eval(), sample)[2]  # a validation set need not have links
    task.datasets["train"] = argparse.Namespace(align_dataset=[])
    assert "alignment_loss" not in criterion()(model.train(), sample)[2]  # a batch may have none

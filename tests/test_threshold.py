"""Thresholds: act(s − θ) written out, by tiles, step by step and scripted; θ fixed, learned, or driven to a target."""

import copy
import math

import fairseq_runs
import pytest
import torch
from attention_reference import reference
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq_runs import corpus, fairseq_generate, fairseq_train, tagged, train_on_two
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.attention.centring import with_columns
from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.attention.threshold import Threshold, ThresholdSetting
from fairseq_rela.errors import InputError
from fairseq_rela.recording.recorder import record_attention

POINTWISE = [name for name, row in CATALOG.items() if ACTIVATIONS[row.activation].pointwise]
each_pointwise = pytest.mark.parametrize("name", POINTWISE)
LEARNED = ThresholdSetting("learn")
THETA = torch.tensor([-0.7, 0.0, 0.4])


def fixed(value):
    return ThresholdSetting(float(value))


def driven(target, warmup=0):
    return ThresholdSetting(target=target, warmup=warmup)


def attention(name="rela_g", setting=LEARNED, dtype=torch.float64, theta=THETA, **options):
    """Three heads of width 4, every parameter away from its initial value, in evaluation."""
    torch.manual_seed(0)
    module = RelaMultiheadAttention(name, 12, 3, threshold=setting, **options)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    if setting is not None and theta is not None:
        module.threshold.theta.data.copy_(theta)
    return module.to(dtype).eval()


def future(length):
    return torch.full((length, length), -math.inf).triu(1)


@each_pointwise
@pytest.mark.parametrize("need_weights", [True, False], ids=["dense", "streaming"])
@settings(max_examples=8, deadline=None)
@given(tgt_len=st.integers(1, 5), src_lens=st.lists(st.integers(1, 5), min_size=1, max_size=3), left=st.booleans())
def test_cross_attention_equals_the_reference_whatever_is_padded(name, need_weights, tgt_len, src_lens, left):
    module = attention(name, encoder_decoder_attention=True, kdim=12, vdim=12)
    longest = max(src_lens)
    x = torch.randn(tgt_len, len(src_lens), 12, dtype=torch.float64)
    y = torch.randn(longest, len(src_lens), 12, dtype=torch.float64)
    padding = torch.zeros(len(src_lens), longest, dtype=torch.bool)
    for sentence, length in enumerate(src_lens):
        padding[sentence, : longest - length] = left
        padding[sentence, length:] |= not left
    out, weights = module(x, y, y, key_padding_mask=padding, need_weights=need_weights, need_head_weights=need_weights)
    for sentence in range(len(src_lens)):
        seen = ~padding[sentence]
        alone = reference(module, x[:, sentence], y[seen, sentence], torch.ones(tgt_len, int(seen.sum())), THETA)
        assert torch.allclose(out[:, sentence], alone, rtol=1e-9, atol=1e-9)
        assert weights is None or (weights[:, sentence][..., ~seen] == 0).all()


@each_pointwise
@pytest.mark.parametrize("need_weights", [True, False], ids=["dense", "streaming"])
def test_causal_self_attention_equals_the_reference(name, need_weights):
    module = attention(name, self_attention=True, causal=True)
    x = torch.randn(6, 2, 12, dtype=torch.float64)
    padding = torch.tensor([[0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]) > 0
    asked = {"need_weights": need_weights, "need_head_weights": need_weights}
    out, weights = module(x, x, x, key_padding_mask=padding, attn_mask=future(6), **asked)
    for sentence in range(2):
        seen = ~padding[sentence]
        tokens = x[seen, sentence]
        alone = reference(module, tokens, tokens, torch.ones(len(tokens), len(tokens)).tril(), THETA)
        assert torch.allclose(out[seen, sentence], alone, rtol=1e-9, atol=1e-9)
    assert weights is None or not weights.triu(1).any()


@each_pointwise
def test_gradients_of_a_learned_threshold(name):
    module = attention(name, encoder_decoder_attention=True)
    padding = torch.tensor([[False, False, True], [False, True, True]])
    y = torch.randn(3, 2, 12, dtype=torch.float64)
    x = torch.randn(2, 2, 12, dtype=torch.float64)

    for asked in (True, False):

        def output(theta, asked=asked):
            probe = copy.deepcopy(module)
            del probe.threshold.theta
            probe.threshold.theta = theta
            return probe(x, y, y, key_padding_mask=padding, need_weights=asked)[0]

        assert torch.autograd.gradcheck(output, THETA.double().requires_grad_())


@each_pointwise
def test_incremental_equals_full_and_beams_share_keys(name):
    module, x = attention(name, self_attention=True), torch.randn(6, 3, 12, dtype=torch.float64)
    padding = torch.tensor([[0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 1]]) > 0
    full, _ = module(x, x, x, key_padding_mask=padding, attn_mask=future(6))
    state = {}
    for t in range(6):
        now, mask = x[t : t + 1], padding[:, t : t + 1] if padding[:, t].any() else None
        step, _ = module(now, now, now, key_padding_mask=mask, incremental_state=state)
        assert torch.allclose(step[0], full[t], rtol=1e-9, atol=1e-9)

    module = attention(name, encoder_decoder_attention=True)
    if hasattr(module, "set_beam_size"):
        y, mask = torch.randn(5, 2, 12, dtype=torch.float64), torch.tensor([[0, 0, 0, 0, 0], [1, 1, 0, 0, 0]]) > 0
        y, mask = y.repeat_interleave(3, 1), mask.repeat_interleave(3, 0)
        query = torch.randn(1, 6, 12, dtype=torch.float64)
        plain, _ = module(query, y, y, key_padding_mask=mask)
        module.set_beam_size(3)
        state = {}
        for _ in range(2):
            out, _ = module(query, y, y, key_padding_mask=mask, incremental_state=state, static_kv=True)
            assert torch.allclose(out, plain, rtol=1e-9, atol=1e-9)


# off, on, and from before there were thresholds


def test_without_flags_there_is_nothing_of_it(build, batch):
    model = build("transformer_rela_g").eval()
    assert not any("threshold" in name for name in model.state_dict())
    assert not any(isinstance(module, Threshold) for module in model.modules())
    zero = build("transformer_rela_g", rela_threshold="0").eval()
    assert list(zero.state_dict()) == list(model.state_dict())  # a fixed θ is a flag, not a weight
    assert torch.allclose(zero(**batch)[0], model(**batch)[0], atol=1e-5)
    high = build("transformer_rela_g", rela_threshold=1e9).eval()
    with record_attention(high) as rec:
        high(**batch)
    assert not rec.encoder.any() and not rec.decoder.any() and not rec.cross.any()


def test_without_a_threshold_not_a_bit_changes():
    """What the module computed before there were thresholds, from its own parts."""
    from fairseq_rela.attention.streaming import streaming_attention

    module, x = attention(setting=None, dtype=torch.float32, self_attention=True), torch.randn(7, 2, 12)
    q, k, v = (p(x).reshape(7, 6, 4).transpose(0, 1) for p in (module.q_proj, module.k_proj, module.v_proj))
    heads = streaming_attention(q, k, v, module.activation, ACTIVATIONS["relu"].in_place, False, module.scaling)
    expected = module.out_proj(module.norm(heads.transpose(0, 1).reshape(7, 2, 12)))
    assert torch.equal(module(x, x, x, need_weights=False)[0], expected)
    scaled = (module.q_proj(x) * module.scaling).reshape(7, 6, 4).transpose(0, 1)
    weights = torch.relu(torch.bmm(scaled, k.transpose(1, 2)))
    shown = module(x, x, x, need_head_weights=True)[1]
    assert torch.equal(shown, weights.view(2, 3, 7, 7).transpose(0, 1))


@pytest.mark.parametrize("flags", [{"rela_threshold": "learn"}, {"rela_target_sparsity": 0.9}], ids=["learn", "target"])
def test_a_checkpoint_without_thresholds_starts_with_none(build, batch, flags):
    old, new = build("transformer_rela_g").eval(), build("transformer_rela_g", **flags).eval()
    for threshold in (module for module in new.modules() if isinstance(module, Threshold)):
        threshold.theta.data.fill_(0.3)
    new.load_state_dict(old.state_dict(), strict=True)
    assert torch.allclose(new(**batch)[0], old(**batch)[0], atol=1e-5)
    kept = {name: value for name, value in new.state_dict().items() if name.endswith("threshold.theta")}
    assert len(kept) == 6 and not any(value.any() for value in kept.values())


@pytest.mark.parametrize(
    "flags", [{"rela_threshold": "learn"}, {"rela_threshold": -0.2}, {"rela_target_sparsity": 0.9}], ids=str
)
def test_scripted_equals_plain(build, batch, flags):
    model = build("transformer_rela_g", **flags).eval()
    for threshold in (module for module in model.modules() if isinstance(module, Threshold)):
        threshold.theta.data.add_(torch.linspace(-0.3, 0.2, 2))
    out = torch.jit.script(model)(batch["src_tokens"], batch["src_lengths"], batch["prev_output_tokens"])[0]
    assert torch.allclose(out, model(**batch)[0], atol=1e-5)


def test_only_pointwise_attention_of_a_mixed_model_has_one(build):
    model = build("transformer_rela_g_cross_only", rela_threshold="learn")
    collected = [name for name, module in model.named_modules() if isinstance(module, Threshold)]
    assert collected == ["decoder.layers.0.encoder_attn.threshold", "decoder.layers.1.encoder_attn.threshold"]


# driven to a target


def scored(threshold, q, k, scale):
    """Queries (T, B, d) and keys (S, B, d) with the threshold's columns: (T, B, H, d_h + 1), (S, B, H, d_h + 1)."""
    q, k = (x.view(len(x), x.size(1), threshold.heads, -1) for x in (q, k))
    return with_columns(q, [threshold.query_column(q, scale)]), with_columns(k, [threshold.key_column(k)])


def test_one_step_by_hand():
    """Two heads of width 2, cosines 1, 0, −1 and 0, 1, 0: of the six weights four are 0 without a threshold."""
    threshold = Threshold(2, driven(0.9))
    keys = [[2.0, 0.0, 1.0, 0.0], [0.0, 3.0, 0.0, 1.0], [-2.0, 0.0, 7.0, 0.0], [9.0, 9.0, 9.0, 9.0]]
    q, k = scored(threshold, torch.tensor([[[5.0, 0.0, 0.0, 2.0]]]), torch.tensor(keys).unsqueeze(1), 0.5)
    assert k[:3, 0].flatten(1).tolist() == [
        [2.0, 0.0, 2.0, 1.0, 0.0, 1.0],
        [0.0, 3.0, 3.0, 0.0, 1.0, 1.0],
        [-2, 0, 2, 7, 0, 7],
    ]
    k[3] = 0  # padding
    q, k = (x[:, 0].transpose(0, 1) for x in (q, k))
    threshold.drive(q[..., :2], k[..., :2], q[..., 2:], k[..., 2:], causal=False, self_attention=False)
    assert threshold.theta.tolist() == pytest.approx([0.2 * (0.9 - 4 / 6)] * 2)


@pytest.mark.parametrize("causal, zeros", [(True, 0 / 3), (False, 1 / 4)])
def test_what_the_future_hides_does_not_count(causal, zeros):
    """Of two tokens the first has a score below 0 with the second, and none else has."""
    threshold = Threshold(1, driven(0.5))
    queries, keys = torch.tensor([[[1.0, 0.0]], [[1.0, 4.0]]]), torch.tensor([[[1.0, 0.0]], [[-1.0, 1.0]]])
    q, k = scored(threshold, queries, keys, 1.0)
    q, k = (x[:, 0].transpose(0, 1) for x in (q, k))
    threshold.drive(q[..., :2], k[..., :2], q[..., 2:], k[..., 2:], causal, self_attention=True)
    assert threshold.theta.tolist() == pytest.approx([0.2 * (0.5 - zeros)])


def test_a_driven_threshold_is_one_of_the_cosine():
    module = attention(setting=driven(0.8), theta=torch.full((3,), 0.3), encoder_decoder_attention=True)
    x, y = torch.randn(4, 2, 12, dtype=torch.float64), torch.randn(5, 2, 12, dtype=torch.float64)
    q, k = (p(z).view(-1, 2, 3, 4).permute(2, 1, 0, 3) for p, z in ((module.q_proj, x), (module.k_proj, y)))
    scores, sizes = q @ k.transpose(2, 3), q.norm(dim=-1).unsqueeze(3) * k.norm(dim=-1).unsqueeze(2)  # (H, B, T, S)
    expected = torch.relu(scores - 0.3 * sizes) / 2
    assert torch.allclose(module(x, y, y, need_head_weights=True)[1], expected, atol=1e-12)
    assert torch.equal(expected > 0, scores / sizes > 0.3) and 0 < (expected > 0).double().mean() < 0.6


def sparsity(module, x, padding, causal):
    """The share of zeros over all heads and visible positions."""
    with torch.no_grad():
        weights = module.eval()(
            x, x, x, key_padding_mask=padding, attn_mask=future(len(x)) if causal else None, need_head_weights=True
        )[1]
    visible = ~(padding.unsqueeze(1) | padding.unsqueeze(2)).expand_as(weights[0])
    if causal:
        visible = visible & (torch.ones(len(x), len(x)).tril() > 0)
    return (weights[:, visible] == 0).float().mean().item()


@pytest.mark.parametrize("asked", [True, False], ids=["dense", "streaming"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("target", [0.3, 0.9])
def test_it_gets_to_its_target(target, causal, asked):
    module = attention(setting=driven(target), dtype=torch.float32, self_attention=True, causal=True)
    x = torch.randn(24, 40, 12)
    padding = torch.zeros(40, 24, dtype=torch.bool)
    padding[10:, 15:] = True
    x[15:, 10:] = 5.0  # whose scores are unlike the others, and must not count
    module.train()
    for update in range(100):
        module.threshold.set_num_updates(update)
        module(x, x, x, key_padding_mask=padding, attn_mask=future(24) if causal else None, need_weights=asked)
    assert sparsity(module, x, padding, causal) == pytest.approx(target, abs=0.02)


def test_padded_queries_of_cross_attention_do_not_count():
    module = attention(setting=driven(0.5), dtype=torch.float32, encoder_decoder_attention=True).train()
    x, y = torch.randn(8, 4, 12), torch.randn(6, 4, 12)
    padded = torch.zeros(4, 8, dtype=torch.bool)
    padded[1:, 3:] = True
    other = copy.deepcopy(module)
    for one in (module, other):
        one.threshold.padded_queries = padded
    module(x, y, y, need_weights=False)
    x[3:, 1:] = 100.0
    other(x, y, y, need_weights=False)
    assert torch.allclose(module.threshold.theta, other.threshold.theta) and module.threshold.theta.std() > 0


def test_the_decoder_tells_its_thresholds_of_padding(build, batch):
    model = build("transformer_rela_g", rela_target_sparsity=0.9)
    model.train()(**batch)
    collected = [module.threshold.padded_queries for module in model.decoder.modules() if hasattr(module, "threshold")]
    assert len(collected) == 4 and all(torch.equal(padded, batch["prev_output_tokens"].eq(1)) for padded in collected)


def test_it_moves_only_in_training_and_once_an_update():
    module = attention(setting=driven(0.9), theta=None, dtype=torch.float32, self_attention=True)
    x = torch.randn(5, 3, 12, requires_grad=True)
    module(x, x, x, need_weights=False)
    module.train()
    with torch.no_grad():
        module(x, x, x, need_weights=False)
    assert not module.threshold.theta.any()
    again = copy.deepcopy(module)
    module(x, x, x, need_weights=False)[0].sum().backward()
    once = module.threshold.theta.clone()
    assert once.all()
    checkpoint_wrapper(again)(x, x, x, need_weights=False)[0].sum().backward()  # computed twice
    assert torch.equal(again.threshold.theta, once)


def test_it_leaves_alone_what_is_sparse_enough_while_the_target_rises():
    module = attention(setting=driven(0.9, warmup=100), theta=None, dtype=torch.float32, self_attention=True).train()
    x = torch.randn(5, 9, 12)
    for updates, moves in ((20, False), (99, True)):  # 18 % are less than there are anyway, 89 % are more
        module.threshold.set_num_updates(updates)
        module(x, x, x, need_weights=False)
        assert bool(module.threshold.theta.any()) is moves
    low = attention(setting=driven(0.1, warmup=0), theta=None, dtype=torch.float32, self_attention=True).train()
    low(x, x, x, need_weights=False)
    assert (low.threshold.theta < 0).all()


def test_the_target_is_reached_by_and_by():
    threshold = Threshold(1, driven(0.9, warmup=100))
    targets = []
    for updates in (0, 25, 50, 100, 5000):
        threshold.set_num_updates(updates)
        targets.append(threshold.target())
    assert targets == pytest.approx([0.0, 0.225, 0.45, 0.9, 0.9])
    assert Threshold(1, LEARNED).target() is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_small_steps_are_not_lost_in_half_precision(dtype):
    threshold = Threshold(2, driven(0.9)).to(dtype)
    assert threshold.theta.dtype == torch.float32
    assert [x.dtype for x in scored(threshold, *torch.ones(2, 1, 1, 4, dtype=dtype), 1.0)] == [dtype, dtype]
    assert Threshold(2, LEARNED).to(dtype).theta.dtype == dtype  # its small steps are the optimizer's to keep
    assert Threshold(2, driven(0.9)).double().theta.dtype == torch.float64


# bad values

TARGET_BOUNDS = "give a share of weights above 0 and below 1"


@pytest.mark.parametrize(
    "arch, flags, said",
    [
        ("rela_g", {"rela_threshold": "lern"}, "--rela-threshold lern: give a number or 'learn'"),
        ("rela_g", {"rela_threshold": "nan"}, "--rela-threshold nan: give a number or 'learn'"),
        ("rela_g", {"rela_target_sparsity": "most"}, "--rela-target-sparsity most: give a number"),
        ("rela_g", {"rela_target_sparsity": "1.2"}, f"--rela-target-sparsity 1.2: {TARGET_BOUNDS}"),
        ("rela_g", {"rela_target_sparsity": 1}, f"--rela-target-sparsity 1: {TARGET_BOUNDS}"),
        ("rela_g", {"rela_target_sparsity": 0.0}, f"--rela-target-sparsity 0.0: {TARGET_BOUNDS}"),
        ("rela_g", {"rela_target_sparsity": 0.9, "rela_sparsity_warmup": -1}, "--rela-sparsity-warmup -1: give"),
        ("rela_g", {"rela_target_sparsity": 0.9, "rela_sparsity_warmup": "long"}, "--rela-sparsity-warmup long: give"),
        ("rela_g", {"rela_sparsity_warmup": 9}, "--rela-sparsity-warmup goes with --rela-target-sparsity"),
        ("rela_g", {"rela_threshold": 1, "rela_target_sparsity": 0.9}, "both set the threshold; give one of them"),
        ("softmax", {"rela_threshold": "learn"}, "--rela-threshold: softmax cannot have a threshold"),
        ("entmax15", {"rela_target_sparsity": 0.9}, "--rela-target-sparsity: entmax15 cannot have a threshold"),
        ("rela_g_gelu", {"rela_target_sparsity": 0.9}, "weights of rela_g_gelu are not exactly 0"),
        ("rela_g", {"rela_target_sparsity": 0.9, "cross_self_attention": True}, "go with --cross-self-attention"),
    ],
)
@pytest.mark.parametrize("model", ["transformer", "transformer_lm"])
def test_bad_values_are_told_in_a_line(build, model, arch, flags, said):
    if model == "transformer_lm" and "cross_self_attention" in flags:
        pytest.skip("a language model has no cross attention")
    with pytest.raises(InputError) as error:
        build(f"{model}_{arch}", **flags)
    assert said in str(error.value) and "\n" not in str(error.value)


# whole trainings


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return corpus(tmp_path_factory.mktemp("threshold"), "--train", 300, "--valid", 20, "--test", 20, "--max-clauses", 1)


def zeros(data, checkpoint):
    """The share of exact zeros on the test set, by kind."""
    from fairseq import checkpoint_utils

    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    task.load_dataset("test")
    dataset = task.dataset("test")
    sample = dataset.collater([dataset[i] for i in range(len(dataset))])["net_input"]
    with record_attention(model.eval()) as rec, torch.no_grad():
        model(**sample)
    collected = {"encoder": [], "decoder": [], "cross": []}
    for sentence in rec.sentences(sample["src_tokens"], sample["prev_output_tokens"]):
        for kind, weights in sentence.items():
            visible = torch.ones(weights.shape[2:])
            visible = (visible.tril() if kind == "decoder" else visible) > 0
            collected[kind].append(torch.from_numpy(weights)[:, :, visible].flatten() == 0)
    return {kind: torch.cat(parts).float().mean().item() for kind, parts in collected.items()}


TARGETED = ["--rela-target-sparsity", 0.9, "--rela-sparsity-warmup", 30]


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["cross_entropy", "label_smoothed_cross_entropy"])
def test_trained_with_any_criterion_it_has_the_sparsity_asked_for(data, tmp_path, criterion, monkeypatch):
    if criterion == "cross_entropy":
        words = " ".join(fairseq_runs.TRAINING).replace("--label-smoothing 0.1", "")
        monkeypatch.setattr(fairseq_runs, "TRAINING", words.split())
    # slowly: early in a fast training attention changes as much from one update to the next as a threshold can follow
    slowly = ["--lr", 0.0005, "--dropout", 0, "--max-update", 150]
    fairseq_runs.fairseq_train(data, tmp_path, *TARGETED, *slowly, "--criterion", criterion)
    measured = zeros(data, tmp_path / "checkpoint_last.pt")
    assert all(abs(share - 0.9) < 0.03 for share in measured.values()), measured


def test_resumed_it_goes_on_bit_for_bit(data, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    flags = ["--rela-target-sparsity", 0.9, "--rela-sparsity-warmup", 4]
    fairseq_train(data, whole, *flags, "--max-update", 6)
    fairseq_train(data, parts, *flags, "--max-update", 3)
    fairseq_train(data, parts, *flags, "--max-update", 6)
    one, other = (torch.load(str(path / "checkpoint_last.pt"))["model"] for path in (whole, parts))
    assert any(name.endswith("threshold.theta") and value.any() for name, value in one.items())
    # `_float_tensor` is memory that fairseq 0.12.2 never writes to
    assert all(torch.equal(one[name], other[name]) for name in one if not name.endswith("_float_tensor"))


@pytest.mark.slow
def test_two_processes_drive_theirs(data, tmp_path):
    train_on_two(data, tmp_path, *TARGETED, "--max-update", 70)
    measured = zeros(data, tmp_path / "checkpoint_last.pt")
    assert all(share > 0.8 for share in measured.values()), measured


def test_a_fixed_one_can_be_tried_on_a_trained_model(data, tmp_path):
    fairseq_train(data, tmp_path, "--max-update", 5)
    checkpoint = tmp_path / "checkpoint_last.pt"

    def scores(*flags):
        lines = fairseq_generate(data, checkpoint, "--score-reference", *flags)
        return [float(fields[0]) for _, fields in sorted(tagged(lines, "H").items())]

    plain = scores()
    assert scores("--model-overrides", "{'rela_threshold': 0.0}") == pytest.approx(plain, abs=1e-3)
    assert scores("--model-overrides", "{'rela_threshold': 2.0}") != pytest.approx(plain, abs=1e-3)

"""Attention modules compute by the kernels what they compute by tiles. Triton's interpreter stands in for a GPU."""

from argparse import Namespace

import pytest
import torch
from kernel_reference import INTERPRETED, pass_by_the_interpreter

from fairseq_rela.attention import kernels

runs = pytest.mark.skipif(not INTERPRETED, reason="runs in a process of its own, by the interpreter")


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETED, reason="the tests below run in this process")
def test_all_below_by_the_interpreter():
    pass_by_the_interpreter(__file__, 26)


def outputs(name, kind, threshold):
    """The output of an attention of two heads of width 32, and every gradient."""
    from fairseq_rela.attention.multihead import RelaMultiheadAttention

    torch.manual_seed(0)
    options = {"self_attention": True, "causal": True} if kind == "causal" else {"encoder_decoder_attention": True}
    module = RelaMultiheadAttention(name, 64, 2, threshold=threshold, **options)
    # With a bias of 0, the centred key of the first query is 0, and its unit size makes rounding 1,000 times as large.
    torch.nn.init.normal_(module.k_proj.bias)
    x, y = torch.randn(5, 2, 64, requires_grad=True), torch.randn(7, 2, 64, requires_grad=True)
    if kind == "causal":
        y = x
    padding = torch.zeros(2, len(y), dtype=torch.bool)
    padding[1, -2:] = True
    mask = torch.zeros(1, 1).expand(5, 5) if kind == "causal" else None
    out, _ = module(x, y, y, key_padding_mask=padding, attn_mask=mask, need_weights=False)
    out[:3].square().sum().backward()
    return [out, x.grad, y.grad, *(parameter.grad for parameter in module.parameters())]


def counted(monkeypatch):
    """The calls of the attention kernel."""
    calls = []
    attention = kernels.attention
    monkeypatch.setattr(kernels, "attention", lambda *args: calls.append(args) or attention(*args))
    return calls


def assert_alike(by_kernels, by_tiles):
    for kernel, tile in zip(by_kernels, by_tiles):
        assert torch.allclose(kernel, tile, rtol=1e-4, atol=1e-5 * tile.abs().max().item() + 1e-7)


@runs
@pytest.mark.parametrize("kind", ["cross", "causal"])
@pytest.mark.parametrize(
    "name, threshold",
    [
        ("rela_g", None),
        ("rela_g", {"value": "learn"}),
        ("rela_i", None),
        ("rela_gc", None),
        ("rela_gc", {"value": "learn"}),
        ("rela_gc", {"target": 0.9}),
        ("rexa", None),
        ("rexa", {"value": "learn"}),
    ],
)
def test_the_same_by_kernels_and_by_tiles(name, threshold, kind, monkeypatch):
    from fairseq_rela.attention.threshold import ThresholdSetting

    setting = ThresholdSetting(**threshold) if threshold else None
    calls = counted(monkeypatch)
    by_kernels = outputs(name, kind, setting)
    assert len(calls) == 1
    monkeypatch.setenv(kernels.SWITCH, "0")
    by_tiles = outputs(name, kind, setting)
    assert len(calls) == 1
    assert_alike(by_kernels, by_tiles)


def decoded(name, causal):
    """What three steps of a search give, of two sentences with two hypotheses each."""
    from fairseq_rela.attention.multihead import RelaMultiheadAttention

    torch.manual_seed(0)
    kind = {"self_attention": True, "causal": True} if causal else {"encoder_decoder_attention": True}
    module = RelaMultiheadAttention(name, 64, 2, **kind).eval()
    module.set_beam_size(2)
    steps, encoded = torch.randn(3, 4, 64), torch.randn(6, 2, 64).repeat_interleave(2, dim=1)
    padding, state = torch.tensor([[0] * 6, [0] * 4 + [1, 1]]).repeat_interleave(2, dim=0) > 0, {}
    found = []
    with torch.no_grad():
        for x in steps.split(1):
            inputs = (x, x, x) if causal else (x, encoded, encoded, padding)
            found.append(module(*inputs, incremental_state=state, need_weights=False, static_kv=not causal)[0])
    return found


@runs
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ["rela_g", "rela_gc", "rexa"])
def test_a_search_by_kernels(name, causal, monkeypatch):
    calls = counted(monkeypatch)
    by_kernels = decoded(name, causal)
    assert len(calls) == 3
    monkeypatch.setenv(kernels.SWITCH, "0")
    assert_alike(by_kernels, decoded(name, causal))
    assert len(calls) == 3


@runs
def test_a_module_is_compiled_in_one_graph():
    from fairseq_rela.attention.multihead import RelaMultiheadAttention

    torch.manual_seed(0)
    module = RelaMultiheadAttention("rela_gc", 64, 2, self_attention=True, causal=True)
    x = torch.randn(5, 2, 64, requires_grad=True)
    mask = torch.zeros(5, 5)

    def with_gradients(function):
        out, _ = function(x, x, x, attn_mask=mask, need_weights=False)
        return (out, *torch.autograd.grad(out.square().sum(), [x, *module.parameters()]))

    graph = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert_alike(with_gradients(graph), with_gradients(module))


@runs
def test_data_parallel(tmp_path):
    import torch.distributed as distributed
    from torch.nn.parallel import DistributedDataParallel

    from fairseq_rela.attention.multihead import RelaMultiheadAttention

    torch.manual_seed(0)
    module = RelaMultiheadAttention("rela_g", 64, 2, encoder_decoder_attention=True)
    x = torch.randn(3, 2, 64)

    def gradients(function):
        module.zero_grad()
        function(x, x, x, need_weights=False)[0].square().sum().backward()
        return [p.grad.clone() for p in module.parameters()]

    alone = gradients(module)
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert_alike(gradients(DistributedDataParallel(module)), alone)
    finally:
        distributed.destroy_process_group()


@runs
@pytest.mark.parametrize("flags", [["--fp16", "--fp16-no-flatten-grads", "--fp16-init-scale", 4], ["--bf16"]])
def test_a_training_in_half_precision(flags, tmp_path, plugin, monkeypatch):
    import fairseq_runs
    from fairseq import options
    from fairseq_cli import preprocess
    from fairseq_runs import fairseq_train, toy_text
    from kernel_interpreter import mend_bfloat16

    mend_bfloat16()
    if not torch.cuda.is_available():  # fairseq puts numbers on a GPU, whatever the device
        monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor, *_, **__: tensor)
    text = toy_text(tmp_path, "--train", 8, "--valid", 3, "--test", 3, "--max-clauses", 1)
    files = [f"--{split}pref={text / split}" for split in ("train", "valid", "test")]
    words = ["-s", "src", "-t", "tgt", *files, "--destdir", str(tmp_path / "bin"), "--workers", "1"]
    preprocess.main(options.get_preprocessing_parser().parse_args(words))
    small = [
        f"--{side}-{name}" for side in ("encoder", "decoder") for name in ("embed-dim", "layers", "attention-heads")
    ]
    sizes = [word for pair in zip(small, [32, 1, 1] * 2) for word in pair]
    calls = counted(monkeypatch)
    convert = fairseq_runs.convert_namespace_to_omegaconf  # fairseq-train takes --bf16 for a TPU
    monkeypatch.setattr(fairseq_runs, convert.__name__, lambda args: convert(Namespace(**{**vars(args), "tpu": False})))
    updates = ["--max-update", 2, "--max-tokens", 60, "--disable-validation", "--checkpoint-activations"]
    fairseq_train(tmp_path / "bin", tmp_path, *sizes, *flags, *updates, arch="transformer_rela_gc_tiny")
    dtype = torch.float16 if "--fp16" in flags else torch.bfloat16
    assert len(calls) >= 2 * 3 * 2 and all(q.dtype == dtype for q, *_ in calls)  # activations are computed twice
    state = torch.load(str(tmp_path / "checkpoint_last.pt"), map_location="cpu")
    assert all(torch.isfinite(weight).all() for name, weight in state["model"].items() if "_float_tensor" not in name)

"""A training in half precision goes on after an overflow: fairseq lowers the scale of its loss, on a CPU too."""

import logging
import re

import pytest
import torch
from fairseq import options
from fairseq.optim.fp16_optimizer import FP16Optimizer
from fairseq_cli import preprocess
from fairseq_runs import fairseq_train, toy_text

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.__version__ < "2", reason="this torch has no float16 bmm on a CPU"),
]

HALF = ["--fp16", "--fp16-no-flatten-grads"]
SMALL = ["--encoder-embed-dim", 16, "--decoder-embed-dim", 16, "--encoder-ffn-embed-dim", 32, "--max-update", 6]
SMALL += ["--encoder-attention-heads", 2, "--decoder-attention-heads", 2, "--no-epoch-checkpoints"]
UPDATES = 6


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("corpus")
    text = toy_text(directory, "--train", 60, "--valid", 9, "--test", 9, "--max-clauses", 1)
    files = [f"--{split}pref={text / split}" for split in ("train", "valid", "test")]
    arguments = ["-s", "src", "-t", "tgt", *files, "--destdir", str(directory / "bin"), "--workers", "1"]
    preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
    return directory / "bin"


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    """After an overflow fairseq's trainer moves a number to the GPU, on any device. Here it stays where it is."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor, *_, **__: tensor)


def overflows(caplog):
    """The scales of the loss that fairseq set after an overflow."""
    scales = (re.search(r"overflow detected.*loss scale to: ([\d.]+)", r.getMessage()) for r in caplog.records)
    return [float(match[1]) for match in scales if match]


def assert_trained(save):
    state = torch.load(str(save / "checkpoint_last.pt"), map_location="cpu")
    assert state["optimizer_history"][-1]["num_updates"] == UPDATES
    assert all(torch.isfinite(weight).all() for name, weight in state["model"].items() if "_float_tensor" not in name)


@pytest.mark.parametrize("arch", ["transformer_rela_g_tiny", "transformer_rela_gc_tiny", "transformer_softmax_tiny"])
def test_a_loss_that_is_scaled_too_much(data, tmp_path, caplog, plugin, arch):
    """The gradients of the first steps overflow; fairseq halves the scale each time, and the training goes on."""
    flags = [*HALF, "--fp16-init-scale", 2**24, "--task", "translation_attention", "--attn-stats"]
    with caplog.at_level(logging.INFO):
        fairseq_train(data, tmp_path, *SMALL, *flags, arch=arch)
    scales = overflows(caplog)
    assert scales and scales == [2.0 ** (23 - step) for step in range(len(scales))]
    assert_trained(tmp_path)
    assert not [r for r in caplog.records if "NaN or infinite" in r.getMessage()], "weights and heads stayed finite"


def test_one_batch_that_overflows_in_the_middle(data, tmp_path, caplog, plugin, monkeypatch):
    """Its update is skipped, the scale is halved once, and the number of updates is what was asked for."""
    steps, original = [], FP16Optimizer.backward

    def backward(self, loss):
        steps.append(1)
        original(self, loss * float("inf") if len(steps) == 3 else loss)

    monkeypatch.setattr(FP16Optimizer, "backward", backward)
    with caplog.at_level(logging.INFO):
        fairseq_train(data, tmp_path, *SMALL, *HALF, "--fp16-init-scale", 4, "--disable-validation")
    assert overflows(caplog) == [2.0] and len(steps) == UPDATES + 1
    assert_trained(tmp_path)

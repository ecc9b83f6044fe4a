"""What a GPU is told to do in a step, counted without one: how many kernels are launched, and nothing is waited for.

The modules run on torch's device `meta`, whose tensors have no numbers. Whoever asks for one gets an error.
"""

import pytest
import torch
from fairseq.modules import MultiheadAttention

from fairseq_rela.attention import kernels
from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.attention.threshold import ThresholdSetting

if not kernels.available():
    pytest.skip("Triton, or a torch for it, is not installed", allow_module_level=True)

from kernel_launches import Launches, decoding_step, training_step

# operators that wait for a device, or whose result has a shape that depends on numbers
WAITING = {"_local_scalar_dense", "item", "nonzero", "is_nonzero", "masked_select", "unique", "_unique2", "equal"}
MASKS = {"masked_fill", "masked_fill_", "where", "triu", "tril"}
DRIVEN = ThresholdSetting(target=0.9, warmup=0)


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    monkeypatch.setattr(kernels, "runs_on", lambda device: True)


def attention(name, static=False, causal=False, threshold=None, dtype=torch.float16):
    kind = {"encoder_decoder_attention": True} if static else {"self_attention": True}
    if name == "stock":
        return MultiheadAttention(64, 2, **kind).to("meta", dtype).eval()
    module = RelaMultiheadAttention(name, 64, 2, dropout=0.1, causal=causal, threshold=threshold, **kind)
    return module.to("meta", dtype)


# as docs/gpu.md says
@pytest.mark.parametrize(
    "name, itself, cross",
    [("rela_g", 8, 4), ("rela_i", 8, 4), ("rela_gc", 26, 5), ("rexa", 29, 8), ("stock", 12, 10)],
)
def test_launches_of_a_step_of_beam_search(name, itself, cross):
    found = [decoding_step(attention(name, static, causal=not static).eval(), static) for static in (False, True)]
    assert [len(names) for names in found] == [itself, cross]
    if name != "stock":  # whose softmax needs the mask at every step
        assert not MASKS & {*found[0], *found[1]} and [names.count("attention") for names in found] == [1, 1]


@pytest.mark.parametrize("static", [False, True])
def test_hypotheses_of_one_sentence_share_its_keys(static):
    """Queries and heads are copied into their order and back, and there is still one kernel."""
    names = decoding_step(attention("rela_g", static, causal=not static).eval(), static, beam=2)
    assert len(names) == (6 if static else 8) and names.count("attention") == 1


@pytest.mark.parametrize("name, forward, both", [("rela_g", 7, 30), ("rela_gc", 24, 66), ("rexa", 27, 70)])
def test_launches_of_a_training_step(name, forward, both):
    found = training_step(attention(name, causal=True).train(), causal=True)
    assert [len(names) for names in found] == [forward, both]


@pytest.mark.parametrize("threshold", [None, ThresholdSetting(0.1), ThresholdSetting("learn"), DRIVEN])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["rela_g", "rela_i", "rela_gc", "rexa"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_training_step_is_by_kernels_and_waits_for_nothing(name, causal, threshold, dtype):
    _, names = training_step(
        attention(name, causal=causal, threshold=threshold, dtype=dtype).train(), causal, dtype=dtype
    )
    assert names.count("attention") == 1 and names.count("attention_gradients") == 2
    assert not WAITING & {*names}


def seen(function):
    """Whether the tests above would see that this waits: it fails without numbers, or its operator is known."""
    try:
        with Launches() as found:
            function(torch.ones(1, device="meta"))
    except RuntimeError:  # what torch raises where a number is asked for that is not there
        return True
    return bool(WAITING & {*found.names})


def test_a_wait_would_be_seen():
    waits = (torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.nonzero, torch.Tensor.cpu, bool, int, float)
    assert [seen(wait) for wait in waits] == [True] * len(waits)
    assert not seen(torch.relu)


def test_rows_are_aligned_whatever_stands_beside_them(monkeypatch):
    """Queries and keys of a threshold or of centred keys keep strides that 16 bytes divide: what was compiled."""
    calls = []
    original = kernels.attention
    monkeypatch.setattr(kernels, "attention", lambda *args: calls.append(args) or original(*args))
    for name, threshold in (("rela_g", ThresholdSetting("learn")), ("rela_gc", None), ("rela_gc", DRIVEN)):
        training_step(attention(name, causal=True, threshold=threshold).train(), causal=True)
    for q, k, v, *_ in calls:
        assert all(stride % 8 == 0 for x in (q, k, v) for stride in x.stride()[:2])
    assert len(calls) == 3

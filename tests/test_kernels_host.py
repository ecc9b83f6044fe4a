"""What surrounds the kernels and needs neither GPU nor Triton's interpreter: when they are used, what they read on the
way, and how random their dropout is."""

import itertools
import subprocess
import sys

import pytest
import torch
from kernel_dropout import dropout_mask

from fairseq_rela.attention import kernels

needs_triton = pytest.mark.skipif(not kernels.available(), reason="Triton, or a torch for it, is not installed")


def tensors(width=64, dtype=torch.float16, keys=5, v_width=None):
    return [torch.zeros(2, n, w, dtype=dtype) for n, w in ((3, width), (keys, width), (keys, v_width or width))]


@pytest.fixture
def on_a_gpu(monkeypatch):
    """CPU tensors count as if they were on a GPU, with Triton."""
    monkeypatch.setattr(kernels, "runs_on", lambda device: True)
    monkeypatch.setattr(kernels, "available", lambda: True)


def test_chosen_by_dtype_shape_and_activation(on_a_gpu):
    assert kernels.usable(*tensors(), "relu")
    assert all(kernels.usable(*tensors(width), "relu") for width in (32, 64, 128))
    assert all(kernels.usable(*tensors(dtype=dtype), "relu") for dtype in (torch.bfloat16, torch.float32))
    assert kernels.usable(*tensors(), "rectified_exp")
    assert not kernels.usable(*tensors(), "gelu")
    assert not kernels.usable(*tensors(dtype=torch.float64), "relu")
    assert not kernels.usable(*tensors(width=48), "relu")
    assert not kernels.usable(*tensors(width=65, v_width=64), "relu")
    assert not kernels.usable(*tensors(keys=0), "relu")
    q, k, v = tensors()
    assert not kernels.usable(q, k, v.float(), "relu")
    assert kernels.norm_usable(torch.zeros(3, 512), torch.ones(512))
    assert not kernels.norm_usable(torch.zeros(3, 5000), torch.ones(5000))
    assert not kernels.norm_usable(torch.zeros(0, 512), torch.ones(512))


def test_turned_off_by_a_variable(on_a_gpu, monkeypatch):
    monkeypatch.setenv("FAIRSEQ_RELA_KERNELS", "0")
    assert not kernels.usable(*tensors(), "relu")
    assert not kernels.norm_usable(torch.zeros(3, 512), torch.ones(512))


def test_not_on_a_cpu(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    kernels.runs_on.cache_clear()
    assert not kernels.usable(*tensors(), "relu")


def test_without_triton():
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "from fairseq_rela.attention import kernels\n"
        "assert not kernels.available()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_triton_is_not_imported_before_it_is_needed():
    code = "import sys\nfrom fairseq_rela.attention import kernels\nassert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


class Launches:
    """In the place of a kernel: counts its launches."""

    def __init__(self):
        self.count = 0

    def __getitem__(self, grid):
        assert grid[0] > 0
        return self

    def __call__(self, *args, **options):
        self.count += 1


# what waits for a device: Python's ways to a tensor's numbers, and shapes that depend on them
WAITING = ("item", "tolist", "cpu", "numpy", "nonzero", "unique", "__int__", "__float__", "__bool__", "__index__")


@pytest.fixture
def reads(monkeypatch):
    """The calls of those, as (name, dtype)."""
    actual = []

    def watched(name):
        method = getattr(torch.Tensor, name)

        def call(tensor, *args, **options):
            actual.append((name, tensor.dtype))
            return method(tensor, *args, **options)

        return call

    for name in WAITING:
        monkeypatch.setattr(torch.Tensor, name, watched(name))
    return actual


@needs_triton
@pytest.mark.parametrize("activation", kernels.SHARP)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_step_waits_for_no_device(monkeypatch, reads, dropout, activation):
    from fairseq_rela.attention.kernels import backward, forward, norm

    launches = Launches()
    for module, name in (
        (forward, "forward"),
        (backward, "query_gradients"),
        (backward, "key_gradients"),
        (norm, "norm_forward"),
        (norm, "norm_backward"),
    ):
        monkeypatch.setattr(module, name, launches)
    q, k, v = (x.requires_grad_() for x in tensors())
    terms = torch.zeros(2, 3).requires_grad_(), torch.zeros(2, 5).requires_grad_()
    gate, gain = (torch.zeros(64).requires_grad_() for _ in range(2))
    heads = kernels.attention(q, k, v, *terms, dropout=dropout, activation=activation)
    kernels.gated_rms_norm(heads, gate, gain, 1e-8, torch.float16).sum().backward()
    assert launches.count == 5  # of kernels, in one step
    # the seed of the dropout alone, which never leaves the CPU: int64, once in each pass
    assert reads == [("__int__", torch.int64)] * (2 if dropout else 0)


# --- dropout: the deviations expected of independent draws, and 5 of them allowed

HEADS, ROWS, COLUMNS = 16, 256, 256


@pytest.fixture(scope="module", params=[0.1, 0.5])
def masks(request):
    """What is dropped, less its mean, in units of its deviation: (seeds, heads, rows, columns) and the probability."""
    p = request.param
    kept = torch.stack([dropout_mask(seed, HEADS, ROWS, COLUMNS, p) for seed in (0, 1, 2, 2**31 - 1)])
    return ((~kept).float() - p) / (p * (1 - p)) ** 0.5


def correlation(x, y):
    """In deviations of that of independent numbers."""
    return float((x * y).mean() * x.numel() ** 0.5)


def test_share_of_dropped_weights(masks):
    assert abs(float(masks.mean()) * masks.numel() ** 0.5) < 5
    for dim in (-1, -2):  # sums of rows and of columns: neither too uneven nor too even
        sums = masks.sum(dim) / masks.size(dim) ** 0.5
        assert sums.abs().max() < 6
        variance = float(sums.var())
        assert abs(variance - 1) < 5 * (2 / sums.numel()) ** 0.5


@pytest.mark.parametrize("dim", [0, 1, 2, 3], ids=["seeds", "heads", "rows", "columns"])
def test_neighbours_are_independent(masks, dim):
    for apart in (1, 2) if dim == 0 else (1, 2, 7, 8):
        near = masks.narrow(dim, 0, masks.size(dim) - apart)
        far = masks.narrow(dim, apart, masks.size(dim) - apart)
        assert abs(correlation(near, far)) < 5


def test_corners_of_rectangles_are_independent(masks):
    """A row's number and a column's are combined by XOR: what is left of that relation would show here."""
    for down, right in itertools.product((1, 3, 16, 64), (1, 5, 16, 128)):
        a, b = masks[..., :-down, :-right], masks[..., down:, right:]
        c, d = masks[..., down:, :-right], masks[..., :-down, right:]
        assert abs(correlation(a * b, c * d)) < 5
        assert abs(correlation(a, b)) < 5 and abs(correlation(a * b, c)) < 5


def test_a_mask_differs_from_its_transpose(masks):
    assert abs(correlation(masks.triu(1), masks.transpose(2, 3).triu(1))) < 5

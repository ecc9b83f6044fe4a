"""Large tensors, some rows at a time, so that on a CPU several operations find them in its cache."""

from typing import Iterable, Tuple

from torch import Tensor

ELEMENTS = 2**17  # of one tensor at a time: 512 kB of float32


def row_parts(*tensors: Tensor) -> Iterable[Tuple[Tensor, ...]]:
    """The tensors (…, d_i), which have the same rows: some rows (n, d_i) of each at a time. A GPU gets all at once.

    A part of a contiguous tensor is a view of it, so what is written there is written to the tensor.
    """
    flat = [x.reshape(-1, x.size(-1)) for x in tensors]
    whole = max(1, len(flat[0]))
    rows = max(1, ELEMENTS // flat[0].size(1)) if flat[0].device.type == "cpu" else whole
    return zip(*(x.split(rows) for x in flat))

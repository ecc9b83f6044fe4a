"""Table 4: the paper's counts of operations, and beside them measured times.

python table4.py [--lengths 100 1000] [--repeats 5] [--device cpu]

What is measured is attention of 8 heads of width 64 from queries, keys and values to the normalised heads, in the
forward pass, without the projections, which both have. ReLA-g's time includes its norm and its gate.
"""

import argparse
import statistics
from typing import Callable, Dict, List

import operations
import recipe

HEADS, WIDTH = 8, 64


def counted(lengths: List[int]) -> List[str]:
    """The paper's formulas at these lengths."""
    lines = ["operations\tsoftmax (3HT² − HT)\tReLA-g (HT² + 10Td + T)"]
    lines += [f"T = {length:,}\t{operations.softmax(length):,}\t{operations.rela_g(length):,}" for length in lengths]
    return [*lines, f"equal at T = {operations.crossing():.1f} (H = {HEADS}, d = {HEADS * WIDTH})"]


def contenders(length: int, device) -> Dict[str, Callable[[], object]]:
    """Softmax by torch, ReLA-g with norm and gate, and the same without them."""
    import torch

    from fairseq_rela.attention.norms import NORMS
    from fairseq_rela.bench.op import rectified, sdpa

    torch.manual_seed(1)
    q, k, v = (torch.randn(1, HEADS, length, WIDTH, device=device) for _ in range(3))
    norm = NORMS["gated_rmsnorm"](HEADS * WIDTH, WIDTH).to(device)

    def with_norm() -> object:
        return norm(rectified(q, k, v, False).permute(2, 0, 1, 3).reshape(length, 1, -1))

    return {
        "softmax": lambda: sdpa(q, k, v, False),
        "ReLA-g with norm and gate": with_norm,
        "ReLU alone": lambda: rectified(q, k, v, False),
    }


def measured(lengths: List[int], repeats: int, device_name: str) -> List[str]:
    """One line per length: the median of each contender, in milliseconds."""
    import torch

    from fairseq_rela.bench.hardware import device_name as described
    from fairseq_rela.bench.timing import interleaved

    device, lines = torch.device(device_name), []
    for length in lengths:
        with torch.no_grad():
            times = interleaved(contenders(length, device), repeats, device)
        if not lines:
            lines.append("\t".join(["milliseconds", *times]))
        lines.append("\t".join([f"T = {length:,}", *(f"{1e3 * statistics.median(t):.3f}" for t in times.values())]))
    return [*lines, f"one sentence, forward pass, median of {repeats}; {described(device)}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[100, 1000], metavar="T")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if min(args.repeats, *args.lengths) < 1:
        recipe.fail("LENGTHS and REPEATS must be at least 1")
    print("\n".join(counted(args.lengths)), flush=True)
    print("\n".join(measured(args.lengths, args.repeats, args.device)))


if __name__ == "__main__":
    main()

"""Run a command of fairseq with oneDNN's matrix products instead of MKL's.

python onednn.py fairseq-train …

Both compute in float32. They round differently, so a run repeats to the last digit only with the same one. On a CPU
where MKL does not use AVX-512, such as AMD's, oneDNN's products are more than twice as fast.

This script imports nothing of fairseq_rela: fairseq registers nothing for a user dir that was imported before.
"""

import os
import runpy
import shutil
import sys
from typing import List, NoReturn

import torch


def fail(message: str) -> NoReturn:
    """End with one line on stderr and exit status 1."""
    sys.exit(f"{os.environ.get('RECIPE') or 'onednn.py'}: {message}")


def in_float32() -> bool:
    """Whether a product keeps all digits of float32. 1 + 2⁻¹² has too many for bfloat16."""
    value = 1 + 2**-12
    product = torch.full((256, 128), value) @ torch.ones(128, 256)
    return bool(torch.all(product == 128 * value))


def use_onednn() -> None:
    """Make torch take oneDNN's products. Fails where it cannot, or where they would not be in float32."""
    try:
        # torch takes oneDNN's products only where bfloat16 is allowed. A CPU without AMX still computes in float32.
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    except (AttributeError, RuntimeError):
        fail(f"PRODUCTS=onednn needs torch 2.9 or newer, this is {torch.__version__}; leave PRODUCTS out")
    if not in_float32():
        fail("PRODUCTS=onednn would round to bfloat16 on this CPU, which has AMX; leave PRODUCTS out")


def main(words: List[str]) -> None:
    script = shutil.which(words[0]) if words else None
    if script is None:
        fail(f"no command '{' '.join(words[:1])}'; give fairseq-train …")
    use_onednn()
    sys.argv, sys.path[0] = words, os.path.dirname(script)  # as if the command had been called without this script
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Print the directory to give to fairseq's --user-dir, wherever the package is installed.

fairseq-train DATA --user-dir "$(fairseq-rela user-dir)" --arch transformer_rela_g \\
  --required-batch-size-multiple 1 …
"""

import argparse
import os

import fairseq_rela


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> None:
    print(os.path.dirname(os.path.abspath(fairseq_rela.__file__)))

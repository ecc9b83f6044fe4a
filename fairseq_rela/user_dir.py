"""Print the directory to give to fairseq's --user-dir, wherever the package is installed.

    fairseq-train DATA --user-dir "$(fairseq-rela user-dir)" --arch transformer_rela_g
"""

import argparse
import os


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> None:
    print(os.path.dirname(os.path.abspath(__file__)))

"""One set of word links from those of both directions of an aligner, printed.

python joined_links.py METHOD FORWARD REVERSE       METHOD: intersect, union, grow-diag or grow-diag-final-and

Both files have the source's word first, as eflomal writes them.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import recipe

from fairseq_rela.analysis.links import pharaoh, read_links
from fairseq_rela.analysis.symmetrization import METHODS
from fairseq_rela.errors import InputError


def main(method: str, *paths: str) -> None:
    if method not in METHODS:
        raise InputError(f"SYMMETRIZE={method} is not known; give {', '.join(METHODS)}")
    forward, reverse = (read_links(path) for path in paths)
    if len(forward) != len(reverse):
        raise InputError(f"{paths[0]} has {len(forward)} lines, but {paths[1]} has {len(reverse)}")
    for there, back in zip(forward, reverse):
        print(pharaoh(METHODS[method](there.possible, back.possible)))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except InputError as error:
        recipe.fail(error)

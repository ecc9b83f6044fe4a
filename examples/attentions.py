"""Names of attentions, from the package's catalog.

python attentions.py table1                 the rows of the paper's Table 1, one name per line: row 1 first
python attentions.py known NAME ...         fails if a NAME is not an attention that can be trained
"""

import sys
from typing import List

import recipe

from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.kinds import KINDS


def one_kind_only() -> List[str]:
    """Rows 11 to 13 of Table 1: rela_g in one kind of attention, softmax in the others."""
    return [f"rela_g_{kind}_only" for kind in KINDS]


def table1() -> List[str]:
    """The names of rows 1 to 13. Rows of the catalog that are not in the paper are left out."""
    rows = {row.table1_row: name for name, row in CATALOG.items() if row.table1_row}
    return [*(rows[number] for number in sorted(rows)), *one_kind_only()]


def require_known(names: List[str]) -> None:
    known = [*CATALOG, *one_kind_only()]
    for name in names:
        if name not in known:
            recipe.fail(f"unknown attention '{name}'; known are {', '.join(known)}")


if __name__ == "__main__":
    if sys.argv[1:] == ["table1"]:
        print("\n".join(table1()))
    elif sys.argv[1:2] == ["known"]:
        require_known(sys.argv[2:])
    else:
        sys.exit(__doc__)

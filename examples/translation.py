"""Print the translations of a fairseq-generate log in the order of the test set.

python translation.py GENERATE_LOG REFERENCE > TRANSLATION
"""

import sys
from typing import List

import recipe


def translations(log: str) -> List[str]:
    """The detokenised hypotheses ("D-NUMBER<tab>score<tab>text") by their number."""
    by_number = {}
    with open(log, encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            if line.startswith("D-"):
                tag, _, text = line.rstrip("\n").split("\t", 2)
                by_number[int(tag[2:])] = text
    return [by_number[number] for number in sorted(by_number)]


def main(log: str, reference: str) -> None:
    lines = translations(log)
    with open(reference, "rb") as file:
        expected = sum(1 for _ in file)
    if len(lines) != expected:
        recipe.fail(
            f"the translation has {len(lines)} lines and {reference} has {expected}: "
            f"fairseq-generate left sentences out, see {log}"
        )
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

"""Word links in the Pharaoh format: one line per sentence, `i-j` for a sure link, `ipj` for a possible one (talp)."""

import re
from typing import FrozenSet, List, NamedTuple, Optional, Tuple

from fairseq_rela.analysis.lines import text_lines
from fairseq_rela.errors import InputError

Links = FrozenSet[Tuple[int, int]]  # (source word, target word), counted from 0
_LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})")  # no sentence has more words


class Gold(NamedTuple):
    """Gold links made by people: the sure ones, and the possible ones, which include the sure ones."""

    sure: Links
    possible: Links


def reversed_links(links: Links) -> Links:
    """The same links with the target's word first."""
    return frozenset((target, source) for source, target in links)


def reversed_gold(gold: Gold) -> Gold:
    """The same gold links for a translation in the other direction."""
    return Gold(reversed_links(gold.sure), reversed_links(gold.possible))


def parsed_links(line: str, base: int = 0, reverse: bool = False, where: str = "links") -> Gold:
    """The links in `line`, which counts words from `base`. With `reverse` the target's index comes first."""
    sure, possible = set(), set()
    for word in line.split():
        match = _LINK.fullmatch(word)
        if not match:
            raise InputError(
                f"{where}: {word[:40]!r} is not a link; links are written i-j (sure) or ipj (possible), and "
                f"i and j have at most 9 digits"
            )
        first, second = int(match[1]) - base, int(match[3]) - base
        if first < 0 or second < 0:
            raise InputError(f"{where}: link {word} has index 0, but indices should count from {base}")
        link = (second, first) if reverse else (first, second)
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


def read_links(path: str, base: int = 0, reverse: bool = False) -> List[Gold]:
    """The links of every line of `path`; an empty line is a sentence without links."""
    return [parsed_links(line, base, reverse, f"{path}, line {number}") for number, line in text_lines(path)]


def check_links(
    gold: Gold, source_words: int, target_words: int, where: str, text: str = "the dump's sentence", flags: str = "gold"
) -> None:
    """InputError if a link is outside of the sentence pair: another text, or words counted differently.

    `where` names the links, `text` what they should fit, `flags` the flags that say how to read them.
    """
    beyond: Optional[Tuple[int, int]] = next(
        (link for link in sorted(gold.possible) if link[0] >= source_words or link[1] >= target_words), None
    )
    if beyond:
        raise InputError(
            f"{where}: source word {beyond[0]} is linked to target word {beyond[1]} (counted from 0), but {text} "
            f"has {source_words} source and {target_words} target words; "
            f"is --{flags}-base or --{flags}-reverse wrong?"
        )


def pharaoh(links: Links, base: int = 0) -> str:
    """`links` as a Pharaoh line, in the order of the source."""
    return " ".join(f"{source + base}-{target + base}" for source, target in sorted(links))

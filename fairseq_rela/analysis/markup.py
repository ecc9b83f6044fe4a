"""Inline tags in a line of text, such as `<b>…</b>` and `<x/>`: which words each of them is around.

A tag is written as in XML: `<name>`, `</name>`, `<name/>`, with attributes in quotes. Everything else is text: `a < b`,
`<3`, `&`, `&lt;`. Words are what spaces separate once the tags are removed. A tag inside a word is that of the whole
word.

A start tag and the next end tag of its name that is still free make an element. Elements may cross. A tag without its
other half stands alone, as an empty tag does.
"""

import bisect
import re
from typing import Dict, List, NamedTuple, Tuple

_NAME = r"[A-Za-z_][\w.:-]*"
_ATTRIBUTE = rf"""\s+{_NAME}\s*=\s*(?:"[^"<]*"|'[^'<]*')"""
_TAG = re.compile(rf"<(?:/(?P<end>{_NAME})\s*|(?P<start>{_NAME})(?:{_ATTRIBUTE})*\s*(?P<empty>/?))>")


class Element(NamedTuple):
    """A start tag with its end tag, around the words `first` to `last`; around none if `last` is before `first`."""

    start: str
    end: str
    first: int
    last: int
    order: int  # the number of its start tag in the line
    end_order: int
    inside: Tuple[int, ...]  # the orders of the elements that are open where it begins


class LoneTag(NamedTuple):
    """A tag that is around nothing, before word number `gap`."""

    text: str
    gap: int
    follows: bool  # it belongs to the word before it rather than to the word after it
    order: int
    inside: Tuple[int, ...]


class Markup(NamedTuple):
    """A line: its words and its tags, in the order of the start tags."""

    words: List[str]
    elements: List[Element]
    alone: List[LoneTag]


class _Tag(NamedTuple):
    text: str
    name: str
    kind: str  # "start", "end", "empty"
    at: int  # the number of characters of text before it


def without_tags(line: str) -> str:
    """The words of a line, separated by single spaces."""
    return " ".join(_TAG.sub("", line).split())


def parsed_markup(line: str) -> Markup:
    """The words and the tags of a line."""
    text, tags = _split(line)
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    begins, ends = [begin for begin, _ in spans], [end for _, end in spans]
    partner = _partners(tags)
    markup = Markup(text.split(), [], [])
    opened: List[int] = []
    for order, tag in enumerate(tags):
        gap = bisect.bisect_right(ends, tag.at)  # the words that end before the tag
        other = partner.get(order)
        if other is None:
            ends_a_word = gap > 0 and ends[gap - 1] == tag.at
            follows = tag.kind == "end" or (tag.kind == "empty" and ends_a_word)
            markup.alone.append(LoneTag(tag.text, gap, follows, order, tuple(opened)))
        elif other > order:
            last = bisect.bisect_left(begins, tags[other].at) - 1 if tags[other].at > tag.at else gap - 1
            markup.elements.append(Element(tag.text, tags[other].text, gap, last, order, other, tuple(opened)))
            opened.append(order)
        else:
            opened.remove(other)
    return markup


def _split(line: str) -> Tuple[str, List[_Tag]]:
    """The text without its tags, and the tags."""
    parts: List[str] = []
    tags: List[_Tag] = []
    begin = length = 0
    for match in _TAG.finditer(line):
        parts.append(line[begin : match.start()])
        length += len(parts[-1])
        begin = match.end()
        kind = "end" if match["end"] else "empty" if match["empty"] else "start"
        tags.append(_Tag(match[0], match["end"] or match["start"], kind, length))
    return "".join([*parts, line[begin:]]), tags


def _partners(tags: List[_Tag]) -> Dict[int, int]:
    """The number of the other half of each tag that has one. An end tag ends the last open start tag of its name."""
    partner: Dict[int, int] = {}
    opened: Dict[str, List[int]] = {}
    for order, tag in enumerate(tags):
        if tag.kind == "start":
            opened.setdefault(tag.name, []).append(order)
        elif tag.kind == "end" and opened.get(tag.name):
            start = opened[tag.name].pop()
            partner[start], partner[order] = order, start
    return partner

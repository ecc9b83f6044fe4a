"""Carries inline tags from a source text over to its translation, along word links.

- An element is put around the target words that its source words are linked to. If these are several runs of words, the
  element is put around each run; a gap of words that have no link at all does not end a run.
- An element whose words are linked to nothing, an empty element and a lone tag stay, at the place of the nearest word
  that has a link: before the target words of a later source word, or after those of an earlier one. Words inside the
  elements around them come first.
- The result is properly nested. Where elements would cross, the one that began later is closed and opened again.

No tag is lost, and removing the tags gives the target text again.
"""

from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

from fairseq_rela.analysis.links import Links
from fairseq_rela.analysis.markup import Element, LoneTag, Markup

Run = Tuple[int, int]  # the first and the last word
Item = Union[Element, LoneTag]


class _Event(NamedTuple):
    """A start tag, an end tag or a lone tag that is put somewhere without being around words."""

    order: int  # of the tag in the source
    text: str
    element: Optional[Element]  # None for a lone tag
    begins: bool
    inside: Set[int]  # the orders of the elements that it should be inside of


def transferred(markup: Markup, target: Sequence[str], links: Links, whole: bool = False) -> str:
    """The target words with the tags of the source.

    Args:
        links: from source words to target words; all of them must exist
        whole: put an element once, around everything from its first to its last target word
    """
    linked = _Linked(markup, links)
    runs = {each.order: linked.runs(each, whole) for each in markup.elements}
    placed = _Placed(markup, runs)
    line = _Line(target)
    for element in markup.elements:
        for first, last in runs[element.order]:
            line.put(first, last, element)
    items: List[Item] = [*markup.alone, *(each for each in markup.elements if not runs[each.order])]
    for item in items:
        place = placed.outermost_empty(item) or item
        slot = linked.slot(place, placed.innermost(place), len(target))
        line.put_alone(slot, _events(item, {order for order in place.inside if runs[order]}))
    return line.text()


def _events(item: Item, inside: Set[int]) -> List[_Event]:
    if isinstance(item, LoneTag):
        return [_Event(item.order, item.text, None, True, inside)]
    return [
        _Event(item.order, item.start, item, True, inside),
        _Event(item.end_order, item.end, item, False, inside),
    ]


class _Placed:
    """Which elements have target words, and what is inside of them."""

    def __init__(self, markup: Markup, runs: Dict[int, List[Run]]) -> None:
        self._elements = {each.order: each for each in markup.elements}
        self._runs = runs

    def outermost_empty(self, item: Item) -> Optional[Element]:
        """The outermost element without target words that the item is inside of; the item goes where that one goes."""
        return next((self._elements[order] for order in item.inside if not self._runs[order]), None)

    def innermost(self, item: Item) -> Optional[Element]:
        """The innermost element with target words that the item is inside of."""
        return next((self._elements[order] for order in reversed(item.inside) if self._runs[order]), None)


class _Slot(NamedTuple):
    """A place beside a target word."""

    word: int
    after: bool


class _Linked:
    """The links of a sentence pair by source word, and the nearest linked source word."""

    def __init__(self, markup: Markup, links: Links) -> None:
        self._targets: Dict[int, List[int]] = {}
        for source, target in sorted(links):
            self._targets.setdefault(source, []).append(target)
        self._every = {target for _, target in links}
        words = len(markup.words)
        self._later = [words] * (words + 1)  # the first linked word from each word on
        self._earlier = [-1] * (words + 1)  # the last linked word before each word
        for word in reversed(range(words)):
            self._later[word] = word if word in self._targets else self._later[word + 1]
        for word in range(words):
            self._earlier[word + 1] = word if word in self._targets else self._earlier[word]
        self._words = words

    def runs(self, element: Element, whole: bool) -> List[Run]:
        """The runs of target words that an element is put around."""
        words = range(element.first, element.last + 1)
        runs: List[Run] = []
        for target in sorted({target for word in words for target in self._targets.get(word, ())}):
            if runs and (whole or not any(word in self._every for word in range(runs[-1][1] + 1, target))):
                runs[-1] = runs[-1][0], target
            else:
                runs.append((target, target))
        return runs

    def slot(self, item: Item, inside: Optional[Element], targets: int) -> Optional[_Slot]:
        """Where to put something that is around no target word; None if there is none at all."""
        first, after = (item.first, item.last + 1) if isinstance(item, Element) else (item.gap, item.gap)
        least, most = (inside.first, inside.last) if inside else (0, self._words - 1)
        earlier, later = self._earlier[min(first, most + 1)], self._later[max(after, least)]
        left = first - earlier if earlier >= least else None
        right = later - after + 1 if later <= most else None
        if left is not None and (right is None or left < right or (left == right and _follows(item))):
            return _Slot(max(self._targets[earlier]), after=True)
        if right is not None:
            return _Slot(min(self._targets[later]), after=False)
        if not targets:
            return None
        return _Slot(0, after=False) if first == 0 else _Slot(targets - 1, after=True)


def _follows(item: Item) -> bool:
    return isinstance(item, LoneTag) and item.follows


class _Line:
    """The target text with its tags."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._starts: Dict[int, List[Tuple[int, Element]]] = {}  # target word → (last word of the run, element)
        self._alone: Dict[Optional[_Slot], List[_Event]] = {}

    def put(self, first: int, last: int, element: Element) -> None:
        self._starts.setdefault(first, []).append((last, element))

    def put_alone(self, slot: Optional[_Slot], events: List[_Event]) -> None:
        self._alone.setdefault(slot, []).extend(events)

    def text(self) -> str:
        opened: List[Tuple[int, Element]] = []
        words = [self._before(i, opened) + word + self._after(i, opened) for i, word in enumerate(self._words)]
        return " ".join(words) if words else _nested(self._alone.get(None, []))

    def _before(self, word: int, opened: List[Tuple[int, Element]]) -> str:
        """The tags before a word. An element is opened after those that end later or began earlier in the source."""
        text, waiting = "", self._alone.get(_Slot(word, after=False), [])
        starting = sorted(self._starts.get(word, []), key=lambda run: (-run[0], run[1].order))
        for number, run in enumerate(starting):
            to_open = {element.order for _, element in starting[number:]}
            now = [event for event in waiting if not event.inside & to_open]
            waiting = [event for event in waiting if event.inside & to_open]
            text += _nested(now) + run[1].start
            opened.append(run)
        return text + _nested(waiting)

    def _after(self, word: int, opened: List[Tuple[int, Element]]) -> str:
        """The tags after a word. An element that is closed only because another one ends is opened at the next word."""
        text, waiting = "", self._alone.get(_Slot(word, after=True), [])
        while any(last == word for last, _ in opened):
            last, element = opened.pop()
            text += _nested([event for event in waiting if element.order in event.inside]) + element.end
            waiting = [event for event in waiting if element.order not in event.inside]
            if last > word:
                self.put(word + 1, last, element)
        return text + _nested(waiting)


def _nested(events: List[_Event]) -> str:
    """Tags that are around nothing, in the order of the source. Elements that cross are closed and opened again."""
    text = ""
    opened: List[Element] = []
    for event in sorted(events):
        if event.element is None:
            text += event.text
        elif event.begins:
            opened.append(event.element)
            text += event.text
        else:
            above = opened[opened.index(event.element) + 1 :]
            text += "".join(each.end for each in reversed(above)) + event.text + "".join(each.start for each in above)
            opened.remove(event.element)
    return text

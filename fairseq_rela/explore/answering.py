"""Answers requests of the live page one at a time: a bounded queue, and a time limit for each."""

import contextlib
import threading
import time
from typing import Any, Dict, Iterator, NamedTuple, Sequence

from fairseq_rela.errors import InputError

MOST_CHARACTERS = 5000  # of a sentence
MOST_TRANSLATIONS = 10


class Busy(InputError):
    """Too many requests wait already."""


class TooSlow(InputError):
    """The time limit of a sentence has passed."""


class Deadline:
    """The end of a turn."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._end = seconds, time.monotonic() + seconds

    def check(self) -> None:
        """TooSlow if it has passed."""
        if time.monotonic() > self._end:
            raise TooSlow(f"took more than {self._seconds:g} s; try a shorter sentence, or a larger --time-limit")


class Request(NamedTuple):
    """What a reader asks for."""

    text: str
    target: str  # empty: no target is forced
    nbest: int


def checked_request(value: Any) -> Request:
    """A request from JSON. InputError if it is anything else."""
    if not isinstance(value, dict) or not set(value) <= {"text", "target", "nbest"}:
        raise InputError("not a request: give text, target and nbest")
    text, target, nbest = value.get("text"), value.get("target", ""), value.get("nbest", 1)
    for name, each in {"text": text, "target": target}.items():
        if not isinstance(each, str):
            raise InputError(f"{name} is not text")
        if len(each) > MOST_CHARACTERS:
            raise InputError(f"{name} has {len(each)} characters; at most {MOST_CHARACTERS} are read")
    if not isinstance(nbest, int) or isinstance(nbest, bool) or not 1 <= nbest <= MOST_TRANSLATIONS:
        raise InputError(f"nbest is not a number from 1 to {MOST_TRANSLATIONS}")
    return Request(_whole(str(text)), _whole(target), nbest)


def _whole(text: str) -> str:
    """Text without halves of surrogate pairs, which no piece can have, and without control characters."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(char if char.isprintable() or char.isspace() else " " for char in whole)


class Queue:
    """Lets one thread work at a time. At most `waiting` others wait, each for at most `seconds`."""

    def __init__(self, waiting: int, seconds: float) -> None:
        self._most, self._seconds = waiting + 1, seconds
        self._inside = 0  # threads that work or wait
        self._counting, self._working = threading.Lock(), threading.Lock()

    def waiting(self) -> int:
        """How many wait now."""
        return max(self._inside - 1, 0)

    @contextlib.contextmanager
    def turn(self) -> Iterator[Deadline]:
        """Wait for the turn; gives its end. Busy if too many wait, or if the wait is too long."""
        with self._counting:
            if self._inside >= self._most:
                raise Busy("busy with other sentences; try again")
            self._inside += 1
        try:
            if not self._working.acquire(timeout=self._seconds):
                raise Busy(f"busy for {self._seconds:g} s with another sentence; try again")
            try:
                yield Deadline(self._seconds)
            finally:
                self._working.release()
        finally:
            with self._counting:
                self._inside -= 1


class Answering:
    """Asks every model, in the order in which the page shows them."""

    def __init__(self, translators: Sequence[Any], queue: Queue, hint: str = "") -> None:
        """`translators` have `answer(text, target, nbest, deadline)`; `hint` is told with every answer."""
        self._translators, self._queue, self._hint = translators, queue, hint

    def __call__(self, request: Request) -> Dict[str, Any]:
        """What the page needs for one sentence."""
        if not request.text.strip():
            raise InputError("the sentence is empty")
        with self._queue.turn() as deadline:
            started = time.perf_counter()
            answers = [each.answer(request.text, request.target, request.nbest, deadline) for each in self._translators]
            seconds = time.perf_counter() - started
        unknown = list(dict.fromkeys(piece for answer in answers for piece in answer.unknown))
        return {
            "models": [{"sentences": answer.sentences} for answer in answers],
            "note": " ".join([f"{seconds:.2f} s.", *_unknown_note(unknown), self._hint]).strip(),
        }


def _unknown_note(unknown: Sequence[str]) -> Sequence[str]:
    """What to tell about pieces that a model does not know."""
    if not unknown:
        return []
    named = ", ".join(piece[:30] for piece in unknown[:8]) + (", …" if len(unknown) > 8 else "")
    return [f"Not in the model's dictionary: {named}."]

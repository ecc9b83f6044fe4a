"""What identifies a sentence pair in a file of statistics, which does not have its text: a checksum of the text.

The same sentence has the same checksum as pieces ("▁un known", "un@@ known") and as words ("unknown"), because marks of
pieces and spaces do not count. Unicode is compared in the form NFKC, which sentencepiece writes by default.
"""

import unicodedata
import zlib
from typing import Iterable

CHECKSUM_BITS = 32
_MARKERS = frozenset(["<s>", "</s>", "<pad>"])
_BEGIN, _GOES_ON = "▁", "@@"


def pair_checksum(source: Iterable[str], target: Iterable[str]) -> int:
    """The checksum of a pair, from its pieces or its words; `</s>` does not count."""
    return zlib.crc32(f"{_words_of(source)}\t{_words_of(target)}".encode("utf-8", "surrogatepass"))


def _words_of(tokens: Iterable[str]) -> str:
    """The characters of a sentence without spaces and marks."""
    bare = (token[: -len(_GOES_ON)] if token.endswith(_GOES_ON) else token for token in tokens if token not in _MARKERS)
    text = "".join(bare)
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return "".join(text.replace(_BEGIN, "").split())

"""Subword pieces to words: which piece belongs to which word, and word weights from subword weights.

Three conventions of writing pieces are understood:
`@@ ` BPE ("un@@ known": `@@` says that the word goes on), sentencepiece ("▁un known": `▁` says that a word begins),
and none (every piece is a word). Byte-fallback pieces (`<0xE2>`) are read as the bytes they stand for.
"""

import re
from typing import Iterable, List, NamedTuple, Sequence

import numpy as np

from fairseq_rela.errors import InputError

RULES = ("bpe", "sentencepiece", "none")
MARKERS = frozenset(["<s>", "</s>", "<pad>"])  # pieces that do not belong to a word
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_BEGIN = "▁"
_GOES_ON = "@@"


class Words(NamedTuple):
    """The words of a sentence, and for each of its pieces the index of its word (-1 for `</s>` and other markers)."""

    text: List[str]
    of_piece: np.ndarray  # (pieces,) int


def merge_rule(sentences: Iterable[Sequence[str]]) -> str:
    """The convention that `sentences` (lists of pieces) are written in: one of `RULES`.

    `▁` at the start of a piece means sentencepiece: every sentence of it has one, and other text hardly ever does.
    """
    rule = "none"
    for pieces in sentences:
        if any(piece.startswith(_BEGIN) for piece in pieces):
            return "sentencepiece"
        if any(piece.endswith(_GOES_ON) for piece in pieces):
            rule = "bpe"
    return rule


def merged(pieces: Sequence[str], rule: str = "auto") -> Words:
    """The words that `pieces` spell by `rule`: one of `RULES`, or "auto" to detect it from these pieces alone.

    An unknown piece (`<unk>`) follows the rule like any other piece. In BPE it ends its word. In sentencepiece it
    belongs to the word before it, because a word that begins with an unknown character has a piece `▁` first.
    """
    if rule == "auto":
        rule = merge_rule([pieces])
    if rule not in RULES:
        raise InputError(f"unknown merge rule {rule!r}; there are: auto, {', '.join(RULES)}")
    begins = _begins_by_mark(pieces) if rule == "sentencepiece" else _begins_after_end(pieces, rule == "bpe")
    of_piece = np.full(len(pieces), -1, dtype=np.int64)
    spelled: List[List[str]] = []
    for index, piece in enumerate(pieces):
        if piece in MARKERS:
            continue
        if begins[index]:
            spelled.append([])
        of_piece[index] = len(spelled) - 1
        spelled[-1].append(_spelling(piece, rule))
    return Words([_text(parts) for parts in spelled], of_piece)


def _begins_after_end(pieces: Sequence[str], marked: bool) -> List[bool]:
    """Whether each piece begins a word, where `@@` at the end of a piece says that its word continues."""
    begins, goes_on = [], False
    for piece in pieces:
        begins.append(not goes_on)
        goes_on = marked and piece.endswith(_GOES_ON) and piece != _GOES_ON
    # A marker ends an unfinished word (of a truncated hypothesis), and the next piece begins a new word.
    for index, piece in enumerate(pieces[:-1]):
        if piece in MARKERS:
            begins[index + 1] = True
    return begins


def _begins_by_mark(pieces: Sequence[str]) -> List[bool]:
    """Whether each piece begins a word, marked by `▁`. A `▁` alone belongs to what follows, or to the last word."""
    begins, spelled_any, only_marks = [], False, False
    for index, piece in enumerate(pieces):
        if piece in MARKERS:
            begins.append(False)
            continue
        bare = not piece.strip(_BEGIN)
        more = any(later.strip(_BEGIN) and later not in MARKERS for later in pieces[index + 1 :]) if bare else True
        begin = (not spelled_any) or (piece.startswith(_BEGIN) and more and not only_marks)
        begins.append(begin)
        only_marks = bare and (begin or only_marks)
        spelled_any = True
    return begins


def _spelling(piece: str, rule: str) -> str:
    if rule == "sentencepiece":
        return piece.replace(_BEGIN, " ").strip() if piece.strip(_BEGIN) else ""
    if rule == "bpe" and piece.endswith(_GOES_ON) and piece != _GOES_ON:
        return piece[: -len(_GOES_ON)]
    return piece


def _text(parts: List[str]) -> str:
    """The joined pieces of a word. Byte pieces are decoded together, because a character can have several."""
    if not any(part.startswith("<0x") for part in parts):
        return "".join(parts)
    raw = b"".join(
        bytes([int(byte[1], 16)]) if byte else part.encode("utf-8", "surrogatepass")
        for part in parts
        for byte in [_BYTE.fullmatch(part)]
    )
    return raw.decode("utf-8", "replace")


def word_weights(weights: np.ndarray, source: Words, target: Words, eos: bool = False) -> np.ndarray:
    """Weights between words, (…, target words, source words), from those between pieces, (…, T, S).

    Summed over the pieces of the source word, averaged over those of the target word:
    W[j, i] = 1/|j| Σ_{t ∈ j} Σ_{s ∈ i} α[t, s]. With `eos`, a last column holds the weight on `</s>`.
    """
    return over_target(over_source(weights, source, eos), target)


def over_source(weights: np.ndarray, source: Words, eos: bool = False) -> np.ndarray:
    """(…, T, source words [+ 1]) from (…, T, S): summed over the pieces of each source word."""
    return weights.astype(np.float64) @ _membership(source.of_piece, len(source.text), eos).T


def over_target(weights: np.ndarray, target: Words) -> np.ndarray:
    """(…, target words, K) from (…, T, K): averaged over the pieces of each target word."""
    rows = _membership(target.of_piece, len(target.text), False)  # (words, T)
    return (rows / np.maximum(rows.sum(axis=1, keepdims=True), 1)) @ weights


def shifted(target: Words) -> Words:
    """The same words, read one row later: row t + 1 is the query whose input is token t ("shifted" alignment)."""
    return Words(target.text, np.concatenate([[-1], target.of_piece[:-1]]).astype(np.int64))


def _membership(of_piece: np.ndarray, words: int, eos: bool) -> np.ndarray:
    """(words [+ 1], pieces): 1 where the piece belongs to the word. With `eos` the last row is that of the markers."""
    inside = (np.arange(words)[:, None] == of_piece[None, :]).astype(np.float64)
    if eos:
        inside = np.concatenate([inside, (of_piece == -1).astype(np.float64)[None, :]])
    return inside

"""The sentences that a resumed run does not translate again, because an earlier run recorded them."""

import math
import os
from typing import Any, Dict, List, Sequence, Set, Tuple

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_rela.dump.reader import AttentionDump
from fairseq_rela.dump.statistics import PARTIAL, read_stats
from fairseq_rela.errors import InputError

Hypothesis = Dict[str, Any]  # as fairseq's generator gives it


def hypothesis(tokens: Tensor) -> Hypothesis:
    """A hypothesis (T,) whose scores are not known: they are NaN, and printed as `nan`."""
    scores = torch.full([tokens.numel()], math.nan)
    return {
        "tokens": tokens,
        "score": math.nan,
        "positional_scores": scores,
        "attention": None,
        "alignment": torch.empty(0),
    }


class RecordedHypotheses:
    """The hypotheses in a dump, as it was when this was opened."""

    def __init__(self, path: str, source: Dictionary, target: Dictionary) -> None:
        self._dump = AttentionDump(path)
        self._source, self._target = source, target

    def of(self, id: int, source: Tensor, count: int) -> List[Hypothesis]:
        """The best `count` hypotheses of a sentence that is in the dump; `source` (S,) is the model's input."""
        words = [self._source[token] for token in source.tolist() if token != self._source.pad()]
        hypotheses = []
        for rank in range(count):
            record = self._dump.find(id, rank)
            if record.source != words:
                raise InputError(
                    f"{self._dump.path}: sentence {id} is '{' '.join(record.source)}' there and "
                    f"'{' '.join(words)}' in this run; name another directory"
                )
            hypotheses.append(hypothesis(torch.tensor([self._target.index(token) for token in record.target])))
        return hypotheses


def pairs_in_statistics(path: str) -> Set[Tuple[int, int]]:
    """(id, rank) of every pair in a file of statistics, or in the FILE.partial of a killed run."""
    for file in (path, path + PARTIAL):
        if os.path.exists(file):
            return {(pair.id, pair.rank) for pair in read_stats(file)}
    return set()


def with_recorded(searched: Sequence[List[Hypothesis]], recorded: Sequence[List[Hypothesis]]) -> List[List[Hypothesis]]:
    """For each sentence the hypotheses of the search, or the recorded ones if these are different.

    They can differ if the search draws random numbers. The list in `recorded` is empty for a sentence that is not
    recorded.
    """
    chosen = []
    for new, old in zip(searched, recorded):
        same = all(torch.equal(one["tokens"].cpu(), other["tokens"]) for one, other in zip(new, old))
        chosen.append(new if same else old)
    return chosen

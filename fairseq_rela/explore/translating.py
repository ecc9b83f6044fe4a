"""Translates a sentence and records the attention of its translations, and of a target that a reader forces."""

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
import torch
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fairseq_rela.analysis.explorer import sentence_data
from fairseq_rela.analysis.words import merge_rule, merged
from fairseq_rela.errors import InputError
from fairseq_rela.explore.answering import Deadline
from fairseq_rela.explore.loading import LoadedModel
from fairseq_rela.explore.segmenting import Segmenter
from fairseq_rela.recording.recorder import record_attention


class _SearchWithin(BeamSearch):
    """Beam search that looks at a deadline in every step."""

    def __init__(self, dictionary: Any, deadline: Deadline) -> None:
        super().__init__(dictionary)
        self._deadline = deadline

    def step(self, *arguments: Any, **options: Any) -> Any:
        self._deadline.check()
        return super().step(*arguments, **options)


class Answer(NamedTuple):
    """Sentences for the explorer, and the pieces of the text that the model does not know."""

    sentences: List[Dict[str, Any]]
    unknown: List[str]


class Translator:
    """One model, as the explorer asks it."""

    def __init__(self, loaded: LoadedModel, segmenter: Segmenter, beam: int, longest: int) -> None:
        self.loaded, self._segmenter, self._beam = loaded, segmenter, beam
        self._longest = min(longest, *_positions(loaded.model))
        self._source_rule = merge_rule([loaded.source.symbols])
        self._target_rule = merge_rule([loaded.target.symbols])

    @property
    def hint(self) -> str:
        """What to tell a reader before anything goes wrong; often nothing."""
        return self._segmenter.hint(self.loaded.source.symbols)

    @torch.no_grad()
    def answer(self, text: str, target: str, nbest: int, deadline: Deadline) -> Answer:
        """Translations of `text`, best first, and last `target` if it is not empty. A language model reads `text`."""
        if self.loaded.is_language_model:
            tokens, unknown = self._tokens(text, self.loaded.target, "text")
            return Answer([self._recorded(tokens[:0], tokens, "text")], unknown)
        source, unknown = self._tokens(text, self.loaded.source, "sentence")
        forced, unknown_too = self._tokens(target, self.loaded.target, "target") if target.strip() else (None, [])
        found = []
        for rank, tokens in enumerate(self._search(source, nbest, deadline), 1):
            deadline.check()
            found.append(self._recorded(source, tokens, f"{rank}"))
        if forced is not None:
            found.append({**self._recorded(source, forced, "yours"), "forced": True})
        return Answer(found, unknown + unknown_too)

    def _tokens(self, text: str, dictionary: Any, what: str) -> Tuple[Tensor, List[str]]:
        """(tokens with </s>, pieces that are unknown). A marker such as <pad> that is typed is unknown."""
        pieces = self._segmenter.pieces(text)
        if not pieces:
            raise InputError(f"the {what} is empty")
        if len(pieces) >= self._longest:
            raise InputError(f"the {what} has {len(pieces)} tokens; at most {self._longest - 1} can be shown")
        indices = [dictionary.index(piece) for piece in pieces]
        known = [index if index >= dictionary.nspecial else dictionary.unk() for index in indices]
        unknown = [piece for piece, index in zip(pieces, known) if index == dictionary.unk()]
        return torch.tensor([*known, dictionary.eos()]), unknown

    def _search(self, source: Tensor, nbest: int, deadline: Deadline) -> List[Tensor]:
        target, beam = self.loaded.target, max(self._beam, nbest)
        search = _SearchWithin(target, deadline)
        longest = min(2 * len(source) + 20, self._longest - 1)
        generator = SequenceGenerator(
            [self.loaded.model], target, beam_size=beam, max_len_b=longest, search_strategy=search
        )
        sample = {"net_input": {"src_tokens": source[None], "src_lengths": torch.tensor([len(source)])}}
        return [hypothesis["tokens"] for hypothesis in generator.generate([self.loaded.model], sample)[0][:nbest]]

    def _recorded(self, source: Tensor, target: Tensor, label: str) -> Dict[str, Any]:
        """A sentence with the attention of one teacher-forced pass; `source` is empty for a language model."""
        model = self.loaded.model
        previous = torch.cat([torch.tensor([self.loaded.begin]), target[:-1]])[None]  # (1, T)
        inputs = {"src_tokens": previous}
        if len(source):
            inputs = {
                "src_tokens": source[None],
                "src_lengths": torch.tensor([len(source)]),
                "prev_output_tokens": previous,
            }
        with record_attention(model, norms=True) as recording:
            output = model(**inputs)
        scores = model.get_normalized_probs(output, True, None)[0].gather(1, target[:, None])  # (T, 1)
        weights = next(recording.sentences(inputs["src_tokens"], previous))
        norms = next(recording.sentence_norms(inputs["src_tokens"], previous))
        if not all(np.isfinite(each).all() for each in weights.values()):
            raise InputError("the model has weights that are infinite or not a number: its training has failed")
        source_pieces = _pieces(source, self.loaded.source)
        target_pieces = _pieces(target, self.loaded.target)
        source_words = merged(source_pieces, self._source_rule)
        target_words = merged(target_pieces, self._target_rule)
        return {
            "id": 0,
            "label": label,
            "score": float(scores.mean()),
            "begin": self.loaded.target[self.loaded.begin],
            "target_plain": self._segmenter.text(target_pieces),
            **sentence_data(source_pieces, target_pieces, source_words, target_words, weights, norms),
        }


def _pieces(tokens: Tensor, dictionary: Any) -> List[str]:
    return [dictionary[token] for token in tokens.tolist()]


def _positions(model: Any) -> Sequence[int]:
    """The most tokens that a model reads, of each side."""
    most = model.max_positions()
    return [int(each) for each in (most if isinstance(most, (tuple, list)) else [most])]

"""From the text that a reader types to a model's pieces, and back."""

from typing import Any, List, Optional, Sequence

from fairseq_rela.analysis.words import MARKERS, merge_rule, merged
from fairseq_rela.errors import InputError


class Segmenter:
    """Splits text by a sentencepiece model, or at spaces if there is none: then the reader types pieces."""

    def __init__(self, path: Optional[str] = None) -> None:
        self._model = _sentencepiece(path) if path else None

    def pieces(self, text: str) -> List[str]:
        return self._model.encode(text.strip(), out_type=str) if self._model else text.split()

    def text(self, pieces: Sequence[str]) -> str:
        """The text that `pieces` gives again if it is typed."""
        spelled = [piece for piece in pieces if piece not in MARKERS]
        if self._model is None:
            return " ".join(spelled)
        return " ".join(merged(spelled, "sentencepiece").text)

    def hint(self, symbols: Sequence[str]) -> str:
        """What to tell a reader whose dictionary has sentencepiece's pieces, but who gave no model for them."""
        if self._model or merge_rule([symbols]) != "sentencepiece":
            return ""
        return "This model reads sentencepiece's pieces (▁word). To type text, start with --sentencepiece-model."


def _sentencepiece(path: str) -> Any:
    import sentencepiece

    try:
        with open(path, "rb") as file:  # sentencepiece's own message does not say why
            content = file.read()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    try:
        model = sentencepiece.SentencePieceProcessor(model_proto=content)
        if content and model.get_piece_size():
            return model
    except Exception:  # it raises RuntimeError and others for damaged bytes
        pass
    raise InputError(f"{path}: not a sentencepiece model; give the file that ends in .model")

"""The data of the report's attention explorer: a few sentences, with weights rounded for display."""

import base64
import json
import zlib
from typing import Any, Dict, Iterable, List, Optional, Tuple

import numpy as np

from fairseq_rela.analysis.links import Gold
from fairseq_rela.analysis.metrics import Rates
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.dump.reader import Record
from fairseq_rela.dump.zeros import is_nonzero

LEVELS = 127


def levels(weights: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """(weights as int8, the largest |α| of each head (L, H)): α ≈ sign · top · (level / 127)².

    Only an exact zero has level 0. Levels follow the root of the weight, so that small weights stay distinct.
    """
    top = np.abs(weights).max(axis=(-2, -1)).astype(np.float64)  # (L, H)
    share = np.abs(weights) / np.where(top > 0, top, 1)[..., None, None]
    size = np.where(is_nonzero(weights), np.clip(np.rint(LEVELS * np.sqrt(share)), 1, LEVELS), 0)
    return (np.sign(weights) * size).astype(np.int8), top


def packed(weights: np.ndarray) -> Dict[str, Any]:
    """The weights of a kind, (L, H, T, S), in the form that the page's script unpacks."""
    level, top = levels(weights)
    text = base64.b64encode(zlib.compress(level.tobytes())).decode("ascii")
    return {"levels": text, "top": [float(f"{value:.6g}") for value in top.reshape(-1)]}


def explored_sentence(reader: DumpReader, record: Record, gold: Optional[Gold]) -> Dict[str, Any]:
    """A sentence with its words, gold links and weights."""
    source, target = reader.source_words(record), reader.target_words(record)
    return {
        "id": record.id,
        "source": list(record.source),
        "target": list(record.target),
        "source_words": source.of_piece.tolist(),
        "target_words": target.of_piece.tolist(),
        "source_text": source.text,
        "target_text": target.text,
        "gold": gold and {name: [f"{i}-{j}" for i, j in sorted(links)] for name, links in gold._asdict().items()},
        "kinds": {kind: packed(reader.weights(record, kind)) for kind in reader.info.kinds},
    }


def explored_model(name: str, reader: DumpReader, rates: Rates) -> Dict[str, Any]:
    """A model without sentences yet: its kinds of attention, and the rates of its heads over the corpus."""
    kinds = {
        kind: {
            "attention": info.attention,
            "layers": list(info.layers),
            "heads": info.heads,
            "null_rate_heads": rates.null_rate_heads[kind],
            "sparsity_heads": rates.sparsity_heads[kind],
        }
        for kind, info in reader.info.kinds.items()
    }
    return {"name": name, "kinds": kinds, "sentences": []}


def explorer_data(
    models: Iterable[Tuple[str, DumpReader, Rates]],
    golds: Optional[List[Gold]],
    sentences: int,
    most_bytes: int,
) -> Tuple[Dict[str, Any], int]:
    """(the data, the number of sentences per model): at most `sentences`, and as many as fit into `most_bytes`."""
    readers = [(reader, explored_model(name, reader, rates)) for name, reader, rates in models]
    size, count = len(embedded({"models": [model for _, model in readers]})), 0
    for index in range(min(sentences, max(len(reader) for reader, _ in readers))):
        added = []
        for reader, model in readers:
            if index < len(reader):
                record = reader[index]
                sentence = explored_sentence(reader, record, golds[record.id] if golds else None)
                size += len(embedded(sentence)) + 2
                added.append((model, sentence))
        if size > most_bytes:
            break
        for model, sentence in added:
            model["sentences"].append(sentence)
        count += 1
    return {"models": [model for _, model in readers if model["sentences"]]}, count


def embedded(value: Any) -> str:
    """JSON that is safe inside a script element: ASCII, without the characters that begin HTML tags or entities."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

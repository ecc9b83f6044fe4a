"""The data of the attention explorer: a few sentences, with weights rounded for display.

The explorer takes arrays and tokens, never a model. The report gives it sentences of a dump (`explorer_data`), the
live explorer what it has just recorded (`sentence_data`).
"""

import base64
import zlib
from typing import Any, Dict, Iterable, List, Optional, Tuple

import numpy as np

from fairseq_rela.analysis.links import Gold
from fairseq_rela.analysis.metrics import Rates
from fairseq_rela.analysis.page import embedded
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.analysis.telling import MEDIUM, Telling, linked_pieces, most_telling_head
from fairseq_rela.analysis.words import Words
from fairseq_rela.dump.info import KindInfo
from fairseq_rela.dump.reader import Record
from fairseq_rela.dump.zeros import is_nonzero, null_and_sparsity

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


def sentence_data(
    source: List[str],
    target: List[str],
    source_words: Words,
    target_words: Words,
    weights: Dict[str, np.ndarray],
    norms: Optional[Dict[str, np.ndarray]] = None,
) -> Dict[str, Any]:
    """A sentence with its words, its weights (kind → (L, H, T, S)) and their null and sparsity rate over all heads.

    `norms` are of the same form. The page offers them if every kind has them.
    """
    rates = {
        kind: [float(np.nan_to_num(rate.mean())) for rate in null_and_sparsity(weights[kind], kind)] for kind in weights
    }
    data = {
        "source": source,
        "target": target,
        "source_words": source_words.of_piece.tolist(),
        "target_words": target_words.of_piece.tolist(),
        "source_text": source_words.text,
        "target_text": target_words.text,
        "rates": rates,
        "kinds": {kind: packed(each) for kind, each in weights.items()},
    }
    if norms and set(norms) == set(weights):
        data["norms"] = {kind: packed(each) for kind, each in norms.items()}
    return data


def model_data(name: str, kinds: Dict[str, KindInfo]) -> Dict[str, Any]:
    """A model without sentences yet: its kinds of attention."""
    described = {
        kind: {"attention": info.attention, "layers": list(info.layers), "heads": info.heads}
        for kind, info in kinds.items()
    }
    return {"name": name, "kinds": described, "sentences": []}


def explored_sentence(reader: DumpReader, record: Record, gold: Optional[Gold]) -> Dict[str, Any]:
    """A sentence of a dump, with its gold links."""
    weights = {kind: reader.weights(record, kind) for kind in reader.info.kinds}
    norms = {kind: reader.weights(record, kind, "norms") for kind, info in reader.info.kinds.items() if info.norms}
    words = reader.source_words(record), reader.target_words(record)
    links = gold and {name: [f"{i}-{j}" for i, j in sorted(links)] for name, links in gold._asdict().items()}
    data = sentence_data(list(record.source), list(record.target), *words, weights, norms)
    return {"id": record.id, "gold": links, **data}


def explored_model(name: str, reader: DumpReader, rates: Rates) -> Dict[str, Any]:
    """The model of a dump without sentences yet, with the rates of its heads over the corpus."""
    model = model_data(name, reader.info.kinds)
    for kind, described in model["kinds"].items():
        described["null_rate_heads"] = rates.null_rate_heads[kind]
        described["sparsity_heads"] = rates.sparsity_heads[kind]
    return model


def explorer_data(
    models: Iterable[Tuple[str, DumpReader, Rates]],
    golds: Optional[List[Gold]],
    sentences: int,
    most_bytes: int,
) -> Tuple[Dict[str, Any], int]:
    """(the data, the number of sentences per model): at most `sentences`, and as many as fit into `most_bytes`.

    The explorer opens at `start`, the most telling of these sentences (see `telling`).
    """
    readers = [(reader, explored_model(name, reader, rates)) for name, reader, rates in models]
    size, count = len(embedded({"models": [model for _, model in readers]})), 0
    best: Optional[Tuple[Telling, Dict[str, Any]]] = None
    for index in range(min(sentences, max(len(reader) for reader, _ in readers))):
        added = []
        for number, (reader, model) in enumerate(readers):
            if index < len(reader):
                record = reader[index]
                gold = golds[record.id] if golds else None
                sentence = explored_sentence(reader, record, gold)
                size += len(embedded(sentence)) + 2
                added.append((number, model, sentence, telling(reader, record, gold)))
        if size > most_bytes:
            break
        for number, model, sentence, found in added:
            model["sentences"].append(sentence)
            if found and (best is None or found[:2] > best[0][:2]):
                place = {"kind": "cross", "layer": found.layer, "head": found.head}
                best = found, {"model": number, "sentence": index, **place}
        count += 1
    data: Dict[str, Any] = {"models": [model for _, model in readers if model["sentences"]]}
    return ({**data, "start": best[1]} if best else data), count


def telling(reader: DumpReader, record: Record, gold: Optional[Gold]) -> Optional[Telling]:
    """The most telling head in a sentence; None if it is short or long, or the model has no cross attention."""
    if "cross" not in reader.info.kinds or record.source_length not in MEDIUM or record.target_length not in MEDIUM:
        return None
    linked = linked_pieces(reader.source_words(record), reader.target_words(record), gold) if gold else None
    return most_telling_head(reader.weights(record, "cross"), linked)

"""One sentence of a dump as the arguments of BertViz's head view."""

from typing import Any, Dict, List

from fairseq_rela.dump.reader import Record
from fairseq_rela.errors import InputError

_EOS = "</s>"


def bertviz_view(record: Record, kinds: List[str], rows: str = "input") -> Dict[str, Any]:
    """Arguments of bertviz.head_view: KIND_attention, a nested list (L, 1, H, queries, keys), and the tokens."""
    by_kind = {kind: record.weights(kind) for kind in kinds}
    weights = {kind: array for kind, array in by_kind.items() if array is not None}
    if not weights:
        raise InputError(f"no {' or '.join(kinds)} attention in this dump")
    view: Dict[str, Any] = {f"{kind}_attention": array[:, None].tolist() for kind, array in weights.items()}
    view["encoder_tokens"] = record.source
    view["decoder_tokens"] = record.target if rows == "predicted" else [_EOS, *record.target[:-1]]
    layers = {len(array) for array in weights.values()}
    if len(layers) > 1:  # head_view uses the first kind's number for all, and fails if another has fewer
        view["include_layers"] = list(range(min(layers)))
    return view

"""The flag of top-k attention: how many scores of a row it keeps."""

from fairseq_rela.attention.activations import ACTIVATIONS, TOPK
from fairseq_rela.attention.catalog import CATALOG, attention
from fairseq_rela.errors import InputError

HELP = f"how many keys a query of the attention topk attends to (default: {TOPK})"


def kept_scores(args) -> int:
    """The value of the flag. The default if it is not given, as in checkpoints older than the flag."""
    k = getattr(args, "attn_topk", None)
    return TOPK if k is None else int(k)


def check_topk(args, *kinds: str) -> None:
    """InputError if the flag is given, but none of the attentions of these kinds uses it."""
    if getattr(args, "attn_topk", None) is None:
        return
    names = list(dict.fromkeys(str(getattr(args, f"{kind}_attn")) for kind in kinds))
    if not any(ACTIVATIONS[attention(name).activation].takes_k for name in names):
        keeping = [name for name, row in CATALOG.items() if ACTIVATIONS[row.activation].takes_k]
        raise InputError(
            f"--attn-topk: {', '.join(names)} does not use it; choose {', '.join(keeping)}, or leave it out"
        )

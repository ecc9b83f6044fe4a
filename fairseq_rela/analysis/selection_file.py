"""Reading `selection.json`, which `fairseq-rela filter --select` writes."""

import json
import math
from typing import Any, List

from fairseq_rela.analysis.filtering import Term
from fairseq_rela.errors import InputError

_MOST_CHARACTERS = 1_000_000


def read_terms(path: str) -> List[Term]:
    """The terms that were chosen. InputError unless each of their fields can be used."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.loads(file.read(_MOST_CHARACTERS))
        terms = [Term(**term) for term in content["terms"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: not written by filter --select ({str(error)[:80]})") from None
    if not terms:
        raise InputError(f"{path}: has no terms; filter --select writes at least one")
    for term in terms:
        wrong = _wrong_field(term)
        if wrong:
            value = repr(getattr(term, wrong))[:40]
            raise InputError(f"{path}: not written by filter --select ({wrong} of a term is {value})")
    return terms


def _wrong_field(term: Term) -> str:
    """The name of the first field that cannot be used; empty if all can."""
    rules = {
        "measure": term.measure in ("null", "mass"),
        "layer": term.layer is None or _is_index(term.layer),
        "head": term.head is None or (_is_index(term.head) and term.layer is not None),
        "sign": term.sign in (1, -1),
        "centre": _is_finite(term.centre),
        "scale": _is_finite(term.scale) and term.scale > 0,
    }
    return next((name for name, right in rules.items() if not right), "")


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf

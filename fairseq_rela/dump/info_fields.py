"""Checks what was read from `dump.json`, field by field, before anything is built from it."""

import json
from typing import Any, Callable, Dict, List, Tuple

MOST_LAYERS = 4096
MOST_HEADS = 1024
_DEEPEST = 20  # levels of brackets
_MOST_DIGITS = 30  # of a whole number


def parsed_json(text: str) -> Any:
    """The value of a JSON text. ValueError if it is nested too deeply, or has a number that is too long."""
    try:
        value = json.loads(text, parse_int=_whole_number)
    except RecursionError:
        raise ValueError(f"nested deeper than {_DEEPEST} levels") from None
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for each in level for inner in _inside(each)]
    if level:
        raise ValueError(f"nested deeper than {_DEEPEST} levels")
    # Half of a surrogate pair cannot be printed or written again. UnicodeEncodeError is a ValueError.
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def _whole_number(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _inside(value: Any) -> List[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_null(value: Any) -> bool:
    return value is None or isinstance(value, str)


Rule = Tuple[Callable[[Any], bool], str]  # (whether a value is right, what would be right)

# name of a field: its rule
KIND_FIELDS: Dict[str, Rule] = {
    "attention": (_is_text, "text"),
    "distribution": (lambda value: isinstance(value, bool), "true or false"),
    "heads": (lambda value: _is_int(value) and 1 <= value <= MOST_HEADS, f"a whole number from 1 to {MOST_HEADS}"),
    "layers": (lambda value: isinstance(value, list) and all(map(_is_int, value)), "a list of whole numbers"),
    "model_layers": (
        lambda value: _is_int(value) and 1 <= value <= MOST_LAYERS,
        f"a whole number from 1 to {MOST_LAYERS}",
    ),
}
OPTIONAL_KIND_FIELDS: Dict[str, Rule] = {
    "norms": (lambda value: isinstance(value, bool), "true or false"),
}
INFO_FIELDS: Dict[str, Rule] = {
    "model": (_is_text, "text"),
    "kinds": (lambda value: isinstance(value, dict), "an object with one entry per kind of attention"),
}
OPTIONAL_FIELDS: Dict[str, Rule] = {
    "checkpoint_sha256": (_is_text_or_null, "text or null"),
    "fairseq_version": (_is_text_or_null, "text or null"),
    "plugin_version": (_is_text, "text"),
    "options": (lambda value: isinstance(value, dict), "an object"),
}


def check_fields(fields: Dict[str, Any]) -> None:
    """ValueError that names the first wrong field of dump.json (without its format), and what would be right."""
    _check_each(fields, INFO_FIELDS, OPTIONAL_FIELDS, "")
    for kind, row in fields["kinds"].items():
        prefix = f"kinds.{kind}"
        if not isinstance(row, dict):
            raise ValueError(f"{prefix} is {_shown(row)}, not an object")
        _check_each(row, KIND_FIELDS, OPTIONAL_KIND_FIELDS, f"{prefix}.")
        layers: List[int] = row["layers"]
        if not layers or len(set(layers)) < len(layers) or min(layers) < 0 or max(layers) >= row["model_layers"]:
            raise ValueError(
                f"{prefix}.layers is {_shown(layers)}, not different numbers from 0 to {row['model_layers'] - 1}"
            )


def _check_each(values: Dict[str, Any], required: Dict[str, Rule], optional: Dict[str, Rule], prefix: str) -> None:
    for name in required:
        if name not in values:
            raise ValueError(f"{prefix}{name} is missing")
    rules = {**required, **optional}
    for name, value in values.items():
        if name not in rules:
            raise ValueError(f"{prefix}{name[:40]} is not a field that fairseq-rela knows")
        is_right, right = rules[name]
        if not is_right(value):
            raise ValueError(f"{prefix}{name} is {_shown(value)}, not {right}")


def _shown(value: Any) -> str:
    """The value as JSON, shortened."""
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:39] + "…"

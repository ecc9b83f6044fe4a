"""The live page, and a page to keep: the report's explorer with other parts around it."""

from typing import Any, Dict, List

from fairseq_rela.analysis.page import data_and_script, encoded, page, part
from fairseq_rela.explore.answering import MOST_CHARACTERS

_HEADING = '<h1 id="explorer-title">Attention explorer</h1>'


def live_page(models: List[Dict[str, Any]], language_model: bool) -> bytes:
    """The page that asks the server. `models` have no sentences yet."""
    data = {"models": models, "live": {"language_model": language_model, "most_characters": MOST_CHARACTERS}}
    return encoded(page(_title(models), [_HEADING, part("live.html"), *_explorer(data, True)], live=True))


def kept_page(models: List[Dict[str, Any]]) -> bytes:
    """A page that opens from a file, with the sentences that `models` have."""
    return encoded(page(_title(models), [_HEADING, *_explorer({"models": models}, False)]))


def _explorer(data: Dict[str, Any], live: bool) -> List[str]:
    return [part("explorer.html"), *data_and_script(data, live)]


def _title(models: List[Dict[str, Any]]) -> str:
    return f"Attention of {', '.join(model['name'] for model in models)}"

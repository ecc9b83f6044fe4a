"""A page with the attention explorer: its parts, and the policy that lets only its own script run.

The report and the live explorer are the same page with other parts around the explorer. The script is several files,
joined into one function, so that the policy can name it by one checksum.
"""

import base64
import hashlib
import html
import json
import os
from typing import Any, Dict, List, Sequence

_DIRECTORY = os.path.join(os.path.dirname(__file__), "report_page")
_SCRIPTS = ("weights", "matrix", "surfaces", "heat_map", "line_view", "head_map", "export", "explorer")


def part(name: str) -> str:
    """A file of the page."""
    with open(os.path.join(_DIRECTORY, name), encoding="utf-8") as file:
        return file.read()


def script(live: bool = False) -> str:
    """The page's script; `live` adds the form that asks the server."""
    names = (*_SCRIPTS, "live") if live else _SCRIPTS
    calls = "startLive();\nstart();\n" if live else "start();\n"
    return '"use strict";\n(function () {\n' + "\n".join(part(f"{name}.js") for name in names) + calls + "})();\n"


def policy(code: str, live: bool = False) -> str:
    """The content security policy: only this script runs, and nothing is fetched, except by a live page its answers."""
    digest = base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode("ascii")
    allowed = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"{allowed}; connect-src 'self'; form-action 'none'; base-uri 'none'" if live else allowed


def data_and_script(data: Dict[str, Any], live: bool = False) -> List[str]:
    """The explorer's data and its script: the end of a page's body. `explorer.html` must stand before them."""
    return [
        f'<script type="application/json" id="explorer-data">{embedded(data)}</script>',
        f"<script>{script(live)}</script>",
    ]


def page(title: str, body: Sequence[str], live: bool = False) -> str:
    """A whole page. `title` is text; the parts of `body` are HTML."""
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy(script(live), live)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',  # or a browser asks for one
            f"<title>{html.escape(title)}</title>",
            f"<style>{part('style.css')}</style></head><body{' class=live' if live else ''}>",
            *body,
            "</body></html>\n",
        ]
    )


def encoded(text: str) -> bytes:
    """A page as bytes. Broken text may contain half a surrogate pair, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace")


def embedded(value: Any) -> str:
    """JSON that is safe inside a script element: ASCII, without the characters that begin HTML tags or entities."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

"""The live explorer's server: Python's own, on the loopback address, for one page and one kind of question.

A page of another site must not be able to ask it. A request is refused unless its Host is this server (this stops DNS
rebinding), its Origin, if it has one, is that of this page, and its content is declared as JSON. A foreign page may not
declare that without permission, and this server gives none.
"""

import errno
import json
import re
import socketserver
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, Optional

from fairseq_rela.errors import InputError
from fairseq_rela.explore.answering import Busy, Request, TooSlow, checked_request

HOST = "127.0.0.1"
MOST_BYTES = 64 << 10  # of a request
_SECONDS_TO_SEND = 10  # for a client to send a request
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Refused(Exception):
    """A request that is not answered: an HTTP status and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ExplorerServer(ThreadingHTTPServer):
    """Serves `page`, and the answers of `answer` as JSON. Both are set after it is bound."""

    daemon_threads = True
    page: bytes = b""
    answer: Optional[Callable[[Request], Dict[str, Any]]] = None

    def __init__(self, port: int) -> None:
        try:
            super().__init__((HOST, port), _Handler)
        except OverflowError:
            raise InputError(f"--port {port}: not a port; give 1 to 65535, or 0 for any that is free") from None
        except OSError as error:
            reason = "in use by another program" if error.errno == errno.EADDRINUSE else error.strerror
            raise InputError(f"--port {port}: {reason}; give another, or 0 for any that is free") from None

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # http.server's own asks for the machine's name, which can be slow
        self.server_name, self.server_port = HOST, self.server_address[1]

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    def hosts(self) -> Dict[str, str]:
        """The names of this server: the value of Host → of Origin."""
        names = [f"{name}:{self.server_port}" for name in (HOST, "localhost")]
        names += [HOST, "localhost"] if self.server_port == 80 else []
        return {name: f"http://{name}" for name in names}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error. Anything else is one line."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(f"fairseq-rela explore: {type(error).__name__}: {error}", file=sys.stderr)


class _Handler(BaseHTTPRequestHandler):
    server: ExplorerServer
    server_version, sys_version = "fairseq-rela", ""
    timeout = _SECONDS_TO_SEND

    def do_GET(self) -> None:
        self._reply(self._page)

    def do_POST(self) -> None:
        self._reply(self._answer)

    def _reply(self, content: Callable[[], bytes]) -> None:
        kind, status = "application/json", 200
        try:
            self._check_host()
            if content == self._page:
                kind = "text/html; charset=utf-8"
            body = content()
        except Refused as error:
            status, body, kind = error.status, _json({"error": str(error)}), "application/json"
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), **_HEADERS}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _page(self) -> bytes:
        if self.path.split("?")[0] != "/":
            raise Refused(404, "there is only one page, /")
        return self.server.page

    def _answer(self) -> bytes:
        if self.path != "/attention":
            raise Refused(404, "questions go to /attention")
        self._check_origin()
        request = self._request()
        assert self.server.answer is not None
        try:
            return _json(self.server.answer(request))
        except (Busy, TooSlow) as error:
            raise Refused(503, str(error)) from None
        except InputError as error:
            raise Refused(400, str(error)) from None
        except Exception as error:  # a model can fail in many ways; the server goes on
            reason = (str(error).splitlines() or [""])[0][:200]
            raise Refused(500, f"the model failed: {type(error).__name__}: {reason}") from None

    def _request(self) -> Request:
        try:
            return checked_request(json.loads(self._body().decode("utf-8")))
        except InputError as error:
            raise Refused(400, str(error)) from None
        except (ValueError, RecursionError):
            raise Refused(400, "the request is not JSON") from None

    def _check_host(self) -> None:
        if (self.headers.get_all("Host") or [""]) not in [[name] for name in self.server.hosts()]:
            raise Refused(403, f"this server answers at {self.server.address} only")

    def _check_origin(self) -> None:
        origins, site = self.headers.get_all("Origin") or [], self.headers.get("Sec-Fetch-Site", "none")
        own = list(self.server.hosts().values())
        if any(origin not in own for origin in origins) or site not in ("same-origin", "none"):
            raise Refused(403, "only this server's own page may ask it")
        if self.headers.get_content_type() != "application/json":
            raise Refused(415, "a request is application/json")

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,9}", length) or self.headers.get("Transfer-Encoding"):
            raise Refused(411, "a request says its length")
        if int(length) > MOST_BYTES:
            raise Refused(413, f"a request has at most {MOST_BYTES} bytes")
        try:
            body = self.rfile.read(int(length))
        except OSError:  # also a timeout
            body = b""
        if len(body) < int(length):
            raise Refused(400, "the request is incomplete")
        return body

    def log_message(self, format: str, *arguments: Any) -> None:
        pass  # what a reader types is not logged


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode("ascii")

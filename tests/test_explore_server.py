"""The live explorer's server without a model: who may ask it, how much, how often, and what it says."""

import http.client
import json
import socket
import threading

import pytest
from waiting import until

from fairseq_rela.errors import InputError
from fairseq_rela.explore.answering import (
    MOST_CHARACTERS,
    Answering,
    Busy,
    Deadline,
    Queue,
    Request,
    TooSlow,
    checked_request,
)
from fairseq_rela.explore.pages import live_page
from fairseq_rela.explore.server import MOST_BYTES, ExplorerServer

JSON = {"Content-Type": "application/json"}


def echoed(request):
    """An answer that does what its text says."""
    if request.text == "bad":
        raise InputError("the sentence is bad")
    if request.text == "fail":
        raise RuntimeError("no such\nlayer")
    if request.text == "slow":
        raise TooSlow("took more than 1 s")
    return {"models": [], "note": f"{request.text}|{request.target}|{request.nbest}"}


@pytest.fixture(scope="module")
def server():
    serving = ExplorerServer(0)
    serving.page, serving.answer = b"<p>page</p>", echoed
    thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
    thread.start()
    yield serving
    serving.shutdown()
    thread.join()
    serving.server_close()


def ask(server, method="POST", path="/attention", body=b'{"text": "a"}', **headers):
    """(status, the answer's text, its headers). A header named with an underscore has a dash; None leaves it out."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    sent = {"Host": f"127.0.0.1:{server.server_port}", **(JSON if method == "POST" else {})}
    sent.update({name.replace("_", "-"): value for name, value in headers.items()})
    if body is not None and "Content-Length" not in sent:
        sent["Content-Length"] = str(len(body))
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in sent.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, answer.headers


def note(server, **request):
    status, text, _ = ask(server, body=json.dumps(request).encode())
    return status, json.loads(text).get("note") or json.loads(text)["error"]


def test_page_and_answer(server):
    status, text, headers = ask(server, "GET", "/", None)
    assert (status, text) == (200, "<p>page</p>")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["X-Frame-Options"] == "DENY" and headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers and "Python" not in headers["Server"]
    assert note(server, text="a b", target="c", nbest=3) == (200, "a b|c|3")
    assert note(server, text="a") == (200, "a||1")
    assert ask(server, "GET", "/?x=1", None)[0] == 200
    assert [ask(server, "GET", path, None)[0] for path in ("/attention", "/../x", "/x")] == [404] * 3
    assert ask(server, path="/")[0] == 404
    assert ask(server, "OPTIONS")[0] == 501 and ask(server, "PUT")[0] == 501


def test_only_loopback_listens(server):
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", None])
def test_another_host_is_refused(server, host):
    """A foreign name that points to this machine (DNS rebinding) reaches neither the page nor an answer."""
    host = host and host.format(port=server.server_port)
    for call in (("POST",), ("GET", "/", None)):
        status, text, _ = ask(server, *call, Host=host)
        assert status == 403 and "answers at http://127.0.0.1" in text and "page" not in text


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1", ""]
)
def test_another_origin_is_refused(server, origin):
    status, text, _ = ask(server, Origin=origin.format(port=server.server_port))
    assert status == 403 and "own page" in text


def test_own_names_are_accepted(server):
    for name in ("127.0.0.1", "localhost"):
        host = f"{name}:{server.server_port}"
        assert ask(server, Host=host, Origin=f"http://{host}", Sec_Fetch_Site="same-origin")[0] == 200
    assert ask(server, Sec_Fetch_Site="cross-site")[0] == 403


def test_a_form_of_another_page_cannot_ask(server):
    """Without asking for permission, a page may send these three types only."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None):
        assert ask(server, Content_Type=kind)[0] == 415


def test_sizes(server):
    assert ask(server, body=b"", Content_Length=str(MOST_BYTES + 1))[0] == 413
    assert ask(server, body=b"", Content_Length="9" * 30)[0] == 411
    assert ask(server, body=b"", Content_Length="-1")[0] == 411
    assert ask(server, body=None)[0] == 411
    assert ask(server, Transfer_Encoding="chunked")[0] == 411
    exact = json.dumps({"text": "ä" * MOST_CHARACTERS, "target": "ä" * MOST_CHARACTERS}).encode()
    assert len(exact) <= MOST_BYTES and ask(server, body=exact)[0] == 200
    status, said = note(server, text="a" * (MOST_CHARACTERS + 1))
    assert status == 400 and "5001 characters; at most 5000" in said


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[" * 60000, b"[]", b"{}", b'{"text": 3}', b'{"text": "a", "more": 1}']
    + [b'{"text": "a", "nbest": %s}' % value for value in (b"0", b"11", b"true", b"1.5", b'"3"', b"null")],
)  # fmt: skip
def test_what_is_not_a_request(server, body):
    status, text, _ = ask(server, body=body)
    assert status == 400 and json.loads(text)["error"]


def test_errors_of_a_model_are_one_line_each(server):
    assert note(server, text="bad") == (400, "the sentence is bad")
    assert note(server, text="fail") == (500, "the model failed: RuntimeError: no such")
    assert note(server, text="slow") == (503, "took more than 1 s")
    assert note(server, text="fine")[0] == 200  # it goes on


def test_a_client_that_goes_away_does_no_harm(server, capfd):
    with socket.create_connection(("127.0.0.1", server.server_port)) as client:
        client.sendall(b"POST /attention HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % server.server_port)
        client.sendall(b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    assert note(server, text="fine")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_port_in_use_is_one_line(server):
    with pytest.raises(InputError, match=f"^--port {server.server_port}: in use by another program; give another"):
        ExplorerServer(server.server_port)
    for port in (70000, -1):
        with pytest.raises(InputError, match=f"^--port {port}: not a port"):
            ExplorerServer(port)


def test_text_is_made_whole():
    assert checked_request({"text": "a\ud800b\x00c\x1bd\n"}) == Request("a?b c d\n", "", 1)


def test_one_at_a_time_with_a_bounded_queue():
    """One works, two wait, and the fourth is refused. Nobody works beside another."""
    queue, working, release = Queue(waiting=2, seconds=600), threading.Event(), threading.Event()
    inside, most, done = [], [], []

    def work(number):
        with queue.turn():
            inside.append(number)
            most.append(len(inside))
            working.set()
            release.wait(600)
            inside.remove(number)
            done.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    threads[0].start()
    assert working.wait(600)
    for thread in threads[1:]:
        thread.start()
    until(lambda: queue.waiting() == 2)
    with pytest.raises(Busy, match="busy with other sentences"), queue.turn():
        pass
    release.set()
    for thread in threads:
        thread.join(600)
    assert sorted(done) == [0, 1, 2] and max(most) == 1
    with queue.turn():
        pass


def test_waiting_has_a_limit():
    queue = Queue(waiting=1, seconds=0.01)
    with queue.turn(), pytest.raises(Busy, match=r"busy for 0\.01 s with another sentence"), queue.turn():
        pass


def test_a_deadline():
    Deadline(600).check()
    with pytest.raises(TooSlow, match="took more than -1 s"):
        Deadline(-1).check()


class Known:
    """A translator that knows two words."""

    def answer(self, text, target, nbest, deadline):
        deadline.check()
        unknown = [word for word in (text + " " + target).split() if word not in ("a", "b")]
        return type("Answer", (), {"sentences": [text, target, nbest], "unknown": unknown})


def test_answers_of_all_models_and_what_they_do_not_know():
    answering = Answering([Known(), Known()], Queue(1, 600), "A hint.")
    answer = answering(Request("a x b", "y", 2))
    assert answer["models"] == [{"sentences": ["a x b", "y", 2]}] * 2
    assert answer["note"].endswith(" s. Not in the model's dictionary: x, y. A hint.")
    assert "Not in" not in answering(Request("a", "", 1))["note"]
    with pytest.raises(InputError, match="the sentence is empty"):
        answering(Request(" \n", "", 1))


def test_the_page_fetches_nothing_from_elsewhere():
    page = live_page([{"name": "</script><b>", "kinds": {}, "sentences": []}], False).decode()
    assert "http:" not in page and "https:" not in page and "</script><b>" not in page
    assert "connect-src 'self'" in page and "default-src 'none'" in page
    assert "innerHTML" not in page and "outerHTML" not in page and "document.write" not in page

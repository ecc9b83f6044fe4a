"""The live explorer in headless Chromium, with real models: type, translate, click, force a target, compare, save."""

import threading
import xml.etree.ElementTree as ElementTree

import pytest
from browser_pages import choose, complaints, downloaded, drawings, open_anew, point, text, value, wait
from explore_samples import HOSTILE, write_checkpoint, write_data
from waiting import HANGS, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """serve(arch, …): the address of an explorer of these models, newly initialised."""
    from fairseq_rela.analysis.explorer import model_data
    from fairseq_rela.explore.answering import Answering, Queue
    from fairseq_rela.explore.loading import load_model
    from fairseq_rela.explore.pages import live_page
    from fairseq_rela.explore.segmenting import Segmenter
    from fairseq_rela.explore.server import ExplorerServer
    from fairseq_rela.explore.translating import Translator

    folder = tmp_path_factory.mktemp("explore")
    data = write_data(folder / "data")
    started = []

    def serve(*archs):
        paths = [str(write_checkpoint(folder / f"{arch}.pt", data, arch)) for arch in archs]
        loaded = [load_model(arch, path, str(data)) for arch, path in zip(archs, paths)]
        server = ExplorerServer(0)
        models = [model_data(each.name, each.kinds) for each in loaded]
        server.page = live_page(models, loaded[0].is_language_model)
        server.answer = Answering([Translator(each, Segmenter(), 5, 30) for each in loaded], Queue(4, HANGS))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        started.append((server, thread))
        return server.address

    yield serve
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def address(serve):
    return serve("transformer_rela_g", "transformer")


@pytest.fixture
def page(browser, address):
    open_anew(browser, address)
    return browser


def idle(page):
    """Until the server has answered and the page shows it."""
    until(lambda: page.find_element("id", "live").get_attribute("aria-busy") == "false")


def translate(page, sentence):
    from selenium.webdriver.common.keys import Keys

    page.find_element("id", "text").clear()
    page.find_element("id", "text").send_keys(sentence, Keys.ENTER)
    idle(page)


def force(page, target):
    page.find_element("id", "target").clear()
    page.find_element("id", "target").send_keys(target)
    page.find_element("id", "force").click()
    idle(page)


def labels(page):
    return [label.text for label in page.find_elements("css selector", ".hypothesis .label")]


def test_type_translate_and_click_heads(page):
    assert not page.find_element("id", "explorer").is_displayed()
    translate(page, "w3 w1 w4")
    assert labels(page) == ["1", "2", "3"] * 2  # of each model
    assert text(page, "live-note").endswith(" s.")
    assert text(page, "status").startswith(
        "transformer_rela_g, translation 1: cross, layer 1, mean of heads (rela_g): "
    )
    assert text(page, "status2").startswith(
        "transformer, translation 1: cross, layer 1, mean of heads (softmax): 0% of weights exactly 0"
    )
    assert page.find_elements("css selector", ".hypothesis .rates")[3].text == "null 0%  zeros 0%"
    hints = [page.find_element("id", name).is_displayed() for name in ("gold-legend", "future-legend")]
    assert hints == [False, False]
    assert len(page.find_elements("css selector", "#head-maps .head-cell")) == 8  # two maps of two by two heads
    drawn = drawings(page)
    page.find_element("css selector", "#head-maps .head-cell[data-layer='0'][data-head='1']").click()
    wait(page, drawn + 1)
    assert "cross, layer 0, head 1" in text(page, "status") and "cross, layer 0, head 1" in text(page, "status2")
    chosen = page.find_elements("css selector", "#head-maps .head-cell.chosen")
    assert [cell.get_attribute("data-head") for cell in chosen] == ["1", "1"]
    assert "largest weight" in text(page, "status") and "largest weight" in text(page, "status2")
    drawn = drawings(page)
    page.find_element("id", "norms").click()
    wait(page, drawn + 1)
    assert "largest norm" in text(page, "status") and "largest norm" in text(page, "status2")
    choose(page, kind="encoder", view="lines")
    assert "encoder, layer 0, head 1" in text(page, "status")
    point(page, 80, 17)
    assert text(page, "readout").replace("\u2068", "").startswith("w3")
    drawn = drawings(page)
    page.find_elements("css selector", ".hypothesis .chooser")[2].click()  # the third of the first model
    wait(page, drawn + 1)
    assert value(page, "sentence") == "2"
    assert complaints(page) == []


def test_force_a_target_and_see_it_beside_the_own_translation(page):
    translate(page, "w3 w1 w4")
    force(page, "w5 w6 w7 w8")
    assert labels(page) == ["1", "2", "3", "yours"] * 2
    assert text(page, "target-note").startswith("Both models read your target")
    assert value(page, "sentence") == "3" and "w5" in text(page, "target-text")
    assert text(page, "status").startswith("transformer_rela_g, your target: ")
    choose(page, beside="0:0")
    assert text(page, "status2").startswith("transformer_rela_g, translation 1: ")
    assert "of 5 rows null" in text(page, "status")
    # the own translation, edited
    page.find_elements("css selector", ".edit")[0].click()
    own = value(page, "target")
    assert own
    force(page, own + " w9")
    assert text(page, "target-text").replace("\u2068", "").replace("\u2069", "") == own + " w9"
    translate(page, "w3")  # a new sentence has no forced target
    assert labels(page) == ["1", "2", "3"] * 2 and value(page, "sentence") == "0"


def test_pictures_and_a_link(page, tmp_path):
    translate(page, "w3 w1")
    force(page, "w5")
    choose(page, kind="decoder", layer=0, head=0, view="lines")
    root = ElementTree.fromstring(downloaded(page, tmp_path, "save-svg"))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "w5" in texts and "transformer_rela_g: decoder, layer 0, head 0" in texts
    assert downloaded(page, tmp_path, "save-png").startswith(b"\x89PNG")
    link = page.find_element("id", "link").get_attribute("href")
    assert "text=w3+w1" in link and "target=w5" in link
    open_anew(page, link)
    until(lambda: "yours" in labels(page) and value(page, "view") == "lines" and drawings(page))
    idle(page)
    shown = [value(page, name) for name in ("text", "target", "kind", "layer", "head", "view", "sentence")]
    assert shown == ["w3 w1", "w5", "decoder", "0", "0", "lines", "3"]


def test_hostile_text_stays_text(page, tmp_path):
    hostile = [*HOSTILE, "x" * 300, "<b>new</b>"]
    translate(page, " ".join(hostile))
    force(page, " ".join(hostile))
    shown = text(page, "target-text")
    assert "<script>alert(1)</script>" in shown and "שלום" in shown and "onerror=alert(1)>" in shown
    assert "<b>new</b>" in text(page, "live-note")
    assert len(page.find_elements("css selector", "script")) == 2
    assert page.find_elements("css selector", "body img, #live b, #explorer .panel b") == []
    ElementTree.fromstring(downloaded(page, tmp_path, "save-svg"))
    assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert complaints(page) == []


def test_what_is_wrong_is_said(page):
    translate(page, "w1 " * 40)
    assert text(page, "live-note") == "the sentence has 40 tokens; at most 29 can be shown"
    assert "error" in page.find_element("id", "live-note").get_attribute("class")
    page.find_element("id", "text").clear()
    page.find_element("id", "translate").click()
    assert text(page, "live-note") == "Type a sentence first."
    translate(page, "w1")
    assert "error" not in page.find_element("id", "live-note").get_attribute("class")
    assert len(complaints(page)) == 1  # the refused request; this empties the log, too


def test_a_language_model(browser, serve):
    open_anew(browser, serve("transformer_lm_rela_g"))
    assert not browser.find_element("id", "target").is_displayed()
    translate(browser, "w3 w1")
    assert labels(browser) == ["text"]
    assert text(browser, "status").startswith("decoder, layer 1, mean of heads (rela_g): ")
    assert browser.find_element("id", "future-legend").is_displayed()
    assert not browser.find_element("id", "source-line").is_displayed()
    assert not browser.find_element("id", "panel2").is_displayed()
    assert complaints(browser) == []

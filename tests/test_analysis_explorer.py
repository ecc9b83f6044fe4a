"""The attention explorer in headless Chromium: it opens from a file, its controls work, hostile words do no harm."""

import numpy as np
import pytest
from analysis_samples import SENTENCES, random_weights, write_dump
from browser_pages import choose, complaints, downloaded, drawings, open_anew, point, press, text, value, wait

from fairseq_rela.analysis.nulls import null_rate
from fairseq_rela.analysis.sparsity import sparsity_rate
from fairseq_rela.cli import main
from fairseq_rela.dump.zeros import visible_positions
from fairseq_rela.recording.dump import AttentionDump

pytestmark = pytest.mark.slow

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"',
    "'",
    "שלום",
    "مرحبا",
    "😀",
    "x" * 300,
    "</s>",
]
GOLD = "0-0 1p1\n\n0-0\n\n\n"


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    sentences = [*SENTENCES, (HOSTILE, HOSTILE)]
    draw = np.random.RandomState(5)
    cross = [random_weights((2, 3, len(t), len(s)), "cross", "rela_g", draw) for s, t in sentences]
    first = np.zeros(cross[0].shape[2:])  # sentence 0, layer 1, head 0: a large, a small, a negative weight, a null row
    first[0] = [9, 0.001, 0, 0]
    first[1] = [0, -3, 0, 0]
    first[3] = [0, 0, 0, 1]
    cross[0][1, 0] = first
    return write_dump(tmp_path_factory.mktemp("explorer") / "dump", sentences, cross=cross)


@pytest.fixture(scope="module")
def opened(browser, dump, tmp_path_factory):
    """The report, opened; its address."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "gold").write_text(GOLD)
    options = ["--out", str(folder / "out"), "--gold", str(folder / "gold"), "--no-figures"]
    other = write_dump(folder / "other", [*SENTENCES, (HOSTILE, HOSTILE)], attention="softmax")
    assert main(["analyze", f"<b>rela</b>={dump}", f"other={other}", *options]) == 0
    return (folder / "out" / "report.html").as_uri()


@pytest.fixture
def page(browser, opened):
    """The report, at its first sentence and the last layer's mean."""
    open_anew(browser, opened + "#model=0&sentence=0&layer=1&head=-1")
    wait(browser, 1)
    return browser


def pixel(page, row, column, dx=0.5, dy=0.5):
    """The colour on the map at a place within a cell. Cells are found as the page lays them out: from the corner."""
    return page.execute_script(
        """const [row, column, dx, dy, rows, columns] = arguments, map = document.getElementById("map");
        const ratio = window.devicePixelRatio || 1, cell = 30;
        const x = map.width / ratio - 2 - (columns - column - dx) * cell;
        const y = map.height / ratio - 2 - (rows - row - dy) * cell;
        return Array.from(map.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data).slice(0, 3);""",
        *(row, column, dx, dy, len(SENTENCES[0][1]), len(SENTENCES[0][0])),
    )


def test_opens_without_a_complaint(page):
    assert complaints(page) == []
    assert text(page, "status").startswith("cross, layer 1, mean of heads (rela_g): ")
    assert text(page, "source-text").replace("\u2068", "").replace("\u2069", "") == "ab c"
    assert len(page.find_elements("css selector", "#overview .head")) == 6
    assert page.find_element("id", "gold-legend").is_displayed()


def test_controls_choose_what_is_shown(page):
    choose(page, sentence=1, kind="decoder", layer=0, head=2)
    assert "decoder, layer 0, head 2" in text(page, "status")
    assert "of 4 rows null" in text(page, "status")
    choose(page, kind="encoder")
    assert "encoder, layer 0, head 2" in text(page, "status") and "of 2 rows null" in text(page, "status")


def test_keyboard(page):
    from selenium.webdriver.common.keys import Keys

    press(page, [Keys.ARROW_RIGHT, Keys.ARROW_DOWN, ".", "."])
    assert [value(page, name) for name in ("sentence", "layer", "head")] == ["1", "0", "1"]
    press(page, [Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_UP, Keys.ARROW_UP, ","])
    assert [value(page, name) for name in ("sentence", "layer", "head")] == ["0", "1", "0"]
    press(page, ["m", "k"])
    assert (value(page, "head"), value(page, "kind")) == ("-1", "encoder")


def test_clicking_a_head_shows_it(page):
    drawn = drawings(page)
    page.find_element("css selector", "#overview .head[data-layer='0'][data-head='1']").click()
    wait(page, drawn + 1)
    assert "layer 0, head 1" in text(page, "status")
    assert [tile.get_attribute("data-head") for tile in page.find_elements("css selector", ".head.chosen")] == ["1"]


def test_colours_tell_zero_small_null_and_negative_apart(page):
    choose(page, layer=1, head=0)
    assert text(page, "status").endswith("1 of 4 rows null, largest weight 9.00")
    large, small, zero = (pixel(page, 0, column) for column in (0, 1, 2))
    assert zero == [255, 255, 255]
    assert max(abs(a - b) for a, b in zip(small, zero)) > 40  # a small weight is clearly no zero
    assert sum(large) < 250
    negative = pixel(page, 1, 1)
    assert negative[0] > negative[2] + 60
    null = {tuple(pixel(page, 2, 1, pixels / 30)) for pixels in range(3, 15)}
    assert (255, 255, 255) not in null and len(null) > 1  # hatched all over


def test_gold_links_are_framed_and_can_be_hidden(page):
    choose(page, layer=1, head=0)
    framed = pixel(page, 0, 0, dy=2 / 30)
    assert framed[1] > framed[0] + 80
    press(page, ["g"])
    assert pixel(page, 0, 0, dy=2 / 30) != framed


def test_whole_words_are_summed_and_averaged(page):
    choose(page, layer=1, head=0)
    press(page, ["w"])
    # source ab = a@@ + b; target yz = mean of y@@ and z: x gives 9.001 to ab
    assert text(page, "status").endswith("0 of 3 rows null, largest weight 9.00")


def test_pointing_reads_a_cell_a_row_and_a_column(page):
    choose(page, layer=1, head=0)
    size = page.find_element("id", "map").size
    left, above = size["width"] - 2 - 4 * 30, size["height"] - 2 - 4 * 30
    for row, column, said in (
        (0, 0, "≈ 9.0 (gold: sure)"),
        (0, 3, "exactly 0"),
        (2, 1, "null row"),
        (0, None, "x attends to a@@ 9.0, b 0.00056 (2 of 4 exactly 0)"),
        (2, None, "z attends to nothing (null row) (4 of 4 exactly 0)"),
        (None, 1, "b is attended by y@@ -3.0, x 0.00056 (2 of 4 exactly 0)"),
        (None, 2, "c is attended by nothing (4 of 4 exactly 0)"),
    ):
        x, y = (
            left - 30 if column is None else left + 30 * column + 15,
            above - 20 if row is None else above + 30 * row + 15,
        )
        point(page, x, y)
        assert said in bare(text(page, "readout"))


def bare(text):
    """Text without the marks that isolate its words."""
    return text.replace("\u2068", "").replace("\u2069", "")


def test_lines_between_words(page):
    """Lines leave where weights are, and nowhere else; pointing at a word says what it attends to."""
    choose(page, layer=1, head=0, view="lines")
    press(page, ["g"])  # gold links are lines, too
    canvas = page.find_element("id", "map")
    inked = """const map = document.getElementById("map"), ratio = window.devicePixelRatio || 1;
        const left = arguments[0], y = arguments[1];
        const pixels = map.getContext("2d").getImageData(left * ratio, (y - 9) * ratio, 12 * ratio, 18 * ratio).data;
        let found = 0; for (let i = 3; i < pixels.length; i += 4) found += pixels[i] > 0; return found;"""
    left = 60 + 40 + 4  # where lines begin, beside labels that are short
    rows = [bool(page.execute_script(inked, left, 6 + 22 * row + 11)) for row in range(4)]
    assert rows == [True, True, False, True]  # row 2 is null
    point(page, 80, 6 + 11)
    assert bare(text(page, "readout")).startswith("x attends to a@@ 9.0, b 0.00056")
    point(page, 80, 6 + 2 * 22 + 11)
    assert "z attends to nothing" in bare(text(page, "readout"))
    point(page, canvas.size["width"] - 60, 6 + 22 + 11)
    assert "b is attended by y@@" in bare(text(page, "readout"))


def test_two_models_side_by_side(page):
    assert not page.find_element("id", "map2").is_displayed()
    choose(page, layer=1, head=0, beside="1:same")
    assert page.find_element("id", "map2").is_displayed()
    assert text(page, "status").startswith("<b>rela</b>: cross, layer 1, head 0 (rela_g)")
    assert text(page, "status2").startswith("other: cross, layer 1, head 0 (softmax): 0% of weights exactly 0, 0 of 4")


def test_pictures_are_saved(page, tmp_path):
    import struct
    import xml.etree.ElementTree as ElementTree

    choose(page, sentence=4, layer=1, head=0, beside="1:same")
    for view, shape in (("map", "rect"), ("lines", "path")):
        choose(page, view=view)
        root = ElementTree.fromstring(downloaded(page, tmp_path, "save-svg"))
        texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        assert "<b>rela</b>: cross, layer 1, head 0" in texts and "other: cross, layer 1, head 0" in texts
        assert "שלום" in texts and "<script>alert(1)</scr…" in texts
        assert list(root.iter(f"{{http://www.w3.org/2000/svg}}{shape}"))
        assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
        png = downloaded(page, tmp_path, "save-png")
        width, height = struct.unpack(">II", png[16:24])
        assert png.startswith(b"\x89PNG") and (width, height) == (
            3 * int(root.get("width")),
            3 * int(root.get("height")),
        )


def test_a_link_opens_the_same_view(page, opened):
    choose(page, sentence=2, kind="decoder", layer=0, head=1, view="lines")
    address = page.find_element("id", "link").get_attribute("href")
    assert address.startswith(opened + "#")
    open_anew(page, address)
    wait(page, 1)
    assert [value(page, name) for name in ("sentence", "kind", "layer", "head", "view")] == [
        "2",
        "decoder",
        "0",
        "1",
        "lines",
    ]
    open_anew(page, opened + "#sentence=999&kind=constructor&layer=x&head=99999999&view=<b>&beside=7:same")
    wait(page, 1)
    assert [value(page, name) for name in ("kind", "view", "beside")] == ["cross", "map", ""]


def test_it_opens_with_a_summary_and_a_telling_sentence(page, opened):
    open_anew(page, opened)
    wait(page, 1)
    assert value(page, "sentence") == "4"  # the only one of medium length
    assert value(page, "model") == "0"  # the one with null rows
    summary = text(page, "summary")
    assert "cross: weights that are 0" in summary and "word alignment: error rate of the best layer" in summary
    top = page.execute_script("return document.getElementById('explorer').getBoundingClientRect().top + window.scrollY")
    assert top < 600
    assert not any(table.is_displayed() for table in page.find_elements("css selector", "details table"))
    assert page.find_elements("css selector", "details.tables")


def test_overview_rates_are_the_metrics_own(page, dump):
    for kind in ("cross", "decoder"):
        choose(page, kind=kind)
        weights = AttentionDump(dump)[0].weights(kind)
        visible = visible_positions(kind, *weights.shape[2:])
        for name, rates in (("null", null_rate(weights, visible)), ("zero", sparsity_rate(weights, visible))):
            tiles = page.find_elements("css selector", "#overview .head")
            shown = [float(tile.get_attribute(f"data-{name}")) for tile in tiles]
            assert shown == pytest.approx(rates.reshape(-1).tolist())


def test_hostile_words_do_no_harm(page):
    choose(page, sentence=4)
    shown = text(page, "target-text")
    assert "<script>alert(1)</script>" in shown and "<img src=x onerror=alert(1)>" in shown and "שלום" in shown
    assert len(page.find_elements("css selector", "script")) == 2
    assert page.find_elements("css selector", "body img, #explorer b b") == []
    assert "<b>rela</b>" in page.find_element("id", "model").text
    # an alert would have made every call above fail; 300 letters do not push the page wide
    wide = page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert wide
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_an_injected_script_would_not_run(page):
    page.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.harmed = 1'; document.body.append(s);"
    )
    assert page.execute_script("return window.harmed") is None
    assert "Content Security Policy" in str(page.get_log("browser"))

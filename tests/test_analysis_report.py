"""What is embedded in the report: levels that keep zeros, text that cannot become markup, and a limited size."""

import base64
import json
import re
import zlib
from html.parser import HTMLParser

import numpy as np
import unhurried  # noqa: F401
from analysis_samples import SENTENCES, write_dump
from hypothesis import given
from hypothesis import strategies as st

from fairseq_rela.analysis import report_file
from fairseq_rela.analysis.explorer import LEVELS, levels, packed
from fairseq_rela.analysis.metrics import ModelMetrics, Rates, RunMetrics
from fairseq_rela.analysis.page import embedded
from fairseq_rela.analysis.report import report_html
from fairseq_rela.analysis.telling import most_telling_head
from fairseq_rela.cli import main

HOSTILE = [
    "<script>alert(1)</script>",
    "</script>",
    "<!--",
    "]]>",
    '"',
    "'",
    "&lt;",
    "\u2028",
    "שלום",
    "😀",
    "x" * 300,
    "\ud800",
]


def test_levels_hand_computed():
    weights = np.array([[[[4.0, 1.0, 0.0, -4.0, 1e-30]]]])
    level, top = levels(weights)
    assert top.tolist() == [[4]]
    assert level.reshape(-1).tolist() == [127, 64, 0, -127, 1]  # by the root; the least that is not 0 is 1
    assert levels(np.zeros((1, 1, 2, 2)))[0].tolist() == [[[[0, 0], [0, 0]]]]


@given(st.integers(0, 999))
def test_levels_keep_zeros_and_signs_and_are_near(seed):
    draw = np.random.RandomState(seed)
    weights = (draw.randn(2, 2, 3, 4) * 10.0 ** draw.randint(-6, 4, (2, 2, 3, 4))).astype(np.float32)
    weights[draw.rand(*weights.shape) < 0.4] = 0
    level, top = levels(weights)
    assert ((level == 0) == (weights == 0)).all()
    assert (np.sign(level) == np.sign(weights)).all()
    shown = np.sign(level) * top[..., None, None] * (level / LEVELS) ** 2
    assert (np.abs(shown - weights) <= top[..., None, None] / LEVELS).all()
    stored = packed(weights)
    unpacked = np.frombuffer(zlib.decompress(base64.b64decode(stored["levels"])), dtype=np.int8)
    assert (unpacked.reshape(level.shape) == level).all()


@given(st.text())
def test_embedded_json_has_nothing_that_html_could_read(text):
    made = embedded([text, *HOSTILE])
    assert json.loads(made) == [text, *HOSTILE]
    assert not re.search(r"[<>&]", made) and made.isascii()


class Tags(HTMLParser):
    """Counts the elements of a page, and notes attributes that would run or fetch something."""

    def __init__(self):
        super().__init__()
        self.count, self.harm = {}, []

    def handle_starttag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1
        for name, value in attributes:
            if name.startswith("on") or (name in ("src", "href") and not (value or "").startswith(("data:", "#"))):
                self.harm.append((tag, name, value))


def test_hostile_names_and_words_stay_text(tmp_path):
    sentences = [([*HOSTILE, "</s>"], [*HOSTILE, "</s>"])] * 6
    dump = write_dump(tmp_path / "dump", sentences)
    name = "<script>alert('x')</script><img onerror>"
    assert main(["analyze", f"{name}={dump}", "--out", str(tmp_path / "out"), "--no-figures"]) == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(page)
    assert tags.count["script"] == 2 and "img" not in tags.count
    assert tags.harm == []
    assert "http:" not in page and "https:" not in page


def test_report_is_kept_under_its_size(tmp_path, monkeypatch):
    dump = write_dump(tmp_path / "dump", SENTENCES * 10, layers=4, heads=8)
    options = ["--out", str(tmp_path / "out"), "--no-figures"]
    assert main(["analyze", dump, *options]) == 0
    whole = (tmp_path / "out" / "report.html").stat().st_size
    monkeypatch.setattr(report_file, "MOST_BYTES", whole - 20_000)
    assert main(["analyze", dump, *options]) == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert len(page) < whole - 20_000
    count = int(re.search(r"(\d+) of 40 sentences are here", page)[1])
    assert 0 < count < 40
    data = json.loads(re.search(r'id="explorer-data">(.*?)</script>', page)[1])
    assert len(data["models"][0]["sentences"]) == count


def test_sentences_asked_for(tmp_path):
    dump = write_dump(tmp_path / "dump")
    for asked, there in ((2, 2), (50, 4), (0, 0)):
        options = ["--out", str(tmp_path / "out"), "--no-figures", "--sentences", str(asked)]
        assert main(["analyze", dump, *options]) == 0
        page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
        match = re.search(r'id="explorer-data">(.*?)</script>', page)
        assert (len(json.loads(match[1])["models"][0]["sentences"]) if match else 0) == there


def test_the_most_telling_head_hand_computed():
    never_null = [[1, 0], [0, 1], [1, 0], [1, 0]]
    one_null = [[1, 0], [0, 1], [0, 0], [0.5, 1.5]]
    mostly_null = [[1, 0], [0, 0], [0, 0], [0, 0]]
    weights = np.array([[never_null, one_null, mostly_null]], dtype=np.float32)
    linked = np.array([[1, 0], [0, 1], [0, 0], [1, 0]], dtype=bool)
    # rows 0 and 1 are on their links, row 2 is null and has no link, row 3 misses
    assert most_telling_head(weights, linked) == (True, 0.75, 0, 1)
    assert most_telling_head(weights[:, :1], linked) == (False, 0.75, 0, 0)
    # without links: how much of its row the largest weight has, 1, 1, 0 and 0.75
    assert most_telling_head(weights) == (True, 0.6875, 0, 1)
    assert most_telling_head(weights, np.zeros((4, 2), dtype=bool)) == (True, 0.6875, 0, 1)


def test_the_explorer_opens_at_a_sentence_of_medium_length_with_nulls(tmp_path):
    long = (["a"] * 9 + ["</s>"], ["x"] * 9 + ["</s>"])
    sentences = [SENTENCES[0], long, long, (["a"] * 40, ["x"] * 40)]
    cross = np.ones((2, 1, 1, 10, 10), dtype=np.float32)
    cross[1, 0, 0, 3] = 0  # only the second of them has a null row
    given = [np.ones((1, 1, 4, 4)), cross[0], cross[1], np.zeros((1, 1, 40, 40))]
    dump = write_dump(tmp_path / "dump", sentences, layers=1, heads=1, cross=given)
    assert main(["analyze", f"m={dump}", "--out", str(tmp_path / "out"), "--no-figures"]) == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="explorer-data">(.*?)</script>', page)[1])
    assert data["start"] == {"model": 0, "sentence": 2, "kind": "cross", "layer": 0, "head": 0}
    # the summary: 10 + 1600 of the 16 + 100 + 100 + 1600 cross weights are 0, and 1 + 40 of the 64 rows are null
    assert f"{100 * 1610 / 1816:.1f} %" in page and f"{100 * 41 / 64:.1f} %" in page


def test_policy_names_the_script_that_is_there():
    import hashlib

    rates = Rates({}, {}, {}, {}, {}, {}, diversity_tau={"cross": {"1": [0.5]}})
    run = RunMetrics(model="m", attention={}, sentences=1, layers={}, dump="d", rates=rates)
    page = report_html({"m": ModelMetrics([run], rates)}, "s", [], {"models": [1]})
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
